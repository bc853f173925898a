"""One comparison of a column: the bounds and filters that rule it out, and the rows that satisfy it, exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from ..._lazy import deferred
from ...core.cached import cached_property
from ...core.errors import UsageError
from ...core.parquet.schema import Leaf
from ...core.parquet.statistics import asked, outside
from ...core.sbbf import ProbeSet, encode_value
from ...core.sbbf.order import Comparable
from ...sbbf import KeySet
from .compare import all_plain, comparable, equal_any, nowhere, ordered, wanted
from .values import Values

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")

T = TypeVar("T")
_MANY: Final = 16
"""More values than these are ordered before bounds are asked about them."""
_BOUNDED: Final = frozenset(["==", "in", "<", "<=", ">", ">="])

_PATIENCE: Final = 8
_AGAIN: Final = 16


class FilterYield:
    """Whether filters are worth asking for many values: where they rule out too little for what asking them takes, one
    in sixteen is asked, until one rules a row group out. Threads may share it: a count more or less changes no answer.
    """

    def __init__(self) -> None:
        self._times, self._credit = 0, float(_PATIENCE)

    @property
    def due(self) -> bool:
        """Whether to ask the next filter."""
        self._times += 1
        return self._credit > 0 or self._times % _AGAIN == 0

    def add(self, ruled_out: bool, worth: int = 1) -> None:
        """Count an answer. `worth`: how many questions in vain one row group that is ruled out makes good."""
        self._credit = min(self._credit + 1, _PATIENCE) if ruled_out else max(self._credit - 1 / worth, 0)


Left = dict[int, pa.Array]
"""By a term's id: those of its many values that one row group may hold. A term that is not in it: all of them."""
Ways = list[list["Term"]]
"""Where rows can be: all terms of any of these conjunctions hold for them. ``[[]]`` says nothing, ``[]`` nowhere."""


@dataclass(frozen=True)
class Term:
    """``column op values``, bound to a leaf. The repr leaves the values out: they may be the secret looked for.

    Attributes:
        op: ``== != < <= > >=``, ``in``, ``not in``, ``null``, ``valid``; of float columns also ``not <`` and the like.
    """

    leaf: Leaf
    op: str
    values: tuple[Any, ...]
    int96_utc: bool

    def __repr__(self) -> str:
        return f"<Term {self.leaf.name} {self.op} …>"

    @property
    def leaves(self) -> tuple[Leaf]:
        return (self.leaf,)

    @property
    def ways(self) -> Ways:
        return [[self]]

    def holds(self, table: pa.Table, left: Left | None = None) -> pa.ChunkedArray:
        return self.mask(column_at(table, self.leaf.path), (left or {}).get(id(self)))

    @cached_property
    def _shared(self) -> Values:
        return self.values if isinstance(self.values, Values) else Values(self.values)

    @property
    def by_equality(self) -> bool:
        """Whether a filter can be asked."""
        return self.op in ("==", "in")

    @cached_property
    def probe_set(self) -> ProbeSet | None:
        """The values to ask a filter for; None where the operator is not about equality."""
        if not self.by_equality:
            return None
        # Null equals nothing, so it must not keep a row group.
        return self._shared.once(
            ("probe", self.leaf.type, self.int96_utc),
            lambda: ProbeSet.of(self._shared.known, self.leaf.type, int96_utc=self.int96_utc),
        )

    @cached_property
    def _asked(self) -> list[Comparable | None]:
        return self._shared.once(
            ("asked", self.leaf.type), lambda: [asked(value, self.leaf.type) for value in self._shared.known]
        )

    @property
    def by_pages(self) -> bool:
        """Whether a page's bounds, or that it holds nulls only, can rule it out."""
        return self.op in _BOUNDED or self.op == "valid"

    def outside(self, min_value: bytes, max_value: bytes) -> bool:
        """Whether bounds in plain encoding rule out every value between them."""
        if self.op not in _BOUNDED:
            return False
        if (keys := self.keys) is not None:
            return keys.outside(min_value, max_value)
        op = "==" if self.op == "in" else self.op
        return all(outside(min_value, max_value, self.leaf.type, op, one) for one in self._asked)

    @cached_property
    def keys(self) -> KeySet | None:
        """Many values in their order; None of few, and where the operator is another one than ``in``."""
        return self._key_set if self.op == "in" else None

    @cached_property
    def _key_set(self) -> KeySet | None:
        if self.op not in ("in", "not in") or len(self.values) <= _MANY:
            return None
        return self._shared.once(
            ("keys", self.leaf.type, self.int96_utc),
            lambda: KeySet.of(self._shared.as_given, self.leaf.type, int96_utc=self.int96_utc),
        )

    def once(self, name: Any, make: Callable[[list[Any]], T]) -> T:
        """What `make` gives for the values without nulls, from the first time on."""
        return self._shared.once(name, lambda: make(self._shared.known))

    def _any(self, column: pa.ChunkedArray, left: pa.Array | None = None) -> pa.ChunkedArray:
        if left is None and self.op == "not in" and (keys := self._key_set) is not None:
            left = keys.near(column)
        if left is not None and _holds_as_is(column.type, left.type) and all_plain(self._shared, self.leaf):
            return equal_any(column, left.cast(column.type))
        name = ("wanted", column.type, self.leaf.type)
        return equal_any(column, self._shared.once(name, lambda: wanted(column.type, self._shared, self.leaf)))

    @cached_property
    def filter_yield(self) -> FilterYield:
        """What filters gave, in all files of a query."""
        return self._shared.once(("yield", self.leaf.path), FilterYield)

    @cached_property
    def many_texts(self) -> KeySet | None:
        """The values, if they are many and their column is a flat one of text: then their hashes tell the rows."""
        texts = self.leaf.type.physical.name == "BYTE_ARRAY" and len(self.leaf.path) == 1 and not self.leaf.repeated
        return self.keys if texts and all_plain(self._shared, self.leaf) else None

    def mask(self, column: pa.ChunkedArray, left: pa.Array | None = None) -> pa.ChunkedArray:
        """One bool per row: True where the term holds; never null. `left`: its values that need looking for."""
        if self.op in ("null", "valid"):
            return pc.is_null(column) if self.op == "null" else pc.is_valid(column)
        column = comparable(column)
        if self.op in ("==", "in"):
            return self._any(column, left)
        if self._shared.any_null:
            return nowhere(column)
        if self.op in ("!=", "not in"):
            return pc.and_(pc.is_valid(column), pc.invert(self._any(column)))
        holds = ordered(column, self.op.removeprefix("not "), self.values[0], self.leaf)
        return pc.and_(pc.is_valid(column), pc.invert(holds)) if self.op.startswith("not ") else holds

    def check(self) -> Term:
        """Itself.

        Raises:
            UsageError: a value of the wrong kind for the column.
        """

        def all_suit() -> None:
            if not all_plain(self._shared, self.leaf):
                for one in self.values:
                    encode_value(one, self.leaf.type, int96_utc=True)

        try:
            self._shared.once(("checked", self.leaf.type), all_suit)
        except UsageError as error:
            raise error.at(column=self.leaf.name) from None
        return self


def _holds_as_is(column: pa.DataType, values: pa.DataType) -> bool:
    """Whether values of the one type, which a column of the file can hold, are those of the other."""
    texts = pa.types.is_string(column) or pa.types.is_large_string(column)
    return bool(
        (pa.types.is_integer(column) and pa.types.is_integer(values))
        or (texts and pa.types.is_large_string(values))
    )  # fmt: skip


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """A column, or a field inside structs; null where any struct above it is."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column
