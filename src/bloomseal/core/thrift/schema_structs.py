"""Slim specifications of the schema's structs; see `structs`."""

from __future__ import annotations

from typing import Final

from thrift.Thrift import TType

from ..errors import FormatError
from .structs import Empty, View, field


class _Decimal(View):
    scale: int | None = field(TType.I32, 1)
    precision: int | None = field(TType.I32, 2)


class _TimeUnit(View):
    ms = field(Empty, 1)
    us = field(Empty, 2)
    ns = field(Empty, 3)


class _Time(View):
    utc: bool | None = field(TType.BOOL, 1)
    unit: _TimeUnit | None = field(_TimeUnit, 2)


class _Int(View):
    bit_width: int | None = field(TType.BYTE, 1)
    signed: bool | None = field(TType.BOOL, 2)


class LogicalTypeUnion(View):
    """LogicalType; the attribute that is not None names the kind."""

    string = field(Empty, 1)
    map = field(Empty, 2)
    list = field(Empty, 3)
    enum = field(Empty, 4)
    decimal: _Decimal | None = field(_Decimal, 5)
    date = field(Empty, 6)
    time: _Time | None = field(_Time, 7)
    timestamp: _Time | None = field(_Time, 8)
    int: _Int | None = field(_Int, 10)
    unknown = field(Empty, 11)
    json = field(Empty, 12)
    bson = field(Empty, 13)
    uuid = field(Empty, 14)
    float16 = field(Empty, 15)
    variant = field(Empty, 16)
    geometry = field(Empty, 17)
    geography = field(Empty, 18)
    file: Empty | None = field(Empty, 19)

    def kind(self) -> str | None:
        """The name of the one member that is set; None for a member younger than this list.

        Raises:
            FormatError: several are set, and every reader takes the one that it likes.
        """
        named = [name for name in _KINDS if getattr(self, name) is not None]
        if len(named) > 1:
            raise FormatError(f"a logical type that is several at once: {', '.join(named)}")
        return named[0] if named else None


_KINDS: Final = tuple(one[2] for one in LogicalTypeUnion.thrift_spec if one is not None)


class SchemaElement(View):
    """SchemaElement, whole but for the field id."""

    type: int | None = field(TType.I32, 1)
    type_length: int | None = field(TType.I32, 2)
    repetition: int | None = field(TType.I32, 3)
    name: bytes | None = field(TType.STRING, 4)
    num_children: int | None = field(TType.I32, 5)
    converted_type: int | None = field(TType.I32, 6)
    scale: int | None = field(TType.I32, 7)
    precision: int | None = field(TType.I32, 8)
    logical_type: LogicalTypeUnion | None = field(LogicalTypeUnion, 10)
