"""Read the rows that match. The predicate's columns come first; other columns are read only in pages with such rows.

The offset index finds the pages of a row group, and the column index rules pages out (modules 7 and 6; Parquet page
index specification). A search for the values (`page_search`) then rules out more. Only flat columns are read page by
page; nested columns, and columns without an index, are read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ..core.errors import FormatError
from ..core.exclusion import by_page_index, by_page_search
from ..core.parquet.page import Page
from ..core.parquet.walk import Chunk, Walk
from ..format.decode import read_pages, read_row_group
from ..format.minifile import PageSelection
from .page_places import Deleted, Pages, Rows, Spans, indexed_pages
from .page_search import PageSearch, needles
from .predicate.predicate import Left, Predicate, Term
from .undecoded import find_rows

_AT_ONCE: Final = 1 << 20
"""Bytes of a row group that are decoded in the time that another decoder takes to begin."""
_WORTHWHILE: Final = 0.5
"""Above this share of a column's pages, reading the whole column chunk at once is faster."""


class RowGroupReader:
    """One row group; the pages of each of its columns are found once.

    Args:
        int96_unit: as for `read_row_group`.
        pages: see `ReadPlan`.
        deleted: tells which rows of the row group the file's table has deleted.

    Attributes:
        searched: every row in question is there because a search found a value on its page.
    """

    def __init__(
        self,
        walk: Walk,
        row_group: int,
        int96_unit: str = "ns",
        *,
        pages: Mapping[str, Sequence[int]] | None = None,
        deleted: Deleted | None = None,
    ) -> None:
        self._wanted_pages = pages or {}
        self._deleted = deleted
        self._walk = walk
        self._int96_unit = int96_unit
        self._row_group = row_group
        self._num_rows = walk.footer.row_group(row_group).num_rows or 0
        self._known: dict[int, Pages | None] = {}
        self.searched = False

    def matching(
        self,
        wanted: Sequence[int],
        predicate: Predicate,
        result_schema: Callable[[], pa.Schema],
        left: Left | None = None,
    ) -> pa.Table | None:
        """The rows that satisfy `predicate`; None where there are none.

        Args:
            wanted: leaves of the result, ascending.
            result_schema: gives the result's schema, top-level fields in the order wanted; asked only where a row
                matches.
            left: what `ruled_out` left of many values.

        Raises:
            FormatError, IntegrityError, KeyAccessError, UnsupportedError.
        """
        at_once = (self._walk.footer.row_group(self._row_group).total_byte_size or 0) <= _AT_ONCE
        # Many values are on most pages, of which there are few here.
        by_page = bool(self._wanted_pages) or predicate.few or not at_once
        spans = self.candidates(predicate, self.known(self._wanted_pages)) if by_page else None
        if not spans and spans is not None:
            return None
        leaves = self._walk.footer.schema.leaves
        looked_at = {leaf.index for leaf in predicate.leaves}
        found = self.undecoded(predicate, wanted, result_schema) if spans is None else None
        if spans is None and found is None and at_once:
            looked_at |= set(wanted)
        if spans is not None and self.searched:
            # A row is most likely there: one decoder for all columns costs less than one for the predicate's, and one
            # more.
            looked_at |= {leaf for leaf in wanted if self.exactly(leaf, spans)}
        if found is not None:
            rows, first = found
            hits = np.arange(len(rows))
            looked_at = {leaf for leaf in looked_at if first.num_columns}
        else:
            first = self.columns(sorted(looked_at), spans)
            hits = predicate.hits(first, left)
            rows = hits if spans is None else _rows(spans)[hits]
        if self._deleted is not None:
            left_over = ~self._deleted(rows)
            hits, rows = hits[left_over], rows[left_over]
        if not len(hits):
            return None
        # A top-level field is taken over from what was decoded only where it is wanted in the same shape.
        same = {leaves[i].path[0] for i in wanted} & {leaves[i].path[0] for i in looked_at}
        same -= {leaves[i].path[0] for i in set(wanted) ^ looked_at}
        kept = take(first.select(sorted(same)), hits)
        rest = self.columns([i for i in wanted if leaves[i].path[0] not in same], rows)
        schema = result_schema()
        columns = [(kept if name in same else rest).column(name) for name in schema.names]
        return pa.Table.from_arrays(columns, schema=schema)

    def known(self, pages: Mapping[str, Sequence[int]]) -> Spans:
        """The rows of these pages; all rows where the file does not tell which those are."""
        spans: Spans = [(0, self._num_rows)]
        for column, numbers in pages.items():
            places = self._pages(self._walk.footer.schema.leaf(column).index)
            if places is not None and max(numbers) < len(places.offsets):
                spans = _both(spans, _merged(map(places.span, numbers)))
        return spans

    def candidates(self, predicate: Predicate, within: Spans) -> Spans | None:
        """The rows, of those `within`, that column indexes and searches leave in question; None where that is most of
        them.
        """
        spans: Spans = []
        self.searched = True
        for conjunction in predicate.any_of:
            left, found = within, False
            # Bounds say no more where the pages are known.
            for term in conjunction if _count(within) == self._num_rows else ():
                left = _both(left, self._within_bounds(term))
            for term in conjunction:
                if left and (held := self._holding(term, left)) is not None:
                    left, found = _both(left, held), True
            self.searched &= found or not left
            spans = _merged(spans + left)
        few = _count(spans) <= _WORTHWHILE * self._num_rows
        return spans if few or self.searched else None

    def undecoded(
        self, predicate: Predicate, wanted: Sequence[int], result_schema: Callable[[], pa.Schema]
    ) -> tuple[Rows, pa.Table] | None:
        """The rows that hold one of many values, and their column, where it is wanted as text; None where all rows are
        to be decoded.
        """
        term = predicate.alone
        if term is None or (keys := term.many_texts) is None or not keys.quick(self._num_rows):
            return None
        found = find_rows(self._walk, self._row_group, term.leaf, keys)
        if found is None:
            return None
        columns = {}
        if len(found.rows) and term.leaf.index in wanted:
            kind = result_schema().field(name := term.leaf.path[0]).type
            # The decoder makes the column where the file asks for another type, such as a dictionary.
            texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            if texts and (taken := keys.taken(found.owners, kind)) is not None:
                columns[name] = taken
        return found.rows, pa.table(columns)

    def exactly(self, leaf: int, spans: Spans) -> bool:
        """Whether the column's pages that hold these rows hold no others."""
        pages = self._pages(leaf)
        return pages is not None and _merged(map(pages.span, pages.holding(spans))) == spans

    def columns(self, leaves: Sequence[int], rows: Rows | Spans | None) -> pa.Table:
        """Top-level fields, in any order, at these rows only (None: all)."""
        whole: list[int] = []
        # Columns whose pages hold the same rows are decoded together.
        together: dict[tuple[tuple[int, int], ...], dict[int, list[Page]]] = {}
        for leaf in leaves:
            pages = None if rows is None else self._pages(leaf)
            numbers = [] if pages is None or rows is None else pages.holding(rows)
            if pages is None or len(numbers) > max(1, _WORTHWHILE * len(pages.offsets)):
                whole.append(leaf)
            else:
                spans = tuple(_merged(map(pages.span, numbers)))
                together.setdefault(spans, {})[leaf] = list(self._opened(leaf, pages, numbers))
        tables = []
        for spans, selected in together.items():
            assert rows is not None  # noqa: S101
            selection = PageSelection(selected, _count(spans))
            table = read_pages(self._walk, self._row_group, selection, int96_unit=self._int96_unit)
            # The pages hold these rows: where they hold as many, they hold no others.
            exact = table.num_rows == (_count(rows) if isinstance(rows, list) else len(rows))
            tables.append(table if exact else take(table, np.searchsorted(_rows(spans), _rows(rows))))
        if whole:
            # Threads decode columns side by side: for a single one they are a price without a gain.
            unit, several = self._int96_unit, len(whole) > 1
            table = read_row_group(self._walk, self._row_group, whole, int96_unit=unit, use_threads=several)
            tables.append(table if rows is None else take(table, _rows(rows)))
        if len(tables) == 1:
            return tables[0]
        return pa.table({name: table.column(name) for table in tables for name in table.column_names})

    def _within_bounds(self, term: Term) -> Spans:
        """The rows that the column index leaves in question."""
        every: Spans = [(0, self._num_rows)]
        leaf = term.leaf.index
        if not term.by_pages:
            return every

        def rows_of_pages() -> list[int] | None:
            return None if (pages := self._pages(leaf)) is None else [end - first for first, end in pages.spans]

        excluded = by_page_index(self._walk, self._walk.chunk(self._row_group, leaf), term, rows_of_pages)
        pages = self._pages(leaf) if excluded else None
        if pages is None:
            return every
        return _merged(span for span, one in zip(pages.spans, excluded, strict=True) if one is None)

    def _holding(self, term: Term, within: Spans) -> Spans | None:
        """The rows, of those `within`, on pages that could hold the term's values; None where a search does not pay."""
        sought = needles(term)
        if not sought:
            return sought if sought is None else []
        leaf = term.leaf.index
        chunk = self._walk.chunk(self._row_group, leaf)
        search = PageSearch(self._walk.meta(chunk), sought)
        found: Spans = []
        places, opened = [], {}
        for first, end, page in self._shown(chunk, within):
            if page.ordinal >= 0:
                places.append((page.offset, page.length, first))
            if by_page_search(chunk, page, search.could_hold) is not None:
                continue
            opened[page.ordinal] = page
            if page.ordinal >= 0:
                found.append((first, end))
            if len(found) > 1 and _count(found) > _WORTHWHILE * self._num_rows:
                return None
        if leaf in self._known:
            if pages := self._known[leaf]:
                pages.opened.update(opened)
        elif places and len(term.leaf.path) == 1:
            offsets, sizes, first_rows = map(list, zip(*places, strict=True))
            self._known[leaf] = Pages(offsets, sizes, first_rows, self._num_rows, opened)
        return _merged(found)

    def _shown(self, chunk: Chunk, within: Spans) -> Iterator[tuple[int, int, Page]]:
        """The dictionary page, and the data pages that hold any of these rows, or all: first row, end, page."""
        leaf = chunk.leaf.index
        pages = None if within == [(0, self._num_rows)] else self._pages(leaf)
        if pages is None:
            end = 0
            for page in self._walk.pages(chunk):
                first, end = end, end + page.num_values
                yield first, end, page
        else:
            for page in self._opened(leaf, pages, pages.holding(within)):
                yield *(pages.span(page.ordinal) if page.ordinal >= 0 else (0, 0)), page

    def _pages(self, leaf: int) -> Pages | None:
        if leaf not in self._known:
            self._known[leaf] = indexed_pages(self._walk, self._walk.chunk(self._row_group, leaf))
        return self._known[leaf]

    def _opened(self, leaf: int, pages: Pages, numbers: Sequence[int]) -> Iterator[Page]:
        """The dictionary page where there is one, and these data pages."""
        chunk = self._walk.chunk(self._row_group, leaf)
        start, _ = self._walk.extent(chunk)
        if start < pages.offsets[0]:
            yield pages.opened.get(-1) or self._walk.page_at(chunk, start, pages.offsets[0] - start, -1)
        for number in numbers:
            page = pages.opened.get(number) or self._walk.page_at(
                chunk, pages.offsets[number], pages.sizes[number], number
            )
            first, end = pages.span(number)
            if page.num_values != end - first:
                raise FormatError(
                    f"page {number} holds {page.num_values} values, the offset index says {end - first} rows",
                    file=self._walk.source.name,
                    row_group=self._row_group,
                    column=chunk.leaf.name,
                )
            yield page


