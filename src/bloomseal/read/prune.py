"""Which row groups are left once statistics and filters have been asked, about a predicate or about a set of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..core.exclusion import BelievedFilter, Exclusion, Reason, by_condition, by_filter, by_statistics
from ..core.parquet.statistics import bounds
from ..core.parquet.walk import Chunk, Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..format.calendar import need_one_calendar
from ..sbbf import KeySet

if TYPE_CHECKING:
    from .predicate.predicate import Left, Predicate, Term

_OPENED: Final = 1000
"""Values that a filter is asked about in the time that it takes to open it."""


@dataclass(frozen=True, slots=True)
class RowGroupSelection:
    """The row groups that are left, and why each of the others is not.

    Attributes:
        row_groups: ascending.
        excluded: those that were ruled out.
        without_filter: among the ones left, those that no filter could be asked about.
    """

    row_groups: tuple[int, ...]
    excluded: Mapping[int, Exclusion] = field(default_factory=dict)
    without_filter: int = 0

    def ruled_out_by(self, *reasons: Reason) -> int:
        """How many were ruled out for these reasons."""
        return sum(one.reason in reasons for one in self.excluded.values())

    @property
    def by_statistics(self) -> int:
        return self.ruled_out_by(Reason.STATISTICS, Reason.CONDITION)

    @property
    def by_filter(self) -> int:
        return self.ruled_out_by(Reason.FILTER)


def ruled_out(walk: Walk, group: int, predicate: Predicate, values_left: Left | None = None) -> Exclusion | None:
    """What rules a row group out; None where nothing does. No filter is opened before all statistics are asked.

    Args:
        values_left: filled with what bounds and filters leave of many values, so that rows are compared with those
            alone.
    """
    chunks = {leaf.index: walk.chunk(group, leaf.index) for leaf in predicate.leaves}
    # All are opened: whether a column without a key is refused must not depend on what is in the others.
    for chunk in chunks.values():
        walk.meta(chunk)
    need_one_calendar(walk, group, (chunk.leaf for chunk in chunks.values()))
    found = [_by_statistics(walk, chunks, way) for way in predicate.any_of]
    if None in found:
        filters = _Filters(walk, chunks, values_left)
        return by_condition(one or filters.exclude(way) for one, way in zip(found, predicate.any_of, strict=True))
    return by_condition(found)


def _by_statistics(walk: Walk, chunks: Mapping[int, Chunk], way: Sequence[Term]) -> Exclusion | None:
    for term in way:
        if (found := by_statistics(walk, chunks[term.leaf.index], term)) is not None:
            return found
    return None


class _Filters:
    """The filters of one row group, each opened once."""

    def __init__(self, walk: Walk, chunks: Mapping[int, Chunk], values_left: Left | None) -> None:
        self._walk, self._chunks, self._left = walk, chunks, values_left
        self._filters: dict[int, BelievedFilter] = {}
        self._answers: dict[int, Exclusion | None] = {}

    def exclude(self, way: Sequence[Term]) -> Exclusion | None:
        """By a term of a conjunction."""
        for term in way:
            if not term.by_equality:
                continue
            if id(term) not in self._answers:
                self._answers[id(term)] = self._ask(term)
            if (found := self._answers[id(term)]) is not None:
                return found
        return None

    def _ask(self, term: Term) -> Exclusion | None:
        chunk = self._chunks[column := term.leaf.index]
        if (bloom_filter := self._filters.get(column)) is None:
            bloom_filter = self._filters[column] = BelievedFilter(self._walk, chunk)
        if (keys := term.keys) is None:
            return None if term.probe_set is None else by_filter(bloom_filter, term.probe_set)
        # Of many values some are often in every row group: then filters are only a price.
        if not term.filter_yield.due:
            return None
        among = _Among(keys, bounds(self._walk.meta(chunk), chunk.leaf, self._walk.footer.ordered[column]))
        found = by_filter(bloom_filter, among)
        if bloom_filter.exists:
            rows = self._walk.footer.row_group(chunk.row_group).num_rows or 0
            term.filter_yield.add(found is not None, 1 + rows // (len(keys) + _OPENED))
        else:
            among.narrow(None)
        if self._left is not None and among.left is not None:
            self._left[id(term)] = among.left
        return found


@dataclass(slots=True)
class _Among:
    """Many values, and which of them a row group leaves."""

    keys: KeySet
    between: tuple[bytes, bytes] | None
    left: pa.Array | None = None

    def none_in(self, bloom_filter: SplitBlockBloomFilter) -> bool:
        return not self.narrow(bloom_filter) and not self.keys.undecided

    def narrow(self, bloom_filter: SplitBlockBloomFilter | None) -> int:
        count, self.left = self.keys.left(self.between, bloom_filter)
        return count


def select_row_groups(walk: Walk, leaf: int, keys: KeySet, groups: Sequence[int] | None = None) -> RowGroupSelection:
    """Ask every row group, or these, for a set of values. Of a big one a filter is asked only for what lies between the
    least and the greatest value.
    """
    kept, excluded, without = [], {}, 0
    for group in range(len(walk.footer.row_groups)) if groups is None else groups:
        chunk = walk.chunk(group, leaf)
        meta = walk.meta(chunk)
        need_one_calendar(walk, group, [chunk.leaf])
        found = by_statistics(walk, chunk, keys) if len(keys) or keys.undecided else by_condition(())
        bloom_filter = None
        if found is None and not keys.undecided:
            asked = keys.within(bounds(meta, chunk.leaf, walk.footer.ordered[leaf]))
            found = by_filter(bloom_filter := BelievedFilter(walk, chunk), asked)
        if found is not None:
            excluded[group] = found
            continue
        kept.append(group)
        without += bloom_filter is None or not bloom_filter.exists
    return RowGroupSelection(tuple(kept), excluded, without)
