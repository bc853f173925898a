"""Plaintext Parquet files in memory, made of opened modules, for pyarrow to decode. They never touch a disk."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa

from ..core.errors import BloomsealError, FormatError, UnsupportedError
from ..core.parquet.footer import plain_footer
from ..core.parquet.layout import MAGIC, Column, FileMeta, Group, Meta
from ..core.parquet.page import Page, resized_header
from ..core.parquet.schema import Schema
from ..core.parquet.walk import Chunk, Walk
from ..core.sbbf import PhysicalType
from ..core.storage.source import Buffer, fresh
from ..core.thrift import Struct, WireType, encode_binary
from .calendar import need_one_calendar
from .pages.decoded import DecodedSize, need_room

_ARROW_SCHEMA = b"ARROW:schema"
_UNCOMPRESSED = 0
_LAST_ENCODING = 9
"""BYTE_STREAM_SPLIT, the last that Arrow decodes (parquet.thrift, Encoding)."""
_FOOTER_ROOM = 1 << 14
_REMEMBERED = 64
"""Files of one table have one schema: what is cut from it for a set of columns is kept for so many sets."""


@dataclass(frozen=True, slots=True)
class PageSelection:
    """Some pages of each of some leaves, a dictionary page first where there is one, and how many rows they hold."""

    pages: Mapping[int, Sequence[Page]]
    num_rows: int


class MiniFile:
    """A file in memory, as it grows.

    Args:
        room: bytes that it is likely to have.
    """

    __slots__ = ("_buffer", "size")

    def __init__(self, room: int) -> None:
        self._buffer = fresh(room)
        self.size = 0

    @property
    def view(self) -> memoryview:
        """What was written."""
        return memoryview(self._buffer)[: self.size]

    def take(self, size: int) -> memoryview:
        """So many more bytes, to be filled before others are taken."""
        begin, end = self.size, self.size + size
        if end > len(self._buffer):
            larger = fresh(end + end // 8)
            memoryview(larger)[:begin] = self.view
            self._buffer = larger
        self.size = end
        return memoryview(self._buffer)[begin:end]

    def append(self, data: Buffer) -> None:
        self.take(len(data))[:] = data


def mini_file(
    walk: Walk,
    row_group: int | None,
    leaves: Sequence[int],
    *,
    physical: bool = False,
    selection: PageSelection | None = None,
    at_once: int | None = None,
) -> MiniFile:
    """A plaintext Parquet file of these leaves (indexes, ascending) of one row group, or of none.

    Pages are opened straight into the file's bytes; page headers say the plaintext size; statistics, indexes and
    filters are left out.

    Args:
        physical: without logical types, see `Schema.cut`.
        selection: these pages only, of all `leaves`.
        at_once: the rows that will be decoded together; None: all.

    Raises:
        FormatError: broken, or more than a decoder may make of it (`need_room`).
        UnsupportedError: dates by an older calendar (`need_one_calendar`).
        IntegrityError, KeyAccessError.
    """
    chunks = [] if row_group is None else [walk.chunk(row_group, leaf) for leaf in leaves]
    if row_group is not None and not physical:
        need_one_calendar(walk, row_group, (chunk.leaf for chunk in chunks))
    # Opening makes pages smaller; a header may grow by the few bytes of a changed varint, and `inflated` pages more
    # room.
    if selection is not None:
        room = sum(page.length for pages in selection.pages.values() for page in pages)
    else:
        room = sum(walk.extent(chunk)[1] for chunk in chunks)
    if room > walk.source.size:
        # A thousand chunks that all claim the whole file would ask for a thousand times its size.
        raise FormatError("column chunks overlap: together they are larger than the file", row_group=row_group)
    if selection is not None:
        room += sum(len(page.inflated or b"") for pages in selection.pages.values() for page in pages)
    out = MiniFile(room + _FOOTER_ROOM)
    out.append(MAGIC)
    columns, sizes, ends = [], [], [out.size]
    for chunk in chunks:
        pages = walk.pages(chunk, passing=True) if selection is None else selection.pages[chunk.leaf.index]
        inflated = isinstance(pages, Sequence) and all(page.inflated is not None for page in pages)
        sizes.append(DecodedSize(chunk.leaf, _UNCOMPRESSED if inflated else walk.meta(chunk).codec, at_once))
        columns.append(_add_chunk(walk, chunk, pages, out, physical, inflated, sizes[-1]))
        ends.append(out.size)
    need_room(sizes, [out.view[start:end] for start, end in pairwise(ends)])
    rows, groups = 0, []
    if row_group is not None:
        rows = selection.num_rows if selection else walk.footer.row_group(row_group).num_rows or 0
        struct = Struct()
        struct.set_list(Group.COLUMNS, columns)
        struct.set_i64(Group.TOTAL_BYTE_SIZE, out.size)
        struct.set_i64(Group.NUM_ROWS, rows)
        groups.append(struct.to_bytes())
    out.append(plain_footer(_footer(walk, leaves, rows, groups, physical)))
    return out


def _footer(walk: Walk, leaves: Sequence[int], rows: int, groups: list[bytes], physical: bool) -> bytes:
    footer = Struct()
    original = walk.footer.struct
    # The decoder goes by who wrote the pages, and so may only be told by a verified footer.
    for field in (FileMeta.VERSION, *((FileMeta.CREATED_BY,) if walk.footer.verified else ())):
        if field in original:
            footer.fields[field] = original.fields[field]
    footer.set_list(FileMeta.SCHEMA, walk.footer.schema.cut(leaves, physical=physical))
    footer.set_i64(FileMeta.NUM_ROWS, rows)
    footer.set_list(FileMeta.ROW_GROUPS, groups)
    if not physical:
        footer.set_list(FileMeta.KEY_VALUE, _key_values(walk, frozenset(leaves)))
    return footer.to_bytes()


def _add_chunk(
    walk: Walk, chunk: Chunk, pages: Iterable[Page], out: MiniFile, physical: bool, inflated: bool, counted: DecodedSize
) -> bytes:
    original = walk.meta(chunk)
    start, uncompressed, values, dictionary, first_data = out.size, 0, 0, None, None
    some = bool(original.num_values)
    for page in pages:
        if some and page.ordinal >= 0 and not page.num_values:
            continue  # Arrow writes such pages, and may then find fewer rows of lists than there are
        try:
            _need_decodable(page, original.codec)
        except BloomsealError as error:
            place = f"{page.kind.label} {page.ordinal}"
            raise error.at(file=walk.source.name, module=place, **chunk.place) from None
        counted.add(page)
        body = page.inflated if inflated else None
        header = plain_header(page, page.size if body is None else len(body))
        if page.ordinal < 0:
            dictionary = out.size
        elif first_data is None:
            first_data = out.size
        out.append(header)
        if body is not None:
            out.append(body)
        else:
            _open_into(walk, chunk, page, out.take(page.size))
        uncompressed += len(header) + (page.view.uncompressed_size or 0)
        values += page.num_values
    kind = original.type or 0
    if physical and kind == PhysicalType.INT96:
        kind = PhysicalType.FIXED_LEN_BYTE_ARRAY
    meta = Struct()
    meta.set_i32(Meta.TYPE, kind)
    meta.set_list(Meta.ENCODINGS, [], WireType.I32)  # a field that must be there; decoders go by the pages' headers
    meta.set_list(Meta.PATH, [encode_binary(name.encode()) for name in chunk.leaf.path], WireType.BINARY)
    meta.set_i32(Meta.CODEC, _UNCOMPRESSED if inflated else original.codec or _UNCOMPRESSED)
    meta.set_i64(Meta.NUM_VALUES, values)
    meta.set_i64(Meta.UNCOMPRESSED, uncompressed)
    meta.set_i64(Meta.COMPRESSED, out.size - start)
    meta.set_i64(Meta.DATA_PAGE, start if first_data is None else first_data)
    if dictionary is not None:
        meta.set_i64(Meta.DICTIONARY_PAGE, dictionary)
    column = Struct()
    column.set_i64(Column.FILE_OFFSET, 0)
    column.set_struct(Column.META, meta)
    return column.to_bytes()


def _need_decodable(page: Page, codec: int | None) -> None:
    if not page.could_inflate(codec):
        # The decoder takes as much memory as a page's header claims: a few bytes could ask for two gigabytes.
        raise FormatError(
            f"a page of {page.size} bytes that claims to hold {page.view.uncompressed_size}: its codec can't do that"
        )
    if (page.encoding or 0) > _LAST_ENCODING:
        raise UnsupportedError(
            f"values in encoding {page.encoding}, which is younger than the decoder",
            hint="write the column again in another encoding",
        )


def _open_into(walk: Walk, chunk: Chunk, page: Page, out: memoryview) -> None:
    try:
        page.open_into(out)
    except BloomsealError as error:
        raise error.at(
            file=walk.source.name, module=f"{page.kind.label} {page.ordinal}", **chunk.place
        ) from error.__cause__


def plain_header(page: Page, size: int | None = None) -> bytes:
    """The page's header with the plaintext's size, or `size`; without the CRC, which covers the bytes as stored."""
    size = page.size if size is None else size
    if size == page.view.size and page.view.crc is None:
        return page.header
    return resized_header(page, size)


def _key_values(walk: Walk, leaves: frozenset[int]) -> list[bytes]:
    return _cut_key_values(walk.footer.struct.fields.get(FileMeta.KEY_VALUE), walk.footer.schema, leaves)


@lru_cache(maxsize=_REMEMBERED)
def _cut_key_values(field: tuple[int, bytes] | None, schema: Schema, leaves: frozenset[int]) -> list[bytes]:
    """Key-value metadata; the Arrow schema in it is cut to the fields that are there, or left out."""
    struct = Struct()
    if field is not None:
        struct.fields[FileMeta.KEY_VALUE] = field
    whole = schema.whole_fields(leaves)
    kept = []
    for raw in struct.elements(FileMeta.KEY_VALUE):
        pair = Struct.parse(raw)
        if pair.binary(1) == _ARROW_SCHEMA and not all(complete for _, complete in whole):
            touched = {schema.leaves[leaf].path[0] for leaf in leaves}
            cut = _cut_arrow_schema(pair.binary(2) or b"", touched, whole)
            if cut is None:
                continue
            pair.set_binary(2, cut)
            raw = pair.to_bytes()
        kept.append(raw)
    return kept


def _cut_arrow_schema(encoded: bytes, touched: set[str], whole: list[tuple[str, bool]]) -> bytes | None:
    if any(name in touched and not complete for name, complete in whole):
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
    except (pa.ArrowException, OSError, ValueError):
        return None
    if len(schema) != len(whole):
        return None
    fields = [schema.field(i) for i, (_, complete) in enumerate(whole) if complete]
    return base64.b64encode(pa.schema(fields, metadata=schema.metadata).serialize().to_pybytes())
