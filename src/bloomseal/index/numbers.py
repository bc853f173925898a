"""Arrow's whole numbers as numpy's, and sets of them, without what takes as much time to load as a first look-up takes.

``to_numpy``, and ``pyarrow.array`` of a list, load pandas where that is installed; ``numpy.unique`` loads ``numpy.ma``.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import FormatError

N = TypeVar("N", np.int64, np.uint64)


def as_numpy(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Integers without nulls, shape (n,).

    Raises:
        FormatError: other values, or nulls.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.null_count or not pa.types.is_integer(column.type):
        raise FormatError("the index has other values than whole numbers", hint="index rebuild")
    sign = "i" if pa.types.is_signed_integer(column.type) else "u"
    kind = np.dtype(f"{sign}{column.type.bit_width // 8}")
    parts = [np.frombuffer(one.buffers()[1], kind, one.offset + len(one))[one.offset :] for one in chunks if len(one)]
    if len(parts) == 1:
        return parts[0].astype(np.int64, copy=False)
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)


def distinct(values: npt.NDArray[N]) -> npt.NDArray[N]:
    """Each once, ascending. By sorting: numpy's `unique` has a table of hashes, which takes ten times as long."""
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered if fresh.all() else ordered[fresh]


def within(values: npt.NDArray[np.int64], ordered: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of them are among others, which ascend; shape (n,) → (n,)."""
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: npt.NDArray[np.bool_] = ordered[at] == values
    return found
