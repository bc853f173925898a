"""Which row groups of a stripe are left once statistics and Bloom filters have been asked about a predicate.

Statistics of the whole stripe come first. Then filters, where a condition has values to ask them for: thousands of them
are asked in one step, while the statistics of each row group are a message to be parsed. These are parsed only where
filters leave a row group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np
import numpy.typing as npt

from ...core.errors import UsageError
from ...core.exclusion import Exclusion, by_bounds, by_condition, by_orc_filters
from ...core.parquet.schema import Leaf
from ...core.parquet.statistics import PartBounds
from ...core.writers import Claim
from ...orc.asking.trust import timestamps_untrusted
from ...orc.asking.values import OrcProbeSet
from ...orc.index import nanoseconds
from ...orc.layout import OrcLayout
from ...orc.protobuf import Message, signed, zigzag
from ...orc.schema import INTEGER_BITS, MOMENTS, OrcColumn, OrcKind
from ...orc.statistics import GroupStatistics
from ...orc.tail import OrcTail
from ..predicate.predicate import Predicate, Term
from ..prune import RowGroupSelection

Bools = npt.NDArray[np.bool_]
_SURE_FROM: Final = -2_208_988_800_000
"""1900-01-01 in milliseconds: before it writers differ in calendars and local mean times."""
_SLACK: Final = 2 * 3_600_000
"""Milliseconds by which bounds of moments are widened: writers round them, and differ where clocks were changed."""
_LONGEST_NUMBER: Final = 200


def ruled_out(file: OrcLayout, stripe: int, predicate: Predicate, stored: Mapping[int, OrcColumn]) -> RowGroupSelection:
    """Ask the stripe's statistics, then its filters, then the statistics of the row groups that are left.

    Args:
        stored: index of a leaf → the file's column.

    Raises:
        FormatError: an index or a filter is broken.
    """
    asking = _Asking(file, stripe, stored)
    ways = [asking.excluded_by(way) for way in predicate.any_of]
    every = range(file.stripes[stripe].num_row_groups)
    found = ((group, by_condition(way.get(group) for way in ways)) for group in every)
    excluded = ways[0] if len(ways) == 1 else {group: one for group, one in found if one is not None}
    return RowGroupSelection(tuple(group for group in every if group not in excluded), excluded)


class _Asking:
    """One stripe's statistics and filters, each read once."""

    def __init__(self, file: OrcLayout, stripe: int, stored: Mapping[int, OrcColumn]) -> None:
        self._file, self._stripe, self._stored = file, stripe, stored
        self._zone = file.index(stripe).writer_timezone
        self._statistics: dict[int, GroupStatistics | None] = {}
        self._groups: dict[int, dict[int, PartBounds]] = {}
        self._filters: dict[int, Bools | None] = {}

    def excluded_by(self, way: Sequence[Term]) -> dict[int, Exclusion]:
        """The row groups in which some term of a conjunction is impossible."""
        count = self._file.stripes[self._stripe].num_row_groups
        for term in way:
            column = self._stored[term.leaf.index]
            bounds = self._bounds(term, column, self._file.stripe_statistics(self._stripe, column))
            if (found := by_bounds(bounds, term, column.name)) is not None:
                return dict.fromkeys(range(count), found)
        possible = np.ones(count, np.bool_)
        for term in way:
            if possible.any() and (found_in := self._maybe_in(term)) is not None:
                possible &= found_in
        excluded = by_orc_filters(possible)
        for term in way:
            excluded |= self._outside(term, [group for group in range(count) if group not in excluded])
        return excluded

    def _outside(self, term: Term, groups: Sequence[int]) -> dict[int, Exclusion]:
        """Those of the row groups whose statistics leave the term impossible."""
        column = self._stored[term.leaf.index]
        if groups and column.id not in self._statistics:
            self._statistics[column.id] = self._file.statistics(self._stripe, column)
        if not groups or (statistics := self._statistics[column.id]) is None:
            return {}
        known = self._groups.setdefault(column.id, {})
        new = [group for group in groups if group not in known]
        for group, one in zip(new, self._file.parsed(self._stripe, column, statistics, new), strict=True):
            known[group] = self._bounds(term, column, one)
        found = ((group, by_bounds(known[group], term, column.name)) for group in groups)
        return {group: one for group, one in found if one is not None}

    def _maybe_in(self, term: Term) -> Bools | None:
        """The row groups whose filters leave the term possible; None: all."""
        if not term.by_equality:
            return None
        if id(term) not in self._filters:
            self._filters[id(term)] = self._ask(term)
        return self._filters[id(term)]

    def _ask(self, term: Term) -> Bools | None:
        column = self._stored[term.leaf.index]
        try:
            asked = term.once(
                ("orc", column.kind, column.length, column.precision, column.scale, self._zone, self._hybrid),
                lambda values: OrcProbeSet.of_column(values, column, zone=self._zone, hybrid=self._hybrid),
            )
        except UsageError:
            return None  # a value that rows can be compared with, and the filter can't be asked for
        if (filters := self._file.believed(self._stripe, column)) is None:
            return None
        every = asked.check_all(filters)
        found = np.array([not asked.none_in(one) for one in filters], np.bool_) if every is None else every.any(axis=1)
        # An empty filter proves nothing. Where it is one over nulls, statistics say so.
        return np.asarray(found | filters.empty, np.bool_)

    @property
    def _hybrid(self) -> bool:
        return self._file.tail.hybrid_calendar

    def _bounds(self, term: Term, column: OrcColumn, found: Message | None) -> PartBounds:
        return bounds_of_part(found, column, term.leaf, self._file.tail, self._zone)


