"""Mutants of documents: JSON, JSON lines, TOML and protobuf; by their structure, and by their bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Mutate", "any_bytes", "json_lines", "json_object", "protobuf", "toml"]

Mutate = Callable[[bytes, bytes, random.Random], tuple[bytes, str]]
"""A document, another one of its kind, and chance → the mutant, and what was done."""

_OTHERS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1 << 31, 1 << 63, 1 << 200, 1e308, "", "x", "a/../b", "\u202e", "\x00", [], {}, [[]], {"": ""}
)  # fmt: skip
_LITERALS = (b"true", b"-1", b"9223372036854775807", b"1e308", b'""', b'"x"', b"[]", b"{}", b"[[]]", b"nan")


def any_bytes(data: bytes, other: bytes, chance: random.Random) -> tuple[bytes, str]:
    """One to three flips, cuts, repetitions and pieces of the other one."""
    made, what = bytearray(data), []
    for _ in range(chance.randint(1, 3)):
        at, length = chance.randrange(max(len(made), 1)), chance.randint(1, 24)
        kind = chance.choice(("flip", "cut", "cut off", "repetition", "piece"))
        if kind == "flip" and made:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            made[at : at + length] = b""
        elif kind == "cut off" and chance.random() < 0.3:
            del made[at:]
        elif kind == "repetition":
            made[at:at] = made[at : at + length]
        elif kind == "piece" and other:
            start = chance.randrange(len(other))
            made[at : at + length] = other[start : start + length]
        what.append(f"{kind} at {at}")
    return bytes(made), ", ".join(what)


def json_object(data: bytes, other: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A field dropped, exchanged, renamed, given another type, or taken from the other one. Text that is JSON itself
    is opened, as key material beside files needs it.
    """
    if chance.random() < 0.25:
        return any_bytes(data, other, chance)
    value, theirs = _opened(json.loads(data)), _opened(json.loads(other))
    what = [_change(value, theirs, chance) for _ in range(chance.randint(1, 2))]
    text = json.dumps(_closed(value)).encode()
    if chance.random() < 0.05:
        text, more = any_bytes(text, other, chance)
        what.append(more)
    return text, ", ".join(what)


def json_lines(data: bytes, other: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A line dropped, repeated, exchanged, taken from the other one; or changed within."""
    lines, theirs = data.splitlines(keepends=True), other.splitlines(keepends=True)
    at, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.choice(("bytes", "drop", "repeat", "exchange", "splice", "within", "within"))
    match kind:
        case "bytes":
            return any_bytes(data, other, chance)
        case "drop":
            del lines[at]
        case "repeat":
            lines.insert(second, lines[at])
        case "exchange":
            lines[at], lines[second] = lines[second], lines[at]
        case "splice":
            lines[at] = chance.choice(theirs)
        case _:
            changed, more = json_object(lines[at], chance.choice(theirs), chance)
            lines[at] = changed.rstrip(b"\n") + b"\n"
            kind += f" {more}"
    return b"".join(lines), f"line {at}: {kind}"


def toml(data: bytes, other: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A line dropped, repeated, exchanged, taken from the other one, or given another value."""
    lines, theirs = data.splitlines(keepends=True), other.splitlines(keepends=True)
    at, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.choice(("bytes", "drop", "repeat", "exchange", "splice", "value", "value"))
    match kind:
        case "bytes":
            return any_bytes(data, other, chance)
        case "drop":
            del lines[at]
        case "repeat":
            lines.insert(second, lines[at])
        case "exchange":
            lines[at], lines[second] = lines[second], lines[at]
        case "splice":
            lines[at] = chance.choice(theirs)
        case _:
            name, sign, _ = lines[at].partition(b"=")
            lines[at] = name + sign + b" " + chance.choice(_LITERALS) + b"\n"
    return b"".join(lines), f"line {at}: {kind}"


def protobuf(data: bytes, other: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A field dropped, repeated, exchanged, renumbered, made another number, taken from the other one, or changed
    within.
    """
    fields, theirs = _fields(data), _fields(other) or _fields(data)
    if not fields or chance.random() < 0.1:
        return any_bytes(data, other, chance)
    at, second = chance.randrange(len(fields)), chance.randrange(len(fields))
    number, wire, body = fields[at]
    kind = chance.choice(("drop", "repeat", "exchange", "renumber", "number", "splice", "within", "within"))
    match kind:
        case "drop":
            del fields[at]
        case "repeat":
            fields.insert(second, fields[at])
        case "exchange":
            fields[at], fields[second] = (number, *fields[second][1:]), (fields[second][0], wire, body)
        case "renumber":
            fields[at] = chance.randint(1, 30), wire, body
        case "splice":
            fields[at] = chance.choice(theirs)
        case "within" if wire == 2 and len(body) > 1:
            inner, more = protobuf(body, body, chance)
            fields[at] = number, wire, inner
            kind += f" ({more})"
        case _:
            value = chance.choice((0, 1, 2, 1 << 20, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1))
            fields[at] = number, 0, _varint(value)
            kind = f"= {value}"
    return b"".join(map(_field, fields)), f"field {number}: {kind}"


class _Inner(dict[str, Any]):
    """An object that stands as text within another one."""


def _opened(value: Any) -> Any:
    match value:
        case dict():
            return {name: _opened(one) for name, one in value.items()}
        case list():
            return [_opened(one) for one in value]
        case str() if value.startswith("{"):
            try:
                return _Inner(_opened(json.loads(value)))
            except ValueError:
                return value
    return value


def _closed(value: Any) -> Any:
    match value:
        case _Inner():
            return json.dumps({name: _closed(one) for name, one in value.items()})
        case dict():
            return {name: _closed(one) for name, one in value.items()}
        case list():
            return [_closed(one) for one in value]
    return value


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document: what it is in, and its name or number there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield value, name
        yield from _spots(one)


def _change(value: Any, theirs: Any, chance: random.Random) -> str:
    spots = list(_spots(value))
    if not spots:
        return "empty"
    parent, name = chance.choice(spots)
    match kind := chance.choice(("drop", "exchange", "splice", "splice", "type", "type", "rename")):
        case "drop":
            del parent[name]
        case "exchange":
            other, its = chance.choice(spots)
            parent[name], other[its] = copy.deepcopy(other[its]), copy.deepcopy(parent[name])
        case "splice":
            found = list(_spots(theirs))
            alike = [(inside, key) for inside, key in found if key == name] or found
            inside, key = chance.choice(alike)
            parent[name] = copy.deepcopy(inside[key])
        case "type":
            parent[name] = copy.deepcopy(chance.choice(_OTHERS))
        case _ if isinstance(parent, dict):
            parent[f"{name}x"] = parent.pop(name)
    return f"{kind} {name}"


def _fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """Number, wire type and content of each field; none if these are no fields."""
    found, at = [], 0
    try:
        while at < len(data):
            key, at = _read_varint(data, at)
            wire, start = key & 7, at
            if wire == 0:
                _, at = _read_varint(data, at)
                body = data[start:at]
            else:
                size, start = _read_varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
                at = start + size
                body = data[start:at]
            if at > len(data) or not key >> 3:
                return []
            found.append((key >> 3, wire, body))
    except (IndexError, KeyError):
        return []
    return found


def _field(field: tuple[int, int, bytes]) -> bytes:
    number, wire, body = field
    return _varint(number << 3 | wire) + (_varint(len(body)) if wire == 2 else b"") + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
