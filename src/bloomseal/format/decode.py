"""Decoding: pyarrow reads the rows of opened modules, by way of plaintext files in memory (`minifile`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import BloomsealError, FormatError, Hint, UnsupportedError
from ..core.parquet.footer import plain_footer
from ..core.parquet.layout import Column, FileMeta, Group, Meta
from ..core.parquet.walk import Walk
from ..core.sbbf import PhysicalType
from ..core.storage.source import Buffer
from ..core.thrift import Struct
from .calendar import has_old_moments
from .minifile import MiniFile, PageSelection, mini_file

_CHECKED_ROWS = 1 << 16
_PART_BYTES = 4 << 20
"""Columns of fewer bytes than these are decoded together."""
_PIECE_BYTES = 1 << 19
_PIECE_ROWS = (1 << 10, 1 << 15)
_LEAST_WIDTH = 16
"""Bytes that a value is taken to have at least once it is decoded: dictionaries make it less as it is stored."""
_EPOCH_JULIAN_DAY: Final = 2_440_588
_JULIAN_1900: Final = 2_415_021
_DAY_NANOS: Final = 86_400 * 10**9
_NANOS: Final = {"us": 1_000, "ns": 1}
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])


def read_row_group(
    walk: Walk,
    row_group: int | None,
    leaves: Sequence[int],
    *,
    int96_unit: str = "ns",
    **options: Any,
) -> pa.Table:
    """Decode these leaves of one row group (None: of no row group, for the schema alone).

    Args:
        int96_unit: of the timestamps that INT96 becomes, ``ns`` or ``us``; ``cut``: microseconds, to which finer
            moments are cut as Spark does it.
        options: for pyarrow's reader.

    Raises:
        FormatError: pyarrow could not decode what the modules held.
        UnsupportedError: INT96 moments that `int96_unit` can't hold.
    """
    try:
        if row_group is None:
            return _decode(mini_file(walk, None, leaves).view, **_coerced(int96_unit), **options)
        # Each part's file in memory is gone before the next one's is made.
        tables = [
            _decode_moments(walk, part, mini_file(walk, row_group, part), int96_unit, **options)
            for part in _parts(walk, row_group, leaves)
        ]
        if len(tables) == 1:
            return tables[0]
        fields = [field for table in tables for field in table.schema]
        columns = [column for table in tables for column in table.columns]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields, tables[0].schema.metadata))
    except BloomsealError as error:
        raise error.at(file=walk.source.name, row_group=row_group) from error.__cause__


def read_in_pieces(
    walk: Walk, row_group: int, leaves: Sequence[int], size: int, *, int96_unit: str = "ns"
) -> Iterator[pa.Table]:
    """As `read_row_group`, about so many bytes of rows at a time: of the row group its pages are held, opened, but as
    small as they are stored.

    Raises:
        As `read_row_group`; what the decoder refuses, after the pieces before it.
    """
    rows = walk.footer.row_group(row_group).num_rows or 0
    stored = sum(walk.extent(walk.chunk(row_group, leaf))[1] for leaf in leaves)
    least, most = _PIECE_ROWS[0], _PIECE_ROWS[1] * size // _PIECE_BYTES
    piece = max(min(rows * size // max(stored, rows * len(leaves) * _LEAST_WIDTH, 1), most), least)
    several = len(leaves) > 1
    if rows <= piece:
        yield read_row_group(walk, row_group, leaves, int96_unit=int96_unit, use_threads=several and rows > least)
        return
    try:
        data = _checked_moments(walk, leaves, mini_file(walk, row_group, leaves, at_once=piece), int96_unit)
        yield from _batches(data, piece, use_threads=several, **_coerced(int96_unit))
    except BloomsealError as error:
        raise error.at(file=walk.source.name, row_group=row_group) from error.__cause__


def _parts(walk: Walk, row_group: int, leaves: Sequence[int]) -> list[Sequence[int]]:
    """The leaves of whole top-level fields that are decoded at once: all, unless they are many bytes.

    Raises:
        FormatError: column chunks that overlap.
    """
    sizes = [walk.extent(walk.chunk(row_group, leaf))[1] for leaf in leaves]
    if sum(sizes) > walk.source.size:
        # A thousand chunks that all claim the whole file would ask for a thousand times its size.
        raise FormatError("column chunks overlap: together they are larger than the file", row_group=row_group)
    parts: list[list[int]] = [[]]
    held = 0
    for leaf, size in zip(leaves, sizes, strict=True):
        begins = (
            not parts[-1] or walk.footer.schema.leaves[leaf].path[0] != walk.footer.schema.leaves[parts[-1][-1]].path[0]
        )
        if begins and held >= _PART_BYTES:
            parts.append([])
            held = 0
        parts[-1].append(leaf)
        held += size
    return list(parts)


def read_pages(walk: Walk, row_group: int, selection: PageSelection, *, int96_unit: str = "ns") -> pa.Table:
    """Decode some pages of some flat columns, as `read_row_group` does."""
    try:
        leaves = sorted(selection.pages)
        data = mini_file(walk, row_group, leaves, selection=selection)
        return _decode_moments(walk, leaves, data, int96_unit)
    except BloomsealError as error:
        raise error.at(file=walk.source.name, row_group=row_group) from error.__cause__


def decode_batches(data: Buffer, rows: int) -> Iterator[pa.ChunkedArray]:
    """The only column of a mini-file, so many rows at a time.

    Raises:
        FormatError: pyarrow could not decode it.
    """
    for table in _batches(data, rows):
        yield table.column(0)


def _batches(data: Buffer, rows: int, *, use_threads: bool = False, **options: Any) -> Iterator[pa.Table]:
    with _decoding():
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), **options)
        batches = file.iter_batches(rows, use_threads=use_threads)
    decoded = 0
    while True:
        # Not around the yield: an error of whoever takes the rows is not the decoder's.
        with _decoding():
            batch = next(batches, None)
        if batch is None:
            break
        decoded += batch.num_rows
        yield pa.Table.from_batches([batch])
        del batch
    _need_all(decoded, file)


def leaf_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column with one leaf, without nesting."""
    chunks = column.chunks
    while True:
        kind = chunks[0].type if chunks else column.type
        if pa.types.is_struct(kind):
            # flatten() gives children the parent's nulls, which field() would not.
            chunks = [chunk.flatten()[0] for chunk in chunks]
        elif pa.types.is_map(kind):
            keys_only = kind.item_type == pa.null()
            chunks = [chunk.keys if keys_only else chunk.items for chunk in chunks]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            chunks = [chunk.flatten() for chunk in chunks]
        else:
            return pa.chunked_array(chunks, type=None if chunks else kind)
        if not chunks:
            return pa.chunked_array([], type=_leaf_type(kind))


