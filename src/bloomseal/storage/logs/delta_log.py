"""A Delta log, file by file: every data file that a commit or a checkpoint names, whether it is live, was, or was
removed.

Delta Transaction Log Protocol, "Delta Log Entries", "Checkpoints", "Log Compaction Files". Nothing is replayed: whoever
asks which keys are still needed wants all files, of whatever version.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import BloomsealError
from ..places import open_source
from ..ref import FileRef
from .snapshot import History, in_table, need_readable

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

__all__ = ["read_log"]

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_OTHER: Final = re.compile(r"(\d{20})\.(?:(\d{20})\.compacted\.json|checkpoint\..*(?:json|parquet))")
_NAMING: Final = ("add", "remove", "cdc")


def read_log(table: FileRef) -> History:
    """All that the log of the table in this folder names. What can't be read is a problem; nothing is raised."""
    found = History()
    commits: set[int] = set()
    reaching: set[int] = set()
    folder = posixpath.join(table.path, "_delta_log")
    for info in _listed(FileRef(folder, table.filesystem), found):
        name = info.base_name
        if (commit := _COMMIT.fullmatch(name)) is not None:
            commits.add(int(commit[1]))
        elif (other := _OTHER.fullmatch(name)) is not None:
            reaching.add(int(other[2] or other[1]))
        elif not (posixpath.basename(posixpath.dirname(info.path)) == "_sidecars" and name.endswith(".parquet")):
            continue
        try:
            read = _from_json if name.endswith(".json") else _from_parquet
            found.paths |= {in_table(path, table, quoted=True) for path in read(FileRef(info.path, table.filesystem))}
        except (
            BloomsealError,
            pa.ArrowException,
            OSError,
            ValueError,
            RecursionError,
            AttributeError,
            KeyError,
        ) as error:
            found.problems.append(f"{info.path}: the log can't be read there ({type(error).__name__})")
    versions = commits | reaching
    if not versions:
        found.problems.append(f"{folder}: there is no version in the log")
        return found
    found.versions = len(versions)
    # A clean-up takes versions from the beginning; one that is missing in between was taken by something else.
    if gaps := sorted(set(range(min(commits or versions), max(versions) + 1)) - commits - reaching):
        found.problems.append(f"{folder}: version {gaps[0]} is missing in the log")
    return found


def _listed(folder: FileRef, found: History) -> list[FileInfo]:
    from pyarrow.fs import FileSelector, FileType, LocalFileSystem

    try:
        entries = (folder.filesystem or LocalFileSystem()).get_file_info(FileSelector(folder.path, recursive=True))
    except (OSError, ValueError) as error:
        found.problems.append(f"{folder.path}: the log can't be listed ({type(error).__name__})")
        return []
    return [entry for entry in entries if entry.type is FileType.File]


def _from_json(ref: FileRef) -> Iterator[str]:
    with open_source(ref) as source:
        need_readable(source.size, ref.path)
        text = bytes(source.read(0, source.size))
    for line in text.splitlines():
        if line.strip():
            yield from _named(json.loads(line))


def _from_parquet(ref: FileRef) -> Iterator[str]:
    with open_source(ref) as source:
        table = pq.ParquetFile(pa.BufferReader(bytes(source.read(0, source.size))))
        wanted = [name for name in _NAMING if name in table.schema_arrow.names]
        for batch in table.iter_batches(columns=[f"{name}.path" for name in wanted]):
            for row in batch.to_pylist():
                yield from _named(row)


def _named(action: dict[str, Any]) -> Iterator[str]:
    for kind in _NAMING:
        if (told := action.get(kind)) is not None:
            yield told["path"]
