"""A lossless view of Thrift compact-protocol structs: one level parsed, every value kept as the raw bytes it came in.

Rewriting a footer must not change what we did not understand, so a struct that nobody touched is spliced back byte for
byte, unknown fields included. Children are parsed when asked for. Skipping over nested structs is left to the C decoder
of the ``thrift`` package, which bounds their depth; our own recursion (lists of lists, maps) is bounded here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..errors import FormatError
from .cursor import VARINTS, Cursor, WireType, check_count

_HEAD: Final = 16
_MOST: Final = 64
_LONGEST: Final = 64 * 1024


class Struct:
    """The fields of one struct as ``{id: (wire type, raw value)}``, in their order.

    Reading a field that is absent gives None; one of another type than asked is a FormatError. Serialising a struct
    that was parsed and not changed gives the same fields with the same values; unchanged children are the same bytes.
    """

    __slots__ = ("fields", "spans")

    def __init__(self) -> None:
        self.fields: dict[int, tuple[int, bytes]] = {}
        self.spans: dict[int, list[tuple[int, int]]] = {}

    @classmethod
    def parse(
        cls,
        data: bytes,
        *,
        remember: int | None = None,
        each: Callable[[Cursor], object] | None = None,
        alike: SeenLists | None = None,
    ) -> Struct:
        """The struct at the start of `data`; what follows it is ignored (sealed Thrift may be zero-padded).

        `remember` names a long list field whose element spans are kept from this pass, for `elements`; `each` may read
        them as it passes, and leaves the cursor behind the element. `alike` steps over lists that it has seen.
        """
        return cls.read(Cursor(data), remember=remember, each=each, alike=alike)

    @classmethod
    def read(
        cls,
        cursor: Cursor,
        *,
        remember: int | None = None,
        each: Callable[[Cursor], object] | None = None,
        alike: SeenLists | None = None,
    ) -> Struct:
        """The struct at `cursor`, which is moved past it.

        Raises:
            FormatError: broken Thrift, or a field that stands twice: two readers could see two different structs.
        """
        struct = cls()
        data, previous = cursor.data, 0
        while True:
            byte = cursor._byte()
            if byte == 0:
                return struct
            wire, delta = byte & 0x0F, byte >> 4
            field = previous + delta if delta else _unzigzag(cursor.varint())
            if field in struct.fields:
                raise FormatError(f"broken Thrift: field {field} stands twice")
            start = cursor.position
            if field == remember and wire == WireType.LIST:
                struct.spans[field] = [
                    (begin - start, end - start) for begin, end in _spans(cursor, WireType.STRUCT, each)
                ]
            elif alike is not None and wire == WireType.LIST:
                struct.fields[field] = (wire, alike.skip(cursor))
                previous = field
                continue
            else:
                cursor.skip(wire)
            struct.fields[field] = (wire, data[start : cursor.position])
            previous = field

    def to_bytes(self) -> bytes:
        """The struct in compact protocol, its stop byte included."""
        out, previous = bytearray(), 0
        for field, (wire, value) in self.fields.items():
            delta = field - previous
            if 0 < delta <= 15:
                out.append(delta << 4 | wire)
            else:
                out.append(wire)
                out += encode_varint(_zigzag(field))
            out += value
            previous = field
        out.append(0)
        return bytes(out)

    def copy(self) -> Struct:
        twin = Struct()
        twin.fields = dict(self.fields)
        twin.spans = dict(self.spans)
        return twin

    def __contains__(self, field: int) -> bool:
        return field in self.fields

    # reading

    def integer(self, field: int) -> int | None:
        """An i16, i32 or i64."""
        value = self._value(field, *VARINTS)
        return None if value is None else _unzigzag(Cursor(value).varint())

    def boolean(self, field: int) -> bool | None:
        if field not in self.fields:
            return None
        self._value(field, WireType.TRUE, WireType.FALSE)
        return self.fields[field][0] == WireType.TRUE

    def binary(self, field: int) -> bytes | None:
        value = self._value(field, WireType.BINARY)
        if value is None:
            return None
        cursor = Cursor(value)
        cursor.varint()
        return value[cursor.position :]

    def struct(self, field: int) -> Struct | None:
        value = self._value(field, WireType.STRUCT)
        return None if value is None else Struct.parse(value)

    def raw(self, field: int) -> bytes | None:
        """The raw bytes of a struct or list field."""
        return self.fields[field][1] if field in self.fields else None

    def elements(self, field: int, wire: WireType = WireType.STRUCT) -> list[bytes]:
        """The raw elements of a list field; an absent list is empty."""
        value = self._value(field, WireType.LIST)
        if value is None:
            return []
        spans = self.spans.get(field) or element_spans(value, wire)
        return [value[start:end] for start, end in spans]

    # changing

    def set_i32(self, field: int, value: int) -> None:
        self._set(field, WireType.I32, encode_varint(_zigzag(value)))

    def set_i64(self, field: int, value: int) -> None:
        self._set(field, WireType.I64, encode_varint(_zigzag(value)))

    def set_i16(self, field: int, value: int) -> None:
        self._set(field, WireType.I16, encode_varint(_zigzag(value)))

    def set_boolean(self, field: int, value: bool) -> None:
        self._set(field, WireType.TRUE if value else WireType.FALSE, b"")

    def set_binary(self, field: int, value: bytes | bytearray) -> None:
        self._set(field, WireType.BINARY, encode_varint(len(value)) + bytes(value))

    def set_struct(self, field: int, value: Struct | bytes) -> None:
        self._set(field, WireType.STRUCT, value if isinstance(value, bytes) else value.to_bytes())

    def set_list(self, field: int, elements: list[bytes], wire: WireType = WireType.STRUCT) -> None:
        self.spans.pop(field, None)
        self._set(field, WireType.LIST, encode_list(elements, wire))

    def remove(self, *fields: int) -> None:
        for field in fields:
            self.fields.pop(field, None)

    def _value(self, field: int, *wires: WireType) -> bytes | None:
        held = self.fields.get(field)
        if held is None:
            return None
        if held[0] not in wires:
            raise FormatError(f"broken Thrift: field {field} has type {held[0]}, not {wires[0].name}")
        return held[1]

    def _set(self, field: int, wire: WireType, value: bytes) -> None:
        if field in self.fields or not self.fields or field > next(reversed(self.fields)):
            self.fields[field] = (wire, value)
            return
        # Field ids ascend in every writer's output; a new one goes where a decoder expects it.
        self.fields[field] = (wire, value)
        self.fields = dict(sorted(self.fields.items()))


class SeenLists:
    """Raw lists that stood in other structs: the same bytes end at the same place, and are stepped over at once.

    Threads may share it.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[bytes, bytes] = {}

    def skip(self, cursor: Cursor) -> bytes:
        """The raw list at `cursor`, which is moved past it.

        Raises:
            FormatError: broken Thrift.
        """
        data, start = cursor.data, cursor.position
        head = data[start : start + _HEAD]
        known = self._seen.get(head)
        # All of the bytes are compared: a list says itself where it ends, so nothing else has to be looked at.
        if known is not None and data.startswith(known, start):
            cursor.position = start + len(known)
            return known
        cursor.skip(WireType.LIST)
        value = data[start : cursor.position]
        if _HEAD <= len(value) <= _LONGEST:
            if len(self._seen) >= _MOST:
                self._seen.clear()
            self._seen[head] = value
        return value


