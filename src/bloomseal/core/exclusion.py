"""What may be left out of a read, and by what proof.

Every row group, page, part or file that any room leaves out is an `Exclusion`, and only the functions of this module
make one. Each looks at its proof itself: at an authenticated filter, at statistics that fit the counts around them, at
a folder's name that the caller's expectation lets speak, at the identity of the file that an index is about. What a
comparison makes of the proof is the business of the caller, whose `Comparison` or `ValueSet` is asked.

A caller keeps what has no exclusion. So a doubt is no exclusion, and an error while one is looked for is an error of
the read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from .cached import cached_property
from .parquet.belief import believed_filter
from .parquet.chunk import Chunk
from .parquet.expectation import Expectation
from .parquet.page import Page
from .parquet.page_bounds import bounds_of_pages
from .parquet.schema import Schema
from .parquet.statistics import PartBounds, part_bounds
from .parquet.walk import Walk
from .sbbf import SplitBlockBloomFilter

Bools = npt.NDArray[np.bool_]


class Reason(StrEnum):
    """What proves that no row asked for is in a place."""

    CONDITION = "condition"
    """No row satisfies it, wherever it is."""
    FOLDER = "folder"
    """The values that a folder's name, or a table's log, gives a file."""
    COLUMN = "column"
    """The file lacks a column, which so is null in it."""
    INDEX = "index"
    STATISTICS = "statistics"
    PAGE_INDEX = "page index"
    PAGE_SEARCH = "page search"
    FILTER = "filter"


_ORDER: Final = {reason: place for place, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why some row groups, pages or files hold no row that is asked for.

    Attributes:
        reason: what proves it; of several proofs the last that was needed.
        column: whose values it is about; None where it is about several columns.
    """

    reason: Reason
    column: str | None = None


_NOWHERE: Final = Exclusion(Reason.CONDITION)


class Comparison(Protocol):
    """``column op values``, as bounds are asked about it."""

    @property
    def op(self) -> str: ...
    def outside(self, low: bytes, high: bytes) -> bool:
        """Whether no value between these bounds, in plain encoding and inclusive, satisfies it."""


class ValueSet(Protocol):
    """Values, as a filter is asked about them."""

    def none_in(self, bloom_filter: SplitBlockBloomFilter) -> bool:
        """Whether the filter excludes each of them."""


class IndexedFile(Protocol):
    """The file that an index is about."""

    def is_same(self, file: Any) -> bool:
        """Whether an open file is that one. Every doubt says no."""


def by_condition(alternatives: Iterable[Exclusion | None]) -> Exclusion | None:
    """By all ways in which rows could be there, each of which is excluded; None where one is not."""
    last = _NOWHERE
    for one in alternatives:
        if one is None:
            return None
        if _ORDER[one.reason] > _ORDER[last.reason]:
            last = one
    return last


def by_statistics(walk: Walk, chunk: Chunk, asked: Comparison) -> Exclusion | None:
    """By what the statistics of a column chunk prove, see `part_bounds`.

    Raises:
        FormatError, IntegrityError, KeyAccessError.
    """
    ordered = walk.footer.ordered[chunk.leaf.index]
    return by_bounds(part_bounds(walk.meta(chunk), chunk.leaf, ordered), asked, chunk.leaf.name)


def by_bounds(bounds: PartBounds, asked: Comparison, column: str | None = None) -> Exclusion | None:
    """By bounds. Of ORC files, whose statistics nobody authenticates: the caller has allowed that, or the file is in
    clear.
    """
    return Exclusion(Reason.STATISTICS, column) if _outside(bounds, asked) else None


