"""Which rows are asked for, before any file is known: one small tree for every form in which it can be said.

`shared` makes the tree of what ``filters=`` takes, the command line makes one of SQL, and `Predicate` binds it to a
file's schema. Logic is SQL's: a comparison with null is neither true nor false, and a row is kept only where the whole
is true.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import UsageError
from .values import Values

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from .expression import Call

__all__ = ["OPERATORS", "AllOf", "AnyOf", "Compare", "Condition", "Expression", "Like", "Not", "flat", "shared"]

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

_WRONG: Final = "filters= takes a list of (column, op, value), or a list of such lists, or a pyarrow.compute expression"


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


@dataclass(frozen=True, eq=False)
class Like:
    """SQL's ``column like pattern``: ``%`` is any text, ``_`` one character, and a character behind `escape` itself."""

    column: str
    pattern: str
    escape: str = ""

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


Condition = Compare | Like | Not | AllOf | AnyOf | Expression


def flat(condition: AllOf | AnyOf) -> list[Condition]:
    """Its parts, those of parts of its own kind in their place: chains of any length are no deeper than one."""
    found: list[Condition] = []
    left: list[Condition] = [condition]
    while left:
        part = left.pop()
        if type(part) is type(condition):
            left += reversed(part.parts)
        else:
            found.append(part)
    return found


def shared(filters: Any) -> Condition:
    """The condition that ``filters=`` states, in a form that the reads of many files can share.

    Args:
        filters: ``[(column, op, value), ...]`` (all of them) or a list of such lists (any of them), as pyarrow and
            pandas take it; a ``pyarrow.compute`` expression; a `Condition`. Operators: ``= == != < <= > >= in`` and
            ``not in``; these two take any iterable: a list, a set, an array of numpy or Arrow, a Series of pandas or
            Polars.

    Raises:
        UsageError: none of these.
    """
    if isinstance(filters, Condition):
        return filters
    if not isinstance(filters, list | tuple):
        return _expression(filters)
    if not filters:
        raise UsageError(_WRONG)
    if all(isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str) for item in filters):
        return AllOf(tuple(map(_compare, filters)))
    if not all(isinstance(item, list | tuple) and item for item in filters):
        raise UsageError(_WRONG)
    return AnyOf(tuple(AllOf(tuple(map(_compare, item))) for item in filters))


def _compare(item: Any) -> Compare:
    if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[0], str):
        raise UsageError(_WRONG)
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


def _expression(filters: Any) -> Expression:
    import pyarrow.compute as pc  # takes as long to load as a small probe takes

    from .expression import parse

    if not isinstance(filters, pc.Expression):
        raise UsageError(_WRONG)
    return Expression(filters, parse(filters))
