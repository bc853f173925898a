"""A condition bound to a file's schema: what it proves about row groups and pages, and which rows it keeps.

A value means what the column's type makes of it, the same for statistics, filters and rows: a float is rounded to the
column's width, an integer out of range equals nothing. Comparison with null keeps no row, and ``in`` is ``==`` any.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..._lazy import deferred
from ...core.cached import cached_property
from ...core.errors import UsageError
from ...core.parquet.schema import Leaf, Schema
from ...core.parquet.statistics import asked
from ...core.sbbf import encode_value
from ...core.sbbf.encoding import unwrap
from .compare import comparable, is_null
from .condition import FLIPPED, AllOf, AnyOf, Compare, Condition, Expression, Like, Part, fold, shared
from .expression import Call, Field, evaluate
from .like import prefix_of, regex_of, successor
from .literals import row_leaf
from .term import Left, Term, Ways, column_at
from .values import Values
from .where import from_text

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")

__all__ = ["Left", "Predicate", "Term", "Values", "column_at", "implied", "shared"]

_MOST_WAYS: Final = 32
"""Conjunctions that a product of alternatives may become for pruning; beyond, one of the factors prunes alone."""
_OPPOSITE: Final = {
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "null": "valid",
    "valid": "null",
}
_FLOAT_OPPOSITE: Final = {op: f"not {op}" for op in ("<", "<=", ">", ">=")}
"""NaN is neither less nor greater, so that the opposite of ``<`` is not ``>=`` in a column of floats."""


class _Test(Protocol):
    """A bound condition."""

    @property
    def leaves(self) -> Iterable[Leaf]:
        """The leaves that it looks at."""

    @property
    def ways(self) -> Ways:
        """Conditions that every row which it keeps satisfies. They may be satisfied by more rows, never by fewer."""

    def holds(self, table: pa.Table, left: Left | None = None) -> pa.ChunkedArray:
        """One bool per row, never null: is it true? Of a term in `left` only these values are compared."""


@dataclass(frozen=True)
class _Pattern:
    """``column like pattern``, or its opposite. A prefix without wildcards is two bounds as well."""

    leaf: Leaf
    regex: str = field(repr=False)
    negated: bool
    ways: Ways = field(repr=False)

    @property
    def leaves(self) -> tuple[Leaf]:
        return (self.leaf,)

    def holds(self, table: pa.Table, left: Left | None = None) -> pa.ChunkedArray:  # noqa: ARG002
        column = comparable(column_at(table, self.leaf.path))
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            column = pc.cast(column, options=pc.CastOptions.unsafe(pa.large_string()))
        found = pc.fill_null(pc.match_substring_regex(column, self.regex), self.negated)
        return pc.invert(found) if self.negated else found


@dataclass(frozen=True)
class _Evaluated:
    """An expression of pyarrow's: true where it says so."""

    expression: pc.Expression = field(repr=False)
    leaves: Sequence[Leaf]
    ways: Ways = field(repr=False)

    def holds(self, table: pa.Table, left: Left | None = None) -> pa.ChunkedArray:  # noqa: ARG002
        return evaluate(self.expression, table)


class _Join(Enum):
    """What becomes of the last two masks."""

    AND = "and"
    OR = "or"


class _Program(NamedTuple):
    """A bound condition: in what order masks are made and joined, and its `Ways`."""

    steps: list[_Test | _Join]
    ways: Ways


