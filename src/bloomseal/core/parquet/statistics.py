"""Proofs that statistics give about a row group. Where they contradict themselves or the schema, they prove nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..sbbf import ColumnType, encode_value
from ..sbbf.order import Comparable, comparable, interval
from ..thrift.structs import ColumnMetaData, Statistics
from .schema import Leaf

__all__ = ["PartBounds", "all_null", "asked", "bounds", "has_values", "null_count", "outside", "part_bounds"]


class PartBounds(NamedTuple):
    """What is believed of the values of a part: of a row group, a page, a stripe.

    Attributes:
        only_nulls, no_nulls: both False where nobody knows.
        between: the least and the greatest value that is not NaN, in plain encoding; None: no bounds.
    """

    only_nulls: bool = False
    no_nulls: bool = False
    between: tuple[bytes, bytes] | None = None


def part_bounds(meta: ColumnMetaData, leaf: Leaf, ordered: bool) -> PartBounds:
    """What statistics prove about a column chunk. `ordered`: see `Footer.ordered`."""
    return PartBounds(all_null(meta, leaf), _no_nulls(meta, leaf), bounds(meta, leaf, ordered))


def all_null(meta: ColumnMetaData, leaf: Leaf) -> bool:
    """Do the statistics say that the chunk holds nulls only? An empty chunk counts as such."""
    return meta.num_values == 0 or null_count(meta, leaf) == meta.num_values


def null_count(meta: ColumnMetaData, leaf: Leaf) -> int | None:
    """The chunk's nulls as its statistics count them; None where they do not, or can't be believed."""
    found = _believed(meta, leaf)
    return found.null_count if found else None


def has_values(meta: ColumnMetaData, leaf: Leaf) -> bool:
    """Do the statistics prove that a value of the chunk is not null? Bounds are bounds of something."""
    found = _believed(meta, leaf)
    return found is not None and found.min_value is not None and found.max_value is not None


def _no_nulls(meta: ColumnMetaData, leaf: Leaf) -> bool:
    """Does the chunk hold no null? Only bounds beside a count of none show that its writer counted at all. Inside a
    struct writers count the nulls of the field, and some leave out those of the struct, which are nulls of it, too.
    """
    flat = len(leaf.path) == 1
    return leaf.definition == 0 or (flat and has_values(meta, leaf) and null_count(meta, leaf) == 0)


def bounds(meta: ColumnMetaData, leaf: Leaf, ordered: bool) -> tuple[bytes, bytes] | None:
    """Minimum and maximum in plain encoding, where they mean something.

    Not the deprecated min and max; and only where they are `ordered`, see `Footer.ordered`.
    """
    found = _believed(meta, leaf)
    if found is None or not ordered or found.min_value is None or found.max_value is None:
        return None
    return found.min_value, found.max_value


def _believed(meta: ColumnMetaData, leaf: Leaf) -> Statistics | None:
    """Statistics whose null count is possible: some writers count nulls in a REQUIRED column, or nothing but nulls
    beside bounds.
    """
    found = meta.statistics
    if found is None or found.null_count is None:
        return found
    values = meta.num_values or 0
    if not 0 <= found.null_count <= (values if leaf.definition else 0):
        return None
    bounded = found.min_value is not None or found.max_value is not None
    return None if bounded and found.null_count == values else found


def outside(min_value: bytes, max_value: bytes, column_type: ColumnType, op: str, asked: Comparable | None) -> bool:
    """True where no value between two bounds can satisfy ``column op asked``; the bounds may also be those of a page.

    Never where `interval` makes nothing of the bounds.

    Args:
        op: ``==``, ``<``, ``<=``, ``>``, ``>=``.
        asked: what `asked` made of the value.
    """
    between = interval(min_value, max_value, column_type)
    if between is None or asked is None or type(between[0]) is not type(asked):
        return False
    low, high = between
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
    """A value as it is compared with bounds; None where it can't be, such as a number that engines round differently to
    the column's width.
    """
    encodings = encode_value(value, column_type)
    if not encodings:
        return None
    every = {comparable(one, column_type) for one in (encodings if column_type.floating else encodings[:1])}
    return every.pop() if len(every) == 1 else None
