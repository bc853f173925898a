"""The columns of an ORC file: a tree of types, numbered in pre-order (ORC specification, "Type Information")."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ..core.columns import in_tables
from ..core.errors import FormatError, UsageError
from ..core.limits import MAX_SCHEMA_DEPTH
from ..core.spelling import nearest
from .protobuf import Message


class OrcKind(IntEnum):
    """The values are those of the enum ``Type.Kind``."""

    BOOLEAN = 0
    BYTE = 1
    SHORT = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BINARY = 8
    TIMESTAMP = 9
    LIST = 10
    MAP = 11
    STRUCT = 12
    UNION = 13
    DECIMAL = 14
    DATE = 15
    VARCHAR = 16
    CHAR = 17
    TIMESTAMP_INSTANT = 18


INTEGER_BITS: Final = {OrcKind.BYTE: 8, OrcKind.SHORT: 16, OrcKind.INT: 32, OrcKind.LONG: 64}
TEXTS: Final = (OrcKind.STRING, OrcKind.VARCHAR, OrcKind.CHAR, OrcKind.BINARY)
MOMENTS: Final = (OrcKind.TIMESTAMP, OrcKind.TIMESTAMP_INSTANT)
_KINDS: Final = {int(kind): kind for kind in OrcKind}
_MOST_DIGITS: Final = 38
_NESTED: Final = (OrcKind.LIST, OrcKind.MAP, OrcKind.STRUCT, OrcKind.UNION)


class OrcColumn(NamedTuple):
    """One node of the schema.

    Attributes:
        id: its number in the file; 0 is the root.
        last: the greatest id below it, its own for a leaf.
        name: dotted path; elements, keys and values are ``_elem``, ``_key``, ``_value``, variants ``_tag0``, ….
        kind: None for a type that is younger than this code.
        length: characters of CHAR and VARCHAR, else 0.
        precision, scale: of DECIMAL, in digits.
    """

    id: int
    last: int
    name: str
    kind: OrcKind | None
    length: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def is_leaf(self) -> bool:
        return self.kind not in _NESTED

    def __str__(self) -> str:
        return f"{self.name}: {self.type_name}"

    @property
    def type_name(self) -> str:
        if self.kind is None:
            return "unknown"
        if self.kind is OrcKind.DECIMAL:
            return f"decimal({self.precision}, {self.scale})"
        return self.kind.name.lower() + (f"({self.length})" if self.kind in (OrcKind.CHAR, OrcKind.VARCHAR) else "")


class OrcSchema:
    """All columns by their ids, and by name.

    Raises:
        FormatError: the types are no tree in pre-order, or nested deeper than `bloomseal.core.limits.MAX_SCHEMA_DEPTH`.
    """

    def __init__(self, types: list[memoryview]) -> None:
        self.columns: list[OrcColumn] = []
        if not types:
            raise FormatError("an ORC footer without types")
        self._add(types, "", 0)
        if len(self.columns) != len(types):
            raise FormatError(f"{len(types)} types, of which the root reaches {len(self.columns)}: corrupt")

    @property
    def leaves(self) -> list[OrcColumn]:
        return [column for column in self.columns if column.is_leaf]

    def leaf(self, name: str) -> OrcColumn:
        """The leaf column of that dotted path, as ORC or as tables have it.

        Raises:
            UsageError: no such column, a nested one, or two of one path.
        """
        found = [column for column in self.columns[1:] if column.name == name]
        found = found or [column for column in self.columns[1:] if in_tables(column.name) == name]
        if not found:
            known = nearest(name, [column.name for column in self.leaves])
            raise UsageError("no such column", column=name, hint=f"one of {', '.join(known)}" if known else None)
        if len(found) > 1:
            raise UsageError("two columns have this path", column=name)
        if not found[0].is_leaf:
            below = [one.name for one in self.leaves if found[0].id < one.id <= found[0].last]
            raise UsageError("a nested column has no values of its own", column=name, hint=", ".join(below[:5]) or None)
        return found[0]

    def alone(self, leaf: OrcColumn) -> OrcColumn:
        """What pyarrow can be asked for: the leaf, or the outermost list, map or union around it."""
        above = (one for one in self.columns if one.id < leaf.id <= one.last)
        return next((one for one in above if one.kind is not OrcKind.STRUCT), leaf)

    def down_to(self, column: int) -> list[OrcColumn]:
        """The columns around a column, from the top-level one on, and itself."""
        return [one for one in self.columns[1 : column + 1] if column <= one.last]

    def _add(self, types: list[memoryview], name: str, depth: int) -> int:
        if depth > MAX_SCHEMA_DEPTH:
            raise FormatError(f"a schema nested deeper than {MAX_SCHEMA_DEPTH}")
        own = len(self.columns)
        message = Message(types[own])
        number = message.number(1)
        kind = _KINDS.get(number)
        below = message.numbers(2)
        if below and kind not in _NESTED:
            raise FormatError("a primitive type with types below it: corrupt", column=name)
        if kind is OrcKind.DECIMAL and not message.number(6) <= message.number(5, _MOST_DIGITS) <= _MOST_DIGITS:
            # A decoder may take it, and write beyond what it has room for.
            raise FormatError(f"decimal({message.number(5)}, {message.number(6)}) is no type: corrupt", column=name)
        self.columns.append(
            OrcColumn(
                id=own,
                last=own,
                name=name,
                kind=kind,
                length=message.number(4),
                precision=message.number(5),
                scale=message.number(6),
            )
        )
        last = own
        for child, part in zip(below, _names(message, kind, len(below)), strict=True):
            if child != last + 1 or child >= len(types):
                raise FormatError(f"type {child} does not follow type {last}: corrupt", column=name)
            last = self._add(types, f"{name}.{part}" if name else part, depth + 1)
        if last != own:
            node = self.columns[own]
            self.columns[own] = OrcColumn(own, last, node.name, node.kind)
        return last


def _names(message: Message, kind: OrcKind | None, count: int) -> list[str]:
    if kind is OrcKind.STRUCT:
        names = [bytes(name).decode("utf-8", "replace") for name in message.every(3)]
    elif kind is OrcKind.UNION:
        names = [f"_tag{place}" for place in range(count)]
    else:
        names = {OrcKind.LIST: ["_elem"], OrcKind.MAP: ["_key", "_value"]}.get(kind, []) if kind is not None else []
    if len(names) != count:
        raise FormatError(f"{len(names)} names for {count} types: corrupt")
    return names