class Predicate:
    """A condition on the rows of one file.

    Args:
        where: ``[(column, op, value), ...]`` (all of them) or a list of such lists (any of them), as pyarrow and
            pandas take it, with the operators ``= == != < <= > >= in`` and ``not in``; SQL; a ``pyarrow.compute``
            expression; or a `Condition`. Of an expression, comparisons of a column with a literal, ``isin``,
            ``is_null``, ``is_valid`` and what ``&`` and ``|`` make of them rule row groups and pages out; the rest only
            chooses rows.

    Attributes:
        any_of: `Ways`: what may rule row groups and pages out.

    Raises:
        UsageError: not of these forms, no such column, a repeated column, a value of the wrong kind.
    """

    def __init__(self, where: Any, schema: Schema, *, int96_utc: bool = False) -> None:
        binding = _Binding(schema, int96_utc)
        self._steps, self.any_of = fold(shared(from_text(where, lambda: schema)), binding.bind, _joined)

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The leaves that it looks at, in schema order."""
        unique = {leaf.index: leaf for step in self._steps if not isinstance(step, _Join) for leaf in step.leaves}
        return [unique[index] for index in sorted(unique)]

    @property
    def alone(self) -> Term | None:
        """The one comparison that it is; None of any other condition."""
        (first, *others) = self._steps
        return first if isinstance(first, Term) and not others else None

    @property
    def few(self) -> bool:
        """Whether it asks for few values, so that little is remembered of what filters say of them."""
        return all(term.keys is None for way in self.any_of for term in way)

    def hits(self, table: pa.Table, left: Left | None = None) -> npt.NDArray[np.int64]:
        """The numbers of the rows that it keeps, ascending.

        Args:
            left: see `Left`, where `table` is of one row group.
        """
        # Not to_numpy, whose first call loads pandas where that is installed.
        parts = [
            np.unpackbits(np.frombuffer(chunk.buffers()[1], np.uint8), bitorder="little")[chunk.offset :][: len(chunk)]
            for chunk in self._holds(table, left).chunks
            if len(chunk)
        ]
        return np.flatnonzero(np.concatenate(parts).view(np.bool_) if parts else ())

    def _holds(self, table: pa.Table, left: Left | None) -> pa.ChunkedArray:
        masks: list[pa.ChunkedArray] = []
        for step in self._steps:
            if isinstance(step, _Join):
                last = masks.pop()
                masks[-1] = pc.or_(masks[-1], last) if step is _Join.OR else pc.and_(masks[-1], last)
            else:
                masks.append(step.holds(table, left))
        return masks[0]


def _joined(any_of: bool, parts: list[_Program]) -> _Program:
    """All of several conditions, or any of them."""
    if not parts:
        raise UsageError("a condition without parts")
    steps = parts[0].steps
    for part in parts[1:]:
        steps += [*part.steps, _Join.OR if any_of else _Join.AND]
    if any_of:
        return _Program(steps, _alternatives([way for part in parts for way in part.ways]))
    # Where a product would grow too much, the rows are still where one factor alone says that they are.
    return _Program(steps, functools.reduce(_product, (part.ways for part in parts)))


def _product(some: Ways, others: Ways) -> Ways:
    if len(some) * len(others) > _MOST_WAYS:
        return min(some, others, key=len)
    return [[*one, *other] for one, other in itertools.product(some, others)]


def _alternatives(ways: Ways) -> Ways:
    """Values of one column that are asked for one by one are asked for together."""
    if len(ways) < 2 or any(len(way) != 1 or way[0].op not in ("==", "in") for way in ways):
        return ways
    by_leaf: dict[int, list[Term]] = {}
    for (term,) in ways:
        by_leaf.setdefault(term.leaf.index, []).append(term)
    return [[terms[0] if len(terms) == 1 else _together(terms)] for terms in by_leaf.values()]


def _together(terms: list[Term]) -> Term:
    values = Values(itertools.chain.from_iterable(term.values for term in terms))
    return Term(terms[0].leaf, "in", values, terms[0].int96_utc)


# Binding ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Binding:
    """Parts of conditions → tests on the columns of one schema."""

    schema: Schema
    int96_utc: bool

    def bind(self, part: Part, negated: bool = False) -> _Program:
        """A part, or its opposite."""
        test: _Test
        match part:
            case Compare():
                test = self._compare(part, negated)
            case Like():
                test = self._like(part, negated)
            case Expression():
                test = self._evaluated(part, negated)
        return _Program([test], test.ways)

    def _compare(self, condition: Compare, negated: bool) -> Term:
        leaf, op = row_leaf(self.schema, condition.column), condition.op
        if op in ("null", "valid") and leaf.name != condition.column:
            raise UsageError("is null asks for a single field", column=condition.column, hint=leaf.name)
        if negated:
            op = (_FLOAT_OPPOSITE.get(op) if leaf.type.floating else None) or _OPPOSITE[op]
        return Term(leaf, op, condition.values, self.int96_utc).check()

    def _like(self, condition: Like, negated: bool) -> _Test:
        leaf = row_leaf(self.schema, condition.column)
        if leaf.type.physical.name != "BYTE_ARRAY" or leaf.type.kind not in ("string", "enum", "json"):
            raise UsageError("like asks for a column of text", column=condition.column)
        prefix, whole = prefix_of(condition.pattern, condition.escape)
        if whole:
            return self._compare(Compare(condition.column, "==", Values((prefix,))), negated)
        bounds = [(">=", prefix), ("<", successor(prefix))] if prefix and not negated else []
        terms = [Term(leaf, op, Values((bound,)), False).check() for op, bound in bounds if bound is not None]
        regex = regex_of(condition.pattern, condition.escape)
        try:
            pc.match_substring_regex(pa.scalar(""), regex)
        except pa.ArrowException:
            raise UsageError("the pattern has too many parts to be compared", column=condition.column) from None
        return _Pattern(leaf, regex, negated, [terms])

    def _evaluated(self, condition: Expression, negated: bool) -> _Evaluated:
        leaves: list[Leaf] = []
        for path in dict.fromkeys(one.path for one in condition.tree.fields()):
            found = [leaf for leaf in self.schema.leaves if leaf.path[: len(path)] == path]
            if not found:
                names = ", ".join(self.schema.top_level[:10])
                raise UsageError(
                    "no such column", column=".".join(path), hint=f"one of {names}; pc.field('a', 'b') for a.b"
                )
            leaves += found
        if not leaves:
            raise UsageError("the expression names no column")
        if negated:
            return _Evaluated(~condition.expression, leaves, [[]])
        return _Evaluated(condition.expression, leaves, self._implied(condition.tree))

    def _implied(self, tree: Call) -> Ways:
        condition = implied(tree, self.schema)
        return [[]] if condition is None else fold(condition, self.bind, _joined).ways


def implied(tree: Any, schema: Schema) -> Condition | None:
    """A condition on columns of `schema` that holds wherever an expression is true; None: nothing is known."""
    match tree:
        case Call("and_kleene" | "and", parts):
            known = tuple(found for part in parts if (found := implied(part, schema)) is not None)
            return AllOf(known) if known else None
        case Call("or_kleene" | "or", parts):
            ways = [implied(part, schema) for part in parts]
            return None if None in ways else AnyOf(tuple(way for way in ways if way is not None))
        case Call("invert", (Call("is_null" | "is_valid" as name, (Field() as one,)) as inner,)):
            return implied(Call("is_valid" if name == "is_null" else "is_null", (one,), inner.options), schema)
        case Call("is_null" | "is_valid" as name, (Field() as one,)):
            nan = tree.options.get("nan_is_null")
            if nan is not None and nan.as_py():
                return None
            return _known(one, "null" if name == "is_null" else "valid", Values(()), schema)
        case Call("is_in", (Field() as one,), {"value_set": Values() as values}):
            return _known(one, "in", values, schema)
        case Call(name, (Field() as one, Values() as values)) if name in _FUNCTIONS:
            return _known(one, _FUNCTIONS[name], values, schema)
        case Call(name, (Values() as values, Field() as one)) if name in _FUNCTIONS:
            return _known(one, FLIPPED[_FUNCTIONS[name]], values, schema)
    return None


def _known(one: Field, op: str, values: Values, schema: Schema) -> Condition | None:
    """One comparison, where it means to us what it means to pyarrow, or more; else nothing."""
    name = ".".join(one.path)
    found = [leaf for leaf in schema.leaves if leaf.path == one.path]
    # A name with a dot in it could be taken for a field of a struct.
    if len(found) != 1 or found[0].repeated or not schema.has(name) or schema.leaf(name) != found[0]:
        return None
    kind = found[0].type

    def alike() -> bool:
        # To is_in null equals null; and pyarrow may make another value of one that the column can't hold.
        try:
            return not any(is_null(value) or encode_value(value, kind, int96_utc=True) == () for value in values)
        except UsageError:
            return False

    def whole() -> bool:
        # pyarrow compares floats as doubles, and has none rounded to the column's width.
        return all(isinstance(found := asked(value, kind), float) and found == unwrap(value) for value in values)

    if kind.floating and op in _FLOAT_OPPOSITE and not values.once(("whole", kind), whole):
        return None
    return Compare(name, op, values) if values.once(("alike", kind), alike) else None


_FUNCTIONS: Final = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