def bounds_of_part(statistics: Message | None, column: OrcColumn, leaf: Leaf, tail: OrcTail, zone: str) -> PartBounds:
    """Take a ``ColumnStatistics`` apart.

    Args:
        statistics: None where there are none that fit the rows (`bloomseal.orc.statistics`).
        leaf: the column, as terms know it.
        zone: the stripe's writer time zone.
    """
    if statistics is None:
        return PartBounds()
    values = signed(statistics.number(1))
    nulls = statistics.number(10, 1)
    # A null struct is no null to what is inside it.
    no_nulls = not nulls and len(leaf.path) == 1 and values > 0
    return PartBounds(values == 0, no_nulls, _between(statistics, values, column, leaf, tail, zone))


def _between(
    statistics: Message, values: int, column: OrcColumn, leaf: Leaf, tail: OrcTail, zone: str
) -> tuple[bytes, bytes] | None:
    # None for floats: where the first value is NaN, so are both bounds, and merging leaves those values out.
    kind = column.kind
    if kind in INTEGER_BITS or kind is OrcKind.DATE:
        ends = Message(statistics.bytes(7 if kind is OrcKind.DATE else 2))
        return _encoded(ends, 8 if leaf.type.physical.name == "INT64" else 4)
    if kind in (OrcKind.STRING, OrcKind.VARCHAR):
        ends = Message(statistics.bytes(4))
        least, greatest = bytes(ends.bytes(1)), bytes(ends.bytes(2))
        claims = (Claim.ORC_TEXT_BOUNDS, *((Claim.ORC_NUL_BOUNDS,) if b"\0" in least + greatest else ()))
        sure = not any(tail.known_wrong(claim) for claim in claims)
        return (least, greatest) if sure and 1 in ends and 2 in ends and least <= greatest else None
    if kind is OrcKind.BOOLEAN:
        true = Message(statistics.bytes(5)).numbers(1)
        if len(true) != 1 or not 0 <= true[0] <= values or not values:
            return None
        return bytes([true[0] == values]), bytes([true[0] > 0])
    if kind is OrcKind.DECIMAL:
        return _decimals(Message(statistics.bytes(6)), column, leaf)
    if kind in MOMENTS and timestamps_untrusted(column, tail, zone) is None:
        return _moments(statistics)
    return None


def _encoded(ends: Message, width: int) -> tuple[bytes, bytes] | None:
    if 1 not in ends or 2 not in ends:
        return None
    least, greatest = (zigzag(ends.number(field)) for field in (1, 2))
    half = 1 << 8 * width - 1
    if not -half <= least <= greatest < half:
        return None
    return least.to_bytes(width, "little", signed=True), greatest.to_bytes(width, "little", signed=True)


def _decimals(ends: Message, column: OrcColumn, leaf: Leaf) -> tuple[bytes, bytes] | None:
    found: list[int] = []
    width = leaf.type.type_length or 16
    for field in (1, 2):
        text = bytes(ends.bytes(field))
        try:
            value = Decimal(text.decode("ascii")) if 0 < len(text) <= _LONGEST_NUMBER else None
        except (InvalidOperation, UnicodeDecodeError):
            return None
        if value is None or not value.is_finite() or abs(value.adjusted()) > _LONGEST_NUMBER:
            return None
        sign, digits, exponent = value.as_tuple()
        shift = int(exponent) + column.scale
        if shift < 0 and any(digits[shift:]):
            return None
        unscaled = int("".join(map(str, digits))) * 10 ** max(shift, 0) // 10 ** max(-shift, 0)
        if unscaled >> 8 * width - 1:
            return None
        found.append(-unscaled if sign else unscaled)
    least, greatest = found
    if least > greatest:
        return None
    return least.to_bytes(width, "big", signed=True), greatest.to_bytes(width, "big", signed=True)


def _moments(statistics: Message) -> tuple[bytes, bytes] | None:
    if (ends := nanoseconds(statistics)) is None:
        return None
    least, greatest = ends[0] // 1_000_000 - _SLACK, ends[1] // 1_000_000 + _SLACK
    if least < _SURE_FROM or ends[0] > ends[1] or greatest * 1_000_000 >= 1 << 63:
        return None
    return tuple((end * 1_000_000).to_bytes(8, "little", signed=True) for end in (least, greatest))  # type: ignore[return-value]
