"""Rows of altered ORC files, decoded in children: `python tests/fuzz/orc_rows.py [FILES [FIRST SEED]]`.

Nothing authenticates these bytes, and pyarrow's decoder is C++. Files of two writers, plain and encrypted, in all
compressions, with both run-length encodings, have bytes of data streams, stripe footers, indexes or tails altered; each
hundred files are read in a process of their own. Prints how they ended, and which bytes were altered where a process
died. `--no-jvm` leaves the Java library out, but for an encrypted file of its that is kept.
"""

from __future__ import annotations

import io
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.orc

sys.path.append(str(Path(__file__).parents[1]))

import bloomseal as bs
from bloomseal import DecryptionSpec
from bloomseal.core.errors import BloomsealError
from bloomseal.keytools import MasterKeys
from bloomseal.orc.rows import clear
from bloomseal.orc.streams import Stream, StreamKind
from bloomseal.read.orc.file import OrcFile
from orc.generated import columns
from support.jvm import JavaUnavailableError
from support.orc_java import java_orc_write, memory_keys

KEY = bytes(range(16))
KEPT = Path(__file__).parents[1] / "vectors" / "orc" / "encrypted.orc"
KEYS = MasterKeys({"pii": [KEY, bytes(range(16, 32))], "wide": bytes(range(32))})
SPEC = DecryptionSpec(keys=KEYS, allow_ctr=True, allow_plaintext=True)
SCHEMA = "struct<id:bigint,name:string,num:int,few:string,s:struct<a:int,b:string>>"
ROWS = [[i, f"name{i}" if i % 7 else None, 10 * i, f"few{i % 5}", [i % 3, f"in{i}"]] for i in range(3_000)]
BATCH, SECONDS, MEMORY = 100, 20, 4 << 30
COMPRESSIONS = ("NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD")
clear._WORTH_CUTTING = 0
TROUBLE = (b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\x00", b"\x8e\x13\x2b\xff", b"\xc1\xff\xff\xff\x07\xff", b"\x7f\xff")


class Sample:
    """A sound file, and where its parts lie."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data

    @cached_property
    def parts(self) -> list[tuple[str, int, int, str | None]]:
        """Name, offset, length, and the column that is read for it; data streams five times."""
        found: list[tuple[str, int, int, str | None]] = []
        with bs.open_file(self.data, decryption=SPEC) as file:
            for stripe in file.stripes:
                for one in file.index(stripe.index).streams:
                    if one.length:
                        found += [self._part(file, one)] * (1 if one.is_index else 5)
                start = stripe.offset + stripe.index_length + stripe.data_length
                found += [(f"stripe footer of {self.name}", start, stripe.footer_length, None)] * 5
            end = file.tail.metadata[0]
        return [*found, *[(f"tail of {self.name}", end, len(self.data) - end, None)] * 10]

    def _part(self, file: OrcFile, stream: Stream) -> tuple[str, int, int, str | None]:
        column = file.schema.columns[stream.column]
        top = column.name.split(".")[0]
        name = f"{StreamKind(stream.kind).name} of {column.type_name} in {self.name}"
        return name, stream.offset, stream.length, None if stream.is_index else top or None

    def altered(self, chance: random.Random) -> tuple[bytes, str, str | None]:
        name, offset, length, column = chance.choice(self.parts)
        bad = bytearray(self.data)
        for _ in range(chance.choice([1, 1, 2, 8, 64])):
            place = offset + chance.randrange(length if chance.random() < 0.6 else min(12, length))
            if chance.random() < 0.2:
                trouble = chance.choice(TROUBLE)[: offset + length - place]
                bad[place : place + len(trouble)] = trouble
            else:
                bad[place] ^= chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)])
        return bytes(bad), name, column


def plain_samples(rows: int = 2_000) -> Iterator[Sample]:
    """Files of the C++ writer, with a column of each type that it takes."""
    table = columns(rows).append_column("id", pa.array(range(rows)))
    few = [f"few{i % 5}" for i in range(rows)]
    table = table.append_column("few", pa.array(few))
    table = table.append_column("texts", pa.array([few[i : i + i % 4] or None for i in range(rows)]))
    pairs = [[(f"k{j}", j) for j in range(i % 3)] if i % 5 else None for i in range(rows)]
    table = table.append_column("map", pa.array(pairs, pa.map_(pa.string(), pa.int64())))
    for compression in COMPRESSIONS:
        for version in ("0.11", "0.12"):
            for dictionary in (0.0, 1.0):
                sink = io.BytesIO()
                options = {"file_version": version, "dictionary_key_size_threshold": dictionary, "batch_size": 100}
                kind = compression.lower().replace("none", "uncompressed")
                pyarrow.orc.write_table(table, sink, compression=kind, row_index_stride=300, **options)
                yield Sample(f"{compression} {version} {dictionary}", sink.getvalue())


def java_samples() -> Iterator[Sample]:
    """Encrypted files of the Java library; none without a JVM."""
    with tempfile.TemporaryDirectory() as folder:
        for compression in COMPRESSIONS:
            path = Path(folder) / f"{compression}.orc"
            options = {"encrypt": "pii:name,few,num,s", "compression": compression}
            try:
                java_orc_write(path, SCHEMA, ROWS, memory_keys(("pii", 0, KEY)), **options)
            except JavaUnavailableError:
                return
            yield Sample(f"{compression} encrypted", path.read_bytes())


def read(data: bytes, column: str | None) -> None:
    """All rows of a column as tables read them, without one of all columns; and those of two row groups, which are cut
    out of the streams.
    """
    with bs.open_file(data, decryption=SPEC) as file:
        known = [column] if column is not None and file.has(column) else None
        file.read(known)
        if "id" in file.columns:
            for number in (7, 1_507):
                file.read(known, where=[("id", "==", number)])


def outcome(data: bytes, column: str | None) -> str:
    """How reading ends."""
    try:
        read(data, column)
    except BloomsealError as error:
        return type(error).__name__
    return "read"


def run(samples: Sequence[Sample], seeds: range, counts: Counter[str]) -> int:
    """Read in a child. Returns the seed to go on with."""

    def altered(seed: int) -> tuple[bytes, str, str | None]:
        chance = random.Random(seed)
        return chance.choice(samples).altered(chance)

    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for seed in seeds:
            signal.alarm(SECONDS)
            data, _, column = altered(seed)
            try:
                ended = outcome(data, column)
            except Exception as error:
                ended = f"foreign:{type(error).__name__}:seed={seed}"
            os.write(writer, f"{ended}\n".encode())
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
    counts[f"{how}: {altered(died)[1]}, seed {died}"] += 1
    return died + 1


def _numbers() -> tuple[int, int]:
    given = [int(one) for one in sys.argv[1:] if not one.startswith("--")]
    return given[0] if given else 1_000, given[1] if given[1:] else 0


def main() -> None:
    files, first = _numbers()
    samples = [*plain_samples(), Sample("kept, encrypted", KEPT.read_bytes())]
    samples += [] if "--no-jvm" in sys.argv else java_samples()
    for sample in samples:
        read(sample.data, None)
    counts: Counter[str] = Counter()
    seed = first
    while seed < first + files:
        seed = run(samples, range(seed, min(first + files, seed + BATCH)), counts)
    for ended, count in sorted(counts.items()):
        print(count, ended)


if __name__ == "__main__":
    main()
