"""Which row groups are left once statistics and filters have been asked, about a predicate or about a set of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ..core.exclusion import Exclusion, Reason, by_condition, by_filter, by_statistics
from ..core.parquet.statistics import bounds
from ..core.parquet.walk import Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..format.calendar import need_one_calendar
from ..sbbf import KeySet

if TYPE_CHECKING:
    from .predicate.predicate import Left, Predicate, Term

__all__ = ["RowGroupSelection", "ruled_out", "select_row_groups"]


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

    def outside(way: Sequence[Term]) -> Exclusion | None:
        found = (by_statistics(walk, chunks[term.leaf.index], term) for term in way)
        return next((one for one in found if one is not None), None)

    ways = [(way, outside(way)) for way in predicate.any_of]
    left = [way for way, excluded in ways if excluded is None]
    known: dict[int, Exclusion | None] = {}

    def absent(way: Sequence[Term]) -> Exclusion | None:
        for term in way:
            if not term.by_equality:
                continue
            if id(term) not in known:
                # All terms that ask this filter ask now: the next filter may take its memory.
                column = term.leaf.index
                same = [one for other in left for one in other if one.leaf.index == column and one.by_equality]
                known.update(zip(map(id, same), ask(column, same), strict=True))
            if (excluded := known[id(term)]) is not None:
                return excluded
        return None

    def ask(column: int, terms: Sequence[Term]) -> Sequence[Exclusion | None]:
        chunk = chunks[column]
        between = bounds(walk.meta(chunk), chunk.leaf, walk.footer.ordered[column])
        asked = [_Among(term, between) for term in terms]
        # Of values that are found without decoding, some are often in every row group: then filters are only a price.
        due = any((keys := term.many_texts) is None or not keys.quick or term.filter_yield.due for term in terms)
        answers = by_filter(walk, chunk, asked) if due else None
        for number, (term, one) in enumerate(zip(terms, asked, strict=True)):
            if answers is not None:
                term.filter_yield.add(answers[number] is not None)
            elif term.keys is not None:
                one.narrow(term.keys, None)
            if values_left is not None and one.left is not None:
                values_left[id(term)] = one.left
        return answers or [None] * len(terms)

    return by_condition(excluded or absent(way) for way, excluded in ways)


@dataclass(slots=True)
class _Among:
    """The values of a term, and which of them a row group leaves of many."""

    term: Term
    between: tuple[bytes, bytes] | None
    left: pa.Array | None = None

    def none_in(self, bloom_filter: SplitBlockBloomFilter) -> bool:
        if (keys := self.term.keys) is not None:
            return not self.narrow(keys, bloom_filter) and not keys.undecided
        return self.term.probe_set is not None and self.term.probe_set.none_in(bloom_filter)

    def narrow(self, keys: KeySet, bloom_filter: SplitBlockBloomFilter | None) -> int:
        count, self.left = keys.left(self.between, bloom_filter)
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
        answers = None
        if found is None and not keys.undecided:
            asked = keys.within(bounds(meta, chunk.leaf, walk.footer.ordered[leaf]))
            if (answers := by_filter(walk, chunk, [asked])) is not None:
                (found,) = answers
        if found is not None:
            excluded[group] = found
            continue
        kept.append(group)
        without += answers is None
    return RowGroupSelection(tuple(kept), excluded, without)
