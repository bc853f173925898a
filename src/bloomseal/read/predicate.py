"""Row predicates in the list-of-tuples form: what they prove about a row group, and which rows they keep.

A value means what the column's type makes of it, the same for statistics, filters and rows: a float is rounded to the
column's width, an integer out of range equals nothing. Comparison with null keeps no row, and ``in`` is ``==`` any.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format.schema import Leaf, Schema
from ..format.statistics import asked, outside
from ..sbbf import KeySet, ProbeSet, encode_value
from ..sbbf.keyset import Comparable
from .compare import comparable, equal_any, is_null, nowhere, ordered, wanted

__all__ = ["Predicate", "Term", "Values", "shared"]

T = TypeVar("T")
_MANY: Final = 16
"""More values than these are ordered before bounds are asked about them."""

_OPERATORS = {
    "=": "==",
    "==": "==",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "in": "in",
    "not in": "not in",
}


class Values(tuple[Any, ...]):
    """The values of a term, with what was worked out about them: big sets are encoded, hashed and ordered once for many files."""

    def __new__(cls, values: Iterable[Any]) -> Values:
        made = super().__new__(cls, values)
        made._known, made._lock = {}, threading.RLock()
        return made

    _known: dict[Any, Any]
    _lock: threading.RLock

    def once(self, name: Any, make: Callable[[], T]) -> T:
        """What `make` gives, from the first time on."""
        with self._lock:
            if name not in self._known:
                self._known[name] = make()
            found: T = self._known[name]
            return found


def shared(filters: Any) -> Any:
    """The same filters, their lists of values in a form that several `Predicate` can share."""
    if isinstance(filters, list | tuple):
        # An iterator gives its values once: whoever asked second would find nothing.
        several = len(filters) == 3 and isinstance(filters[2], list | tuple | set | frozenset | Iterator)
        if several and isinstance(filters[1], str):
            return filters[0], filters[1], Values(filters[2])
        return [shared(item) for item in filters] if isinstance(filters, list) else tuple(map(shared, filters))
    return filters


@dataclass(frozen=True)
class Term:
    """``column op value``, bound to a leaf. The repr leaves the value out: it may be the secret looked for."""

    leaf: Leaf
    op: str
    values: tuple[Any, ...]
    int96_utc: bool

    def __repr__(self) -> str:
        return f"<Term {self.leaf.name} {self.op} …>"

    @functools.cached_property
    def _shared(self) -> Values:
        return self.values if isinstance(self.values, Values) else Values(self.values)

    @functools.cached_property
    def probe_set(self) -> ProbeSet | None:
        """The values to ask a filter for; None where the operator is not about equality."""
        if self.op not in ("==", "in"):
            return None
        # Null equals nothing, so it must not keep a row group.
        return self._shared.once(
            ("probe", self.leaf.type, self.int96_utc),
            lambda: ProbeSet.of(
                [value for value in self.values if not is_null(value)], self.leaf.type, int96_utc=self.int96_utc
            ),
        )

    @functools.cached_property
    def _asked(self) -> list[Comparable | None]:
        return [asked(value, self.leaf.type) for value in self.values if not is_null(value)]

    def outside(self, min_value: bytes, max_value: bytes) -> bool:
        """Do bounds in plain encoding rule out every value between them?"""
        if self.op == "in" and len(self.values) > _MANY:
            keys = self._keys
            return not keys.undecided and not len(keys.between(min_value, max_value))
        op = "==" if self.op == "in" else self.op
        return op not in ("!=", "not in") and all(
            outside(min_value, max_value, self.leaf.type, op, one) for one in self._asked
        )

    @property
    def _keys(self) -> KeySet:
        return self._shared.once(
            ("keys", self.leaf.type, self.int96_utc),
            lambda: KeySet.of(self.values, self.leaf.type, int96_utc=self.int96_utc),
        )

    def _any(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        name = ("wanted", column.type, self.leaf.type)
        return equal_any(column, self._shared.once(name, lambda: wanted(column.type, self.values, self.leaf)))

    def mask(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """One bool per row: True where the term holds; never null."""
        column = comparable(column)
        if self.op not in ("==", "in", "!=", "not in"):
            return ordered(column, self.op, self.values[0], self.leaf)
        if self.op in ("==", "in"):
            return self._any(column)
        if any(is_null(value) for value in self.values):
            return nowhere(column)
        return pc.and_(pc.is_valid(column), pc.invert(self._any(column)))


class Predicate:
    """A predicate in disjunctive normal form: any of several conjunctions of terms.

    Args:
        filters: ``[(column, op, value), ...]`` (all of them) or a list of such lists (any of them), as pyarrow and
            pandas take it. Operators: ``= == != < <= > >= in`` and ``not in``.

    Raises:
        UsageError: not of that form, no such column, a repeated column, a value of the wrong kind.
    """

    def __init__(self, filters: Any, schema: Schema, *, int96_utc: bool = False) -> None:
        self.any_of = [
            [_term(item, schema, int96_utc) for item in conjunction] for conjunction in _normal_form(filters)
        ]

    @functools.cached_property
    def leaves(self) -> list[Leaf]:
        """The leaves that it looks at, in schema order."""
        unique = {term.leaf.index: term.leaf for conjunction in self.any_of for term in conjunction}
        return [unique[index] for index in sorted(unique)]

    def mask(self, table: pa.Table) -> pa.ChunkedArray:
        """One bool per row."""
        conjunctions = [
            functools.reduce(pc.and_, (term.mask(column_at(table, term.leaf.path)) for term in conjunction))
            for conjunction in self.any_of
        ]
        return functools.reduce(pc.or_, conjunctions)


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """A column, or a field inside structs; null where any struct above it is."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _normal_form(filters: Any) -> list[list[Any]]:
    wrong = UsageError("filters= takes a list of (column, op, value), or a list of such lists")
    if not isinstance(filters, list | tuple) or not filters:
        raise wrong
    if all(isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str) for item in filters):
        return [list(filters)]
    if not all(isinstance(item, list | tuple) and item for item in filters):
        raise wrong
    return [list(item) for item in filters]


def _term(item: Any, schema: Schema, int96_utc: bool) -> Term:
    if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[0], str):
        raise UsageError("filters= takes a list of (column, op, value), or a list of such lists")
    name, op, value = item
    if not isinstance(op, str) or op not in _OPERATORS:
        raise UsageError(f"unknown operator {op!r}", column=name, hint=", ".join(_OPERATORS))
    leaf = schema.leaf(name)
    if leaf.repeated:
        raise UsageError("a row predicate on a repeated column", column=name, hint="probe() asks its filters")
    op = _OPERATORS[op]
    values: Any = [value]
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise UsageError(f"{op!r} takes a list of values", column=name)
        values = value
    try:
        values = values if isinstance(values, Values) else Values(values)
    except (TypeError, NotImplementedError):  # some say that they can be iterated, and can't
        raise UsageError(f"{op!r} takes a list of values", column=name) from None
    term = Term(leaf, op, values, int96_utc)

    def check() -> None:
        for one in term.values:
            encode_value(one, leaf.type, int96_utc=True)

    try:
        term._shared.once(("checked", leaf.type), check)
    except UsageError as error:
        raise error.at(column=name) from None
    return term
