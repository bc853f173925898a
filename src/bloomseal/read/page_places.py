"""Where the pages of a flat column are, and which rows they hold: the offset index (module 7; Parquet page index
specification).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from ..core.encryption import ModuleType
from ..core.parquet.page import Page
from ..core.parquet.walk import Chunk, Walk
from ..core.thrift.structs import OffsetIndex, decode

Rows = npt.NDArray[np.int64]
Spans = list[tuple[int, int]]
"""Disjoint ranges of rows, ascending."""
Deleted = Callable[[Rows], npt.NDArray[np.bool_]]
"""Tells which rows of a row group, by their numbers, its table has deleted."""

_PLACE: Final = ("offset", "size", "first_row")


@dataclass(frozen=True)
class Pages:
    """Where a flat column's data pages are, and which rows they hold.

    Attributes:
        offsets, sizes, first_rows: of each data page.
        num_rows: of the row group.
        opened: pages at hand, by ordinal; −1 is the dictionary page.
    """

    offsets: list[int]
    sizes: list[int]
    first_rows: list[int]
    num_rows: int
    opened: dict[int, Page] = field(default_factory=dict)

    def span(self, page: int) -> tuple[int, int]:
        """The page's first row, and the row after its last one."""
        return self.first_rows[page], (self.first_rows[page + 1 : page + 2] or [self.num_rows])[0]

    @property
    def spans(self) -> Spans:
        """The rows of each page, see `span`."""
        return [self.span(page) for page in range(len(self.offsets))]

    def holding(self, rows: Rows | Spans) -> list[int]:
        """The pages that hold any of these rows (ascending)."""
        found: list[int] = []
        if not isinstance(rows, list):
            cuts = np.searchsorted(rows, [*self.first_rows, self.num_rows])
            found += np.flatnonzero(np.diff(cuts)).tolist()
            return found
        for first, end in rows:
            numbers = range(bisect_right(self.first_rows, first) - 1, bisect_left(self.first_rows, end))
            found += numbers[1:] if found and found[-1] == numbers.start else numbers
        return found


def indexed_pages(walk: Walk, chunk: Chunk) -> Pages | None:
    """The offset index of a flat column; None where there is none, or one that makes no sense."""
    if len(chunk.leaf.path) != 1 or chunk.leaf.repeated:
        return None
    raw = walk.index(chunk, ModuleType.OFFSET_INDEX)
    listed = decode(OffsetIndex, raw).pages if raw is not None else None
    if not listed:
        return None
    offsets, sizes, first_rows = ([getattr(page, name) or 0 for page in listed] for name in _PLACE)
    start, length = walk.extent(chunk)
    ends = [*offsets[1:], start + length]
    rows = walk.footer.row_group(chunk.row_group).num_rows or 0
    sound = (
        first_rows[0] == 0
        and all(before < after for before, after in pairwise([*first_rows, rows]))
        and all(size > 0 for size in sizes)
        and start <= offsets[0]
        # Pages stand one behind the other: a page left out, or out of its place, would move all rows behind it.
        and all(offset + size == after for offset, size, after in zip(offsets, sizes, ends, strict=True))
    )
    return Pages(offsets, sizes, first_rows, rows) if sound else None
