"""Which rows are asked for, before any file is known: one small tree for every form in which it can be said.

`shared` makes the tree of what ``where=`` takes, the command line makes one of SQL, and `Predicate` binds it to a
file's schema. Logic is SQL's: a comparison with null is neither true nor false, and a row is kept only where the whole
is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...core.errors import UsageError
from .values import Values

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from .expression import Call

T = TypeVar("T")

OPERATORS: Final = {
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
"""Operators of the list-of-tuples form, and their names in `Compare`."""

FLIPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Operator → the one that says the same with its sides changed."""

_WRONG: Final = (
    "a condition is SQL, a list of (column, op, value), a list of such lists, or a pyarrow.compute expression"
)
_EXAMPLE: Final = """where="email = 'x'", or where=[("email", "==", "x")]"""


@dataclass(frozen=True, eq=False)
class Compare:
    """``column op values``; the repr of values leaves them out, since they may be the secret looked for.

    Attributes:
        column: dotted path.
        op: ``== != < <= > >=`` (one value), ``in``, ``not in`` (any number), ``null`` or ``valid`` (none).
        values: Python, numpy or pyarrow scalars of a kind that suits the column.
    """

    column: str
    op: str
    values: Values

    @property
    def columns(self) -> list[str]:
        """The column that it names."""
        return [self.column]

    @property
    def by_equality(self) -> bool:
        """Whether filters and indexes can be asked."""
        return self.op in ("==", "in")


@dataclass(frozen=True, eq=False)
class Like:
    """SQL's ``column like pattern``: ``%`` is any text, ``_`` one character, and a character behind `escape` itself."""

    column: str
    pattern: str
    escape: str = ""

    @property
    def columns(self) -> list[str]:
        """The column that it names."""
        return [self.column]

    def __repr__(self) -> str:
        return f"<Like {self.column} …>"


@dataclass(frozen=True, eq=False)
class Not:
    """True where `part` is false; where it is neither, so is this."""

    part: Condition


@dataclass(frozen=True, eq=False)
class AllOf:
    """True where all parts are."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, eq=False)
class AnyOf:
    """True where any part is."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, eq=False)
class Expression:
    """A ``pyarrow.compute`` expression, and its parts; pyarrow evaluates it on the rows, so it means what it means
    there.
    """

    expression: pc.Expression = field(repr=False)
    tree: Call

    @property
    def columns(self) -> list[str]:
        """The columns that it names."""
        return [".".join(one.path) for one in self.tree.fields()]


Part = Compare | Like | Expression
Condition = Part | Not | AllOf | AnyOf


def fold(
    condition: Condition,
    of_part: Callable[[Part, bool], T],
    joined: Callable[[bool, list[T]], T],
    decided: Callable[[bool, T], bool] = lambda _any_of, _found: False,
) -> T:
    """Work something out from the parts up, to any depth. Negations move to the parts (De Morgan, which three-valued
    logic allows), so that only ``and`` and ``or`` join them.

    Args:
        of_part: what becomes of a part, or of its opposite.
        joined: what becomes of several, any of which, or all of which, are to hold.
        decided: whether one of several decides, so that the others are not looked at.
    """
    # Of each join: any or all of its parts; those that are left, the first last; what became of the others.
    unfinished: list[tuple[bool, list[tuple[Condition, bool]], list[T]]] = []
    node, negated = condition, False
    while True:
        if isinstance(node, Not):
            node, negated = node.part, not negated
            continue
        if isinstance(node, AllOf | AnyOf):
            any_of = isinstance(node, AnyOf) is not negated
            parts = [(part, negated) for part in reversed(node.parts)]
            if unfinished and unfinished[-1][0] is any_of:
                unfinished[-1][1].extend(parts)
            else:
                unfinished.append((any_of, parts, []))
        else:
            result = of_part(node, negated)
            if not unfinished:
                return result
            _add(unfinished[-1], result, decided)
        while not unfinished[-1][1]:
            any_of, _, results = unfinished.pop()
            result = joined(any_of, results)
            if not unfinished:
                return result
            _add(unfinished[-1], result, decided)
        node, negated = unfinished[-1][1].pop()


def _add(join: tuple[bool, list[Any], list[T]], result: T, decided: Callable[[bool, T], bool]) -> None:
    any_of, left, results = join
    results.append(result)
    if decided(any_of, result):
        left.clear()


def parts_of(condition: Condition) -> list[tuple[Part, bool]]:
    """All comparisons, and whether each is negated."""
    found: list[tuple[Part, bool]] = []
    fold(condition, lambda part, negated: found.append((part, negated)), lambda _any_of, _parts: None)
    return found


def columns_of(condition: Condition) -> list[str]:
    """The columns that it names, as it names them."""
    return list(dict.fromkeys(name for part, _ in parts_of(condition) for name in part.columns))


def shared(where: Any) -> Condition:
    """The condition that ``where=`` states, in a form that the reads of many files can share.

    Args:
        where: ``[(column, op, value), ...]`` (all of them) or a list of such lists (any of them), as pyarrow and
            pandas take it; a ``pyarrow.compute`` expression; a `Condition`. Operators: ``= == != < <= > >= in`` and
            ``not in``; these two take any iterable: a list, a set, an array of numpy or Arrow, a Series of pandas or
            Polars.

    Raises:
        UsageError: none of these.
    """
    if isinstance(where, Condition):
        return where
    if not isinstance(where, list | tuple):
        return _expression(where)
    if not where:
        raise UsageError(_WRONG, hint=_EXAMPLE)
    if all(isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str) for item in where):
        return AllOf(tuple(map(_compare, where)))
    if not all(isinstance(item, list | tuple) and item for item in where):
        raise UsageError(_WRONG, hint=_EXAMPLE)
    return AnyOf(tuple(AllOf(tuple(map(_compare, item))) for item in where))


def _compare(item: Any) -> Compare:
    if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[0], str):
        raise UsageError(_WRONG, hint=_EXAMPLE)
    name, op, value = item
    if not isinstance(op, str) or op not in OPERATORS:
        raise UsageError(f"unknown operator {op!r}", column=name, hint=", ".join(OPERATORS))
    op = OPERATORS[op]
    if op not in ("in", "not in"):
        return Compare(name, op, Values((value,)))
    if isinstance(value, str | bytes) or not (isinstance(value, Iterable) or hasattr(value, "__arrow_c_stream__")):
        raise UsageError(f"{op!r} takes a list of values", column=name)
    try:
        return Compare(name, op, value if isinstance(value, Values) else Values(value))
    except UsageError as error:
        raise error.at(column=name) from None


def _expression(where: Any) -> Expression:
    import pyarrow.compute as pc  # takes as long to load as a small probe takes

    from .expression import parse

    if not isinstance(where, pc.Expression):
        raise UsageError(_WRONG, hint=_EXAMPLE)
    return Expression(where, parse(where))
