"""Slim specifications of the Parquet structs that are read often, for the C decoder of the ``thrift`` package.

Only the declared fields are decoded, the rest is skipped in C and dropped: right for reading, never for rewriting (that
is `compact.Struct`). Field ids and types are those of parquet.thrift. An absent field reads as None.
"""

from __future__ import annotations

import gc
from typing import Any, TypeVar

from thrift.Thrift import TType

from ..errors import FormatError
from .compact import Cursor, WireType, encode_list

__all__ = [
    "BloomFilterHeader",
    "ColumnChunk",
    "ColumnIndex",
    "ColumnMetaData",
    "DataPageHeader",
    "DataPageHeaderV2",
    "DictionaryPageHeader",
    "KeyValue",
    "OffsetIndex",
    "PageHeader",
    "RowGroup",
    "RowGroupHead",
    "SchemaElement",
    "SealedColumnMetaData",
    "Statistics",
    "decode",
    "decode_at",
    "decode_element",
]


class _View:
    """Slots keep a wide footer small; a slot that the decoder did not fill reads as None."""

    __slots__ = ()
    thrift_spec: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _spec(*fields: tuple[Any, ...]) -> tuple[Any, ...]:
    spec: list[Any] = [None] * (max((field[0] for field in fields), default=-1) + 1)
    for number, kind, name, *inner in fields:
        spec[number] = (number, kind, name, inner[0] if inner else None, None)
    return tuple(spec)


def _struct(view: type[_View]) -> list[Any]:
    return [view, view.thrift_spec]


class Statistics(_View):
    """Statistics: field 1 and 2 are the deprecated max and min."""

    __slots__ = ("max", "max_value", "min", "min_value", "null_count")
    max: bytes | None
    min: bytes | None
    null_count: int | None
    max_value: bytes | None
    min_value: bytes | None
    thrift_spec = _spec(
        (1, TType.STRING, "max", "BINARY"),
        (2, TType.STRING, "min", "BINARY"),
        (3, TType.I64, "null_count"),
        (5, TType.STRING, "max_value", "BINARY"),
        (6, TType.STRING, "min_value", "BINARY"),
    )


class ColumnMetaData(_View):
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
    thrift_spec = _spec(
        (1, TType.I32, "type"),
        (4, TType.I32, "codec"),
        (5, TType.I64, "num_values"),
        (6, TType.I64, "total_uncompressed_size"),
        (7, TType.I64, "total_compressed_size"),
        (9, TType.I64, "data_page_offset"),
        (11, TType.I64, "dictionary_page_offset"),
        (12, TType.STRUCT, "statistics", _struct(Statistics)),
        (14, TType.I64, "bloom_filter_offset"),
        (15, TType.I32, "bloom_filter_length"),
    )


class SealedColumnMetaData(ColumnMetaData):
    """ColumnMetaData with the path in schema: what is sealed on its own names its column."""

    __slots__ = ("path",)
    path: list[bytes] | None
    thrift_spec = _spec(
        (3, TType.LIST, "path", (TType.STRING, "BINARY", False)), *filter(None, ColumnMetaData.thrift_spec)
    )


class _Empty(_View):
    __slots__ = ()


class ColumnKey(_View):
    """EncryptionWithColumnKey."""

    __slots__ = ("key_metadata",)
    key_metadata: bytes | None
    thrift_spec = _spec((2, TType.STRING, "key_metadata", "BINARY"))


class ColumnCrypto(_View):
    """ColumnCryptoMetaData: a union of the footer's key and a key of the column's own."""

    __slots__ = ("column_key", "footer_key")
    footer_key: _Empty | None
    column_key: ColumnKey | None
    thrift_spec = _spec(
        (1, TType.STRUCT, "footer_key", _struct(_Empty)),
        (2, TType.STRUCT, "column_key", _struct(ColumnKey)),
    )


class ColumnChunk(_View):
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
    thrift_spec = _spec(
        (1, TType.STRING, "file_path", "BINARY"),
        (3, TType.STRUCT, "meta_data", _struct(ColumnMetaData)),
        (4, TType.I64, "offset_index_offset"),
        (5, TType.I32, "offset_index_length"),
        (6, TType.I64, "column_index_offset"),
        (7, TType.I32, "column_index_length"),
        (8, TType.STRUCT, "crypto_metadata", _struct(ColumnCrypto)),
        (9, TType.STRING, "encrypted_column_metadata", "BINARY"),
    )


class RowGroupHead(_View):
    """RowGroup without its column chunks."""

    __slots__ = ("num_rows", "ordinal", "total_byte_size")
    total_byte_size: int | None
    num_rows: int | None
    ordinal: int | None
    thrift_spec = _spec((2, TType.I64, "total_byte_size"), (3, TType.I64, "num_rows"), (7, TType.I16, "ordinal"))


