"""Data files of Delta and Iceberg tables: the live ones, or those of all retained versions."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..errors import UsageError
from ..keytools.protocols import FileRef
from .places import library

if TYPE_CHECKING:
    from .places import Places

__all__ = ["delta_files", "iceberg_files"]


def delta_files(ref: FileRef, places: Places, *, history: bool) -> Iterator[FileRef]:
    """The files of a Delta table.

    With `history` also those of every version that the log still describes. Files that are gone are told to `places`.

    Raises:
        MissingDependencyError: `deltalake` is not installed.
        UsageError: not a table that it understands.
    """
    table = _load(lambda: library("deltalake", "delta", _deltalake).DeltaTable(_uri(ref)), ref)
    listed = set(table.file_uris())
    _delta_bounds(table, ref, places)
    versions = sorted({entry["version"] for entry in table.history() if "version" in entry}) if history else []
    for version in versions:
        try:
            table.load_as_version(version)
            listed |= set(table.file_uris())
        except Exception as error:
            places.unknown.append(f"{ref.path}: version {version} can't be loaded ({type(error).__name__})")
    yield from _found(sorted(listed), ref, places)


def iceberg_files(ref: FileRef, places: Places, *, history: bool) -> Iterator[FileRef]:
    """The data files of an Iceberg table, given by its metadata file.

    Raises:
        MissingDependencyError: `pyiceberg` is not installed.
        UsageError: not a table that it understands.
    """
    table = _load(lambda: library("pyiceberg", "iceberg", _pyiceberg).from_metadata(_uri(ref)), ref)
    snapshots: list[Any] = [None]
    if history:
        snapshots += [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    listed: set[str] = set()
    for snapshot in snapshots:
        try:
            for task in table.scan(snapshot_id=snapshot).plan_files():
                listed.add(task.file.file_path)
                _iceberg_bounds(table, task.file, places)
        except Exception as error:
            places.unknown.append(f"{ref.path}: snapshot {snapshot or 'now'} can't be planned ({type(error).__name__})")
    yield from _found(sorted(listed), ref, places)


def _delta_bounds(table: Any, ref: FileRef, places: Places) -> None:
    """Delta keeps min and max of the first columns in its log, whatever the files themselves hide."""
    import pyarrow as pa

    try:
        actions = pa.table(table.get_add_actions(flatten=True))
    except Exception as error:
        places.unknown.append(f"{ref.path}: the log's statistics can't be read ({type(error).__name__})")
        return
    columns = [name for name in actions.column_names if name.startswith(("min.", "max."))]
    for row in actions.select(["path", *columns]).to_pylist():
        held = {name.partition(".")[2] for name in columns if row[name] is not None}
        path = unquote(row["path"])
        places.bounds[path if "://" in path else posixpath.join(ref.path, path)] = held


def _iceberg_bounds(table: Any, file: Any, places: Places) -> None:
    ids = {*(file.lower_bounds or {}), *(file.upper_bounds or {})}
    names = (table.schema().find_column_name(number) for number in ids)
    places.bounds.setdefault(_path(file.file_path), set()).update(name for name in names if name is not None)


def _path(uri: str) -> str:
    """The path of a URI as the table's file system knows it."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return _below(uri) if parts.scheme else uri


def _found(listed: list[str], ref: FileRef, places: Places) -> Iterator[FileRef]:
    from .checks import exists

    for uri in listed:
        parts = urlsplit(uri)
        local = parts.scheme in ("", "file")
        found = FileRef(
            unquote(parts.path) if parts.scheme == "file" else uri if local else _below(uri), ref.filesystem
        )
        if exists(found):
            yield found
        else:
            places.missing.append(found.path)


def _below(uri: str) -> str:
    """A path as the table's file system knows it: bucket and key."""
    parts = urlsplit(uri)
    return posixpath.join(parts.netloc, parts.path.lstrip("/"))


def _uri(ref: FileRef) -> str:
    if ref.filesystem is None:
        return ref.path
    scheme = {"s3": "s3", "gcs": "gs", "abfs": "abfss"}.get(ref.filesystem.type_name)
    if scheme is None:
        raise UsageError(f"tables on a {ref.filesystem.type_name} file system can't be opened", file=ref.path)
    return f"{scheme}://{ref.path}"


def _load(load: Any, ref: FileRef) -> Any:
    from ..errors import BloomsealError

    try:
        return load()
    except BloomsealError:
        raise
    except Exception as error:
        failed = type(error).__name__
    raise UsageError(f"the table can't be opened ({failed})", file=ref.path)


def _deltalake() -> Any:
    import deltalake

    return deltalake


def _pyiceberg() -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable
