"""Which row groups are left once statistics and filters have been asked, about a predicate or about a set of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..core.parquet.statistics import all_null, bounds, no_nulls
from ..core.parquet.walk import Chunk, Walk
from ..core.sbbf import SplitBlockBloomFilter
from ..core.thrift.structs import ColumnMetaData
from ..format.calendar import need_one_calendar
from ..sbbf import KeySet
from ..storage.baton import waiting

if TYPE_CHECKING:
    from .predicate.predicate import Left, Predicate, Term

__all__ = ["RuledOut", "Survivors", "ruled_out", "survivors"]

FilterOf = Callable[[Chunk], SplitBlockBloomFilter | None]


class RuledOut(StrEnum):
    """What proved that a row group holds no row asked for."""

    BY_STATISTICS = "statistics"
    BY_FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Survivors:
    """The row groups in which a value of a set may be, and how the others were ruled out.

    Attributes:
        row_groups: their indexes.
        seen: row groups in the file.
        by_statistics, by_filter: ruled out.
        without_filter: among the survivors, those that no filter could be asked about.
    """

    row_groups: tuple[int, ...]
    seen: int
    by_statistics: int
    by_filter: int
    without_filter: int


def ruled_out(
    walk: Walk, group: int, predicate: Predicate, filter_of: FilterOf, values_left: Left | None = None
) -> RuledOut | None:
    """What rules a row group out; None where nothing does. No filter is opened before all statistics are asked.

    Args:
        filter_of: opens a column chunk's filter; each is asked before the next is opened, so they may share memory.
        values_left: filled with what bounds and filters leave of many values, so that rows are compared with those
            alone.
    """
    chunks = {leaf.index: walk.chunk(group, leaf.index) for leaf in predicate.leaves}
    # All are opened: whether a column without a key is refused must not depend on what is in the others.
    metas = {index: walk.meta(chunk) for index, chunk in chunks.items()}
    need_one_calendar(walk, group, (chunk.leaf for chunk in chunks.values()))
    ordered = walk.footer.ordered
    left = [
        conjunction
        for conjunction in predicate.any_of
        if not any(_outside(metas[term.leaf.index], ordered[term.leaf.index], term) for term in conjunction)
    ]
    if not left:
        return RuledOut.BY_STATISTICS
    known: dict[int, bool] = {}

    def absent(term: Term) -> bool:
        if not term.by_equality:
            return False
        if id(term) not in known:
            # All terms that ask this filter ask now: the next filter may take its memory.
            terms = [
                other
                for conjunction in left
                for other in conjunction
                if other.leaf.index == term.leaf.index and other.by_equality
            ]
            # Of many values, some are often in every row group: then filters rule out nothing, and are only a price.
            worth = any(other.keys is None or not other.keys.quick or other.filters.due for other in terms)
            bloom_filter = filter_of(chunks[term.leaf.index]) if worth else None
            for other in terms:
                known[id(other)] = none_of(other, bloom_filter)
                if bloom_filter is not None and other.keys is not None:
                    other.filters.told(known[id(other)])
        return known[id(term)]

    def none_of(term: Term, bloom_filter: SplitBlockBloomFilter | None) -> bool:
        index = term.leaf.index
        if (keys := term.keys) is None:
            return bloom_filter is not None and term.probe_set is not None and term.probe_set.none_in(bloom_filter)
        if bloom_filter is None and keys.quick:
            return False
        with waiting():
            count, values = keys.left(bounds(metas[index], term.leaf, ordered[index]), bloom_filter)
        if values_left is not None and values is not None:
            values_left[id(term)] = values
        return bloom_filter is not None and not keys.undecided and not count

    return RuledOut.BY_FILTER if all(any(map(absent, conjunction)) for conjunction in left) else None


def _outside(meta: ColumnMetaData, ordered: bool, term: Term) -> bool:
    """Do the statistics prove that no value satisfies the term?"""
    if term.op == "null":
        return no_nulls(meta, term.leaf)
    low_high = bounds(meta, term.leaf, ordered)
    return (low_high is not None and term.outside(*low_high)) or all_null(meta, term.leaf)


def survivors(
    walk: Walk, leaf: int, keys: KeySet, filter_of: FilterOf, groups: Sequence[int] | None = None
) -> Survivors:
    """Ask every row group, or these. Of a big set a filter is asked only for what lies between the least and the
    greatest value.
    """
    ordered = walk.footer.ordered[leaf]
    kept, by_statistics, by_filter, without = [], 0, 0, 0
    for group in range(len(walk.footer.row_groups)) if groups is None else groups:
        chunk = walk.chunk(group, leaf)
        meta = walk.meta(chunk)
        need_one_calendar(walk, group, [chunk.leaf])
        asked = keys.between(*(bounds(meta, chunk.leaf, ordered) or (None, None)))
        if all_null(meta, chunk.leaf) or not (keys.undecided or len(asked)):
            by_statistics += 1
            continue
        bloom_filter = None if keys.undecided else filter_of(chunk)
        if bloom_filter is not None and not bloom_filter.check_hashes(asked).any():
            by_filter += 1
            continue
        kept.append(group)
        without += bloom_filter is None
    return Survivors(tuple(kept), len(walk.footer.row_groups), by_statistics, by_filter, without)
