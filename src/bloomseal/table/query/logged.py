"""The columns that a table's log names, and the error for a column that is nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...core.columns import covers
from ...core.errors import UsageError
from ...core.spelling import nearest
from ...format.leaves import leaves_of
from .parts import TableParts

if TYPE_CHECKING:
    from ...core.parquet.schema import Schema


def need_logged(parts: TableParts, columns: Iterable[str]) -> None:
    """Refuse columns, and what is inside them, that the table's log does not name: files still hold what was dropped.

    Raises:
        UsageError: such a column.
    """
    if parts.snapshot is None:
        return
    schema = parts.snapshot.schema
    for name in sorted(columns):
        if name not in schema.names and ((leaves := _leading_to(name, schema)) is None or not leaves.has(name)):
            raise no_such_column(name, schema.names)


def _leading_to(name: str, schema: pa.Schema) -> Schema | None:
    """The columns of a table that a dotted path can lead into; None: there is none. A column's own name can have dots,
    too.
    """
    fields = [field for field in schema if covers(field.name, name)]
    return leaves_of(pa.schema(fields)) if fields else None


def no_such_column(name: str, names: Sequence[str]) -> UsageError:
    """The error for a column that is in no file."""
    return UsageError("no such column", column=name, hint=f"one of {', '.join(nearest(name, names))}")
