"""Slim specifications of the Parquet structs that are read often, for the C decoder of the ``thrift`` package.

Only the declared fields are decoded, the rest is skipped in C and dropped: right for reading, never for rewriting (that
is `compact.Struct`). Field ids and types are those of parquet.thrift. An absent field reads as None.
"""

from __future__ import annotations

import gc
from typing import Any, NamedTuple, TypeVar

from thrift.Thrift import TType

from ..errors import FormatError
from .compact import encode_list
from .cursor import Cursor, WireType


class _Field(NamedTuple):
    """A field of a struct: its type and what the C decoder asks of one that has parts, and its ids."""

    kind: int
    parts: Any
    numbers: tuple[int, ...]


class _Fields(type):
    """Makes slots of a class's fields, which keep a wide footer small, and `thrift_spec`: what the C decoder asks of
    them, each at the index that is its id.
    """

    thrift_spec: tuple[Any, ...]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        own = {key: value for key, value in body.items() if isinstance(value, _Field)}
        kept = {key: value for key, value in body.items() if key not in own}
        known: tuple[Any, ...] = next((base.thrift_spec for base in bases if isinstance(base, _Fields)), ())
        by_id = {one[0]: one for one in known if one is not None}
        inherited = {one[2] for one in by_id.values()}
        for key, (kind, parts, numbers) in own.items():
            by_id |= {number: (number, kind, key, parts, None) for number in numbers}
        kept["__slots__"] = tuple(key for key in own if key not in inherited)
        kept["thrift_spec"] = tuple(by_id.get(number) for number in range(max(by_id, default=-1) + 1))
        return super().__new__(cls, name, bases, kept)


