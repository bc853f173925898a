"""Plaintext files with INT96 columns, whose moments may lie anywhere."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bloomseal.core.parquet.layout import Meta
from bloomseal.core.thrift import Struct

from .surgery import change_chunk, change_element, written

__all__ = ["EPOCH_DAY", "FAR", "NEAR", "OLD", "file_of", "int96", "of"]

FAR = dt.datetime(9999, 12, 31)
NEAR = dt.datetime(2024, 2, 3, 4, 5, 6, 789)
OLD = dt.datetime(1, 1, 1)
EPOCH_DAY = 2_440_588


def int96(day: int, nanos: int) -> bytes:
    return struct.pack("<QI", nanos % (1 << 64), day % (1 << 32))


def of(moment: dt.datetime, nanos: int = 0) -> bytes:
    since = moment - dt.datetime(1970, 1, 1)
    return int96(since.days + EPOCH_DAY, (since.seconds * 10**6 + since.microseconds) * 1_000 + nanos)


def _typed(element: Struct) -> None:
    element.remove(2, 6, 7, 8, 10)
    element.set_i32(1, 3)


def file_of(
    values: Sequence[bytes | None], wrap: Callable[[pa.Array], pa.Array] | None = None, **options: Any
) -> bytes:
    """A file whose column `t` holds these as INT96."""
    array = pa.array(values, pa.binary(12))
    table = pa.table(
        {"t": wrap(array) if wrap else array, "id": list(range(len(array)))} if wrap is None else {"t": wrap(array)}
    )
    data = change_element(written(table, **options), _typed, element=1 if wrap is None else 3)
    return change_chunk(data, lambda meta: (meta.set_i32(Meta.TYPE, 3), meta.remove(Meta.STATISTICS)))
