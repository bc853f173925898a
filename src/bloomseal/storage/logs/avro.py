"""Whether the values of an Avro file lie within its blocks.

Attack: a length in a manifest that leads out of its block. So each block is walked through before it is decoded, by the
schema that its file has. Types that Iceberg's files don't have are refused.

Avro 1.12, "Binary Encoding"; Iceberg specification, "Appendix A: Avro".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

Walk = Callable[[bytes, int], int]
"""From where a value begins to where the next one does. Raises IndexError, ValueError: it does not end in the block."""
_PARTITION: Final = (2, 102)
"""Numbers of the fields in which a file's partition stands, which is read as a whole."""
_LOGICAL: Final = {
    ("date", "int"), ("time-micros", "long"), ("timestamp-micros", "long"), ("uuid", "fixed"), ("map", "array"),
    ("decimal", "fixed"),
}  # fmt: skip


def walker(schema: Any, above: tuple[int, ...] = ()) -> Walk:
    """What walks through one value of this type.

    Args:
        above: numbers of the fields that the type is in.

    Raises:
        ValueError, KeyError, TypeError: no such type, or none that Iceberg's files have.
    """
    if isinstance(schema, list):
        null, other = schema
        if null != "null" or isinstance(other, list):
            raise ValueError
        return _optional(walker(other, above))
    if isinstance(schema, str):
        return _PRIMITIVE[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str) or (logical is not None and (logical, kind) not in _LOGICAL):
        raise ValueError
    if kind == "record":
        return _record([walker(one["type"], (*above, one["field-id"])) for one in schema["fields"]])
    if kind == "array":
        return _list(_item(schema["items"], above, is_map=logical == "map"))
    return _PRIMITIVE[kind] if kind != "fixed" else _fixed(_size(schema, logical, above))


def _item(schema: Any, above: tuple[int, ...], *, is_map: bool) -> Walk:
    inner = [one["type"] for one in schema["fields"]] if is_map else [schema]
    if any(isinstance(one, list) for one in inner):
        raise ValueError
    if is_map and [one["name"] for one in schema["fields"]] != ["key", "value"]:
        raise ValueError
    return walker(schema, above)


def _size(schema: Any, logical: str | None, above: tuple[int, ...]) -> int:
    size = int(schema["size"])
    if size < 1 or (logical == "uuid" and size != 16):
        raise ValueError
    if logical == "decimal":
        from pyiceberg.utils.decimal import decimal_required_bytes

        # Nowhere else do Iceberg's files have decimals.
        if above[:2] != _PARTITION or decimal_required_bytes(schema["precision"]) != size:
            raise ValueError
    return size


def _number(data: bytes, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _bytes(data: bytes, at: int) -> int:
    size, at = zigzag(data, at)
    if not 0 <= size <= len(data) - at:
        raise ValueError
    return at + size


def _fixed(size: int) -> Walk:
    def walk(data: bytes, at: int) -> int:
        if size > len(data) - at:
            raise ValueError
        return at + size

    return walk


def _optional(inner: Walk) -> Walk:
    def walk(data: bytes, at: int) -> int:
        if (branch := data[at]) not in (0, 2):
            raise ValueError
        return inner(data, at + 1) if branch else at + 1

    return walk


def _record(fields: Sequence[Walk]) -> Walk:
    def walk(data: bytes, at: int) -> int:
        for one in fields:
            at = one(data, at)
        return at

    return walk


def _list(item: Walk) -> Walk:
    def walk(data: bytes, at: int) -> int:
        while True:
            count, at = zigzag(data, at)
            if not count:
                return at
            end = None
            if count < 0:
                size, at = zigzag(data, at)
                count, end = -count, at + size
            if count > len(data) - at:  # an item takes a byte at least, and memory is taken for all of them
                raise ValueError
            for _ in range(count):
                at = item(data, at)
            if end not in (None, at):
                raise ValueError

    return walk


_PRIMITIVE: Final[dict[str, Walk]] = {
    "boolean": _fixed(1),
    "bytes": _bytes,
    "double": _fixed(8),
    "float": _fixed(4),
    "int": _number,
    "long": _number,
    "string": _bytes,
}


def zigzag(data: bytes, position: int) -> tuple[int, int]:
    """A number, and where the next value begins."""
    value, position = varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def varint(data: bytes, position: int) -> tuple[int, int]:
    """As `zigzag`, of numbers that are never negative."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError
