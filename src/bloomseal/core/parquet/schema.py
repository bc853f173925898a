"""A footer's schema: its leaf columns with their types, and smaller schemas cut out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ..cached import cached_property
from ..errors import FormatError, UsageError
from ..limits import MAX_ORDINAL, MAX_SCHEMA_DEPTH
from ..sbbf import ColumnType, LogicalType, PhysicalType
from ..sbbf.types import annotates
from ..spelling import nearest
from ..thrift import Struct
from ..thrift.schema_structs import SchemaElement
from ..thrift.structs import decode

_OPTIONAL, _REPEATED = 1, 2
_UNITS = ("ms", "us", "ns")
_CONVERTED = {
    0: LogicalType("string"),
    4: LogicalType("enum"),
    6: LogicalType("date"),
    7: LogicalType("time", unit="ms", utc=True),
    8: LogicalType("time", unit="us", utc=True),
    9: LogicalType("timestamp", unit="ms", utc=True),
    10: LogicalType("timestamp", unit="us", utc=True),
    **{11 + i: LogicalType("int", bit_width=8 << i, signed=False) for i in range(4)},
    **{15 + i: LogicalType("int", bit_width=8 << i) for i in range(4)},
    19: LogicalType("json"),
    20: LogicalType("bson"),
    21: LogicalType("interval"),
}
_DECIMAL = 5
_UNRECOGNISED = LogicalType("unrecognised")
_MAPS = (1, 2)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column: what a column chunk holds.

    Attributes:
        index: the column ordinal.
        path: path in schema, without the root.
        name: the dotted path.
        type: what its values are.
        repetition, definition: its greatest levels: how many of it and the groups above it are repeated (lists and
            maps), and how many are repeated or optional. Pages have levels only where these are not 0.
    """

    index: int
    path: tuple[str, ...]
    type: ColumnType
    repetition: int
    definition: int
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", ".".join(self.path))

    @property
    def repeated(self) -> bool:
        """Whether a row can hold any number of its values."""
        return self.repetition > 0


@dataclass(slots=True)
class _Node:
    name: str
    raw: bytes
    children: list[_Node] = field(default_factory=list)
    leaf: int = -1
    unknown: bool = False

    def leaves(self) -> Iterable[int]:
        if not self.children:
            yield self.leaf
        for child in self.children:
            yield from child.leaves()


class Schema:
    """The schema of a footer, parsed from the raw elements of ``FileMetaData.schema``.

    Attributes:
        leaves: its columns.
        files: groups whose values may point to bytes of the file that are no column's (the logical type FILE).

    Raises:
        FormatError: not a tree, nested too deeply, or a leaf without a type.
    """

    def __init__(self, elements: list[bytes]) -> None:
        self._elements = elements
        self.leaves: list[Leaf] = []
        self.files: list[str] = []
        self._next = 0
        self._root = self._read((), 0, 0)
        if self._next != len(elements):
            raise FormatError("the schema's elements do not form one tree")
        if len(self.leaves) > MAX_ORDINAL + 1:
            raise FormatError(f"the schema has {len(self.leaves)} columns; the limit is {MAX_ORDINAL + 1}")

    @cached_property
    def raw(self) -> bytes:
        """All its elements: schemas with the same ones are equal."""
        return b"".join(self._elements)

    @cached_property
    def _by_name(self) -> dict[str, list[Leaf]]:
        named: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            named.setdefault(leaf.name, []).append(leaf)
        return named

    @cached_property
    def _below(self) -> dict[str, list[Leaf]]:
        below: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            for end in range(1, len(leaf.path) + 1):
                below.setdefault(".".join(leaf.path[:end]), []).append(leaf)
        return below

    @cached_property
    def top_level(self) -> list[str]:
        """Names of the top-level fields that have columns, in order: all but groups without fields."""
        return [node.name for node in self._root.children if any(leaf >= 0 for leaf in node.leaves())]

    @cached_property
    def repeated_names(self) -> set[str]:
        """Top-level names that stand more than once."""
        return {name for name, count in Counter(self.top_level).items() if count > 1}

    def leaf(self, name: str) -> Leaf:
        """The leaf of this dotted path, or the only leaf below it.

        Raises:
            UsageError: no such column, several of them, or several leaves below it.
        """
        if named := self._by_name.get(_dotted(name)):
            if len(named) > 1:
                # A dotted name can also be a path; an answer about the wrong one of two would be a false absent.
                raise UsageError(f"{len(named)} columns have the same name or path", column=name)
            return named[0]
        below = self.below(name)
        if len(below) > 1:
            raise UsageError(
                f"column {name} has {len(below)} leaves", column=name, hint=", ".join(leaf.name for leaf in below[:5])
            )
        return below[0]

    def has(self, name: str) -> bool:
        """Whether there is a leaf at or below this dotted path."""
        return name in self._below

    def may_hide(self, name: str) -> bool:
        """Whether a column that is not here by this dotted path can be here by another one. What is inside a list or a
        map is named as its writer names the layers between: ``list.element``, ``list.item``, ``bag.array_element``.
        """
        above = name.rpartition(".")[0]
        while above and above not in self._below:
            above = above.rpartition(".")[0]
        return any(leaf.repeated for leaf in self._below.get(above, ()))

    def below(self, name: str) -> list[Leaf]:
        """All leaves at or below this dotted path.

        Raises:
            UsageError: no such column.
        """
        found = self._below.get(_dotted(name), [])
        if not found:
            near = nearest(name, [*self._by_name, *self.top_level])
            raise UsageError("no such column", column=name, hint=f"one of {', '.join(near)}" if near else None)
        return found

    def whole_fields(self, leaves: Collection[int]) -> list[tuple[str, bool]]:
        """Each top-level field: is every one of its leaves among `leaves`? Never where a group in it has no fields."""
        return [(node.name, all(leaf in leaves for leaf in node.leaves())) for node in self._root.children]

    def cut(self, leaves: Collection[int], *, physical: bool = False) -> list[bytes]:
        """Raw elements of the schema that keeps only these leaves.

        With `physical` the leaves lose their logical types and INT96 becomes 12 plain bytes (its plain encoding is the
        same), so that a decoder hands out exactly what the file stores.
        """
        out: list[bytes] = []
        self._cut(self._root, frozenset(leaves), physical, out)
        return out

    def _cut(self, node: _Node, keep: frozenset[int], physical: bool, out: list[bytes]) -> None:
        if not node.children:
            out.append(_physical(node.raw) if physical and node.leaf >= 0 else node.raw)
            return
        children = [child for child in node.children if any(leaf in keep for leaf in child.leaves())]
        raw = node.raw
        # A group of a logical type that decoders don't know is a struct to them.
        if node.unknown or len(children) < len(node.children) or _lost_its_keys(node, keep):
            group = Struct.parse(raw)
            group.set_i32(5, len(children))
            group.remove(6, 10)
            raw = group.to_bytes()
        out.append(raw)
        for child in children:
            self._cut(child, keep, physical, out)

    def _read(self, parents: tuple[str, ...], repetition: int, definition: int) -> _Node:
        if self._next >= len(self._elements):
            raise FormatError("the schema names more children than it has elements")
        if len(parents) > MAX_SCHEMA_DEPTH:
            raise FormatError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} deep")
        root = self._next == 0
        raw = self._elements[self._next]
        self._next += 1
        element = decode(SchemaElement, raw)
        try:
            name = (element.name or b"").decode()
        except UnicodeDecodeError:
            raise FormatError("a column name that is not UTF-8") from None
        node = _Node(name, raw)
        path = () if root else (*parents, name)
        if not root:
            repetition += element.repetition == _REPEATED
            definition += element.repetition in (_OPTIONAL, _REPEATED)
        # Some writers give the root a type, which means nothing.
        if element.type is None or root:
            kind = "" if element.logical_type is None else element.logical_type.kind()
            node.unknown = kind in (None, "file")
            if kind == "file":
                self.files.append(".".join(path))
            for _ in range(min(max(element.num_children or 0, 0), len(self._elements))):
                node.children.append(self._read(path, repetition, definition))
        else:
            node.leaf = len(self.leaves)
            column_type = _column_type(element, ".".join(path))
            self.leaves.append(Leaf(node.leaf, path, column_type, repetition, definition))
        return node


