"""Delta tables: the live files of a version, by the library ``deltalake``.

Deletion vectors, column mapping and every other feature that changes what a file's rows mean are refused: rows that
the log calls deleted, or names that are not the table's, are a wrong answer.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ...core.errors import UnsupportedError, UsageError
from ...core.storage.ref import FileRef
from ...core.storage.source import refusal
from ..places import open_source
from .decoded import need_parquet, need_readable
from .delta_log import COMMIT, actions_of, read_log
from .snapshot import History, LiveFile, Naming, Snapshot, fields_in, in_table, library, location, opened, told_apart

_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.\d+\.\d+)?\.parquet", re.ASCII)
"""Number; of one among several files also its place."""
_IN_JSON: Final = re.compile(r"\.checkpoint\.[^/]*\.json$")

_HARMLESS: Final = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Reader features that leave files as they are, and the two that are looked into."""


class DeltaLog:
    """The log of a Delta table.

    Raises:
        MissingDependencyError: `deltalake` is not installed.
        UsageError: not a table that it understands, or no such version.
    """

    sealed = False

    def __init__(self, ref: FileRef, version: int | None = None) -> None:
        self._ref = ref
        table = library("deltalake", "delta", _deltalake).DeltaTable
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
            raise UsageError(f"{version!r} is no version of a Delta table", file=ref.path, hint="a whole number")
        self._log = FileRef(posixpath.join(ref.path, "_delta_log"), ref.filesystem)
        _need_readable_log(self._log, version)
        try:
            self._table: Any = opened(ref, lambda: table(location(ref), version=version))
        except UsageError:
            if version is None:
                raise
            newest = opened(ref, lambda: table(location(ref)).version())
            raise UsageError(
                f"the table has no version {version} that can be opened", file=ref.path, hint=f"the newest is {newest}"
            ) from None

    def snapshot(self) -> Snapshot:
        """The version that was asked for, its rows readable file by file.

        Raises:
            UnsupportedError: its files' rows are not its rows: deletion vectors, column mapping, an unknown feature.
        """
        self._refuse_more_than_files()
        return opened(self._ref, self._read)

    def paths(self) -> set[str]:
        """The live files of the loaded version, whatever features it has."""
        return opened(self._ref, lambda: {in_table(row["path"], self._ref) for row in self._actions()})

    def history(self) -> History:
        """All that the log names, read from the log itself: the library's history knows no version without
        ``commitInfo``.
        """
        return read_log(self._ref)

    def _read(self) -> Snapshot:
        import pyarrow as pa

        table = self._table.metadata().id
        live = [
            LiveFile(
                in_table(row["path"], self._ref),
                row.get("partition") or {},
                told_apart(table, row.get("size_bytes"), row.get("modification_time")),
            )
            for row in self._actions()
        ]
        schema = pa.schema(self._table.schema().to_arrow())
        for name in self._table.metadata().partition_columns:
            if pa.types.is_binary(kind := schema.field(name).type) or pa.types.is_large_binary(kind):
                # Writers spell bytes in several ways, and the library hands on the spelling: no value would be found.
                raise UnsupportedError(
                    "a Delta table with a partition column of bytes",
                    file=self._ref.path,
                    column=name,
                    hint="Spark's own reader",
                )
        files = tuple(sorted(live, key=lambda one: one.path))
        naming = Naming(tuple(path for path, _ in fields_in(schema)))
        return Snapshot(self._table.version(), schema, files, naming=naming)

    def _actions(self) -> list[dict[str, Any]]:
        # deltalake's `file_uris` quotes some parts of a path and some not; the actions have it as the log does.
        import pyarrow as pa

        rows: list[dict[str, Any]] = pa.table(self._table.get_add_actions()).to_pylist()
        return rows

    def _refuse_more_than_files(self) -> None:
        protocol = self._table.protocol()
        features = set(protocol.reader_features or ())
        if unknown := features - _HARMLESS:
            raise UnsupportedError(f"a Delta table with the feature {min(unknown)}", file=self._ref.path)
        mapping = (self._table.metadata().configuration or {}).get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise UnsupportedError(f"a Delta table with column mapping by {mapping}", file=self._ref.path)
        if "deletionVectors" in features and self._has_deletion_vectors():
            raise UnsupportedError(
                "a Delta table with deletion vectors",
                file=self._ref.path,
                hint="REORG TABLE ... APPLY (PURGE) in Delta",
            )

    def _has_deletion_vectors(self) -> bool:
        """Whether a live file has rows that were deleted. What can't be told is. The library would decode the vectors:
        a few bytes can stand for any number of rows.
        """
        named: dict[str, bool] = {}
        try:
            for path in _replayed(dict(_files_below(self._log)), self._table.version()):
                for action in actions_of(FileRef(path, self._ref.filesystem)):
                    if (add := action.get("add")) is not None:
                        named[in_table(add["path"], self._ref)] = bool(add.get("deletionVector"))
            return any(named.get(path, True) for path in self.paths())
        except Exception:
            return True


