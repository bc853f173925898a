"""How statistics order the values of a column (Parquet LogicalTypes specification, "sort order")."""

from __future__ import annotations

import math
import struct
from typing import Final

from .types import ColumnType, PhysicalType

Comparable = int | float | bytes

ORDERED_BYTES: Final = ("string", "enum", "json", "bson", "uuid", "")
ORDERED_INTS: Final = ("int", "date", "time", "timestamp", "decimal", "")
"""Kinds of logical types whose byte strings, and whose integers, are ordered as they stand."""
_FLOATS: Final = {
    (PhysicalType.FIXED_LEN_BYTE_ARRAY, "float16"): "<e",
    (PhysicalType.FLOAT, ""): "<f",
    (PhysicalType.DOUBLE, ""): "<d",
}


def comparable(data: bytes, column_type: ColumnType) -> Comparable | None:
    """A plain encoding as something that is ordered as the column's statistics are; None where that is not known.

    Of floats NaN is left out, which satisfies no comparison, and both zeros are one. INT96 and binary decimals have no
    order here.
    """
    physical, kind = column_type.physical, column_type.kind
    if physical in (PhysicalType.INT32, PhysicalType.INT64) and kind in ORDERED_INTS:
        if len(data) != (4 if physical is PhysicalType.INT32 else 8):
            return None
        return int.from_bytes(data, "little", signed=signed(column_type))
    if physical in (PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY) and kind in ORDERED_BYTES:
        # A bound may be cut short; longer than the column's values it is none of theirs.
        return None if column_type.type_length is not None and len(data) > column_type.type_length else bytes(data)
    if (form := _FLOATS.get((physical, kind))) is not None and len(data) == struct.calcsize(form):
        (number,) = struct.unpack(form, data)
        return None if math.isnan(number) else float(number)
    return None


def interval(low: bytes, high: bytes, column_type: ColumnType) -> tuple[Comparable, Comparable] | None:
    """Two bounds in plain encoding as they are ordered; None where they prove nothing.

    That is: a type whose order is not known; a length that the type does not have; a minimum above the maximum; and an
    empty maximum, which some writers leave where they have none.
    """
    least, greatest = comparable(low, column_type), comparable(high, column_type)
    if least is None or greatest is None or greatest == b"" or type(least) is not type(greatest):
        return None
    return None if least > greatest else (least, greatest)  # type: ignore[operator]


def signed(column_type: ColumnType) -> bool:
    """Whether the column's integers are signed. All are but those of an unsigned integer type."""
    return column_type.logical.signed if column_type.logical and column_type.kind == "int" else True
