"""Sealed tables in DuckDB: as a view that is streamed anew by each query, and looked up by values.

DuckDB hands no predicate to Python, so `where=` says which rows a view has, and `lookup` asks the filters first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from .core.errors import UsageError
from .core.spelling import need_our_names
from .read.predicate.condition import shared
from .table.open import as_table
from .table.sealed import SealedTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from .storage.discovery.tables import Places
    from .table.open import OpenTableOptions

__all__ = ["lookup", "register"]


@need_our_names
def register(
    connection: DuckDBPyConnection,
    name: str,
    table: SealedTable | Places,
    /,
    *,
    columns: Sequence[str] | None = None,
    where: Any = None,
    **options: Unpack[OpenTableOptions],
) -> SealedTable:
    """Make a table, or a part of it, a view of this name. Each query reads it as a stream, row group by row group.

    Args:
        connection: the DuckDB connection whose view it is.
        table: a table that was opened, or whatever `bloomseal.open_table` takes.
        columns, where: as for `SealedTable.scan`; all that a query does not need is better left out here.
        options: for `bloomseal.open_table`: policy, decryption, version, filesystem, ...

    Returns:
        The table.

    Raises:
        UsageError: options for a table that is open already.
        BloomsealError: as `SealedTable.scan`. While a query reads rows, it reaches the caller as an error of DuckDB.
    """
    _need_connection(connection)
    found = as_table(table, options)
    connection.register(name, _Stream(found, columns, where))
    return found


def lookup(
    connection: DuckDBPyConnection,
    table: SealedTable | Places,
    /,
    column: str,
    values: Any,
    *,
    columns: Sequence[str] | None = None,
    **options: Unpack[OpenTableOptions],
) -> DuckDBPyRelation:
    """The rows that hold one of these values, as a relation. Files and row groups are ruled out by their filters.

    Args:
        column: dotted path.
        values: a list, an array of numpy or Arrow, a Series, or a DuckDB relation of one column.
        connection, table, columns, options: as for `register`.

    Raises:
        UsageError: a relation of several columns, and as `register`.
        BloomsealError: as `SealedTable.read`.
    """
    _need_connection(connection)
    found = as_table(table, options)
    if type(values).__name__ == "DuckDBPyRelation":
        if len(values.columns) != 1:
            raise UsageError("values= takes a relation of one column", hint="relation.select(...)")
        # Python's moments and times end at microseconds: no row would equal them.
        fine = getattr(pa.table(values.limit(0)).schema.types[0], "unit", None) == "ns"
        values = pa.table(values).column(0) if fine else [row[0] for row in values.fetchall()]
    return connection.from_arrow(found.read(columns, [(column, "in", values)]))


def _need_connection(connection: Any) -> None:
    if not hasattr(connection, "register") or not hasattr(connection, "from_arrow"):
        kind = type(connection).__name__
        raise UsageError(f"connection= takes a DuckDB connection, not {kind}", hint="duckdb.connect()")


class _Stream:
    """What DuckDB asks for a new stream whenever a query runs: a reader would be empty the second time."""

    def __init__(self, table: SealedTable, columns: Sequence[str] | None, where: Any) -> None:
        # Values that come from an iterator come once, and queries more often.
        again = where if where is None or isinstance(where, str) else shared(where)
        self._scan: Callable[[], Any] = lambda: table.scan(columns, again)
        self._schema: Any = self._scan().schema

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scan().__arrow_c_stream__(requested_schema)