def by_page_index(
    walk: Walk, chunk: Chunk, asked: Comparison, rows_of_pages: Callable[[], Sequence[int] | None]
) -> list[Exclusion | None]:
    """For each data page of a flat column, by the column index (module 6); empty where that proves nothing.

    Args:
        rows_of_pages: how many rows each page has, by the offset index; None: nobody knows.

    Raises:
        FormatError, IntegrityError, KeyAccessError.
    """
    listed = bounds_of_pages(walk, chunk) if walk.footer.ordered[chunk.leaf.index] else []
    found = [Exclusion(Reason.PAGE_INDEX, chunk.leaf.name) if _outside(one.bounds, asked) else None for one in listed]
    if not any(found):
        return []
    rows = rows_of_pages()
    # Whoever counts more nulls than a page has rows, or fewer on a page of nulls, did not look.
    fits = rows is not None and len(rows) == len(listed) and all(map(type(listed[0]).fits, listed, rows))
    return found if fits else []


def by_page_search(chunk: Chunk, page: Page, could_hold: Callable[[Page], bool]) -> Exclusion | None:
    """By the bytes of a page, in which no value asked for is encoded. Raises IntegrityError: it does not open."""
    return None if could_hold(page) else Exclusion(Reason.PAGE_SEARCH, chunk.leaf.name)


class BelievedFilter:
    """The filter of a column chunk, opened when it is first asked about values.

    Raises:
        As `believed_filter`, where it is opened.
    """

    def __init__(self, walk: Walk, chunk: Chunk) -> None:
        self._walk, self._chunk = walk, chunk

    @cached_property
    def _opened(self) -> SplitBlockBloomFilter | None:
        return believed_filter(self._walk, self._chunk)

    @property
    def exists(self) -> bool:
        """Whether there is one that is believed."""
        return self._opened is not None


def by_filter(bloom_filter: BelievedFilter, asked: ValueSet) -> Exclusion | None:
    """By a filter that excludes each of these values; None also where there is none that is believed.

    Raises:
        As `believed_filter`.
    """
    found, column = bloom_filter._opened, bloom_filter._chunk.leaf.name
    return Exclusion(Reason.FILTER, column) if found is not None and asked.none_in(found) else None


def by_orc_filters(possible: Bools) -> dict[int, Exclusion]:
    """For row groups of a stripe, by filters that leave nothing possible. Nobody authenticates those: the caller has
    allowed that, or the file is in clear.
    """
    return dict.fromkeys(np.flatnonzero(~possible).tolist(), Exclusion(Reason.FILTER))


def by_folder(expected: Expectation, columns: Iterable[str]) -> Exclusion:
    """By values that the names of folders, or a table's log, give a file, and that a condition rejects; without any
    such column it rejects every row.

    Raises:
        PolicyError: one of the columns may be a sealed one, see `Expectation.outside`.
    """
    names = sorted(set(columns))
    for name in names:
        expected.outside(name)
    return Exclusion(Reason.FOLDER if names else Reason.CONDITION, names[0] if len(names) == 1 else None)


def by_column(schema: Schema, columns: Iterable[str]) -> Exclusion | None:
    """By columns that a file lacks, of which a condition wants values; None where it has one of them."""
    names = sorted(set(columns))
    if not names or any(map(schema.has, names)):
        return None
    return Exclusion(Reason.COLUMN, names[0] if len(names) == 1 else None)


def by_index(entry: IndexedFile, file: Any, row_groups: int, left: Sequence[int]) -> dict[int, Exclusion] | None:
    """For row groups of an open file, by an index that knows the values in those `left` alone; None where the file is
    not the one that the index is about.
    """
    if not entry.is_same(file):
        return None
    return dict.fromkeys(sorted({*range(row_groups)}.difference(left)), Exclusion(Reason.INDEX))


def of_unopened(covered: Bools, numbers: Iterable[int], left: Container[int]) -> dict[int, Exclusion]:
    """For files that nobody opens, by an index that knows the values in those `left` alone.

    Args:
        covered: by a file's number, whether the file that is there now is one that the index is about.
        numbers: the files in question.
    """
    gone, is_covered = Exclusion(Reason.INDEX), covered.tolist()
    return {number: gone for number in numbers if number not in left and is_covered[number]}


def _outside(bounds: PartBounds, asked: Comparison) -> bool:
    """Whether no value of a part satisfies a comparison; null satisfies none but ``null``."""
    if asked.op == "null":
        return bounds.no_nulls
    return bounds.only_nulls or (bounds.between is not None and asked.outside(*bounds.between))
