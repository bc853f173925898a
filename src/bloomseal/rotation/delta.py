"""Files of a Delta table that take the place of others, by one transaction of its log."""

from __future__ import annotations

import datetime as dt
import json
import posixpath
import time
import uuid
from typing import Any
from urllib.parse import unquote

from ..core.errors import BloomsealError, UnsupportedError
from ..core.storage.ref import FileRef
from ..storage.logs.delta_writing import committed, load_deltalake, refuse_more_than_files
from ..storage.logs.snapshot import in_table, library, location, opened
from ..storage.places import open_source

__all__ = ["DeltaChange"]


class DeltaChange:
    """Old files, each with the one that takes its place, or with none. Threads may share it.

    Args:
        ref: the table's folder.

    Raises:
        UnsupportedError: the table takes files only, or asks more of its writers than files.
        MissingDependencyError: `deltalake` is not installed.
    """

    def __init__(self, ref: FileRef) -> None:
        import pyarrow as pa

        self._ref, self._library = ref, library("deltalake", "delta", load_deltalake)
        self._table: Any = opened(ref, lambda: self._library.DeltaTable(location(ref)))
        refuse_more_than_files(self._table, ref.path)
        if (self._table.metadata().configuration or {}).get("delta.appendOnly") == "true":
            hint = "ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
            raise UnsupportedError("a Delta table from which nothing is to be taken", file=ref.path, hint=hint)
        rows = pa.table(self._table.get_add_actions()).to_pylist()
        self._live = {in_table(row["path"], ref, quoted=True): row for row in rows}
        self._actions: list[Any] = []
        self._gone: list[str] = []

    def place(self, old: FileRef) -> FileRef:
        """Where the file that takes the place of a live one goes."""
        path = posixpath.join(posixpath.dirname(old.path), f"part-{uuid.uuid4()}.parquet")
        return FileRef(path, old.filesystem, self._ref.path, fresh=True)

    def exchange(self, old: FileRef, new: FileRef | None, rows: int = 0) -> None:
        """Have the next version name the new file, of so many rows, and not the old one."""
        actions, row = self._library.transaction, self._live[old.path]
        values = {name: _text(value) for name, value in (row.get("partition") or {}).items()}
        found = [actions.RemoveAction(unquote(row["path"]), True, _now(), row["size_bytes"], values)]
        if new is not None:
            with open_source(new) as source:
                size = source.size
            below, told = posixpath.relpath(new.path, self._ref.path), json.dumps({"numRecords": rows})
            found.append(actions.AddAction(below, size, values, _now(), True, told))
        self._actions += found
        self._gone.append(old.path)

    def commit(self) -> None:
        """Make the new version, if there is anything to exchange.

        Raises:
            BloomsealError: the log did not take it: somebody else has changed these files.
        """
        if not self._actions:
            return
        table = self._table
        partitions = list(table.metadata().partition_columns)
        committed(
            lambda: table.create_write_transaction(self._actions, "append", table.schema(), partitions), self._ref.path
        )
        rows = opened(self._ref, lambda: self._library.DeltaTable(location(self._ref)).get_add_actions())
        live = {in_table(path, self._ref, quoted=True) for path in rows.column("path").to_pylist()}
        if not live.isdisjoint(self._gone):
            raise BloomsealError(
                "the table's newest version still names files that were taken out", file=self._ref.path
            )


def _now() -> int:
    return int(time.time() * 1000)


def _text(value: Any) -> str | None:
    """A partition column's value as a log has it (Delta transaction log protocol, "Partition Value Serialization")."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:%Y-%m-%d %H:%M:%S.%f}" if isinstance(value, dt.datetime) else str(value)
