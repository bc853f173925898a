"""Reading the rows that match: the predicate's columns first, of the others only the pages that hold those rows.

Below the row group, pages are found by the offset index and ruled out by the column index (modules 7 and 6; Parquet page
index specification). Only flat columns are read by pages; nested ones, and those without an index, are read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..encryption import ModuleType
from ..errors import FormatError
from ..thrift.structs import ColumnIndex, OffsetIndex, decode
from .compare import is_null
from .minifile import PageSelection, read_pages, read_row_group
from .predicate import Predicate, Term
from .statistics import outside
from .walk import Chunk, Walk

__all__ = ["read_matching"]

Rows = npt.NDArray[np.int64]

_WORTHWHILE = 0.5
"""Above this share of a column's pages, reading the whole column chunk at once is faster."""


def read_matching(
    walk: Walk, row_group: int, wanted: Sequence[int], predicate: Predicate, result_schema: Callable[[], pa.Schema]
) -> pa.Table | None:
    """The rows of one row group that satisfy `predicate`; None where there are none.

    Args:
        wanted: leaves of the result, ascending.
        result_schema: gives the result's schema, top-level fields in the order wanted; asked only where a row matches.

    Raises:
        FormatError, IntegrityError, KeyAccessError.
    """
    leaves = walk.footer.schema.leaves
    looked_at = [leaf.index for leaf in predicate.leaves]
    candidates = _candidates(walk, row_group, predicate)
    first = _columns(walk, row_group, looked_at, candidates)
    hits = np.flatnonzero(predicate.mask(pa.table(first)).to_numpy())
    if not len(hits):
        return None
    rows = hits if candidates is None else candidates[hits]
    # A top-level field is taken over from the predicate's own columns only where it is wanted in the same shape.
    same = {leaves[i].path[0] for i in wanted} & {leaves[i].path[0] for i in looked_at}
    same -= {leaves[i].path[0] for i in set(wanted) ^ set(looked_at)}
    columns = {name: _take(column, hits) for name, column in first.items() if name in same}
    columns |= _columns(walk, row_group, [i for i in wanted if leaves[i].path[0] not in same], rows)
    schema = result_schema()
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _columns(walk: Walk, row_group: int, leaves: Sequence[int], rows: Rows | None) -> dict[str, pa.ChunkedArray]:
    """Top-level fields by name, at these rows only (None: all)."""
    whole, columns = [], {}
    for leaf in leaves:
        chunk = walk.chunk(row_group, leaf)
        selected = None if rows is None else _by_pages(walk, chunk, rows)
        if selected is None:
            whole.append(leaf)
        else:
            columns[chunk.leaf.name] = selected
    if whole:
        table = read_row_group(walk, row_group, whole, use_threads=True)
        for name in table.column_names:
            columns[name] = table.column(name) if rows is None else _take(table.column(name), rows)
    return columns


def _candidates(walk: Walk, row_group: int, predicate: Predicate) -> Rows | None:
    """The rows that the column indexes leave in question; None where that is most of them, or nothing is known."""
    if len(predicate.any_of) != 1:
        return None
    count = walk.footer.row_group(row_group).num_rows or 0
    kept = np.ones(count, dtype=np.bool_)
    for term in predicate.any_of[0]:
        chunk = walk.chunk(row_group, term.leaf.index)
        if not walk.footer.type_ordered[term.leaf.index] or (index := _page_index(walk, chunk)) is None:
            continue
        ruled_out = _ruled_out(walk, chunk, term)
        if ruled_out is None or len(ruled_out) != len(index.first_rows):
            continue
        for page in np.flatnonzero(ruled_out).tolist():
            kept[index.first_rows[page] : index.end(page)] = False
    rows = np.flatnonzero(kept)
    return rows if len(rows) < _WORTHWHILE * count else None