def _column_type(element: SchemaElement, name: str) -> ColumnType:
    try:
        physical = PhysicalType(element.type or 0)
    except ValueError:
        raise FormatError(f"unknown physical type {element.type}", column=name) from None
    length = element.type_length if physical is PhysicalType.FIXED_LEN_BYTE_ARRAY else None
    if physical is PhysicalType.FIXED_LEN_BYTE_ARRAY and (length is None or length < 0):
        raise FormatError("a FIXED_LEN_BYTE_ARRAY column without a length", column=name)
    logical = _logical(element)
    if logical is not None and not annotates(logical, physical, length, old=element.logical_type is None):
        # Believed, it would ask filters and bounds for other bytes than those of the values that are decoded.
        logical = _UNRECOGNISED
    return ColumnType(physical, length, logical)


def _logical(element: SchemaElement) -> LogicalType | None:
    union = element.logical_type
    if union is None:
        if element.converted_type == _DECIMAL:
            return LogicalType("decimal", precision=element.precision or 0, scale=element.scale or 0)
        return None if element.converted_type is None else _CONVERTED.get(element.converted_type)
    kind = union.kind()
    if kind is None:
        # A logical type younger than this code: say so, so that nothing is taken for a plain number.
        return _UNRECOGNISED
    if kind == "decimal" and union.decimal is not None:
        return LogicalType(kind, precision=union.decimal.precision or 0, scale=union.decimal.scale or 0)
    if kind in ("time", "timestamp"):
        time = union.time if kind == "time" else union.timestamp
        unit = next((unit for unit in _UNITS if time and time.unit and getattr(time.unit, unit) is not None), "")
        return LogicalType(kind if unit else "unrecognised", unit=unit, utc=bool(time and time.utc))
    if kind == "int" and union.int is not None:
        return LogicalType(kind, bit_width=union.int.bit_width or 0, signed=bool(union.int.signed))
    return LogicalType(kind)


def _lost_its_keys(node: _Node, keep: Collection[int]) -> bool:
    """Whether this is a map that keeps values only. That is no map to any decoder; what remains reads as a list of
    structs.
    """
    element = decode(SchemaElement, node.raw)
    is_map = element.converted_type in _MAPS or (
        element.logical_type is not None and element.logical_type.kind() == "map"
    )
    if not is_map or len(node.children) != 1 or not node.children[0].children:
        return False
    return not all(leaf in keep for leaf in node.children[0].children[0].leaves())


def _physical(raw: bytes) -> bytes:
    element = Struct.parse(raw)
    element.remove(6, 7, 8, 10)
    if element.integer(1) == PhysicalType.INT96:
        element.set_i32(1, PhysicalType.FIXED_LEN_BYTE_ARRAY)
        element.set_i32(2, 12)
    return element.to_bytes()


def _dotted(name: object) -> str:
    if isinstance(name, str):
        return name
    raise UsageError(f"a column's dotted path is a str, not {type(name).__name__}")
