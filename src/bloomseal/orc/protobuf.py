"""Protocol buffers as ORC has them, read field by field and without a copy (Protocol Buffers, "Encoding").

Nothing here knows a message's definition: whoever reads names the fields by number, as the ORC specification does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Final

from ..core.errors import FormatError
from ..core.limits import MAX_LIST_ELEMENTS

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it. Raises FormatError: it does not end."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1  # most are one byte
    value = 0
    for place, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise FormatError("a protobuf number without an end: truncated or corrupt")


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in their order: number, and an unsigned number or the bytes.

    Raises:
        FormatError: the bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = data[at], at + 1
        if tag > 0x7F:
            tag, at = varint(data, at - 1)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise FormatError("a protobuf field number 0: corrupt")
        if wire == _VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = (data[at], at + 1) if at < end and data[at] < 0x80 else varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise FormatError(f"protobuf wire type {wire}, which ORC does not use: corrupt")
        if length > end - at:
            raise FormatError(f"a protobuf field of {length} bytes reaches outside its message: truncated or corrupt")
        yield number, data[at : at + length]
        at += length


def parts(data: memoryview, most: int) -> list[memoryview]:
    """The bytes of field 1 of a message that is a list of them: the first `most`, in their order.

    Raises:
        FormatError: the bytes are no message.
    """
    found = (value for number, value in fields(data) if number == 1 and not isinstance(value, int))
    return list(itertools.islice(found, most))


class Message:
    """A message's fields by number; those that nobody asks for cost their place in a list only.

    Raises:
        FormatError: the bytes are no message, or have more than `bloomseal.core.limits.MAX_LIST_ELEMENTS` fields.
    """

    __slots__ = ("_fields",)

    def __init__(self, data: memoryview) -> None:
        found: dict[int, list[int | memoryview]] = {}
        self._fields = found
        # Two bytes in the file, which a field can be, are a hundred in memory.
        each = fields(data)
        for number, value in itertools.islice(each, MAX_LIST_ELEMENTS):
            if number in found:
                found[number].append(value)
            else:
                found[number] = [value]
        if len(data) > MAX_LIST_ELEMENTS and next(each, None) is not None:
            raise FormatError(f"a protobuf message of more than {MAX_LIST_ELEMENTS} fields")

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def number(self, field: int, default: int = 0) -> int:
        """An unsigned number; of several the last one, as protobuf has it."""
        value = self._fields.get(field, (default,))[-1]
        if not isinstance(value, int):
            raise FormatError(f"protobuf field {field} is no number: corrupt")
        return value

    def bytes(self, field: int) -> memoryview:
        """Bytes, a text or a message; empty where the field is missing."""
        value = self._fields.get(field, (memoryview(b""),))[-1]
        if isinstance(value, int):
            raise FormatError(f"protobuf field {field} is a number: corrupt")
        return value

    def text(self, field: int) -> str:
        return bytes(self.bytes(field)).decode("utf-8", "replace")

    def every(self, field: int) -> list[memoryview]:
        """The bytes of each occurrence of a repeated field."""
        found = [value for value in self._fields.get(field, ()) if not isinstance(value, int)]
        if len(found) != len(self._fields.get(field, ())):
            raise FormatError(f"protobuf field {field} is a number: corrupt")
        return found

    def numbers(self, field: int) -> list[int]:
        """A repeated field of numbers, packed or not."""
        found: list[int] = []
        for value in self._fields.get(field, ()):
            if isinstance(value, int):
                found.append(value)
                continue
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                found.append(one)
                if len(found) > MAX_LIST_ELEMENTS:
                    raise FormatError(f"a protobuf list of more than {MAX_LIST_ELEMENTS} numbers")
        return found


def zigzag(value: int) -> int:
    """A `sint32` or `sint64`."""
    return value >> 1 ^ -(value & 1)


def signed(value: int) -> int:
    """An `int64`; a varint keeps its two's complement."""
    return value - (1 << 64) if value >> 63 else value


def number(value: int) -> bytes:
    """An unsigned number as a varint."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def encoded(field: int, value: int | bytes | memoryview) -> bytes:
    """One field of a message: an unsigned number, or bytes."""
    if isinstance(value, int):
        return number(field << 3 | _VARINT) + number(value)
    return number(field << 3 | _BYTES) + number(len(value)) + bytes(value)


def without(data: memoryview, dropped: Collection[int]) -> bytes:
    """A message without some of its fields; all others stay byte for byte, unknown ones too."""
    kept: list[memoryview] = []
    start = at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        match tag & 7:
            case 0:  # a varint
                _, at = varint(data, at)
            case 2:  # bytes
                length, at = varint(data, at)
                at += length
            case wire:
                at += 8 if wire == _FIXED64 else 4
        if tag >> 3 not in dropped:
            kept.append(data[start:at])
    return b"".join(kept)