def _leaf_type(kind: pa.DataType) -> pa.DataType:
    while pa.types.is_nested(kind):
        kind = kind.field(0).type
    return kind


def _decode(data: Buffer, *, use_threads: bool = False, **options: Any) -> pa.Table:
    with _decoding():
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), **options)
        table = file.read(use_threads=use_threads)
    _need_all(table.num_rows, file)
    return table


def _coerced(int96_unit: str) -> dict[str, Any]:
    return {"coerce_int96_timestamp_unit": "us" if int96_unit == "cut" else int96_unit}


def _decode_moments(walk: Walk, leaves: Sequence[int], data: MiniFile, unit: str, **options: Any) -> pa.Table:
    """Decode a mini-file of these leaves; see `_checked_moments`."""
    return _decode(_checked_moments(walk, leaves, data, unit), **_coerced(unit), **options)


def _checked_moments(walk: Walk, leaves: Sequence[int], data: MiniFile, unit: str) -> memoryview:
    """A mini-file of these leaves, unless it holds INT96 moments that Arrow would turn into others.

    Those are looked at first, on the same pages, by way of more footers, which call them 12 plain bytes.
    """
    known, end, ends = walk.footer.schema.leaves, data.size, {}
    for place, leaf in enumerate(leaves):
        if known[leaf].type.physical is PhysicalType.INT96:
            view = data.view[:end]
            whole = bytes(view[-8 - int.from_bytes(view[-8:-4], "little") : -8])
            data.append(plain_footer(_int96_footer(walk, leaf, whole, place)))
            ends[leaf] = data.size
    for leaf, last in ends.items():
        try:
            for column in decode_batches(data.view[:last], _CHECKED_ROWS):
                values, old = leaf_values(column), has_old_moments(walk)
                check_moments(values, _coerced(unit)["coerce_int96_timestamp_unit"], cut=unit == "cut", old=old)
        except BloomsealError as error:
            raise error.at(column=known[leaf].name) from None
    return data.view[:end]


