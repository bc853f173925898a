"""A position in compact-protocol bytes: skipping and decoding are left to the C decoder of the ``thrift`` package,
which bounds their depth.
"""

from __future__ import annotations

from enum import IntEnum
from io import BytesIO
from typing import Final

from thrift.protocol import fastbinary
from thrift.protocol.TProtocol import TProtocolException
from thrift.transport.TTransport import TTransportException

from ..errors import FormatError
from ..limits import MAX_LIST_ELEMENTS

_MAX_DEPTH: Final = 32


class WireType(IntEnum):
    """The type nibbles of the compact protocol (Thrift compact protocol, "Struct encoding")."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12
    UUID = 13


VARINTS: Final = (WireType.I16, WireType.I32, WireType.I64)


class _Transport:
    """What the C decoder reads of a TMemoryBuffer, which costs more than decoding does."""

    __slots__ = ("cstringio_buf",)

    def __init__(self, data: bytes) -> None:
        self.cstringio_buf = BytesIO(data)

    def cstringio_refill(self, partial: object, length: int) -> object:  # noqa: ARG002
        raise EOFError


class _Protocol:
    """What the C decoder reads of a TCompactProtocolAccelerated, for the same reason."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, transport: _Transport, strings: int, containers: int) -> None:
        self.trans = transport
        self.string_length_limit = strings
        self.container_length_limit = containers


class _Skipped:
    """What the C decoder fills with nothing when every field is undeclared."""

    __slots__ = ()


_SKIP: Final = [_Skipped, ()]
_NOTHING: Final = _Skipped()


class Cursor:
    """A position in compact-protocol bytes, shared by our reader and the C decoder.

    Args:
        data: the bytes; never copied.
        position: where to start.
        container_limit: the longest list that a declared field may claim; the C decoder allocates what a list claims.
    """

    __slots__ = ("_buffer", "_limit", "_protocol", "data", "position")

    def __init__(self, data: bytes, position: int = 0, *, container_limit: int | None = None) -> None:
        self.data = data
        self.position = position
        self._limit = len(data) if container_limit is None else container_limit
        self._protocol: _Protocol | None = None

    def decode(self, into: object, spec: list[object]) -> None:
        """Let the C decoder read the struct here into `into`; `spec` is ``[class, thrift_spec]``.

        Raises:
            FormatError: broken Thrift.
        """
        if self._protocol is None:
            transport = _Transport(self.data)
            self._buffer = transport.cstringio_buf
            self._protocol = _Protocol(transport, len(self.data), self._limit)
        self._buffer.seek(self.position)
        try:
            fastbinary.decode_compact(into, self._protocol, spec)
        except (EOFError, TProtocolException, TTransportException, ValueError, TypeError, OverflowError, MemoryError):
            raise FormatError("broken Thrift: a struct that can't be decoded") from None
        self.position = self._buffer.tell()

    def varint(self) -> int:
        """An unsigned varint of at most ten bytes."""
        data, position, result, shift = self.data, self.position, 0, 0
        while True:
            if position >= len(data):
                raise FormatError("broken Thrift: truncated in a varint")
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return result
            shift += 7
            if shift > 63:
                raise FormatError("broken Thrift: a varint of more than ten bytes")

    def list_header(self) -> tuple[int, int]:
        """Element type and count of the list here. A count beyond the bytes that remain is refused."""
        byte = self._byte()
        count = byte >> 4
        if count == 15:
            count = self.varint()
        if count > len(self.data) - self.position:
            raise FormatError("broken Thrift: a list claims more elements than bytes remain")
        return byte & 0x0F, count

    def skip(self, wire: int, depth: int = 0) -> None:
        """Step over one value of type `wire`, as it stands in a struct field."""
        if wire == WireType.STRUCT:
            self.skip_struct()
        elif wire in VARINTS:
            self.varint()
        elif wire == WireType.BINARY:
            self._advance(self.varint())
        elif wire in (WireType.TRUE, WireType.FALSE):
            pass
        elif wire in (WireType.LIST, WireType.SET):
            element, count = self.list_header()
            check_count(element, count)
            for _ in range(count):
                self.skip_element(element, depth + 1)
        elif wire == WireType.BYTE:
            self._advance(1)
        elif wire == WireType.DOUBLE:
            self._advance(8)
        elif wire == WireType.UUID:
            self._advance(16)
        elif wire == WireType.MAP:
            count = self.varint()
            if count > len(self.data) - self.position:
                raise FormatError("broken Thrift: a map claims more entries than bytes remain")
            types = self._byte() if count else 0
            for _ in range(count):
                self.skip_element(types >> 4, depth + 1)
                self.skip_element(types & 0x0F, depth + 1)
        else:
            raise FormatError(f"broken Thrift: unknown type {wire}")

    def skip_struct(self) -> None:
        """Step over the struct here, in C."""
        self.decode(_NOTHING, _SKIP)

    def skip_element(self, wire: int, depth: int = 0) -> None:
        """Step over one list element; there a bool takes a byte."""
        if depth > _MAX_DEPTH:
            raise FormatError("broken Thrift: nested too deeply")
        if wire in (WireType.TRUE, WireType.FALSE):
            self._advance(1)
        else:
            self.skip(wire, depth)

    def _byte(self) -> int:
        if self.position >= len(self.data):
            raise FormatError("broken Thrift: truncated")
        self.position += 1
        return self.data[self.position - 1]

    def _advance(self, count: int) -> None:
        if count > len(self.data) - self.position:
            raise FormatError("broken Thrift: a value reaches past the end")
        self.position += count


def check_count(element: int, count: int) -> None:
    """An empty struct is one byte in the file; a million of them would be seconds of work and hundreds of megabytes."""
    if element == WireType.STRUCT and count > MAX_LIST_ELEMENTS:
        raise FormatError(f"a list of {count} structs; the limit is {MAX_LIST_ELEMENTS}")