def _rows(of: Rows | Iterable[tuple[int, int]]) -> Rows:
    if isinstance(of, np.ndarray):
        return of
    return np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(first, end) for first, end in of)])


def _count(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in spans)


def _both(some: Spans, others: Spans) -> Spans:
    """The rows that are in both."""
    if some == others:
        return some
    out, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        first, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if first < end:
            out.append((first, end))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return out


def _merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """The rows of all, those that meet or overlap made one."""
    out: Spans = []
    for first, end in sorted(spans):
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((first, end))
    return out


def take(table: pa.Table, rows: Rows) -> pa.Table:
    """Its rows of these numbers, ascending, each once."""
    if len(rows) == table.num_rows or not table.num_columns:
        return table
    if int(rows.max(initial=-1)) >= table.num_rows:
        raise FormatError("a column holds fewer rows than its row group")
    # Not pa.array: the first time it is given anything of numpy's, it spends ten milliseconds on numpy.ma.
    raw = np.ascontiguousarray(rows, dtype=np.int64)
    indices = pa.Array.from_buffers(pa.int64(), len(raw), [None, pa.py_buffer(raw)])
    try:
        return table.take(indices)
    except pa.ArrowNotImplementedError:  # views can be sliced, but not taken from
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        return pa.concat_tables(
            [table.slice(int(run[0]), len(run)) for run in runs] if len(rows) else [table.slice(0, 0)]
        )
