"""How many bytes a decoder makes of column chunks, counted before it is called.

A text in a dictionary is decoded once for each reference, a run of levels or references stands for any number of
values, and DELTA_BYTE_ARRAY repeats what the text before begins with: a few bytes of a file could ask for gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..._lazy import deferred
from ...core.errors import FormatError
from ...core.limits import MAX_DECODED_BYTES, MAX_DECODED_TIMES
from ...core.parquet.footer import plain_footer
from ...core.parquet.layout import MAGIC, Column, FileMeta, Group, Meta
from ...core.parquet.levels import parts_of, tallied
from ...core.parquet.page import Page, read_page
from ...core.parquet.schema import Leaf
from ...core.sbbf import PhysicalType
from ...core.thrift import Struct, WireType, encode_binary
from ...sbbf import batch
from .inflate import DICTIONARY_ENCODINGS, PLAIN, Inflater

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")

_RLE: Final = 3
_DELTA_BINARY_PACKED: Final = 5
_DELTA_BYTE_ARRAY: Final = 7
_WIDTHS: Final = {PhysicalType.BOOLEAN: 1, PhysicalType.INT32: 4, PhysicalType.FLOAT: 4, PhysicalType.BYTE_ARRAY: 4}
_LEVELS: Final = 4
"""Bytes of the two levels of a value, as decoders hold them."""


class DecodedSize:
    """What decoding a column chunk takes at most, whose pages are added in their order.

    Args:
        leaf: its column.
        codec: of the pages (CompressionCodec).
        at_once: rows that are decoded together; None: all.

    Attributes:
        stored: bytes of the pages without compression.
    """

    def __init__(self, leaf: Leaf, codec: int | None, at_once: int | None) -> None:
        self.stored = 0
        self._leaf, self._codec = leaf, codec
        self._at_once = None if leaf.repeated else at_once
        self._each = _LEVELS + (leaf.type.type_length or _WIDTHS.get(leaf.type.physical, 8))
        # Values, and those that refer to a dictionary; bytes of texts that stand in the pages, and that pages repeat.
        self._values = self._references = self._plain = self._repeated = 0
        self._longest, self._lengths = 0, np.zeros(0, dtype=np.int64)

    def add(self, page: Page) -> None:
        size = page.view.uncompressed_size or 0
        self.stored += size
        if page.ordinal < 0:
            self._longest = size
        elif self._leaf.type.physical is not PhysicalType.BYTE_ARRAY:
            self._values += page.num_values
        else:
            self._values += page.num_values
            self._references += page.num_values if page.encoding in DICTIONARY_ENCODINGS else 0
            self._plain += 0 if page.encoding in DICTIONARY_ENCODINGS else size
            self._repeated += page.num_values * size if page.encoding == _DELTA_BYTE_ARRAY else 0

    @property
    def fixed(self) -> int:
        """Bytes, whatever the texts are."""
        return (self._values if self._at_once is None else min(self._values, self._at_once)) * self._each

    @property
    def bound(self) -> int:
        """Bytes, as far as the pages' headers tell."""
        references = self._references if self._at_once is None else min(self._references, self._at_once)
        return self.fixed + self._plain + self._repeated + references * self._longest

    def look_into_dictionary(self, data: memoryview) -> None:
        """Make the bound what its longest text allows.

        Args:
            data: the pages, in clear.
        """
        first = next(_pages(data), None) if self._references else None
        if first is None or first.ordinal >= 0:
            return
        size, kind = first.view.uncompressed_size or 0, (PhysicalType.BYTE_ARRAY, PLAIN, self._codec)
        found = _decoded_alone(first.body(), size, first.num_entries, kind)
        self._lengths = np.asarray(pc.binary_length(found), dtype=np.int64)
        self._longest = int(self._lengths.max(initial=0))

    def look_into_pages(self, data: memoryview) -> None:
        """Make the bound what the pages refer to and repeat; leave it, where they can't be taken apart: the decoder
        knows the codec, or will say what is wrong.
        """
        uses, repeated, inflate = np.zeros(len(self._lengths), dtype=np.int64), 0, Inflater(self._codec)
        for page in _pages(data):
            if page.ordinal < 0 or page.encoding not in (_DELTA_BYTE_ARRAY, *DICTIONARY_ENCODINGS):
                continue
            body = inflate(page)
            parts = None if body is None else parts_of(page, np.frombuffer(body, dtype=np.uint8), self._leaf)
            there = None if parts is None else tallied(parts[1], self._leaf.definition, page.num_values)
            if parts is None or there is None:
                return
            values, count = parts[2], int(there[-1])
            if page.encoding == _DELTA_BYTE_ARRAY:
                repeated += _beginnings(values, count)
            elif count and not (len(values) and batch.tally(values[1:], int(values[0]), count, uses)):
                return
        self._repeated, self._references, self._longest = repeated + int(uses @ self._lengths), 0, 0


