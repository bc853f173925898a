"""As much of a Parquet writer as the kit needs: flat optional columns, V1 pages, no compression, one filter behind each
chunk.

Its bytes depend on nothing but its input, so that the kit can be made again byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby

from bloomseal.core.thrift import Struct, WireType, encode_binary

PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8


class Type(IntEnum):
    """Physical types."""

    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


@dataclass(frozen=True)
class Column:
    """A column of the schema; `converted` is its ConvertedType."""

    name: str
    type: Type
    converted: int | None = None
    length: int | None = None
    scale: int | None = None
    precision: int | None = None


@dataclass
class Chunk:
    """One column chunk.

    Attributes:
        pages: of stored values (plain encoding without lengths; None for null), one list for each data page.
        dictionary: entries of its dictionary page.
        from_dictionary: how many of the pages, from the first on, hold indices.
        bitset, num_bytes: its filter, and the size that its header gives.
        filter_of: whose filter its metadata points to: another chunk's, where offsets were exchanged.
    """

    pages: list[list[bytes | None]]
    bitset: bytes
    dictionary: list[bytes] = field(default_factory=list)
    from_dictionary: int = 0
    filter_of: Chunk | None = None

    @property
    def values(self) -> list[bytes | None]:
        """All of them, in their order."""
        return [value for page in self.pages for value in page]


def file_of(columns: Sequence[Column], groups: Sequence[Sequence[Chunk]]) -> bytes:
    """The whole file."""
    out = bytearray(b"PAR1")
    places: dict[int, Struct] = {}
    for group in groups:
        for column, chunk in zip(columns, group, strict=True):
            places[id(chunk)] = _pages(out, column, chunk)
    filters: dict[int, tuple[int, int]] = {}
    for group in groups:
        for chunk in group:
            start = len(out)
            out += _filter_header(len(chunk.bitset)) + chunk.bitset
            filters[id(chunk)] = start, len(out) - start
    rows, row_groups = 0, []
    for group in groups:
        chunks = []
        for chunk in group:
            meta = places[id(chunk)]
            offset, length = filters[id(chunk.filter_of or chunk)]
            meta.set_i64(14, offset)
            meta.set_i32(15, length)
            told = Struct()
            told.set_i64(2, 0)
            told.set_struct(3, meta)
            chunks.append(told.to_bytes())
        raw = Struct()
        raw.set_list(1, chunks)
        raw.set_i64(2, sum(places[id(chunk)].integer(6) or 0 for chunk in group))
        raw.set_i64(3, len(group[0].values))
        row_groups.append(raw.to_bytes())
        rows += len(group[0].values)
    footer = _footer(columns, rows, row_groups)
    return bytes(out + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _footer(columns: Sequence[Column], rows: int, row_groups: list[bytes]) -> bytes:
    root = Struct()
    root.set_binary(4, b"schema")
    root.set_i32(5, len(columns))
    footer = Struct()
    footer.set_i32(1, 1)
    footer.set_list(2, [root.to_bytes(), *map(_element, columns)])
    footer.set_i64(3, rows)
    footer.set_list(4, row_groups)
    footer.set_binary(6, b"filter-kit version 1.0")
    return footer.to_bytes()


def _element(column: Column) -> bytes:
    element = Struct()
    element.set_i32(1, column.type)
    if column.length is not None:
        element.set_i32(2, column.length)
    element.set_i32(3, 1)
    element.set_binary(4, column.name.encode())
    for number, value in ((6, column.converted), (7, column.scale), (8, column.precision)):
        if value is not None:
            element.set_i32(number, value)
    return element.to_bytes()


def _pages(out: bytearray, column: Column, chunk: Chunk) -> Struct:
    """Append the pages; the chunk's metadata so far."""
    start = len(out)
    if chunk.dictionary:
        head = Struct()
        head.set_i32(1, len(chunk.dictionary))
        head.set_i32(2, PLAIN)
        out += _page(2, 7, head, b"".join(_plain(column, value) for value in chunk.dictionary))
    first = len(out)
    for number, page in enumerate(chunk.pages):
        indexed = number < chunk.from_dictionary
        there = [value for value in page if value is not None]
        if indexed:
            width = max(1, (len(chunk.dictionary) - 1).bit_length())
            body = bytes([width]) + _runs([chunk.dictionary.index(value) for value in there], (width + 7) // 8)
        else:
            body = b"".join(_plain(column, value) for value in there)
        levels = _runs([int(value is not None) for value in page], 1)
        head = Struct()
        head.set_i32(1, len(page))
        head.set_i32(2, RLE_DICTIONARY if indexed else PLAIN)
        head.set_i32(3, RLE)
        head.set_i32(4, RLE)
        out += _page(0, 5, head, struct.pack("<I", len(levels)) + levels + body)
    meta, nulls = Struct(), Struct()
    encodings = [PLAIN, RLE, *([RLE_DICTIONARY] if chunk.dictionary else [])]
    meta.set_i32(1, column.type)
    meta.set_list(2, [bytes([2 * one]) for one in encodings], WireType.I32)
    meta.set_list(3, [encode_binary(column.name.encode())], WireType.BINARY)
    meta.set_i32(4, 0)
    meta.set_i64(5, len(chunk.values))
    meta.set_i64(6, len(out) - start)
    meta.set_i64(7, len(out) - start)
    meta.set_i64(9, first)
    if chunk.dictionary:
        meta.set_i64(11, start)
    nulls.set_i64(3, chunk.values.count(None))
    meta.set_struct(12, nulls)
    return meta


def _page(kind: int, member: int, head: Struct, body: bytes) -> bytes:
    header = Struct()
    header.set_i32(1, kind)
    header.set_i32(2, len(body))
    header.set_i32(3, len(body))
    header.set_struct(member, head)
    return header.to_bytes() + body


def _filter_header(size: int) -> bytes:
    header = Struct()
    header.set_i32(1, size)
    for number in (2, 3, 4):
        union = Struct()
        union.set_struct(1, Struct())
        header.set_struct(number, union)
    return header.to_bytes()


def _plain(column: Column, value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value if column.type is Type.BYTE_ARRAY else value


def _runs(numbers: Sequence[int], width: int) -> bytes:
    """RLE runs of the hybrid (Parquet encodings): twice the length in ULEB128, then the number."""
    out = bytearray()
    for number, run in groupby(numbers):
        count = len(list(run)) << 1
        while count > 0x7F:
            out.append(count & 0x7F | 0x80)
            count >>= 7
        out.append(count)
        out += number.to_bytes(width, "little")
    return bytes(out)
