"""Tables with a sealed index, and what happens to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import bloomseal as bs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