class RowGroup(RowGroupHead):
    """RowGroup with its column chunks."""

    __slots__ = ("columns",)
    columns: list[ColumnChunk] | None
    thrift_spec = _spec(
        (1, TType.LIST, "columns", (TType.STRUCT, _struct(ColumnChunk), False)), *filter(None, RowGroupHead.thrift_spec)
    )


class _Decimal(_View):
    __slots__ = ("precision", "scale")
    scale: int | None
    precision: int | None
    thrift_spec = _spec((1, TType.I32, "scale"), (2, TType.I32, "precision"))


class _TimeUnit(_View):
    __slots__ = ("ms", "ns", "us")
    thrift_spec = _spec(
        (1, TType.STRUCT, "ms", _struct(_Empty)),
        (2, TType.STRUCT, "us", _struct(_Empty)),
        (3, TType.STRUCT, "ns", _struct(_Empty)),
    )


class _Time(_View):
    __slots__ = ("unit", "utc")
    utc: bool | None
    unit: _TimeUnit | None
    thrift_spec = _spec((1, TType.BOOL, "utc"), (2, TType.STRUCT, "unit", _struct(_TimeUnit)))


class _Int(_View):
    __slots__ = ("bit_width", "signed")
    bit_width: int | None
    signed: bool | None
    thrift_spec = _spec((1, TType.BYTE, "bit_width"), (2, TType.BOOL, "signed"))


class LogicalTypeUnion(_View):
    """LogicalType; the attribute that is not None names the kind."""

    __slots__ = (
        "bson",
        "date",
        "decimal",
        "enum",
        "float16",
        "geography",
        "geometry",
        "int",
        "json",
        "list",
        "map",
        "string",
        "time",
        "timestamp",
        "unknown",
        "uuid",
        "variant",
    )
    decimal: _Decimal | None
    time: _Time | None
    timestamp: _Time | None
    int: _Int | None
    thrift_spec = _spec(
        (1, TType.STRUCT, "string", _struct(_Empty)),
        (2, TType.STRUCT, "map", _struct(_Empty)),
        (3, TType.STRUCT, "list", _struct(_Empty)),
        (4, TType.STRUCT, "enum", _struct(_Empty)),
        (5, TType.STRUCT, "decimal", _struct(_Decimal)),
        (6, TType.STRUCT, "date", _struct(_Empty)),
        (7, TType.STRUCT, "time", _struct(_Time)),
        (8, TType.STRUCT, "timestamp", _struct(_Time)),
        (10, TType.STRUCT, "int", _struct(_Int)),
        (11, TType.STRUCT, "unknown", _struct(_Empty)),
        (12, TType.STRUCT, "json", _struct(_Empty)),
        (13, TType.STRUCT, "bson", _struct(_Empty)),
        (14, TType.STRUCT, "uuid", _struct(_Empty)),
        (15, TType.STRUCT, "float16", _struct(_Empty)),
        (16, TType.STRUCT, "variant", _struct(_Empty)),
        (17, TType.STRUCT, "geometry", _struct(_Empty)),
        (18, TType.STRUCT, "geography", _struct(_Empty)),
    )

    def kind(self) -> str | None:
        """The name of the one member that is set; None for a member younger than this list.

        Raises:
            FormatError: several are set, of which every reader takes the one that it likes.
        """
        named = [name for name in self.__slots__ if getattr(self, name) is not None]
        if len(named) > 1:
            raise FormatError(f"a logical type that is several at once: {', '.join(named)}")
        return named[0] if named else None


class SchemaElement(_View):
    """SchemaElement, whole but for the field id."""

    __slots__ = (
        "converted_type",
        "logical_type",
        "name",
        "num_children",
        "precision",
        "repetition",
        "scale",
        "type",
        "type_length",
    )
    type: int | None
    type_length: int | None
    repetition: int | None
    name: bytes | None
    num_children: int | None
    converted_type: int | None
    scale: int | None
    precision: int | None
    logical_type: LogicalTypeUnion | None
    thrift_spec = _spec(
        (1, TType.I32, "type"),
        (2, TType.I32, "type_length"),
        (3, TType.I32, "repetition"),
        (4, TType.STRING, "name", "BINARY"),
        (5, TType.I32, "num_children"),
        (6, TType.I32, "converted_type"),
        (7, TType.I32, "scale"),
        (8, TType.I32, "precision"),
        (10, TType.STRUCT, "logical_type", _struct(LogicalTypeUnion)),
    )


