"""A sealed index of 100,000,000 entries over 10,000 files × 10 row groups of 1,000 rows, step by step:
``python -m bench.index_scale HOME write build look compact [files]``; `write` goes on where it was stopped, and takes
4 GB below HOME, which you remove afterwards.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import bloomseal as bs
from bloomseal.index.facts.members import Members
from bloomseal.index.lookup import IndexReader
from bloomseal.index.sealed import SealedIndex
from bloomseal.index.update import update
from bloomseal.policy import IndexPolicy

KEYS: Final[dict[str, Any]] = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"c" * 16}}
ENCRYPTION: Final = bs.EncryptionSpec(**KEYS)
DECRYPTION: Final = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
ROWS: Final = 10_000
RUNS: Final = 8
_MILLION: Final = 1e6


def numbers(file: int) -> npt.NDArray[np.int64]:
    """The values of a file: a permutation of all numbers of the table, so that each is in one row group."""
    return (np.arange(file * ROWS, (file + 1) * ROWS, dtype=np.int64) * 1_000_003) % 10_000_000_019


def texts(of: npt.NDArray[np.int64]) -> pa.Array:
    return pc.utf8_lpad(pa.array(of).cast(pa.string()), 11, "0")


def write(root: Path, files: int) -> None:
    """The files that are not there yet."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        place = root / f"{number:05d}.parquet"
        if not place.exists():
            rows = pa.table({"ssn": texts(numbers(number))})
            bs.write_table(rows, place, encryption=ENCRYPTION, row_group_size=1_000, bloom_filters={})


def spent(work: Callable[[], object], times: int = 1) -> tuple[float, float]:
    """The least seconds of processor time, and by the clock."""
    cpu, wall = [], []
    for _ in range(times):
        began, at = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - began)
        wall.append(time.perf_counter() - at)
    return min(cpu), min(wall)


def told(what: str, seconds: tuple[float, float], more: str = "") -> None:
    print(
        f"{what}: {1e3 * seconds[0]:.1f} ms of processor time, {1e3 * seconds[1]:.1f} ms by the clock{more}", flush=True
    )


def opened(root: Path) -> bs.SealedTable:
    return bs.open_table(root, decryption=DECRYPTION, use_index="require")


def index_of(root: Path) -> SealedIndex:
    return bs.open_table(root, decryption=DECRYPTION).index("ssn", encryption=ENCRYPTION)


def build(root: Path) -> None:
    """Eight runs: the first by `build`, of an eighth of the files, and one more for each other eighth."""
    index = index_of(root)
    files: Members = index.files
    parts = np.array_split(np.arange(len(files)), RUNS)
    # The length of fingerprints is made for the whole table, as if it had been built at once.
    from bloomseal.index.update import ColumnSurvey, new_manifest

    manifest = new_manifest(ColumnSurvey.of(files, "ssn"), "ssn", IndexPolicy())
    index.folder.make()
    entries, total = 0, (0.0, 0.0)
    for number, part in enumerate(parts):
        base = manifest if not number else index.manifest()

        def work(base: Any = base, part: Any = part, first: bool = not number) -> None:
            nonlocal entries
            mine = part.tolist()
            entries += update(index.folder, base, files, mine, fresh=first).entries

        took = spent(work)
        total = total[0] + took[0], total[1] + took[1]
    told(f"built {entries} entries in {RUNS} runs", total, f"; {entries / total[0] / _MILLION:.2f} million a second")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB at most")


def look(root: Path) -> None:
    index = index_of(root)
    files, folder = index.files, index.folder
    facts = index.show()
    size = sum(path.stat().st_size for path in Path(folder.path).iterdir())
    print(f"{facts.files} files, {facts.row_groups} row groups, {facts.entries} entries in {len(facts.runs)} runs; "
          f"{8 * facts.bytes / facts.entries:.1f} bits an entry, {size >> 20} MiB; manifest "
          f"{(Path(folder.path) / 'manifest.parquet').stat().st_size >> 10} KiB")  # fmt: skip
    told("states of all files", spent(files.states, 5))
    told("manifest opened", spent(lambda: folder.load(), 5))
    reader = IndexReader(folder)
    states = files.states()
    told("manifest opened and made ready", spent(lambda: IndexReader(folder).coverage(files, states), 3))
    coverage = reader.coverage(files, states)
    assert coverage is not None
    draw = np.random.default_rng(5)
    told("held against the states", spent(lambda: reader.coverage(files, states), 5))
    hashes = draw.integers(0, 1 << 63, 1_000).astype(np.uint64)
    coverage.find(hashes[:1])
    each = [spent(lambda one=one: coverage.find(hashes[one : one + 1])) for one in range(200)]  # type: ignore[misc]
    told(
        "one value asked of all runs", (float(np.median([a for a, _ in each])), float(np.median([b for _, b in each])))
    )
    table = opened(root)
    value = texts(numbers(3))[4].as_py()
    assert table.read(where=[("ssn", "==", value)]).num_rows == 1
    told("look-up of a value that is there", spent(lambda: table.read(where=[("ssn", "==", value)]), 5))
    told("look-up of one that is nowhere", spent(lambda: table.read(where=[("ssn", "==", "x")]), 5))
    many = pa.array([f"{one:012d}" for one in draw.integers(0, 10**12, 100_000)])
    told("100,000 values that are nowhere", spent(lambda: table.read(where=[("ssn", "in", many)])))
    # Of which each is in another row group.
    few = texts(np.concatenate([numbers(one)[:10] for one in range(0, facts.files, max(facts.files // 100, 1))]))
    found = opened(root)
    told(f"{len(few)} values in {len(few) // 10} files", spent(lambda: found.read(where=[("ssn", "in", few)])))
    assert found.stats.rows == len(few)


def compact(root: Path) -> None:
    index = index_of(root)
    report = None

    def work() -> None:
        nonlocal report
        report = index.compact(everything=True)

    took = spent(work)
    entries = index.show().entries
    told(f"compacted {entries} entries", took, f"; {entries / took[0] / _MILLION:.1f} million a second; {report}")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB at most")


def main(home: str, *words: str) -> None:
    files = next((int(word) for word in words if word.isdigit()), 10_000)
    root = Path(home) / "t"
    for word in words:
        if word == "write":
            write(root, files)
        elif not word.isdigit():
            {"build": build, "look": look, "compact": compact}[word](root)


if __name__ == "__main__":
    main(*sys.argv[1:])
