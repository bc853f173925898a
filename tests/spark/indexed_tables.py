"""Tables with a sealed index, and what happens to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import bloomseal as bs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bloomseal.policy import TablePolicy

FILES, ROWS = 12, 100


def ssn(number: int) -> str:
    """Scattered, so that minima and maxima rule out nothing."""
    return f"{number * 7919 % 1_000_003:09d}"


def opened(folder: Path, policy: bs.Policy) -> bs.SealedTable:
    return bs.open_table(folder, decryption=policy.for_table("t"))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


def one(table: Path, policy: bs.Policy) -> Path:
    """The file of row 417."""
    found = opened(table, policy)
    return Path(found.files[int(found.maybe_present("ssn", [ssn(417)])[:, 0].argmax())])


def turned(table: Path, policy: bs.Policy) -> None:
    """Puts another file in the place of one, with a value that was nowhere, and the time of the old one."""
    path = one(table, policy)
    before = path.stat()
    rows = pa.table({"ssn": ["somebody else"] * ROWS, "id": range(ROWS)})
    bs.write_table(rows, path, encryption=policy.for_table("t").at(table), row_group_size=20)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def two_runs(table: Path, policy: TablePolicy) -> bs.SealedTable:
    """A table whose index has two runs of 10,000 entries together, which nobody has merged yet."""
    table.mkdir()
    for begin, end in ((0, 9), (9, 10)):
        for number in range(begin, end):
            values = range(number * 1_000, (number + 1) * 1_000)
            rows = pa.table({"ssn": [ssn(one) for one in values], "id": pa.array(values, pa.int64())})
            bs.write_table(rows, table / f"{number}.parquet", encryption=policy, row_group_size=250)
        index = bs.open_table(table, decryption=policy).index("ssn")
        if begin:
            index.update()
        else:
            index.build()
    return bs.open_table(table, decryption=policy)


def whole_and_right(table: Path, policy: TablePolicy, runs: int) -> None:
    """The index of `two_runs` covers every file, has every value, and answers."""
    found = bs.open_table(table, decryption=policy, use_index="require")
    index = found.index("ssn")
    manifest = index.manifest()
    assert (len(manifest.runs), manifest.entries) == (runs, 10_000)
    assert (index.show().covered, index.check().ok) == (10, True)
    for number in (0, 4_321, 9_999):
        assert found.read(where=[("ssn", "==", ssn(number))])["id"].to_pylist() == [number]
        assert found.stats.files_unopened == 9
    assert found.read(where=[("ssn", "==", "nowhere")]).num_rows == 0