def need_room(sizes: Sequence[DecodedSize], data: Sequence[memoryview]) -> None:
    """Refuse column chunks that a decoder would make far more bytes of than they are.

    Args:
        data: of each, its pages in clear.

    Raises:
        FormatError: they do not fit the limits.
    """
    stored = sum(one.stored for one in sizes)
    room = MAX_DECODED_BYTES + MAX_DECODED_TIMES * stored
    total = sum(one.bound for one in sizes)
    # Nothing is looked into that need not be, and nothing where numbers alone are too many.
    if total > room and sum(one.fixed for one in sizes) <= room:
        largest = sorted(zip(sizes, data, strict=True), key=lambda pair: -pair[0].bound)
        for look in (DecodedSize.look_into_dictionary, DecodedSize.look_into_pages):
            for one, pages in largest:
                if total > room:
                    look(one, pages)
                    total = sum(one.bound for one in sizes)
    if total > room:
        raise FormatError(
            f"pages of {stored} bytes that would be decoded to {total}, where {room} are the limit",
            hint="scan, or fewer columns at once",
        )


def _pages(data: memoryview) -> Iterator[Page]:
    position, ordinal = 0, -1
    while position < len(data):
        page, position = read_page(data, position, 0, ordinal, None, lambda *_: b"")
        yield page
        ordinal = page.ordinal + 1


def _beginnings(values: npt.NDArray[np.uint8], count: int) -> int:
    """Bytes that a page in DELTA_BYTE_ARRAY repeats: the sum of the lengths that come first (Parquet encodings)."""
    if not count:
        return 0
    found = _decoded_alone(values.tobytes(), len(values), count, (PhysicalType.INT32, _DELTA_BINARY_PACKED, 0))
    return int(np.asarray(found, dtype=np.int64).sum())


def _decoded_alone(data: Any, size: int, count: int, kind: tuple[int, int, int | None]) -> pa.ChunkedArray:
    """What pyarrow makes of a page's values, as if they were a page of a REQUIRED column.

    Args:
        size: without compression.
        kind: the physical type, the encoding, the codec.
    """
    physical, encoding, codec = kind
    inner = Struct()
    for field, number in ((1, count), (2, encoding), (3, _RLE), (4, _RLE)):
        inner.set_i32(field, number)
    header = Struct()
    for field, number in ((1, 0), (2, size), (3, len(data))):
        header.set_i32(field, number)
    header.set_struct(5, inner)
    page = header.to_bytes() + bytes(data)
    meta = Struct()
    meta.set_i32(Meta.TYPE, physical)
    meta.set_list(Meta.ENCODINGS, [], WireType.I32)
    meta.set_list(Meta.PATH, [encode_binary(b"x")], WireType.BINARY)
    meta.set_i32(Meta.CODEC, codec or 0)
    for field, number in (
        (Meta.NUM_VALUES, count),
        (Meta.UNCOMPRESSED, len(page)),
        (Meta.COMPRESSED, len(page)),
        (Meta.DATA_PAGE, len(MAGIC)),
    ):
        meta.set_i64(field, number)
    column, group, root, leaf, footer = Struct(), Struct(), Struct(), Struct(), Struct()
    column.set_i64(Column.FILE_OFFSET, 0)
    column.set_struct(Column.META, meta)
    group.set_list(Group.COLUMNS, [column.to_bytes()])
    group.set_i64(Group.TOTAL_BYTE_SIZE, len(page))
    group.set_i64(Group.NUM_ROWS, count)
    root.set_binary(4, b"schema")
    root.set_i32(5, 1)
    leaf.set_i32(1, physical)
    leaf.set_i32(3, 0)
    leaf.set_binary(4, b"x")
    footer.set_i32(FileMeta.VERSION, 1)
    footer.set_list(FileMeta.SCHEMA, [root.to_bytes(), leaf.to_bytes()])
    footer.set_i64(FileMeta.NUM_ROWS, count)
    footer.set_list(FileMeta.ROW_GROUPS, [group.to_bytes()])
    whole = MAGIC + page + plain_footer(footer.to_bytes())
    try:
        return pq.ParquetFile(pa.BufferReader(whole)).read(use_threads=False).column(0)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise FormatError(f"the decoder refused the pages ({type(error).__name__})") from None
