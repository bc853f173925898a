"""Data files of Delta and Iceberg tables: the live ones, or those of all retained versions."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ..errors import UsageError
from ..storage.ref import FileRef
from .places import library

if TYPE_CHECKING:
    from .places import Places

__all__ = ["delta_files", "iceberg_files"]

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)


def delta_files(ref: FileRef, places: Places, *, history: bool) -> Iterator[FileRef]:
    """The files of a Delta table.

    With `history` also those of every version that the log still describes. Files that are gone are told to `places`.

    Raises:
        MissingDependencyError: `deltalake` is not installed.
        UsageError: not a table that it understands.
    """
    table = _load(lambda: library("deltalake", "delta", _deltalake).DeltaTable(_uri(ref)), ref)
    live = _load(lambda: _delta_paths(table, ref), ref)
    listed = set(live)
    _delta_bounds(table, ref, places)
    versions = sorted({entry["version"] for entry in table.history() if "version" in entry}) if history else []
    for version in versions:
        try:
            table.load_as_version(version)
            listed |= _delta_paths(table, ref)
        except Exception as error:
            places.unknown.append(f"{ref.path}: version {version} can't be loaded ({type(error).__name__})")
    yield from _found(listed, live, ref, places)


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
    live: set[str] = set()
    for snapshot in snapshots:
        try:
            for task in table.scan(snapshot_id=snapshot).plan_files():
                # Whoever reads the rows needs the files that tell which of them were deleted, too.
                deletes = (one for one in task.delete_files if one.file_format == "PARQUET")
                listed |= {_path(one.file_path, ref) for one in (task.file, *deletes)}
                _iceberg_bounds(table, task.file, ref, places)
        except Exception as error:
            places.unknown.append(f"{ref.path}: snapshot {snapshot or 'now'} can't be planned ({type(error).__name__})")
        if snapshot is None:
            live = set(listed)
    yield from _found(listed, live, ref, places)


def _delta_paths(table: Any, ref: FileRef) -> set[str]:
    """The files of the loaded version, as the log has them: deltalake's `file_uris` quotes some parts of a path and some not."""
    import pyarrow as pa

    return {_path(unquote(path), ref) for path in pa.table(table.get_add_actions())["path"].to_pylist()}


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
        places.bounds[_path(unquote(row["path"]), ref)] = held


def _iceberg_bounds(table: Any, file: Any, ref: FileRef, places: Places) -> None:
    ids = {*(file.lower_bounds or {}), *(file.upper_bounds or {})}
    names = (table.schema().find_column_name(number) for number in ids)
    places.bounds.setdefault(_path(file.file_path, ref), set()).update(name for name in names if name is not None)


def _path(name: str, ref: FileRef) -> str:
    """A data file's path as the table's file system knows it; the URI as it is, where it leads to another file system.

    Nothing is unquoted: Iceberg writes paths down as they are, ``p=a%2Fb`` being the folder's own name.
    """
    if (uri := _URI.match(name)) is None:
        return posixpath.join(ref.path, name)
    scheme, host, path = uri.groups()
    if (scheme.lower() == "file") != (ref.filesystem is None):
        return name
    return path if ref.filesystem is None else posixpath.join(host or "", path.lstrip("/"))


def _found(listed: set[str], live: set[str], ref: FileRef, places: Places) -> Iterator[FileRef]:
    from .checks import exists

    for path in sorted(listed):
        found = FileRef(path, ref.filesystem)
        if _URI.match(path):
            places.unknown.append(f"{path}: on another file system than its table")
        elif exists(found):
            yield found
        else:
            places.missing.append(path)
            if path in live:
                places.unknown.append(f"{path}: the table's current version names it, and it is not there")


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
