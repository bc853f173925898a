"""Look-ups with and without a sealed index, in one run, as ratios of processor time, of cold ones also by the clock:
``python -m bench.sealed_index [files] [look|large|rates|compact|growth …]``; without words the first three.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bloomseal as bs

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
ENCRYPTION: Final = bs.EncryptionSpec(**KEYS)
DECRYPTION: Final = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
ROWS = 5_000
_COLD: Final = """
import sys, bloomseal as bs
keys = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
table = bs.open_table(sys.argv[1], decryption=bs.DecryptionSpec(bs.ExplicitKeys(**keys)), use_index=sys.argv[2])
table.read(where=[("ssn", "==", sys.argv[3])])
"""
_FLOOR: Final = """
import numpy, pyarrow.parquet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
"""
"""What whoever reads an encrypted Parquet file loads."""


def least(work: Callable[[], object], times: int = 5) -> float:
    """The least processor time, in seconds."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def write(root: Path, numbers: range, files: int) -> pa.Table:
    """Files of five row groups with 1,000 rows each, in no order. Returns the last one's rows."""
    for number in numbers:
        ids = [(7919 * i + number) % (ROWS * files) for i in range(number * ROWS, (number + 1) * ROWS)]
        rows = pa.table({"ssn": [f"{one:09d}" for one in ids], "n": range(ROWS)})
        place = root / f"{number}.parquet"
        bs.write_table(rows, place, encryption=ENCRYPTION, row_group_size=1_000, bloom_filters=["ssn"])
    return rows


def opened(root: Path, use_index: Any) -> bs.SealedTable:
    return bs.open_table(root, decryption=DECRYPTION, use_index=use_index)


def timed(root: Path, value: str) -> tuple[float, float]:
    """Seconds of a look-up with and without the index, tables open."""
    tables = [opened(root, how) for how in ("require", "never")]
    quick, slow = (least(lambda t=one: t.read(where=[("ssn", "==", value)])) for one in tables)  # type: ignore[misc]
    return quick, slow


def cold(*script: str) -> tuple[float, float]:
    """Seconds of a process that does this, by processors and by the clock: Python, and its arguments."""
    spent, clocks = [], []
    with tempfile.TemporaryDirectory() as kept:
        # Modules are compiled once, by the first process, as those of an installed package are.
        home = {**os.environ, "PYTHONPYCACHEPREFIX": kept}
        home.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(4):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([sys.executable, "-c", *script], check=True, env=home)
            clocks.append(time.perf_counter() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent), min(clocks)


