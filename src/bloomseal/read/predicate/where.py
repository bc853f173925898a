"""A condition in SQL, as DuckDB writes it, which sqlglot parses. What is not understood is refused, never
guessed.

The column's type says what a literal means. So a number beside a column of text is refused: without quotes
``078-05-1120`` is a subtraction in SQL, and no row equals its result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ...core.errors import Hint, UsageError
from ...core.parquet.schema import Schema
from .condition import Compare, Condition
from .literals import literal_value, row_leaf
from .values import Values

_MOST_CHARACTERS: Final = 1 << 20
_COMPARISON: Final = re.compile(
    r"\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(=|<>|!=|<=|>=|<|>)\s*(?:'([^'\\]*)'|(-?\d+(?:\.\d+)?))\s*", re.ASCII
)
"""A column beside a literal, of which every dialect of SQL thinks alike. sqlglot takes longer to load than most of
these reads take.
"""
_OWN: Final = re.compile(r"null|true|false|current_\w+|localtime|localtimestamp|session_user", re.IGNORECASE)
"""SQL's own words, which stand for a value and for no column."""
_OPERATORS: Final = {"=": "==", "<>": "!="}


def from_text(where: Any, leaves: Callable[[], Schema]) -> Any:
    """What ``where=`` states, SQL as a condition on the columns that `leaves` gives."""
    return parse_where(where, leaves()) if isinstance(where, str) else where


def parse_where(text: str, schema: Schema) -> Condition:
    """A condition on the columns of this schema: comparisons of a column with a literal, ``in``, ``between``, ``like``,
    ``is null``, a boolean column by itself, and these with ``and``, ``or``, ``not`` and parentheses.

    Raises:
        UsageError: anything else, no such column, or a literal that does not suit its column. The message does not
            repeat literals: one of them may be the secret looked for.
    """
    if len(text) > _MOST_CHARACTERS:
        raise UsageError("the condition is too long", hint=Hint.MANY_VALUES)
    found = _COMPARISON.fullmatch(text)
    if found is None or _OWN.fullmatch(found[1]) or not schema.has(found[1]):
        from .sql import parse_sql

        return parse_sql(text, schema)
    name, op, quoted, number = found.groups()
    leaf = row_leaf(schema, name)
    value = literal_value(number if quoted is None else quoted, leaf, name, bare=quoted is None)
    return Compare(name, _OPERATORS.get(op, op), Values((value,)))
