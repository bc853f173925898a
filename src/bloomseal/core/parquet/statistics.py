"""Proofs that statistics give about a row group. Where they contradict themselves or the schema, they prove nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..sbbf import ColumnType, encode_value
from ..sbbf.order import Comparable, comparable, interval
from ..thrift.structs import ColumnMetaData, Statistics
from .schema import Leaf


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
    """What statistics prove about a column chunk. Not by the deprecated min and max.

    Args:
        ordered: whether minimum and maximum mean something, see `Footer.ordered`.
    """
    found, values = _believed(meta, leaf), meta.num_values
    nulls, between = None, None
    if found is not None:
        nulls = found.null_count
        if found.min_value is not None and found.max_value is not None:
            between = found.min_value, found.max_value
    # Only bounds beside a count of none show that its writer counted at all. Inside a struct writers count the nulls of
    # the field, and some leave out those of the struct, which are nulls of it, too.
    no_nulls = leaf.definition == 0 or (len(leaf.path) == 1 and between is not None and nulls == 0)
    only_nulls = values is not None and (values == 0 or nulls == values)
    return PartBounds(only_nulls, no_nulls, between if ordered else None)


def all_null(meta: ColumnMetaData, leaf: Leaf) -> bool:
    """Whether the statistics say that the chunk holds nulls only. An empty chunk counts as such."""
    return part_bounds(meta, leaf, False).only_nulls


def null_count(meta: ColumnMetaData, leaf: Leaf) -> int | None:
    """The chunk's nulls as its statistics count them; None where they do not, or can't be believed."""
    found = _believed(meta, leaf)
    return found.null_count if found else None


def has_values(meta: ColumnMetaData, leaf: Leaf) -> bool:
    """Whether the statistics prove that a value of the chunk is not null: bounds are bounds of something."""
    return part_bounds(meta, leaf, True).between is not None


def bounds(meta: ColumnMetaData, leaf: Leaf, ordered: bool) -> tuple[bytes, bytes] | None:
    """Minimum and maximum in plain encoding, where they mean something."""
    return part_bounds(meta, leaf, ordered).between


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
