"""What min/max statistics prove about a row group. Where a writer's order is in doubt, nothing."""

from __future__ import annotations

from typing import Any

from ..sbbf import ColumnType, PhysicalType, encode_value
from ..thrift.structs import ColumnMetaData

__all__ = ["all_null", "excludes", "outside"]

_ORDERED_BYTES = ("string", "enum", "json", "bson", "uuid", "")
_ORDERED_INTS = ("int", "date", "time", "timestamp", "decimal", "")

Comparable = int | bytes


def all_null(meta: ColumnMetaData) -> bool:
    """Do the statistics say that the chunk holds nulls only? An empty chunk counts as such."""
    nulls = meta.statistics.null_count if meta.statistics else None
    return meta.num_values == 0 or (nulls is not None and nulls == meta.num_values)


def excludes(meta: ColumnMetaData, column_type: ColumnType, type_ordered: bool, op: str, value: Any) -> bool:
    """True where no value of the chunk can satisfy ``column op value``.

    Floats are never judged (their statistics may hide NaN or a signed zero), nor INT96, nor binary decimals, nor the
    deprecated min and max; and only under a ColumnOrder that is known (parquet.thrift, ColumnOrder).

    Args:
        op: ``==``, ``<``, ``<=``, ``>``, ``>=``.
    """
    statistics = meta.statistics
    if statistics is None or not type_ordered or statistics.min_value is None or statistics.max_value is None:
        return False
    return outside(statistics.min_value, statistics.max_value, column_type, op, value)


def outside(min_value: bytes, max_value: bytes, column_type: ColumnType, op: str, value: Any) -> bool:
    """As `excludes`, for bounds from anywhere, such as a page's in a column index."""
    low = _comparable(min_value, column_type)
    high = _comparable(max_value, column_type)
    asked = _asked(value, column_type)
    if low is None or high is None or asked is None or type(low) is not type(asked):
        return False
    match op:
        case "==":
            return asked < low or asked > high  # type: ignore[operator]
        case "<":
            return low >= asked  # type: ignore[operator]
        case "<=":
            return low > asked  # type: ignore[operator]
        case ">":
            return high <= asked  # type: ignore[operator]
        case ">=":
            return high < asked  # type: ignore[operator]
        case _:
            return False


def _asked(value: Any, column_type: ColumnType) -> Comparable | None:
    encodings = encode_value(value, column_type)
    return _comparable(encodings[0], column_type) if encodings else None


def _comparable(data: bytes, column_type: ColumnType) -> Comparable | None:
    physical, kind = column_type.physical, column_type.kind
    if physical in (PhysicalType.INT32, PhysicalType.INT64) and kind in _ORDERED_INTS:
        if len(data) != (4 if physical is PhysicalType.INT32 else 8):
            return None
        signed = column_type.logical.signed if column_type.logical and kind == "int" else True
        return int.from_bytes(data, "little", signed=signed)
    if physical in (PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY) and kind in _ORDERED_BYTES:
        return bytes(data)
    return None
