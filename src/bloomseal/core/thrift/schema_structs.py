"""Slim specifications of the schema's structs; see `structs`."""

from __future__ import annotations

from thrift.Thrift import TType

from ..errors import FormatError
from .structs import Empty, View, inner, spec

__all__ = ["LogicalTypeUnion", "SchemaElement"]


class _Decimal(View):
    __slots__ = ("precision", "scale")
    scale: int | None
    precision: int | None
    thrift_spec = spec((1, TType.I32, "scale"), (2, TType.I32, "precision"))


class _TimeUnit(View):
    __slots__ = ("ms", "ns", "us")
    thrift_spec = spec(
        (1, TType.STRUCT, "ms", inner(Empty)),
        (2, TType.STRUCT, "us", inner(Empty)),
        (3, TType.STRUCT, "ns", inner(Empty)),
    )


class _Time(View):
    __slots__ = ("unit", "utc")
    utc: bool | None
    unit: _TimeUnit | None
    thrift_spec = spec((1, TType.BOOL, "utc"), (2, TType.STRUCT, "unit", inner(_TimeUnit)))


class _Int(View):
    __slots__ = ("bit_width", "signed")
    bit_width: int | None
    signed: bool | None
    thrift_spec = spec((1, TType.BYTE, "bit_width"), (2, TType.BOOL, "signed"))


class LogicalTypeUnion(View):
    """LogicalType; the attribute that is not None names the kind."""

    __slots__ = (
        "bson",
        "date",
        "decimal",
        "enum",
        "file",
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
    file: Empty | None
    time: _Time | None
    timestamp: _Time | None
    int: _Int | None
    thrift_spec = spec(
        (1, TType.STRUCT, "string", inner(Empty)),
        (2, TType.STRUCT, "map", inner(Empty)),
        (3, TType.STRUCT, "list", inner(Empty)),
        (4, TType.STRUCT, "enum", inner(Empty)),
        (5, TType.STRUCT, "decimal", inner(_Decimal)),
        (6, TType.STRUCT, "date", inner(Empty)),
        (7, TType.STRUCT, "time", inner(_Time)),
        (8, TType.STRUCT, "timestamp", inner(_Time)),
        (10, TType.STRUCT, "int", inner(_Int)),
        (11, TType.STRUCT, "unknown", inner(Empty)),
        (12, TType.STRUCT, "json", inner(Empty)),
        (13, TType.STRUCT, "bson", inner(Empty)),
        (14, TType.STRUCT, "uuid", inner(Empty)),
        (15, TType.STRUCT, "float16", inner(Empty)),
        (16, TType.STRUCT, "variant", inner(Empty)),
        (17, TType.STRUCT, "geometry", inner(Empty)),
        (18, TType.STRUCT, "geography", inner(Empty)),
        (19, TType.STRUCT, "file", inner(Empty)),
    )

    def kind(self) -> str | None:
        """The name of the one member that is set; None for a member younger than this list.

        Raises:
            FormatError: several are set, and every reader takes the one that it likes.
        """
        named = [name for name in self.__slots__ if getattr(self, name) is not None]
        if len(named) > 1:
            raise FormatError(f"a logical type that is several at once: {', '.join(named)}")
        return named[0] if named else None


class SchemaElement(View):
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
    thrift_spec = spec(
        (1, TType.I32, "type"),
        (2, TType.I32, "type_length"),
        (3, TType.I32, "repetition"),
        (4, TType.STRING, "name", "BINARY"),
        (5, TType.I32, "num_children"),
        (6, TType.I32, "converted_type"),
        (7, TType.I32, "scale"),
        (8, TType.I32, "precision"),
        (10, TType.STRUCT, "logical_type", inner(LogicalTypeUnion)),
    )
