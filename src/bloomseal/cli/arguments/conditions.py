"""Which rows are meant: ``--where`` and ``--where-in``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError, UsageError
from ...read.predicate.literals import parse_value
from .options import option
from .values import read_lines

if TYPE_CHECKING:
    from ...core.parquet.schema import Schema
    from ...read.predicate.condition import Condition


@dataclass
class ConditionOptions:
    """Conditions, all of which must hold."""

    where: tuple[str, ...] = option(
        "--where",
        "-w",
        multiple=True,
        metavar="CONDITION",
        help="A condition in SQL: \"ssn = '078-05-1120' or age between 18 and 20\". All must hold.",
    )
    where_in: tuple[str, ...] = option(
        "--where-in",
        multiple=True,
        metavar="COLUMN=PATH",
        help="COLUMN is one of the lines of a file (- is standard input).",
    )

    @property
    def said(self) -> bool:
        """Whether there is a condition."""
        return bool(self.where or self.where_in)

    def listed(self) -> list[tuple[str, list[str]]]:
        """What --where-in says: columns, and the lines of their files."""
        pairs = [item.partition("=") for item in self.where_in]
        if not all(equals for _, equals, _ in pairs):
            raise UsageError("--where-in takes COLUMN=PATH")
        return [(column, read_lines(path)) for column, _, path in pairs]

    def condition(self, schema: Schema, listed: Sequence[tuple[str, list[str]]]) -> Condition | None:
        """The condition on columns of this schema; None for all rows. `listed`: as that method gives it."""
        from ...read.predicate.condition import AllOf, Compare
        from ...read.predicate.values import Values
        from ...read.predicate.where import parse_where

        parts: list[Condition] = [parse_where(text, schema) for text in self.where]
        for column, texts in listed:
            leaf = schema.leaf(column)
            try:
                parts.append(Compare(column, "in", Values(parse_value(text, leaf.type) for text in texts)))
            except BloomsealError as error:
                raise error.at(column=column) from None
        return AllOf(tuple(parts)) if parts else None
