"""Which pages of a column can hold a value: a search for its plain encoding in their bytes, without decoding them.

A page in PLAIN encoding that holds a value holds its encoding, byte for byte; a page in dictionary encoding points to a
dictionary page that does (Parquet encodings specification). A search through bytes costs a small part of decoding them.
What looks like the value may lie across two neighbours, so a hit proves nothing: the rows are compared all the same.
Only a miss counts, and where a miss would prove nothing the page stays: other encodings, codecs that Arrow has not, and
types whose equal values can have encodings that we can't list.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final

from ..core.limits import MAX_INFLATED_PAGE_BYTES
from ..core.parquet.page import Page
from ..core.sbbf import PhysicalType, encode_value
from ..core.thrift.structs import ColumnMetaData
from ..format.pages.inflate import DICTIONARY_ENCODINGS, PLAIN, PLAIN_DICTIONARY, Inflater
from .predicate.compare import is_null
from .predicate.predicate import Term

_MOST_VALUES: Final = 16
"""Each value is one pass over the bytes; beyond this many, decoding is cheaper."""


def needles(term: Term) -> tuple[bytes, ...] | None:
    """Plain encodings: a page holds one of them if any of its rows satisfies `term`; None: no such list.

    They are the encodings that filters are asked for, BYTE_ARRAY with its length before it.
    """
    kind = term.leaf.type
    text = kind.physical is PhysicalType.BYTE_ARRAY
    # Equal decimals of variable length may differ in how often they repeat their sign.
    if term.op not in ("==", "in") or len(term.values) > _MOST_VALUES or (text and kind.kind == "decimal"):
        return None
    found: list[bytes] = []
    for value in term.values:
        encodings = () if is_null(value) else encode_value(value, kind, int96_utc=term.int96_utc)
        if encodings is None:
            return None
        found += (len(data).to_bytes(4, "little") + data if text else data for data in encodings)
    return tuple(found)


class PageSearch:
    """A search through the pages of one column chunk, shown to it in their order, the dictionary page first.

    Args:
        meta: the chunk's metadata.
        sought: what `needles` gave.
    """

    def __init__(self, meta: ColumnMetaData, sought: Sequence[bytes]) -> None:
        self._inflate = Inflater(meta.codec)
        self._sought = sought
        self._held = _in_text if meta.type == PhysicalType.BYTE_ARRAY else _in_numbers
        self._in_dictionary = True
        self._room = MAX_INFLATED_PAGE_BYTES

    def __repr__(self) -> str:
        return "<PageSearch>"

    def could_hold(self, page: Page) -> bool:
        """False where no row of the page has any of the values. Sets ``page.inflated`` where the page was searched.

        Of the dictionary page: False where no page in dictionary encoding has one.

        Raises:
            IntegrityError: the page does not authenticate.
        """
        if page.ordinal < 0:
            self._in_dictionary = page.encoding not in (PLAIN, PLAIN_DICTIONARY) or self._found(page)
            return self._in_dictionary
        if page.encoding == PLAIN:
            return self._found(page)
        return self._in_dictionary or page.encoding not in DICTIONARY_ENCODINGS

    def _found(self, page: Page) -> bool:
        data = self._inflate(page)
        if data is None:
            return True
        if not any(self._held(data, needle) for needle in self._sought):
            return False
        self._room -= len(data)
        page.inflated = data if self._room >= 0 else None
        return True


def _in_text(data: bytes | bytearray, needle: bytes) -> bool:
    """By memmem of the C library, which leaves the interpreter to other threads meanwhile; by `_in_numbers` where there
    is none.
    """
    if _MEMMEM is None or not isinstance(data, bytes):
        return _in_numbers(data, needle)
    return _MEMMEM(data, len(data), needle, len(needle)) is not None


def _in_numbers(data: bytes | bytearray, needle: bytes) -> bool:
    # From behind: CPython's rfind looks for the first byte. In little-endian numbers that is the one that differs, and
    # it takes half the time of find, which looks for the last one.
    return data.rfind(needle) >= 0


def _memmem() -> Callable[[bytes, int, bytes, int], int | None] | None:
    try:
        found = ctypes.CDLL(None).memmem
    except (OSError, AttributeError, TypeError):  # not every system's library has it
        return None
    found.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    found.restype = ctypes.c_void_p
    return found


_MEMMEM: Final = _memmem()