class View(metaclass=_Fields):
    """Some fields of a struct; one that the decoder did not fill reads as None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def field(kind: Any, *numbers: int) -> Any:
    """A field that has any of these ids.

    Args:
        kind: its type, or the class of a struct; either in a list: a list of those.
    """
    return _Field(*_typed(kind), numbers)


def _typed(kind: Any) -> tuple[int, Any]:
    if isinstance(kind, list):
        return TType.LIST, (*_typed(kind[0]), False)
    if isinstance(kind, _Fields):
        return TType.STRUCT, [kind, kind.thrift_spec]
    return kind, "BINARY" if kind == TType.STRING else None


class Statistics(View):
    """Statistics: field 1 and 2 are the deprecated max and min."""

    max: bytes | None = field(TType.STRING, 1)
    min: bytes | None = field(TType.STRING, 2)
    null_count: int | None = field(TType.I64, 3)
    max_value: bytes | None = field(TType.STRING, 5)
    min_value: bytes | None = field(TType.STRING, 6)


class ColumnMetaData(View):
    """ColumnMetaData without encodings, path, key-value pairs and size statistics."""

    type: int | None = field(TType.I32, 1)
    codec: int | None = field(TType.I32, 4)
    num_values: int | None = field(TType.I64, 5)
    total_uncompressed_size: int | None = field(TType.I64, 6)
    total_compressed_size: int | None = field(TType.I64, 7)
    data_page_offset: int | None = field(TType.I64, 9)
    dictionary_page_offset: int | None = field(TType.I64, 11)
    statistics: Statistics | None = field(Statistics, 12)
    bloom_filter_offset: int | None = field(TType.I64, 14)
    bloom_filter_length: int | None = field(TType.I32, 15)


class SealedColumnMetaData(ColumnMetaData):
    """ColumnMetaData with the path in schema: what is sealed on its own names its column."""

    path: list[bytes] | None = field([TType.STRING], 3)


class Empty(View):
    """A struct without fields, where its presence is the statement."""


class ColumnKey(View):
    """EncryptionWithColumnKey."""

    key_metadata: bytes | None = field(TType.STRING, 2)


class ColumnCrypto(View):
    """ColumnCryptoMetaData: a union of the footer's key and a key of the column's own."""

    footer_key: Empty | None = field(Empty, 1)
    column_key: ColumnKey | None = field(ColumnKey, 2)


class ColumnChunk(View):
    """ColumnChunk; `meta_data` under encryption with a column key is absent or a stripped copy."""

    file_path: bytes | None = field(TType.STRING, 1)
    meta_data: ColumnMetaData | None = field(ColumnMetaData, 3)
    offset_index_offset: int | None = field(TType.I64, 4)
    offset_index_length: int | None = field(TType.I32, 5)
    column_index_offset: int | None = field(TType.I64, 6)
    column_index_length: int | None = field(TType.I32, 7)
    crypto_metadata: ColumnCrypto | None = field(ColumnCrypto, 8)
    encrypted_column_metadata: bytes | None = field(TType.STRING, 9)


class RowGroupHead(View):
    """RowGroup without its column chunks."""

    total_byte_size: int | None = field(TType.I64, 2)
    num_rows: int | None = field(TType.I64, 3)
    ordinal: int | None = field(TType.I16, 7)


class RowGroup(RowGroupHead):
    """RowGroup with its column chunks."""

    columns: list[ColumnChunk] | None = field([ColumnChunk], 1)


class KeyValue(View):
    """KeyValue."""

    key: bytes | None = field(TType.STRING, 1)
    value: bytes | None = field(TType.STRING, 2)


class PageLocation(View):
    """PageLocation."""

    offset: int | None = field(TType.I64, 1)
    size: int | None = field(TType.I32, 2)
    first_row: int | None = field(TType.I64, 3)


class OffsetIndex(View):
    """OffsetIndex: where the data pages are, and the row that each begins with."""

    pages: list[PageLocation] | None = field([PageLocation], 1)


class ColumnIndex(View):
    """ColumnIndex: per data page, whether it holds nulls only, its bounds and its number of nulls."""

    null_pages: list[bool] | None = field([TType.BOOL], 1)
    min_values: list[bytes] | None = field([TType.STRING], 2)
    max_values: list[bytes] | None = field([TType.STRING], 3)
    null_counts: list[int] | None = field([TType.I64], 5)


class DictionaryPageHeader(View):
    """DictionaryPageHeader."""

    num_values: int | None = field(TType.I32, 1)
    encoding: int | None = field(TType.I32, 2)


class DataPageHeader(View):
    """DataPageHeader."""

    num_values: int | None = field(TType.I32, 1)
    encoding: int | None = field(TType.I32, 2)
    definition_encoding: int | None = field(TType.I32, 3)
    repetition_encoding: int | None = field(TType.I32, 4)


class DataPageHeaderV2(View):
    """DataPageHeaderV2."""

    num_values: int | None = field(TType.I32, 1)
    num_nulls: int | None = field(TType.I32, 2)
    num_rows: int | None = field(TType.I32, 3)
    encoding: int | None = field(TType.I32, 4)
    definition_levels: int | None = field(TType.I32, 5)
    repetition_levels: int | None = field(TType.I32, 6)
    is_compressed: bool | None = field(TType.BOOL, 7)


class PageHeader(View):
    """PageHeader; `type` 0 data page, 1 index page, 2 dictionary page, 3 data page V2."""

    type: int | None = field(TType.I32, 1)
    uncompressed_size: int | None = field(TType.I32, 2)
    size: int | None = field(TType.I32, 3)
    crc: int | None = field(TType.I32, 4)
    data: DataPageHeader | None = field(DataPageHeader, 5)
    dictionary: DictionaryPageHeader | None = field(DictionaryPageHeader, 7)
    data_v2: DataPageHeaderV2 | None = field(DataPageHeaderV2, 8)


class _BloomUnion(View):
    """A union whose first member is the only one that the specification defines; `other` is any younger one."""

    first: Empty | None = field(Empty, 1)
    other: Empty | None = field(Empty, *range(2, 64))

    @property
    def known(self) -> bool:
        """Whether the first member is set, and no other beside it."""
        return self.first is not None and self.other is None


class BloomFilterHeader(View):
    """BloomFilterHeader: the size of the bitset, and three unions that say how it is to be read."""

    num_bytes: int | None = field(TType.I32, 1)
    algorithm: _BloomUnion | None = field(_BloomUnion, 2)
    hash: _BloomUnion | None = field(_BloomUnion, 3)
    compression: _BloomUnion | None = field(_BloomUnion, 4)


V = TypeVar("V", bound=View)


def decode(view: type[V], data: bytes, *, container_limit: int | None = None) -> V:
    """The struct at the start of `data`; what follows it is ignored.

    Raises:
        FormatError: broken Thrift, or a list longer than `container_limit`.
    """
    return decode_at(view, Cursor(data, container_limit=container_limit))


def decode_at(view: type[V], cursor: Cursor) -> V:
    """The struct at `cursor`, which is moved past it."""
    out = view()
    # A wide row group makes tens of thousands of objects that all survive; collecting between them doubles the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        cursor.decode(out, [view, view.thrift_spec])
    finally:
        if collecting:
            gc.enable()
    return out


_FIELD_ZERO = b"\x09\x00"


def decode_element(view: type[V], data: bytes, position: int, number: int) -> V:
    """Element `number` of the raw list of structs at `position`; what follows the list is ignored.

    Those before it are stepped over in C, all in one call: put before the struct's own fields as a list in a field 0,
    which nobody declares, they are what a decoder skips.

    Raises:
        FormatError: broken Thrift, or fewer elements.
    """
    cursor = Cursor(data, position)
    wire, count = cursor.list_header()
    if wire != WireType.STRUCT or number >= count:
        raise FormatError(f"broken Thrift: a list of {count} elements of type {wire} without a struct {number}")
    before = _FIELD_ZERO + encode_list([b""] * number)
    return decode(view, b"".join((before, memoryview(data)[cursor.position :])))
