"""`python -m bench.truth`: asking filters for every value of their own chunks, beside hashing those values alone; and
re-wrapping many small files.

Processor time, the least of a few runs. Filters are of 2 MiB, so that a core's cache hardly holds one.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import bloomseal as bs
from bloomseal.format.hashes.chunk_hashes import pieces
from bloomseal.format.hashes.truth import Truth, held_against_values
from bloomseal.rotation import Rewrap, rotate
from bloomseal.write import convert

KEY, NEW = b"0123456789012345", b"1234567890123450"
READER = bs.DecryptionSpec(bs.ExplicitKeys(KEY))


def least(work: Callable[[], object], runs: int = 5) -> float:
    """Seconds of processor time."""
    times = []
    for _ in range(runs):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def asked(folder: Path, values: int) -> None:
    """Values asked a second, beside hashing them; and how much longer rekeying takes."""
    noise = np.random.default_rng(1)
    numbers = pa.array(noise.integers(0, 1 << 62, values))
    columns = {"int64": numbers, "strings": pa.array([f"{number:016x}" for number in numbers.to_pylist()])}
    path = folder / "t.parquet"
    for name, column in columns.items():
        for codec in ("none", "snappy", "zstd"):
            options = {"compression": codec, "use_dictionary": False, "row_group_size": 1 << 20}
            ratios = []
            for beside in (9, 0):
                table = pa.table({"c": column} | {f"other{number}": numbers for number in range(beside)})
                spec = bs.EncryptionSpec(KEY)
                bs.write_table(table, path, encryption=spec, bloom_filters={"c": True}, **options)
                ratios.append(slower(path, folder))
            answering, hashing = answered(path)
            print(
                f"{name}, {codec}: {values / answering / 1e6:.0f} million values asked a second, "
                f"{hashing / answering:.2f} of the rate of hashing alone; rekey of this column alone takes "
                f"{ratios[1]:.2f} times as long as without the check, with nine others that have no filter {ratios[0]:.2f}"
            )


def answered(path: Path) -> tuple[float, float]:
    """Seconds to ask the filters of the first column, and to hash its values."""
    with bs.open_file(path, decryption=READER) as file:
        walk, groups = file.walk, range(file.num_row_groups)
        filters = [walk.stored_filter(walk.chunk(group, 0)) for group in groups]

        def ask() -> None:
            for group, found in zip(groups, filters, strict=True):
                assert found is not None
                assert held_against_values(walk, walk.chunk(group, 0), found).wrong is None

        leaf = walk.footer.schema.leaves[0]
        return least(ask), least(lambda: [pieces(walk, group, leaf) for group in groups])


def slower(path: Path, folder: Path) -> float:
    """How many times as long a rekey takes with the check."""

    def rekey() -> None:
        bs.rekey(path, folder / "out.parquet", decryption=READER, encryption=bs.EncryptionSpec(NEW))

    checked, real = least(rekey, 3), convert.held_against_values
    convert.held_against_values = lambda *_: Truth()
    try:
        return checked / least(rekey, 3)
    finally:
        convert.held_against_values = real


def rewrapped(folder: Path, files: int) -> None:
    """Files with key material beside them, under one KEK for each master key."""
    ring = bs.Keyring(folder / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    table = folder / "table"
    table.mkdir()
    spec = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=bs.KeyTools(ring, internal=False))
    rows = pa.table({"ssn": [str(number) for number in range(100)], "n": list(range(100))})
    bs.write_table(rows, table / "0.parquet", encryption=spec, bloom_filters={"ssn": True})
    for number in range(1, files):
        for pattern in ("{}.parquet", "_KEY_MATERIAL_FOR_{}.parquet.json"):
            shutil.copy(table / pattern.format(0), table / pattern.format(number))
    for jobs in (1, 2, 4, 8):
        ring.rotate("footer")
        ring.rotate("pii")
        wall, processor = time.perf_counter(), time.process_time()
        report = rotate(
            table, Rewrap(bs.DecryptionSpec(bs.KeyTools(ring))), journal=folder / f"{jobs}.jsonl", jobs=jobs
        )
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        assert report.counts == {"rewrapped": files}, report.counts
        print(
            f"rewrap, --jobs {jobs}: {files / wall:.0f} files a second, {files / processor:.0f} a second of processor time, "
            f"{report.kms['wraps']:.0f} calls to wrap"
        )


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--folder", help="where the files are made (default: the system's place for temporary files)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        asked(Path(folder), arguments.values)
        rewrapped(Path(folder), arguments.files)


if __name__ == "__main__":
    main()
