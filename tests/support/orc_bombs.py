"""ORC files of a few hundred bytes that stand for gigabytes of values: runs, dictionaries, lists, nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bloomseal.orc.chunks import Compression, deflate
from bloomseal.orc.protobuf import encoded, number

__all__ = ["BOMBS", "many_footers"]

Stream = tuple[int, int, bytes]
"""Column, kind, bytes."""

_BLOCK: Final = 262_144
_PRESENT, _DATA, _LENGTH, _DICTIONARY = range(4)
_BOOLEAN, _LONG, _TEXT, _LIST, _STRUCT = 0, 4, 7, 10, 12
_DIRECT, _DIRECT_V2, _DICTIONARY_V2 = 0, 2, 3
_RUN: Final = b"\xc1\xff\x00\x00"
"""A run of 512 zeros."""


def _zeros(count: int) -> bytes:
    left = count % 512 - 1
    return _RUN * (count // 512) + (bytes([0xC0 | left >> 8, left & 255, 0, 0]) if left >= 0 else b"")


def _one(value: int) -> bytes:
    """A run of one value of 32 bits."""
    return bytes([0x40 | 27 << 1, 0]) + value.to_bytes(4)


def _bits(count: int) -> bytes:
    """Bits that are not set."""
    return b"\x7f\x00" * (count // 8 // 130 + 1)


def _kind(kind: int, below: range = range(0)) -> bytes:
    names = b"".join(encoded(3, f"c{one}".encode()) for one in below) if kind == _STRUCT else b""
    return encoded(1, kind) + (encoded(2, bytes(below)) if below else b"") + names


def _file(types: list[bytes], streams: list[Stream], encodings: list[bytes], rows: int, stripes: int = 1) -> bytes:
    def packed(data: bytes) -> bytes:
        return bytes(deflate(data, Compression.ZLIB, _BLOCK))

    body, made = b"ORC", b""
    data = [(column, kind, packed(one)) for column, kind, one in streams]
    listed = b"".join(
        encoded(1, encoded(1, kind) + encoded(2, column) + encoded(3, len(one))) for column, kind, one in data
    )
    footer = packed(listed + b"".join(encoded(2, one) for one in encodings) + encoded(3, b"GMT"))
    length = sum(len(one) for _, _, one in data)
    for _ in range(stripes):
        places = enumerate((len(body), 0, length, len(footer), rows), 1)
        made += encoded(3, b"".join(encoded(field, value) for field, value in places))
        body += b"".join(one for _, _, one in data) + footer
    whole = encoded(1, 3) + encoded(2, len(body) - 3) + made + b"".join(encoded(4, one) for one in types)
    whole = packed(whole + encoded(6, rows * stripes) + encoded(9, 1) + encoded(12, b"2.2.2"))
    end = encoded(1, len(whole)) + encoded(2, int(Compression.ZLIB)) + encoded(3, _BLOCK)
    end += encoded(4, number(0) + number(12)) + encoded(6, 6) + encoded(8000, b"ORC")
    return body + whole + end + bytes([len(end)])


def _dictionary(times: int, length: int) -> bytes:
    """So many texts, which are all the one in the dictionary."""
    streams = [(1, _DATA, _zeros(times)), (1, _LENGTH, _one(length)), (1, _DICTIONARY, bytes(length))]
    encodings = [encoded(1, _DIRECT), encoded(1, _DICTIONARY_V2) + encoded(2, 1)]
    return _file([_kind(_STRUCT, range(1, 2)), _kind(_TEXT)], streams, encodings, times)


def _list(kind: int, count: int) -> bytes:
    """One row with a list of so many elements."""
    elements = _bits(count) if kind == _BOOLEAN else _zeros(count)
    types = [_kind(_STRUCT, range(1, 2)), _kind(_LIST, range(2, 3)), _kind(kind)]
    encodings = [encoded(1, one) for one in (_DIRECT, _DIRECT_V2, _DIRECT if kind == _BOOLEAN else _DIRECT_V2)]
    return _file(types, [(1, _LENGTH, _one(count)), (2, _DATA, elements)], encodings, 1)


def _columns(rows: int, count: int, stripes: int = 1, *, nulls: bool = False) -> bytes:
    """Columns of zeros, or of nulls."""
    ids = range(1, count + 1)
    streams = [(one, _PRESENT, _bits(rows)) for one in ids if nulls]
    streams += [(one, _DATA, b"" if nulls else _zeros(rows)) for one in ids]
    types = [_kind(_STRUCT, ids), *[_kind(_LONG)] * count]
    encodings = [encoded(1, one) for one in (_DIRECT, *[_DIRECT_V2] * count)]
    return _file(types, streams, encodings, rows, stripes)


def many_footers(stripes: int, streams: int) -> bytes:
    """Stripes of no bytes, with so many streams in the footer of each."""
    return _file([_kind(_STRUCT, range(1, 2)), _kind(_LONG)], [(1, _PRESENT, b"")] * streams, [b"", b""], 1, stripes)


BOMBS: Final[dict[str, Callable[[int], bytes]]] = {
    "dictionary": lambda size: _dictionary(size >> 13, 1 << 13),
    "list": lambda size: _list(_LONG, size >> 3),
    "list of booleans": lambda size: _list(_BOOLEAN, size >> 3),
    "columns": lambda size: _columns(size >> 7, 16),
    "nulls": lambda size: _columns(size >> 7, 16, nulls=True),
    "stripes": lambda size: _columns(size >> 9, 4, 16),
}
"""What it is made of → a file that decodes to about so many bytes."""
