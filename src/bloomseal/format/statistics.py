"""Proofs about a row group from min/max statistics. Where a writer's order is in doubt, they prove nothing."""

from __future__ import annotations

from typing import Any

from ..sbbf import ColumnType, encode_value
from ..sbbf.keyset import Comparable, comparable
from ..thrift.structs import ColumnMetaData

__all__ = ["all_null", "asked", "bounds", "outside"]


def all_null(meta: ColumnMetaData) -> bool:
    """Do the statistics say that the chunk holds nulls only? An empty chunk counts as such."""
    nulls = meta.statistics.null_count if meta.statistics else None
    return meta.num_values == 0 or (nulls is not None and nulls == meta.num_values)


def bounds(meta: ColumnMetaData, type_ordered: bool) -> tuple[bytes, bytes] | None:
    """Minimum and maximum in plain encoding, where they mean something.

    Not the deprecated min and max; and only under a ColumnOrder that is known (parquet.thrift, ColumnOrder).
    """
    found = meta.statistics
    if found is None or not type_ordered or found.min_value is None or found.max_value is None:
        return None
    return found.min_value, found.max_value


def outside(min_value: bytes, max_value: bytes, column_type: ColumnType, op: str, asked: Comparable | None) -> bool:
    """True where no value between two bounds can satisfy ``column op asked``; the bounds may also be those of a page.

    Floats are never judged (their statistics may hide NaN or a signed zero), nor INT96, nor binary decimals.

    Args:
        op: ``==``, ``<``, ``<=``, ``>``, ``>=``.
        asked: what `asked` made of the value.
    """
    low = comparable(min_value, column_type)
    high = comparable(max_value, column_type)
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


def asked(value: Any, column_type: ColumnType) -> Comparable | None:
    """A value as it is compared with bounds; None where it can't be."""
    encodings = encode_value(value, column_type)
    return comparable(encodings[0], column_type) if encodings else None