def _need_readable_log(folder: FileRef, version: int | None) -> None:
    """The library opens what it finds by name: a pipe would have it wait for ever, and a text is read, or a checkpoint
    decoded, at once.

    Raises:
        UsageError: something in the log is neither a file nor a folder.
        FormatError: a file that is too long, or decodes to too much.
    """
    sizes = dict(_files_below(folder))
    for path, size in sizes.items():
        need_readable(size, path)
    for path in _checkpoints_read(sizes, version):
        with open_source(FileRef(path, folder.filesystem)) as source:
            need_parquet(bytes(source.read(0, source.size)), path)


def _files_below(folder: FileRef) -> Iterator[tuple[str, int]]:
    if folder.filesystem is None:
        for above, below, names in os.walk(folder.path):
            # The library follows a link to a folder, where nothing would be counted.
            for name in (*names, *(one for one in below if os.path.islink(os.path.join(above, one)))):  # noqa: PTH114, PTH118
                if not os.path.isfile(path := os.path.join(above, name)):  # noqa: PTH113, PTH118
                    raise UsageError("the table's log can't be read: it is no regular file", file=path)
                yield path, os.path.getsize(path)  # noqa: PTH202
        return
    from pyarrow.fs import FileSelector

    try:
        found = folder.filesystem.get_file_info(FileSelector(folder.path, allow_not_found=True, recursive=True))
    except OSError as error:
        raise refusal("can't list the table's log", folder.path, error) from error
    yield from ((one.path, one.size) for one in found if one.is_file)


def _checkpoints_read(paths: Iterable[str], version: int | None) -> list[str]:
    """The checkpoints that the library may read for a version. It takes the newest whole one. One of a single file is
    whole, so none before the newest such is read. Files that a checkpoint of the second version names bear no number.
    """
    numbered = {path: _CHECKPOINT.fullmatch(posixpath.basename(path)) for path in paths if path.endswith(".parquet")}
    whole = [int(found[1]) for found in numbered.values() if found is not None and not found[2]]
    oldest = max((number for number in whole if version is None or number <= version), default=0)
    return [path for path, found in numbered.items() if found is None or int(found[1]) >= oldest]


def _replayed(paths: Iterable[str], version: int) -> list[str]:
    """The checkpoints and commits that say what is live in a version, oldest first."""
    paths = list(paths)
    checkpoints = [*_checkpoints_read(paths, version), *(path for path in paths if _IN_JSON.search(path))]
    numbered = [(_number(path, _CHECKPOINT), path) for path in checkpoints]
    begin = min((number for number, _ in numbered if number >= 0), default=-1)
    commits = [(_number(path, COMMIT), path) for path in paths]
    numbered += [(number, path) for number, path in commits if begin < number <= version]
    return [path for number, path in sorted(numbered) if number <= version]


def _number(path: str, pattern: re.Pattern[str]) -> int:
    found = pattern.fullmatch(posixpath.basename(path))
    return -1 if found is None else int(found[1])


def _deltalake() -> Any:
    import deltalake

    return deltalake
