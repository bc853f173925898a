"""Arrow's whole numbers as numpy's, without pandas.

``to_numpy``, and ``pyarrow.array`` of a list, load pandas where that is installed: as much processor time as the rest
of a first look-up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import FormatError

__all__ = ["as_numpy"]


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
