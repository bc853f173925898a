"""Conditions in SQL, as DuckDB writes it, parsed by sqlglot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ...core.errors import UsageError
from ...core.parquet.schema import Leaf, Schema
from ...core.sbbf import PhysicalType
from .condition import FLIPPED, AllOf, AnyOf, Compare, Condition, Like, Not
from .literals import HINT, literal_value, row_leaf
from .values import Values

_COMPARISONS: Final = {exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_CASTS: Final = {
    exp.DType.DATE: ("date", False),
    exp.DType.TIMESTAMPNTZ: ("timestamp", False),
    exp.DType.TIMESTAMPTZ: ("timestamp", True),
    exp.DType.TIME: ("time", False),
    exp.DType.UUID: ("uuid", False),
}
"""Types that a literal may be written with: the kind of the columns that mean the same by its text, and whether in UTC.
"""


def parse_sql(text: str, schema: Schema) -> Condition:
    """As `parse_where`, whatever it understands."""
    try:
        return _SqlTranslation(schema).condition(sqlglot.parse_one(text, into=exp.Condition, dialect="duckdb"))
    except (SqlglotError, RecursionError):
        raise UsageError("the condition is not understood", hint=HINT) from None


class _SqlTranslation:
    """sqlglot's tree → ours, against one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def condition(self, node: exp.Expr) -> Condition:
        kind = type(node)
        if kind in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[kind])
        read = _READ.get(kind)
        if read is None:
            raise UsageError("a part of the condition is not understood", hint=HINT)
        return read(self, node)

    def _joined(self, node: exp.Expr) -> Condition:
        parts, left = [], [node]
        while left:
            one = left.pop()
            if type(one) is type(node):
                left += [_part(one, "expression"), _part(one)]
            else:
                parts.append(self.condition(one))
        return (AllOf if type(node) is exp.And else AnyOf)(tuple(parts))

    def _not(self, node: exp.Expr) -> Condition:
        return Not(self.condition(_part(node)))

    def _paren(self, node: exp.Expr) -> Condition:
        return self.condition(_part(node))

    def _column_itself(self, node: exp.Expr) -> Condition:
        leaf, name = self._leaf(node)
        if leaf.type.physical is not PhysicalType.BOOLEAN:
            raise UsageError("a column by itself is a condition only if it is boolean", column=name, hint=HINT)
        return Compare(name, "==", Values((True,)))

    def _comparison(self, node: exp.Expr, op: str) -> Condition:
        left, right = _bare(_part(node)), _bare(_part(node, "expression"))
        if not _is_column(left):
            left, right, op = right, left, FLIPPED[op]
        leaf, name = self._leaf(left)
        return Compare(name, op, Values((_literal(right, leaf, name),)))

    def _in(self, node: exp.Expr) -> Condition:
        leaf, name = self._leaf(_bare(_part(node, others=("expressions",))))
        listed = node.args.get("expressions") or []
        return Compare(name, "in", Values(_literal(one, leaf, name) for one in listed))

    def _between(self, node: exp.Expr) -> Condition:
        leaf, name = self._leaf(_bare(_part(node, others=("low", "high"))))
        bounds = ((">=", _part(node, "low", ("this", "high"))), ("<=", _part(node, "high", ("this", "low"))))
        return AllOf(tuple(Compare(name, op, Values((_literal(one, leaf, name),))) for op, one in bounds))

    def _is(self, node: exp.Expr) -> Condition:
        if not isinstance(_part(node, "expression"), exp.Null):
            raise UsageError("'is' is understood before null and not null only", hint=HINT)
        _, name = self._leaf(_bare(_part(node)))
        return Compare(name, "null", Values(()))

    def _like(self, node: exp.Expr, escape: str = "") -> Condition:
        _, name = self._leaf(_bare(_part(node, others=("expression", "negate"))))
        pattern = _part(node, "expression", ("this", "negate"))
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise UsageError("like takes a pattern in single quotes", column=name, hint="name like 'abc%'")
        found = Like(name, pattern.this, escape)
        return Not(found) if node.args.get("negate") else found

    def _escape(self, node: exp.Expr) -> Condition:
        like, escape = _part(node), _part(node, "expression")
        if type(like) is not exp.Like or not isinstance(escape, exp.Literal) or len(escape.this) != 1:
            raise UsageError("escape takes one character, behind like", hint=HINT)
        return self._like(like, escape.this)

    def _leaf(self, node: exp.Expr) -> tuple[Leaf, str]:
        name = ".".join(_names(node))
        return row_leaf(self._schema, name), name


_READ: Final[dict[type[exp.Expr], Callable[[_SqlTranslation, exp.Expr], Condition]]] = {
    exp.And: _SqlTranslation._joined,
    exp.Or: _SqlTranslation._joined,
    exp.Not: _SqlTranslation._not,
    exp.Paren: _SqlTranslation._paren,
    exp.Column: _SqlTranslation._column_itself,
    exp.In: _SqlTranslation._in,
    exp.Between: _SqlTranslation._between,
    exp.Is: _SqlTranslation._is,
    exp.Like: _SqlTranslation._like,
    exp.Escape: _SqlTranslation._escape,
}


def _part(node: exp.Expr, name: str = "this", others: tuple[str, ...] = ("this", "expression")) -> Any:
    """An argument of a node that has no others than these: one that is passed over would change the meaning."""
    if any(value for key, value in node.args.items() if key not in (name, *others)):
        raise UsageError("a part of the condition is not understood", hint=HINT)
    return node.args.get(name)


def _bare(node: Any) -> Any:
    while type(node) is exp.Paren:
        node = _part(node)
    return node


def _is_column(node: Any) -> bool:
    return isinstance(node, exp.Column | exp.Dot)


def _names(node: Any) -> list[str]:
    """The parts of a dotted name."""
    if type(node) is exp.Identifier:
        return [node.this]
    if type(node) is exp.Dot:
        return [*_names(_part(node)), *_names(_part(node, "expression"))]
    if type(node) is exp.Column:
        qualifiers = [node.args.get(name) for name in ("catalog", "db", "table")]
        return [name for part in (*qualifiers, node.this) if part is not None for name in _names(part)]
    raise UsageError("a comparison has a column on one side and a literal on the other", hint=HINT)


def _literal(node: Any, leaf: Leaf, name: str) -> Any:
    """A literal as a value of the column's type; None for null."""
    node, sign = _bare(node), ""
    if type(node) is exp.Null:
        return None
    if type(node) is exp.Cast:
        utc = leaf.type.kind == "timestamp" and leaf.type.logical is not None and leaf.type.logical.utc
        cast, node = node, _part(node, others=("to",))
        if _CASTS.get(cast.to.this) != (leaf.type.kind, utc) or type(node) is not exp.Literal or not node.is_string:
            raise UsageError("a cast to another type than the column's", column=name, hint="the text alone, in quotes")
    elif type(node) is exp.Neg:
        node, sign = _bare(_part(node)), "-"
    if type(node) is exp.Boolean and not sign:
        return literal_value(str(node.this).lower(), leaf, name, bare=True)
    if type(node) is not exp.Literal or (sign and node.is_string):
        raise UsageError("a comparison has a column on one side and a literal on the other", column=name, hint=HINT)
    return literal_value(sign + node.this, leaf, name, bare=not node.is_string)
