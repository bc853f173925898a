"""Slim specifications of the Parquet structs that are read often, for the C decoder of the ``thrift`` package.

Only the declared fields are decoded, the rest is skipped in C and dropped: right for reading, never for rewriting (that
is `compact.Struct`). Field ids and types are those of parquet.thrift. An absent field reads as None.
"""

from __future__ import annotations

import gc
from typing import Any, TypeVar

from thrift.Thrift import TType

from ..errors import FormatError
from .compact import encode_list
from .cursor import Cursor, WireType

__all__ = [
    "BloomFilterHeader",
    "ColumnChunk",
    "ColumnIndex",
    "ColumnMetaData",
    "DataPageHeader",
    "DataPageHeaderV2",
    "DictionaryPageHeader",
    "Empty",
    "KeyValue",
    "OffsetIndex",
    "PageHeader",
    "RowGroup",
    "RowGroupHead",
    "SealedColumnMetaData",
    "Statistics",
    "View",
    "decode",
    "decode_at",
    "decode_element",
    "inner",
    "spec",
]


class View:
    """Slots keep a wide footer small; a slot that the decoder did not fill reads as None."""

    __slots__ = ()
    thrift_spec: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def spec(*fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the C decoder asks of a class: its fields, each at the index that is its id."""
    by_id: list[Any] = [None] * (max((field[0] for field in fields), default=-1) + 1)
    for number, kind, name, *inner in fields:
        by_id[number] = (number, kind, name, inner[0] if inner else None, None)
    return tuple(by_id)


def inner(view: type[View]) -> list[Any]:
    """A struct within a struct, for `spec`."""
    return [view, view.thrift_spec]


class Statistics(View):
    """Statistics: field 1 and 2 are the deprecated max and min."""

    __slots__ = ("max", "max_value", "min", "min_value", "null_count")
    max: bytes | None
    min: bytes | None
    null_count: int | None
    max_value: bytes | None
    min_value: bytes | None
    thrift_spec = spec(
        (1, TType.STRING, "max", "BINARY"),
        (2, TType.STRING, "min", "BINARY"),
        (3, TType.I64, "null_count"),
        (5, TType.STRING, "max_value", "BINARY"),
        (6, TType.STRING, "min_value", "BINARY"),
    )


class ColumnMetaData(View):
    """ColumnMetaData without encodings, path, key-value pairs and size statistics."""

    __slots__ = (
        "bloom_filter_length",
        "bloom_filter_offset",
        "codec",
        "data_page_offset",
        "dictionary_page_offset",
        "num_values",
        "statistics",
        "total_compressed_size",
        "total_uncompressed_size",
        "type",
    )
    type: int | None
    codec: int | None
    num_values: int | None
    total_uncompressed_size: int | None
    total_compressed_size: int | None
    data_page_offset: int | None
    dictionary_page_offset: int | None
    statistics: Statistics | None
    bloom_filter_offset: int | None
    bloom_filter_length: int | None
    thrift_spec = spec(
        (1, TType.I32, "type"),
        (4, TType.I32, "codec"),
        (5, TType.I64, "num_values"),
        (6, TType.I64, "total_uncompressed_size"),
        (7, TType.I64, "total_compressed_size"),
        (9, TType.I64, "data_page_offset"),
        (11, TType.I64, "dictionary_page_offset"),
        (12, TType.STRUCT, "statistics", inner(Statistics)),
        (14, TType.I64, "bloom_filter_offset"),
        (15, TType.I32, "bloom_filter_length"),
    )


class SealedColumnMetaData(ColumnMetaData):
    """ColumnMetaData with the path in schema: what is sealed on its own names its column."""

    __slots__ = ("path",)
    path: list[bytes] | None
    thrift_spec = spec(
        (3, TType.LIST, "path", (TType.STRING, "BINARY", False)), *filter(None, ColumnMetaData.thrift_spec)
    )


class Empty(View):
    """A struct without fields, where its presence is the statement."""

    __slots__ = ()


class ColumnKey(View):
    """EncryptionWithColumnKey."""

    __slots__ = ("key_metadata",)
    key_metadata: bytes | None
    thrift_spec = spec((2, TType.STRING, "key_metadata", "BINARY"))


class ColumnCrypto(View):
    """ColumnCryptoMetaData: a union of the footer's key and a key of the column's own."""

    __slots__ = ("column_key", "footer_key")
    footer_key: Empty | None
    column_key: ColumnKey | None
    thrift_spec = spec(
        (1, TType.STRUCT, "footer_key", inner(Empty)),
        (2, TType.STRUCT, "column_key", inner(ColumnKey)),
    )


class ColumnChunk(View):
    """ColumnChunk; `meta_data` under encryption with a column key is absent or a stripped copy."""

    __slots__ = (
        "column_index_length",
        "column_index_offset",
        "crypto_metadata",
        "encrypted_column_metadata",
        "file_path",
        "meta_data",
        "offset_index_length",
        "offset_index_offset",
    )
    file_path: bytes | None
    meta_data: ColumnMetaData | None
    offset_index_offset: int | None
    offset_index_length: int | None
    column_index_offset: int | None
    column_index_length: int | None
    crypto_metadata: ColumnCrypto | None
    encrypted_column_metadata: bytes | None
    thrift_spec = spec(
        (1, TType.STRING, "file_path", "BINARY"),
        (3, TType.STRUCT, "meta_data", inner(ColumnMetaData)),
        (4, TType.I64, "offset_index_offset"),
        (5, TType.I32, "offset_index_length"),
        (6, TType.I64, "column_index_offset"),
        (7, TType.I32, "column_index_length"),
        (8, TType.STRUCT, "crypto_metadata", inner(ColumnCrypto)),
        (9, TType.STRING, "encrypted_column_metadata", "BINARY"),
    )


class RowGroupHead(View):
    """RowGroup without its column chunks."""

    __slots__ = ("num_rows", "ordinal", "total_byte_size")
    total_byte_size: int | None
    num_rows: int | None
    ordinal: int | None
    thrift_spec = spec((2, TType.I64, "total_byte_size"), (3, TType.I64, "num_rows"), (7, TType.I16, "ordinal"))


class RowGroup(RowGroupHead):
    """RowGroup with its column chunks."""

    __slots__ = ("columns",)
    columns: list[ColumnChunk] | None
    thrift_spec = spec(
        (1, TType.LIST, "columns", (TType.STRUCT, inner(ColumnChunk), False)), *filter(None, RowGroupHead.thrift_spec)
    )


class KeyValue(View):
    """KeyValue."""

    __slots__ = ("key", "value")
    key: bytes | None
    value: bytes | None
    thrift_spec = spec((1, TType.STRING, "key", "BINARY"), (2, TType.STRING, "value", "BINARY"))


class PageLocation(View):
    __slots__ = ("first_row", "offset", "size")
    offset: int | None
    size: int | None
    first_row: int | None
    thrift_spec = spec((1, TType.I64, "offset"), (2, TType.I32, "size"), (3, TType.I64, "first_row"))


class OffsetIndex(View):
    """OffsetIndex: where the data pages are, and the row that each begins with."""

    __slots__ = ("pages",)
    pages: list[PageLocation] | None
    thrift_spec = spec((1, TType.LIST, "pages", (TType.STRUCT, inner(PageLocation), False)))


class ColumnIndex(View):
    """ColumnIndex: per data page, whether it holds nulls only, its bounds and its number of nulls."""

    __slots__ = ("max_values", "min_values", "null_counts", "null_pages")
    null_pages: list[bool] | None
    min_values: list[bytes] | None
    max_values: list[bytes] | None
    null_counts: list[int] | None
    thrift_spec = spec(
        (1, TType.LIST, "null_pages", (TType.BOOL, None, False)),
        (2, TType.LIST, "min_values", (TType.STRING, "BINARY", False)),
        (3, TType.LIST, "max_values", (TType.STRING, "BINARY", False)),
        (5, TType.LIST, "null_counts", (TType.I64, None, False)),
    )


class DictionaryPageHeader(View):
    """DictionaryPageHeader."""

    __slots__ = ("encoding", "num_values")
    num_values: int | None
    encoding: int | None
    thrift_spec = spec((1, TType.I32, "num_values"), (2, TType.I32, "encoding"))


class DataPageHeader(View):
    """DataPageHeader."""

    __slots__ = ("definition_encoding", "encoding", "num_values", "repetition_encoding")
    num_values: int | None
    encoding: int | None
    definition_encoding: int | None
    repetition_encoding: int | None
    thrift_spec = spec(
        (1, TType.I32, "num_values"),
        (2, TType.I32, "encoding"),
        (3, TType.I32, "definition_encoding"),
        (4, TType.I32, "repetition_encoding"),
    )


class DataPageHeaderV2(View):
    """DataPageHeaderV2."""

    __slots__ = (
        "definition_levels",
        "encoding",
        "is_compressed",
        "num_nulls",
        "num_rows",
        "num_values",
        "repetition_levels",
    )
    num_values: int | None
    num_nulls: int | None
    num_rows: int | None
    encoding: int | None
    definition_levels: int | None
    repetition_levels: int | None
    is_compressed: bool | None
    thrift_spec = spec(
        (1, TType.I32, "num_values"),
        (2, TType.I32, "num_nulls"),
        (3, TType.I32, "num_rows"),
        (4, TType.I32, "encoding"),
        (5, TType.I32, "definition_levels"),
        (6, TType.I32, "repetition_levels"),
        (7, TType.BOOL, "is_compressed"),
    )


class PageHeader(View):
    """PageHeader; `type` 0 data page, 1 index page, 2 dictionary page, 3 data page V2."""

    __slots__ = ("crc", "data", "data_v2", "dictionary", "size", "type", "uncompressed_size")
    type: int | None
    uncompressed_size: int | None
    size: int | None
    crc: int | None
    data: DataPageHeader | None
    dictionary: DictionaryPageHeader | None
    data_v2: DataPageHeaderV2 | None
    thrift_spec = spec(
        (1, TType.I32, "type"),
        (2, TType.I32, "uncompressed_size"),
        (3, TType.I32, "size"),
        (4, TType.I32, "crc"),
        (5, TType.STRUCT, "data", inner(DataPageHeader)),
        (7, TType.STRUCT, "dictionary", inner(DictionaryPageHeader)),
        (8, TType.STRUCT, "data_v2", inner(DataPageHeaderV2)),
    )


class _BloomUnion(View):
    """A union whose first member is the only one that the specification defines; `other` is any younger one."""

    __slots__ = ("first", "other")
    first: Empty | None
    other: Empty | None
    thrift_spec = spec(
        (1, TType.STRUCT, "first", inner(Empty)),
        *((number, TType.STRUCT, "other", inner(Empty)) for number in range(2, 64)),
    )

    @property
    def known(self) -> bool:
        """Whether the first member is set, and no other beside it."""
        return self.first is not None and self.other is None


class BloomFilterHeader(View):
    """BloomFilterHeader: the size of the bitset, and three unions that say how it is to be read."""

    __slots__ = ("algorithm", "compression", "hash", "num_bytes")
    num_bytes: int | None
    algorithm: _BloomUnion | None
    hash: _BloomUnion | None
    compression: _BloomUnion | None
    thrift_spec = spec(
        (1, TType.I32, "num_bytes"),
        (2, TType.STRUCT, "algorithm", inner(_BloomUnion)),
        (3, TType.STRUCT, "hash", inner(_BloomUnion)),
        (4, TType.STRUCT, "compression", inner(_BloomUnion)),
    )


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