def element_spans(value: bytes, wire: WireType) -> Iterator[tuple[int, int]]:
    """Start and end of each element in a raw list value.

    Raises:
        FormatError: the list holds another type.
    """
    yield from _spans(Cursor(value), wire)


def _spans(cursor: Cursor, wire: WireType, each: Callable[[Cursor], object] | None = None) -> Iterator[tuple[int, int]]:
    element, count = cursor.list_header()
    if count and element != wire:
        raise FormatError(f"broken Thrift: a list of type {element}, not {wire.name}")
    check_count(element, count)
    if each is None:
        each = Cursor.skip_struct if element == WireType.STRUCT else lambda cursor: cursor.skip_element(element)
    for _ in range(count):
        start = cursor.position
        each(cursor)
        yield start, cursor.position


def with_integers(raw: bytes, values: Sequence[int | None]) -> bytes:
    """A raw struct with these values in its integer fields 1, 2, … (None: as it is): for thousands of small ones.

    Raises:
        FormatError: it has no such field.
    """
    found = _integers_first(len(values)).match(raw)
    if found is None:
        return _with_integers_anywhere(raw, values)
    out: list[bytes] = []
    begin = 0
    for number, value in enumerate(values, 1):
        if value is not None:
            start, end = found.span(number)
            out += raw[begin:start], encode_varint(_zigzag(value))
            begin = end
    return b"".join((*out, raw[begin:]))


def _integers_first(count: int) -> re.Pattern[bytes]:
    """Structs that begin with so many i32 and i64 fields, numbered from 1; each varint is a group."""
    return re.compile(rb"[\x15\x16]([\x80-\xff]{0,9}[\x00-\x7f])" * count)


def _with_integers_anywhere(raw: bytes, values: Sequence[int | None]) -> bytes:
    struct = Struct.parse(raw)
    for field, value in enumerate(values, 1):
        if value is not None:
            wire, _ = struct.fields.get(field, (None, b""))
            if wire not in VARINTS:
                raise FormatError(f"broken Thrift: no integer in field {field}")
            struct.fields[field] = (wire, encode_varint(_zigzag(value)))
    return struct.to_bytes()


def encode_list(elements: list[bytes], wire: WireType = WireType.STRUCT) -> bytes:
    """A raw list value from raw elements."""
    count = len(elements)
    header = bytes([count << 4 | wire]) if count < 15 else bytes([0xF0 | wire]) + encode_varint(count)
    return header + b"".join(elements)


def encode_binary(value: bytes) -> bytes:
    """A raw binary element: its length, then its bytes."""
    return encode_varint(len(value)) + value


def encode_varint(value: int) -> bytes:
    """ULEB128, of numbers from 0 up."""
    # Nearly all that are written take up to four bytes.
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 1 << 28:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    return bytes((value & 0x7F | 0x80,)) + encode_varint(value >> 7)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _unzigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)
