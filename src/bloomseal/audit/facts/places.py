"""Paths, folders and tables → the data files to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...storage import tables
from ...storage.delta import DeltaLog
from ...storage.files import Found, Kind
from ...storage.iceberg import IcebergLog
from ...storage.ref import FileRef
from ...storage.source import resolve_path

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["Places", "find_files"]


@dataclass
class Places:
    """The files and tables to look at.

    Attributes:
        files: the data files, each once, in order of their paths.
        sidecars: external key material found in the folders.
        roots: file path → the folder or table that was given and led to it; missing for a file that was named itself.
        unknown: what could not be found out, in words: a place that can't be listed, a table version that is gone.
        missing: files that a retained table version names and that are not there any more.
        dead: Parquet files that lie in a table's folder and that its current version does not name; their keys are looked
            at only with `history`.
        outside: files that no reader takes: dead and hidden Parquet files, and files aside, whole or not.
        bounds: file path → columns whose smallest and greatest values stand in the table's own metadata.
    """

    files: list[FileRef] = field(default_factory=list)
    sidecars: list[FileRef] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    outside: list[Found] = field(default_factory=list)
    bounds: dict[str, set[str]] = field(default_factory=dict)


def find_files(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    history: bool = False,
) -> Places:
    """All data files at these places, as `bloomseal.storage.tables` finds them: whatever a reader takes, and visible
    Parquet files of other names. Links are followed: an audit only looks, and must not see less than whoever follows
    them.

    Args:
        paths: files, folders, Delta tables (the folder that holds ``_delta_log``) and Iceberg tables (their folder,
            or a ``….metadata.json``).
        filesystem: where the paths are; None for local ones and URIs.
        history: files of all retained versions of a table, not only the live ones, and hidden Parquet files too.

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
        _add(path, resolve_path(path, filesystem), places, seen, history)
    places.files = [seen[name] for name in sorted(seen)]
    places.sidecars = sorted(
        {ref.path: ref for ref in places.sidecars if _is_text(ref.path)}.values(), key=lambda ref: ref.path
    )
    return places


def _add(path: str | os.PathLike[str], ref: FileRef, places: Places, seen: dict[str, FileRef], history: bool) -> None:
    try:
        found = tables.find_files(path, ref.filesystem, everything=True, follow_links=True)
    except (tables.NothingThereError, tables.UnseenError):
        found = tables.TableFiles()
        _take(places, seen, [ref])  # a place that can't be reached is a finding, not the end
    _take(places, seen, (one.ref for one in found.files))
    if history:
        _take(places, seen, (one.ref for one in found.others))
    places.outside += [one for one in found.others if _is_text(one.ref.path)]
    places.dead += [one.ref.path for one in found.others if one.kind is Kind.DEAD]
    places.sidecars += found.sidecars
    places.missing += found.missing
    places.unknown += [_shown(str(problem)) for problem in found.problems]
    for folder, log in sorted(found.logs.items()):
        _from_log(FileRef(folder, ref.filesystem), log, places, seen, history)


def _from_log(
    ref: FileRef, log: DeltaLog | IcebergLog, places: Places, seen: dict[str, FileRef], history: bool
) -> None:
    """What only the log knows: bounds, and the files of older versions."""
    try:
        places.bounds.update(log.bounds())
    except Exception as error:
        places.unknown.append(f"{ref.path}: the log's statistics can't be read ({type(error).__name__})")
    listed: set[str] = set()
    for version in log.retained() if history else ():
        try:
            listed |= log.paths_at(version)
        except Exception as error:
            places.unknown.append(f"{ref.path}: version {version} can't be loaded ({type(error).__name__})")
    for name in sorted(listed - {*seen, *places.missing}):
        one = FileRef(name, ref.filesystem, ref.path)
        if tables.is_file(one):
            _take(places, seen, [one])
        else:
            places.missing.append(name)


def _take(places: Places, seen: dict[str, FileRef], refs: Iterable[FileRef]) -> None:
    for ref in refs:
        if not _is_text(ref.path):
            places.unknown.append(f"{_shown(ref.path)}: its name is no text; it was not looked at")
            continue
        seen.setdefault(ref.path, ref)
        if ref.root is not None:
            places.roots.setdefault(ref.path, ref.root)


def _is_text(path: str) -> bool:
    return path.isascii() or path.encode(errors="replace").decode() == path


def _shown(path: str) -> str:
    return path.encode(errors="backslashreplace").decode()
