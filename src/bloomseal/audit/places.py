"""Paths, folders and tables → the data files to look at."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import BloomsealError, MissingDependencyError, UsageError
from ..storage.ref import FileRef
from ..storage.source import Source, resolve_path, walk_tree

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["MATERIAL_PREFIX", "Places", "find_files"]

MATERIAL_PREFIX: Final = "_KEY_MATERIAL_FOR_"
_DELTA_LOG: Final = "_delta_log"
_ENDINGS: Final = (".parquet", ".parq", ".pq")
_NO_DATA: Final = (".json", ".crc")


@dataclass
class Places:
    """The files and tables to look at.

    Attributes:
        files: the data files, each once, in order of their paths.
        sidecars: external key material found in the folders.
        roots: file path → the folder or table that was given and led to it; missing for a file that was named itself.
        unknown: what could not be found out, in words: a place that can't be listed, a table version that is gone.
        missing: files that a retained table version names and that are not there any more.
        bounds: file path → columns whose smallest and greatest values stand in the table's own metadata.
    """

    files: list[FileRef] = field(default_factory=list)
    sidecars: list[FileRef] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    bounds: dict[str, set[str]] = field(default_factory=dict)


def find_files(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    history: bool = False,
) -> Places:
    """All data files at these places.

    Args:
        paths: files, folders (searched to any depth, links followed; hidden files and folders are left out), Delta tables (the folder that
            holds ``_delta_log``) and Iceberg tables (a ``….metadata.json``).
        filesystem: where the paths are; None for local ones and URIs.
        history: files of all retained versions of a table, not only the live ones, and all Parquet files in the folders, hidden
            ones and those of another name too.

    Raises:
        MissingDependencyError: a table without its library.
        UsageError: no path at all.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise UsageError("nothing to audit", hint="a file, a folder or a table")
    places = Places()
    seen: dict[str, FileRef] = {}
    for path in listed:
        ref = resolve_path(path, filesystem)
        for found, root in _files(ref, places, history):
            if not _is_text(found.path):
                places.unknown.append(f"{_shown(found.path)}: its name is no text; it was not looked at")
                continue
            seen.setdefault(found.path, found)
            if root is not None:
                places.roots.setdefault(found.path, root)
    places.files = [seen[name] for name in sorted(seen)]
    places.sidecars = sorted(
        {ref.path: ref for ref in places.sidecars if _is_text(ref.path)}.values(), key=lambda ref: ref.path
    )
    return places


def _files(ref: FileRef, places: Places, history: bool) -> Iterator[tuple[FileRef, str | None]]:
    if ref.path.endswith(".metadata.json"):
        from .tables import iceberg_files

        yield from ((found, ref.path) for found in iceberg_files(ref, places, history=history))
        return
    try:
        is_folder, entries = _listed(ref, places)
    except OSError as error:
        places.unknown.append(f"{ref.path}: can't be listed ({type(error).__name__})")
        return
    if not is_folder:
        yield ref, None
        return
    _sidecars(entries, places)
    tables = sorted(
        {f"/{name}".partition(f"/{_DELTA_LOG}/")[0] for name, _ in entries if f"/{_DELTA_LOG}/" in f"/{name}"}
    )
    for below in tables:
        yield from _delta(FileRef(ref.path + below, ref.filesystem), places, history, named=not below)
    for name, found in entries:
        # What no version names any more may lie in a table still, until somebody vacuums. And whatever it is called, its keys
        # are needed: Delta's change data lie in a hidden folder, Hive's files have no ending.
        told = not history and any(f"/{name}".startswith(f"{below}/") for below in tables)
        if (_is_data(name) and not told) or (history and _is_parquet(name, found)):
            yield found, ref.path


def _delta(ref: FileRef, places: Places, history: bool, *, named: bool) -> Iterator[tuple[FileRef, str | None]]:
    from .tables import delta_files

    try:
        yield from ((found, ref.path) for found in delta_files(ref, places, history=history))
    except (MissingDependencyError, UsageError) as error:
        if named:
            raise
        places.unknown.append(f"{ref.path}: {error}")


def _sidecars(entries: Iterable[tuple[str, FileRef]], places: Places) -> None:
    for name, found in entries:
        if posixpath.basename(name).startswith(MATERIAL_PREFIX) and name.endswith(".json"):
            places.sidecars.append(found)


def _is_data(name: str) -> bool:
    parts = name.split("/")
    # As Spark and Hive have it: a partition folder such as `_day=1` is no hidden one.
    if any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts):
        return False
    last = parts[-1].lower()
    return last.endswith(_ENDINGS) or ".parquet." in last


def _is_parquet(name: str, ref: FileRef) -> bool:
    """Does a file end as Parquet does? One that can't be read may."""
    if name.endswith(_NO_DATA) or (ref.filesystem is None and not os.path.isfile(ref.path)):  # noqa: PTH113
        return False
    try:
        with Source.open(ref.path, ref.filesystem) as source:
            return source.size >= 4 and bytes(source.read(source.size - 4, 4)) in (b"PAR1", b"PARE")
    except BloomsealError:
        return True


def _is_text(path: str) -> bool:
    return path.isascii() or path.encode(errors="replace").decode() == path


def _shown(path: str) -> str:
    return path.encode(errors="backslashreplace").decode()


def _listed(ref: FileRef, places: Places) -> tuple[bool, list[tuple[str, FileRef]]]:
    """Is it a folder, and which files are below it (path from here, file)?"""
    if ref.filesystem is None:
        if not os.path.isdir(ref.path):  # noqa: PTH112
            return False, []
        entries = []

        def skip(error: OSError) -> None:
            places.unknown.append(f"{error.filename}: can't be listed ({error.strerror})")

        for folder, _, names in walk_tree(ref.path, skip):
            below = os.path.relpath(folder, ref.path)
            for name in names:
                relative = name if below == "." else f"{below}/{name}".replace(os.sep, "/")
                entries.append((relative, FileRef(os.path.join(folder, name))))  # noqa: PTH118
        return True, sorted(entries, key=lambda entry: entry[0])
    from pyarrow.fs import FileSelector, FileType

    info = ref.filesystem.get_file_info(ref.path)
    if info.type is not FileType.Directory:
        return False, []
    base = ref.path.rstrip("/") + "/"
    found = ref.filesystem.get_file_info(FileSelector(ref.path, recursive=True))
    return True, sorted(
        (one.path.removeprefix(base), FileRef(one.path, ref.filesystem)) for one in found if one.type is FileType.File
    )


def library(name: str, extra: str, load: Callable[[], Any]) -> Any:
    """An optional library.

    Raises:
        MissingDependencyError: it isn't installed.
    """
    try:
        return load()
    except ImportError:
        pass
    raise MissingDependencyError(f"this needs the library {name}", hint=f"pip install 'bloomseal[{extra}]'")
