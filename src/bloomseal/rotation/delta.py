"""Files of a Delta table that take the place of others, by one transaction of its log."""

from __future__ import annotations

import datetime as dt
import json
import posixpath
import time
import uuid
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from ..core.errors import BloomsealError, UnsupportedError
from ..core.storage.ref import FileRef
from ..storage.logs.delta_writing import committed, load_deltalake, refuse_more_than_files
from ..storage.logs.snapshot import in_table, library, location, opened
from ..storage.places import open_source

_COMMITS: Final = 10
"""Attempts, where other writers are faster each time."""


class DeltaChange:
    """Old files, each with the one that takes its place, or with none. Threads may share it.

    Args:
        ref: the table's folder.

    Raises:
        UnsupportedError: the table takes files only, or asks more of its writers than files.
        MissingDependencyError: `deltalake` is not installed.
    """

    def __init__(self, ref: FileRef) -> None:
        self._ref, self._library = ref, library("deltalake", "delta", load_deltalake)
        self._live = {
            path: (row, {name: _text(value) for name, value in (row.get("partition") or {}).items()})
            for path, row in _live_in(self._newest(), ref).items()
        }
        self._actions: list[Any] = []
        self._gone: set[str] = set()

    def _newest(self) -> Any:
        """The table as it is now."""
        table: Any = opened(self._ref, lambda: self._library.DeltaTable(location(self._ref)))
        refuse_more_than_files(table, self._ref.path)
        if (table.metadata().configuration or {}).get("delta.appendOnly") == "true":
            hint = "ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
            raise UnsupportedError("a Delta table from which nothing is to be taken", file=self._ref.path, hint=hint)
        return table

    def place(self, old: FileRef) -> FileRef:
        """Where the file that takes the place of a live one goes."""
        path = posixpath.join(posixpath.dirname(old.path), f"part-{uuid.uuid4()}.parquet")
        return FileRef(path, old.filesystem, self._ref.path, fresh=True)

    def exchange(self, old: FileRef, new: FileRef | None, rows: int = 0) -> None:
        """Have the next version name the new file, of so many rows, and not the old one."""
        actions, (row, values) = self._library.transaction, self._live[old.path]
        found = [actions.RemoveAction(unquote(row["path"]), True, _now(), row["size_bytes"], values)]
        if new is not None:
            with open_source(new) as source:
                size = source.size
            below, told = posixpath.relpath(new.path, self._ref.path), json.dumps({"numRecords": rows})
            found.append(actions.AddAction(below, size, values, _now(), True, told))
        self._actions += found
        self._gone.add(old.path)

    def commit(self) -> None:
        """Make the new version, if there is anything to exchange: of a version that has all the old files, or none.
        Where another writer is faster, the library would look for conflicts by itself, and sees none where files were
        only rearranged (OPTIMIZE).

        Raises:
            BloomsealError: the log did not take it: somebody else has changed these files.
        """
        if not self._actions:
            return
        once, left = self._library.CommitProperties(max_commit_retries=0), _COMMITS
        while True:
            table, left = self._newest(), left - 1
            if not self._gone <= _live_in(table, self._ref).keys():
                what = "somebody else has taken the same files out of the table, which stays as it is"
                raise BloomsealError(what, file=self._ref.path, hint="the same again")
            partitions = list(table.metadata().partition_columns)
            commit = partial(
                table.create_write_transaction,
                self._actions, "append", table.schema(), partitions, commit_properties=once,
            )  # fmt: skip
            try:
                committed(commit, self._ref.path)
            except BloomsealError:
                if left and self._newest().version() > table.version():
                    continue
                raise
            break
        if not self._gone.isdisjoint(_live_in(self._newest(), self._ref)):
            raise BloomsealError(
                "the table's newest version still names files that were taken out", file=self._ref.path
            )


def _live_in(table: Any, ref: FileRef) -> dict[str, dict[str, Any]]:
    """What the log says of each live file."""
    import pyarrow as pa

    rows = pa.table(table.get_add_actions()).to_pylist()
    return {in_table(row["path"], ref): row for row in rows}


def _now() -> int:
    return int(time.time() * 1000)


def _text(value: Any) -> str | None:
    """A partition column's value as a log has it (Delta transaction log protocol, "Partition Value Serialization")."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return str(value)