class KeyValue(_View):
    __slots__ = ("key", "value")
    key: bytes | None
    value: bytes | None
    thrift_spec = _spec((1, TType.STRING, "key", "BINARY"), (2, TType.STRING, "value", "BINARY"))


class PageLocation(_View):
    __slots__ = ("first_row", "offset", "size")
    offset: int | None
    size: int | None
    first_row: int | None
    thrift_spec = _spec((1, TType.I64, "offset"), (2, TType.I32, "size"), (3, TType.I64, "first_row"))


class OffsetIndex(_View):
    """OffsetIndex: where the data pages are, and the row that each begins with."""

    __slots__ = ("pages",)
    pages: list[PageLocation] | None
    thrift_spec = _spec((1, TType.LIST, "pages", (TType.STRUCT, _struct(PageLocation), False)))


class ColumnIndex(_View):
    """ColumnIndex: per data page, whether it holds nulls only, its bounds and its number of nulls."""

    __slots__ = ("max_values", "min_values", "null_counts", "null_pages")
    null_pages: list[bool] | None
    min_values: list[bytes] | None
    max_values: list[bytes] | None
    null_counts: list[int] | None
    thrift_spec = _spec(
        (1, TType.LIST, "null_pages", (TType.BOOL, None, False)),
        (2, TType.LIST, "min_values", (TType.STRING, "BINARY", False)),
        (3, TType.LIST, "max_values", (TType.STRING, "BINARY", False)),
        (5, TType.LIST, "null_counts", (TType.I64, None, False)),
    )


class DictionaryPageHeader(_View):
    __slots__ = ("encoding", "num_values")
    num_values: int | None
    encoding: int | None
    thrift_spec = _spec((1, TType.I32, "num_values"), (2, TType.I32, "encoding"))


class DataPageHeader(_View):
    __slots__ = ("definition_encoding", "encoding", "num_values", "repetition_encoding")
    num_values: int | None
    encoding: int | None
    definition_encoding: int | None
    repetition_encoding: int | None
    thrift_spec = _spec(
        (1, TType.I32, "num_values"),
        (2, TType.I32, "encoding"),
        (3, TType.I32, "definition_encoding"),
        (4, TType.I32, "repetition_encoding"),
    )


class DataPageHeaderV2(_View):
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
    thrift_spec = _spec(
        (1, TType.I32, "num_values"),
        (2, TType.I32, "num_nulls"),
        (3, TType.I32, "num_rows"),
        (4, TType.I32, "encoding"),
        (5, TType.I32, "definition_levels"),
        (6, TType.I32, "repetition_levels"),
        (7, TType.BOOL, "is_compressed"),
    )


class PageHeader(_View):
    """PageHeader; `type` 0 data page, 1 index page, 2 dictionary page, 3 data page V2."""

    __slots__ = ("crc", "data", "data_v2", "dictionary", "size", "type", "uncompressed_size")
    type: int | None
    uncompressed_size: int | None
    size: int | None
    crc: int | None
    data: DataPageHeader | None
    dictionary: DictionaryPageHeader | None
    data_v2: DataPageHeaderV2 | None
    thrift_spec = _spec(
        (1, TType.I32, "type"),
        (2, TType.I32, "uncompressed_size"),
        (3, TType.I32, "size"),
        (4, TType.I32, "crc"),
        (5, TType.STRUCT, "data", _struct(DataPageHeader)),
        (7, TType.STRUCT, "dictionary", _struct(DictionaryPageHeader)),
        (8, TType.STRUCT, "data_v2", _struct(DataPageHeaderV2)),
    )


class _BloomUnion(_View):
    """A union whose first member is the only one that the specification defines; `other` is any younger one."""

    __slots__ = ("first", "other")
    first: _Empty | None
    other: _Empty | None
    thrift_spec = _spec(
        (1, TType.STRUCT, "first", _struct(_Empty)),
        *((number, TType.STRUCT, "other", _struct(_Empty)) for number in range(2, 64)),
    )

    @property
    def known(self) -> bool:
        """Is the first member set, and no other beside it?"""
        return self.first is not None and self.other is None


class BloomFilterHeader(_View):
    """BloomFilterHeader: the size of the bitset, and three unions that say how it is to be read."""

    __slots__ = ("algorithm", "compression", "hash", "num_bytes")
    num_bytes: int | None
    algorithm: _BloomUnion | None
    hash: _BloomUnion | None
    compression: _BloomUnion | None
    thrift_spec = _spec(
        (1, TType.I32, "num_bytes"),
        (2, TType.STRUCT, "algorithm", _struct(_BloomUnion)),
        (3, TType.STRUCT, "hash", _struct(_BloomUnion)),
        (4, TType.STRUCT, "compression", _struct(_BloomUnion)),
    )


V = TypeVar("V", bound=_View)


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
