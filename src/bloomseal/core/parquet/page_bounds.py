"""What is said of the values of single pages: the column index (module 6; Parquet page index specification)."""

from __future__ import annotations

from typing import NamedTuple

from ..encryption import ModuleType
from ..thrift.structs import ColumnIndex, decode
from .chunk import Chunk
from .statistics import PartBounds, null_count
from .walk import Walk


class PageBounds(NamedTuple):
    """What a column index says of a data page; `nulls` is None where it does not count them."""

    null: bool
    low: bytes
    high: bytes
    nulls: int | None

    @property
    def bounds(self) -> PartBounds:
        """What it proves, if it `fits` the page's rows."""
        return PartBounds(self.nulls is not None) if self.null else PartBounds(between=(self.low, self.high))

    def fits(self, rows: int) -> bool:
        """Whether a page of so many rows can be so: of a page that is null all rows are, of one with bounds not all."""
        return self.nulls is None or (self.nulls == rows if self.null else 0 <= self.nulls < rows)


def bounds_of_pages(walk: Walk, chunk: Chunk) -> list[PageBounds]:
    """The column index of a flat column, page by page; empty where there is none, or one that makes no sense, or that
    counts other nulls than the chunk's statistics.
    """
    raw = walk.index(chunk, ModuleType.COLUMN_INDEX)
    if raw is None:
        return []
    index = decode(ColumnIndex, raw)
    null, lows, highs = index.null_pages or [], index.min_values or [], index.max_values or []
    # Some writers without statistics call every page null, in REQUIRED columns too: only a count of nulls can prove it.
    counts: list[int] | list[None] = [None] * len(null)
    if index.null_counts and walk.footer.counts_nulls:
        counts = index.null_counts
        in_all = null_count(walk.meta(chunk), chunk.leaf) if chunk.leaf.definition else 0
        if in_all is not None and sum(index.null_counts) != in_all:
            return []
    if not len(null) == len(lows) == len(highs) == len(counts):
        return []
    return [PageBounds(*one) for one in zip(null, lows, highs, counts, strict=True)]
