"""Rows of encrypted ORC columns with flipped bytes, decoded by pyarrow: `python tests/fuzz/orc_rows.py [FILES]`.

Nothing authenticates these bytes, and pyarrow's decoder is C++: each hundred files are decoded in a process of their
own. Prints how each ended, and the streams that were altered where a process died.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from bloomseal import DecryptionSpec, orc
from bloomseal.errors import BloomsealError
from bloomseal.keytools import MasterKeys
from bloomseal.orc.streams import Stream, StreamKind
from support.orc_java import java_orc_write, memory_keys

KEY = bytes(range(16))
SPEC = DecryptionSpec(keys=MasterKeys({"pii": KEY}), allow_ctr=True)
SCHEMA = "struct<id:bigint,name:string,num:int,few:string>"
ROWS = [[i, f"name{i}" if i % 7 else None, 10 * i, f"few{i % 5}"] for i in range(5_000)]
BATCH, SECONDS, MEMORY = 100, 20, 4 << 30


def altered(data: bytes, seed: int) -> tuple[bytes, Stream]:
    """One to 64 bytes of an encrypted data stream flipped."""
    chance, bad = random.Random(seed), bytearray(data)
    with orc.open_file(data, decryption=SPEC) as file:
        streams = [one for stripe in file.stripes for one in file.index(stripe.index).streams]
    stream = chance.choice([one for one in streams if one.variant is not None and not one.is_index and one.length])
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        place = chance.randrange(stream.length if chance.random() < 0.6 else min(12, stream.length))
        bad[stream.offset + place] ^= chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)])
    return bytes(bad), stream


def outcome(data: bytes) -> str:
    """How reading all rows ends."""
    try:
        with orc.open_file(data, decryption=SPEC) as file:
            for stripe in file.stripes:
                file.rows(stripe.index, file.columns)
    except BloomsealError as error:
        return type(error).__name__
    return "read"


def run(data: bytes, seeds: range, counts: Counter[str]) -> int:
    """Decode in a child. Returns the seed to go on with."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for seed in seeds:
            signal.alarm(SECONDS)
            os.write(writer, f"{outcome(altered(data, seed)[0])}\n".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        ends = told.read().split()
    _, status = os.waitpid(child, 0)
    counts.update(ends)
    if len(ends) == len(seeds):
        return seeds.stop
    died = seeds[len(ends)]
    how = (
        signal.Signals(os.WTERMSIG(status)).name
        if os.WIFSIGNALED(status)
        else f"exit {os.waitstatus_to_exitcode(status)}"
    )
    counts[f"{how}, {StreamKind(altered(data, died)[1].kind).name} stream altered"] += 1
    return died + 1


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        for compression in ("NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"):
            path = Path(folder) / f"{compression}.orc"
            options = {"encrypt": "pii:name,few,num", "compression": compression}
            java_orc_write(path, SCHEMA, ROWS, memory_keys(("pii", 0, KEY)), **options)
            counts: Counter[str] = Counter()
            seed = 0
            while seed < files:
                seed = run(path.read_bytes(), range(seed, min(files, seed + BATCH)), counts)
            print(compression, dict(counts), flush=True)


if __name__ == "__main__":
    main()
