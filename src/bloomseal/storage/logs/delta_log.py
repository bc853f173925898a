"""A Delta log, file by file: every data file that a commit or a checkpoint names, whether it is live, was, or was
removed, and the columns whose values stand there.

Delta Transaction Log Protocol, "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Version Checksum File".
Nothing is replayed: whoever asks which keys are still needed, or which values lie open, means all files, of whatever
version.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ..places import open_source
from .decoded import need_parquet, need_readable
from .snapshot import BOUNDS, PARTITIONS, PREDICATE, History, in_table

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

COMMIT: Final = re.compile(r"(\d{20})\.json")
_OTHER: Final = re.compile(r"(\d{20})\.(?:(\d{20})\.compacted\.json|checkpoint\..*(?:json|parquet))")
_CHECKSUM: Final = re.compile(r"\d{20}\.crc")
_BELOW: Final = ("_sidecars", "_staged_commits", "_commits")
"""Folders of checkpoints' parts, and of commits that a catalog coordinates: newer than all that the log itself shows,
or never to become any.
"""
_NAMING: Final = ("add", "remove", "cdc")
_WANTED: Final = (*_NAMING, "metaData", "commitInfo")
_COMPARED: Final = re.compile(r"[=<>]|\b(?:in|like|between)\b", re.IGNORECASE)
_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_ROWS: Final = 4096


def read_log(table: FileRef) -> History:
    """All that the log of the table in this folder names. What can't be read is a problem; nothing is raised."""
    found = History()
    commits: set[int] = set()
    reaching: set[int] = set()
    folder = posixpath.join(table.path, "_delta_log")
    told: dict[str, _Told] = {}
    for info in _listed(FileRef(folder, table.filesystem), found):
        name, above = info.base_name, posixpath.basename(posixpath.dirname(info.path))
        if (commit := COMMIT.fullmatch(name)) is not None:
            commits.add(int(commit[1]))
        elif (other := _OTHER.fullmatch(name)) is not None:
            reaching.add(int(other[2] or other[1]))
        elif not (_CHECKSUM.fullmatch(name) or (above in _BELOW and not name.startswith("."))):
            continue
        try:
            said = told[info.path] = _Told()
            for action in actions_of(FileRef(info.path, table.filesystem)):
                said.take(action)
            found.paths |= {in_table(path, table) for path in said.paths}
        except (
            BloomsealError,
            pa.ArrowException,
            OSError,
            ValueError,
            RecursionError,
            AttributeError,
            KeyError,
            TypeError,
        ) as error:
            found.problems.append(f"{info.path}: the log can't be read there ({type(error).__name__})")
    # Where columns are mapped, actions have the names that files have.
    names = {physical: logical for said in told.values() for physical, logical in said.names.items()}
    for path, said in told.items():
        for column, what in said.held:
            found.hold(path, names.get(column, column), what)
    versions = commits | reaching
    if not versions:
        found.problems.append(f"{folder}: there is no version in the log")
        return found
    found.versions = len(versions)
    # A clean-up takes versions from the beginning; one that is missing in between was taken by something else.
    if gaps := sorted(set(range(min(commits or versions), max(versions) + 1)) - commits - reaching):
        found.problems.append(f"{folder}: version {gaps[0]} is missing in the log")
    return found


class _Told:
    """What one file of the log names: data files, columns with what is told of their values, and names of columns."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.held: set[tuple[str, str]] = set()
        self.names: dict[str, str] = {}

    def take(self, action: dict[str, Any]) -> None:
        """One action, or a version's checksum with all of its files."""
        for one in action.get("allFiles") or ():
            self.paths.add(one["path"])
            self._file(one)
        for kind in _NAMING:
            if (told := action.get(kind)) is not None:
                self.paths.add(told["path"])
                self._file(told)
        if (told := action.get("metaData") or action.get("metadata")) is not None and told.get("schemaString"):
            self.names |= dict(_mapped(json.loads(told["schemaString"])))
        self._predicates((action.get("commitInfo") or {}).get("operationParameters"))

    def _file(self, told: dict[str, Any]) -> None:
        for values in (told.get("partitionValues"), told.get("partitionValues_parsed")):
            # A null tells something, too; in a checkpoint the entries are pairs.
            self.held |= {(name, PARTITIONS) for name in dict(values or {})}
        stats = told.get("stats")
        for parsed in (json.loads(stats) if stats else None, told.get("stats_parsed")):
            for end in ("minValues", "maxValues"):
                self.held |= {(name, BOUNDS) for name in _leaves((parsed or {}).get(end))}

    def _predicates(self, parameters: Any) -> None:
        for name, text in dict(parameters or {}).items():
            if "redicate" in name and isinstance(text, str) and _COMPARED.search(text):
                self.held |= {(one, PREDICATE) for one in _NAME.findall(text)}


def _leaves(values: Any, above: str = "") -> Iterator[str]:
    """Dotted paths of what is not null."""
    for name, value in (values or {}).items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        elif value is not None:
            yield above + name


def _mapped(kind: Any, physical: str = "", logical: str = "") -> Iterator[tuple[str, str]]:
    """Dotted path in the files → dotted path in the table, of the columns in a schema."""
    for field in kind.get("fields", ()) if isinstance(kind, dict) else ():
        own = (field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"])
        yield physical + own, logical + field["name"]
        yield from _mapped(field["type"], f"{physical}{own}.", f"{logical}{field['name']}.")


def _listed(folder: FileRef, found: History) -> list[FileInfo]:
    from pyarrow.fs import FileSelector, FileType, LocalFileSystem

    try:
        entries = (folder.filesystem or LocalFileSystem()).get_file_info(FileSelector(folder.path, recursive=True))
    except (OSError, ValueError) as error:
        found.problems.append(f"{folder.path}: the log can't be listed ({type(error).__name__})")
        return []
    return [entry for entry in entries if entry.type is FileType.File]


def actions_of(ref: FileRef) -> Iterator[dict[str, Any]]:
    """The actions in one file of the log.

    Raises:
        FormatError: it decodes to too much. ValueError, ArrowException: no file of a log.
    """
    with open_source(ref) as source:
        need_readable(source.size, ref.path)
        data = bytes(source.read(0, source.size))
        if ref.path.endswith(".parquet"):
            need_parquet(data, ref.path)
            table = pq.ParquetFile(pa.BufferReader(data))
            wanted = [name for name in _WANTED if name in table.schema_arrow.names]
            for batch in table.iter_batches(batch_size=_ROWS, columns=wanted):
                yield from batch.to_pylist()
            return
    for line in data.splitlines():
        if line.strip():
            yield json.loads(line)
