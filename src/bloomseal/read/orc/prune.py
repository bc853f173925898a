"""Which row groups of a stripe are left once statistics and Bloom filters have been asked about a predicate.

Statistics of the whole stripe come first. Then filters, where a condition has values to ask them for: thousands of them
are asked in one step, while the statistics of each row group are a message to be parsed. These are parsed only where
filters leave a row group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...core.errors import UsageError
from ...core.exclusion import Exclusion, by_bounds, by_condition, by_orc_filters
from ...core.parquet.statistics import PartBounds
from ...orc.asking.values import OrcProbeSet
from ...orc.layout import OrcLayout
from ...orc.protobuf import Message
from ...orc.schema import OrcColumn
from ...orc.statistics import GroupStatistics
from ..predicate.predicate import Predicate, Term
from ..prune import RowGroupSelection
from .bounds import bounds_of_part

Bools = npt.NDArray[np.bool_]


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
