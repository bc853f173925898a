"""Which row groups are left once statistics and filters have been asked about a set of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..sbbf import KeySet, SplitBlockBloomFilter
from .statistics import all_null, bounds
from .walk import Chunk, Walk

__all__ = ["Survivors", "survivors"]


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


def survivors(
    walk: Walk, leaf: int, keys: KeySet, filter_of: Callable[[Chunk], SplitBlockBloomFilter | None]
) -> Survivors:
    """Ask every row group. Of a big set a filter is asked only for what lies between the least and the greatest value."""
    ordered = walk.footer.type_ordered[leaf]
    kept, by_statistics, by_filter, without = [], 0, 0, 0
    for group in range(len(walk.footer.row_groups)):
        chunk = walk.chunk(group, leaf)
        meta = walk.meta(chunk)
        asked = keys.between(*(bounds(meta, ordered) or (None, None)))
        if all_null(meta) or not (keys.undecided or len(asked)):
            by_statistics += 1
            continue
        bloom_filter = None if keys.undecided else filter_of(chunk)
        if bloom_filter is not None and not bloom_filter.check_hashes(asked).any():
            by_filter += 1
            continue
        kept.append(group)
        without += bloom_filter is None
    return Survivors(tuple(kept), len(walk.footer.row_groups), by_statistics, by_filter, without)