def look(files: int) -> None:
    """Many small files: a running process, and a cold one."""
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        rows = write(root, range(files), files)
        began = time.process_time()
        report = opened(root, "auto").index("ssn", encryption=ENCRYPTION).build()
        hashed = report.entries / (time.process_time() - began)
        facts = opened(root, "auto").index("ssn").show()
        for what, value in (("absent", "x"), ("present", rows.column("ssn")[17].as_py())):
            quick, slow = timed(root, value)
            print(f"{what}: 1/{slow / quick:.0f} of the time without an index; {1e3 * quick:.1f} ms for {files} files")
            with_it, without = (cold(_COLD, str(root), how, value) for how in ("require", "never"))
            for of, quick, slow, least_of in zip(
                ("processor", "the clock"), with_it, without, cold(_FLOOR), strict=True
            ):
                print(f"{what}, cold, by {of}: 1/{slow / quick:.1f}: {1e3 * quick:.0f} ms; {1e3 * least_of:.0f} ms of "
                      f"that for Python with numpy, pyarrow.parquet and cryptography, without which it were "
                      f"1/{(slow - least_of) / (quick - least_of):.1f}")  # fmt: skip
        table = opened(root, "require")
        keys = [f"{one:09d}" for one in range(0, ROWS * files, max(ROWS * files // 100_000, 1))]
        began = time.process_time()
        table.maybe_present("ssn", pa.array([f"{key}x" for key in keys]))
        print(f"{len(keys)} values that are nowhere: {time.process_time() - began:.1f} s")
        bits = 8 * facts.bytes / facts.entries
        print(f"{facts.entries} entries, {bits:.1f} bits each; {hashed:.3g} values hashed a second")


def large() -> None:
    """One file of 10 row groups with 200,000 rows each, beside DuckDB on the plaintext file."""
    import duckdb

    draw = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as home:
        root, plain = Path(home) / "t", Path(home) / "plain.parquet"
        rows = pa.table({"ssn": [f"{one:012d}" for one in draw.integers(0, 10**12, 2_000_000)], "n": range(2_000_000)})
        root.mkdir()
        options: dict[str, Any] = {"row_group_size": 200_000, "bloom_filters": ["ssn"]}
        bs.write_table(rows, root / "0.parquet", encryption=ENCRYPTION, **options)
        bs.write_table(rows, plain, **options)
        opened(root, "auto").index("ssn", encryption=ENCRYPTION).build()
        value = rows.column("ssn")[1_234_567].as_py()
        quick, slow = timed(root, value)
        connection = duckdb.connect()
        connection.execute("set threads = 1")
        query = f"select * from '{plain}' where ssn = '{value}'"  # noqa: S608
        other = least(lambda: connection.execute(query).fetchall())
        print(f"10 × 200,000 rows, present: {quick / other:.2f} times DuckDB's on the plaintext file, {quick / slow:.2f} "
              f"times without an index")  # fmt: skip


def rates() -> None:
    """Building and compacting, beside numpy's sort of as many numbers, which tells how busy the machine is."""
    draw = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as home:
        for number in range(8):
            rows = pa.table({"ssn": [f"{one:09d}" for one in draw.integers(0, 10**9, 1_000_000)]})
            place = Path(home) / f"{number}.parquet"
            bs.write_table(rows, place, encryption=ENCRYPTION, row_group_size=100_000, bloom_filters={})
        index = opened(Path(home), "auto").index("ssn", encryption=ENCRYPTION)
        index.build()
        built = least(lambda: index.rebuild(), 3)
        entries = index.show().entries
        merged = least(lambda: index.compact(everything=True), 3)
        numbers = draw.integers(0, 1 << 60, entries)
        order = least(lambda: np.sort(numbers), 3)
        print(f"built: {entries / built:.3g} values a second, {built / order:.1f} times numpy's sort of them")
        print(f"compacted: {entries / merged:.3g} entries a second, {merged / order:.1f} times numpy's sort of them")
        print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB at most")


def compacted(files: int) -> None:
    """Look-ups in many small files, and in the few large ones that they become."""
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        for number in range(files):
            ids = [(7919 * i + number) % (1_000 * files) for i in range(number * 1_000, (number + 1) * 1_000)]
            rows = pa.table({"ssn": [f"{one:09d}" for one in ids], "n": range(1_000), "x": [one * 0.5 for one in ids]})
            bs.write_table(rows, root / f"{number:05d}.parquet", encryption=ENCRYPTION, bloom_filters=["ssn"])
        opened(root, "auto").index("ssn", encryption=ENCRYPTION).build()
        size = sum(path.stat().st_size for path in root.glob("*.parquet"))
        for again in (True, False):
            for use in ("require", "never"):
                table = opened(root, use)
                for value in (rows.column("ssn")[17].as_py(), "x"):
                    assert table.read(where=[("ssn", "==", value)]).num_rows == (value != "x")
                    spent = 1e3 * least(lambda: table.read(where=[("ssn", "==", value)]))  # noqa: B023
                    print(f"{len(table)} files, use_index={use}, {value}: {spent:.1f} ms")
            if again:
                began, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                report = opened(root, "never").compact(target_size=size // 20, encryption=ENCRYPTION)
                told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held >> 10
                spent = time.process_time() - began
                print(f"{files} files, {size >> 20} MiB: {len(report.files)} in {spent:.1f} s, {told} MiB more memory")


def growth(files: int) -> list[tuple[int, float, float]]:
    """A look-up that finds nothing while the table grows: files, seconds with and without an index."""
    told: list[tuple[int, float, float]] = []
    with tempfile.TemporaryDirectory() as home:
        root, done = Path(home), 0
        for upto in sorted({max(files >> step, 1) for step in range(8)}):
            write(root, range(done, upto), files)
            done = upto
            index = opened(root, "auto").index("ssn", encryption=ENCRYPTION)
            if index.exists:
                index.update()
            else:
                index.build()
            told.append((upto, *timed(root, "x")))
    print(json.dumps(told))
    return told


def main(*words: str) -> None:
    files = int(words[0]) if words and words[0].isdigit() else 2_000
    chosen = [word for word in words if not word.isdigit()] or ["look", "large", "rates"]
    if "look" in chosen:
        look(files)
    if "large" in chosen:
        large()
    if "rates" in chosen:
        rates()
    if "compact" in chosen:
        compacted(files)
    if "growth" in chosen:
        from .pictures import index_growth

        place = Path(__file__).parents[1] / "docs" / "pictures" / "index.svg"
        place.write_text(index_growth(growth(files)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
