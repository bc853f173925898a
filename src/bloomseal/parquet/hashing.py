"""The hashes of a column chunk's values, as its file stores them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UsageError
from ..sbbf import ColumnType, PhysicalType, hash_array
from .minifile import decode_leaf
from .schema import Leaf
from .walk import Walk

__all__ = ["carries_filter", "chunk_hashes"]


def carries_filter(leaf: Leaf) -> None:
    """Refuse a column that no filter can serve.

    Raises:
        UsageError: a BOOLEAN column, whose values have no hash in any implementation.
    """
    if leaf.type.physical is PhysicalType.BOOLEAN:
        raise UsageError("a BOOLEAN column can't carry a Bloom filter", column=leaf.name, hint="leave it out")


def chunk_hashes(
    walk: Walk, row_group: int, leaf: Leaf, array: pa.ChunkedArray | None = None
) -> npt.NDArray[np.uint64]:
    """XXH64 of the non-null values of one column chunk; values of dictionaries may be named once each.

    Args:
        array: the values that were encoded, where they are at hand. They are hashed directly if their layout is the
            plain encoding that the file's type names; any other layout is read back from the pages, so that a filter
            always holds what its file holds.
    """
    if array is not None and _is_plain_encoding(array.type, leaf):
        return hash_array(array, leaf.type)
    return hash_array(decode_leaf(walk, row_group, leaf.index), _physical(leaf))


def _physical(leaf: Leaf) -> ColumnType:
    """The leaf's type without its logical part: what `decode_leaf` hands out."""
    return ColumnType(leaf.type.physical, leaf.type.type_length)


def _is_plain_encoding(kind: pa.DataType, leaf: Leaf) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if leaf.repeated or len(leaf.path) > 1:
        return False
    match leaf.type.physical:
        case PhysicalType.BYTE_ARRAY:
            binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
            return bool(binary or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
        case PhysicalType.INT32:
            return bool(types.is_int32(kind) or types.is_date32(kind))
        case PhysicalType.INT64:
            return bool(types.is_int64(kind))
        case PhysicalType.FLOAT:
            return bool(types.is_float32(kind))
        case PhysicalType.DOUBLE:
            return bool(types.is_float64(kind))
        case _:
            return False