def _int96_footer(walk: Walk, leaf: int, whole: bytes, place: int) -> bytes:
    """A footer of a mini-file's column `place` alone, without its type; `whole` is the mini-file's own."""
    footer = Struct.parse(whole)
    group = Struct.parse(footer.elements(FileMeta.ROW_GROUPS)[0])
    column = Struct.parse(group.elements(Group.COLUMNS)[place])
    meta = Struct.parse(column.raw(Column.META) or b"\0")
    meta.set_i32(Meta.TYPE, PhysicalType.FIXED_LEN_BYTE_ARRAY)
    column.set_struct(Column.META, meta)
    group.set_list(Group.COLUMNS, [column.to_bytes()])
    footer.set_list(FileMeta.SCHEMA, walk.footer.schema.cut([leaf], physical=True))
    footer.set_list(FileMeta.ROW_GROUPS, [group.to_bytes()])
    footer.remove(FileMeta.KEY_VALUE)
    return footer.to_bytes()


def _need_all(decoded: int, file: pq.ParquetFile) -> None:
    """Arrow says nothing where the pages of lists hold fewer rows than the row group."""
    if decoded != file.metadata.num_rows:
        raise FormatError(f"the decoder found {decoded} rows of {file.metadata.num_rows}")


@contextlib.contextmanager
def _decoding() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError) as error:
        # Plaintext pages and CTR pages are not authenticated: hostile bytes get as far as the decoder.
        raise FormatError(f"the decoder refused the pages ({type(error).__name__})") from None


def check_moments(values: pa.ChunkedArray, unit: str, *, cut: bool = False, old: bool = False) -> None:
    """Refuse INT96 values (as 12 bytes each, or null) that a decoder would not turn into the same instants.

    Args:
        unit: of the decoded timestamps: ``ns`` or ``us``.
        cut: what is finer than the unit is cut off, as the caller wants it.
        old: those before 1900 are by an older calendar (`..calendar`).

    Raises:
        UnsupportedError: a moment that the unit can't hold, or only in part, or by another calendar.
    """
    step = _NANOS[unit]
    for chunk in values.chunks:
        known = chunk.drop_null()
        if not len(known):
            continue
        _, data = known.buffers()
        raw = np.frombuffer(data, dtype=_LAYOUT, count=len(known), offset=known.offset * _LAYOUT.itemsize)
        nanos, stored = raw["nanos"], raw["day"]
        day = stored.astype(np.int64) - _EPOCH_JULIAN_DAY + nanos // _DAY_NANOS
        rest = nanos % _DAY_NANOS
        (first, earliest), (last, latest) = (
            divmod(-(1 << 63) * step, _DAY_NANOS),
            divmod(((1 << 63) - 1) * step, _DAY_NANOS),
        )
        held = (day > first) | ((day == first) & (rest >= earliest))
        held &= (day < last) | ((day == last) & (rest <= latest))
        if old and (stored < _JULIAN_1900).any():
            raise UnsupportedError("INT96 moments before 1900 by an older calendar", hint=Hint.WITHOUT_COLUMN)
        # Arrow takes days as unsigned, and nanoseconds too before it divides them.
        held &= stored >= 0
        if step > 1:
            held &= nanos >= 0
        if not held.all():
            raise UnsupportedError(
                "INT96 moments outside of the years 1677 to 2262, which nanoseconds can't hold"
                if unit == "ns"
                else "INT96 moments that microseconds can't hold",
                hint=Hint.INT96_US if unit == "ns" else Hint.WITHOUT_COLUMN,
            )
        if not cut and (rest % step).any():
            raise UnsupportedError("INT96 moments finer than a microsecond", hint=Hint.INT96_NS)