def _ruled_out(walk: Walk, chunk: Chunk, term: Term) -> list[bool] | None:
    """Per data page: do its bounds prove that no value satisfies the term?"""
    if term.op in ("!=", "not in") or (raw := walk.index(chunk, ModuleType.COLUMN_INDEX)) is None:
        return None
    bounds = decode(ColumnIndex, raw)
    nulls, lows, highs = bounds.null_pages or [], bounds.min_values or [], bounds.max_values or []
    if not len(nulls) == len(lows) == len(highs):
        return None
    out = []
    for null, low, high in zip(nulls, lows, highs, strict=True):

        def prove(op: str, value: Any, low: bytes = low, high: bytes = high) -> bool:
            return is_null(value) or outside(low, high, term.leaf.type, op, value)

        out.append(bool(null) or term.excluded_by(prove))
    return out


@dataclass(frozen=True)
class _PageIndex:
    offsets: Rows
    sizes: Rows
    first_rows: Rows
    num_rows: int

    def end(self, page: int) -> int:
        """The row after the page's last one."""
        return int(self.first_rows[page + 1]) if page + 1 < len(self.first_rows) else self.num_rows


def _page_index(walk: Walk, chunk: Chunk) -> _PageIndex | None:
    """The offset index of a flat column; None where there is none, or one that makes no sense."""
    if len(chunk.leaf.path) != 1 or chunk.leaf.repeated:
        return None
    raw = walk.index(chunk, ModuleType.OFFSET_INDEX)
    pages = decode(OffsetIndex, raw).pages if raw is not None else None
    if not pages:
        return None
    places = np.array([(page.offset or 0, page.size or 0, page.first_row or 0) for page in pages], dtype=np.int64)
    offsets, sizes, first_rows = places.T
    start, length = walk.extent(chunk)
    rows = walk.footer.row_group(chunk.row_group).num_rows or 0
    sound = (
        first_rows[0] == 0
        and first_rows[-1] < rows
        and bool(np.all(np.diff(first_rows) > 0))
        and bool(np.all(sizes > 0))
        and bool(np.all((offsets >= start) & (offsets <= start + length - sizes)))
    )
    return _PageIndex(offsets, sizes, first_rows, rows) if sound else None


def _by_pages(walk: Walk, chunk: Chunk, rows: Rows) -> pa.ChunkedArray | None:
    """A flat column at these rows (ascending), read from the pages that hold them; None where that does not pay."""
    index = _page_index(walk, chunk)
    if index is None:
        return None
    page_of = np.searchsorted(index.first_rows, rows, side="right") - 1
    wanted = np.unique(page_of)
    if len(wanted) > _WORTHWHILE * len(index.first_rows):
        return None
    pages, starts, count = [], np.zeros(len(index.first_rows), dtype=np.int64), 0
    start, _ = walk.extent(chunk)
    if start < index.offsets[0]:
        pages.append(walk.page_at(chunk, start, int(index.offsets[0]) - start, -1))
    for number in wanted.tolist():
        page = walk.page_at(chunk, int(index.offsets[number]), int(index.sizes[number]), number)
        held = index.end(number) - int(index.first_rows[number])
        if page.num_values != held:
            raise FormatError(
                f"page {number} holds {page.num_values} values, the offset index says {held} rows",
                file=walk.source.name,
                row_group=chunk.row_group,
                column=chunk.leaf.name,
            )
        pages.append(page)
        starts[number] = count
        count += held
    column = read_pages(walk, chunk.row_group, chunk.leaf.index, PageSelection(pages, count))
    return _take(column, rows - index.first_rows[page_of] + starts[page_of])


def _take(column: pa.ChunkedArray, rows: Rows) -> pa.ChunkedArray:
    if len(rows) == len(column):
        return column
    try:
        return column.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # views can be sliced, but not taken from
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        pieces = [piece for run in runs if len(run) for piece in column.slice(int(run[0]), len(run)).chunks]
        return pa.chunked_array(pieces, type=column.type)
