"""Paths, folders and tables → the data files to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError, UsageError
from ...core.storage.ref import FileRef
from ...storage.discovery import tables
from ...storage.discovery.kinds import FileKind, FoundFile, is_of_index
from ...storage.logs.delta import DeltaLog
from ...storage.logs.iceberg import IcebergLog
from ...storage.logs.snapshot import LiveFile
from ...storage.places import is_file, resolve_path
from .files.file import FileFacts
from .iceberg import EncryptedTable, TableFlaw, look_at_table

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Key = tuple[int, str]


class Systems:
    """Tells files of one path on several file systems apart."""

    def __init__(self) -> None:
        self._known: list[FileSystem] = []

    def key(self, ref: FileRef) -> Key:
        """Equal for two names of one place."""
        if ref.filesystem is None:
            return 0, ref.path
        for number, known in enumerate(self._known, 1):
            if known is ref.filesystem or known == ref.filesystem:
                return number, ref.path
        self._known.append(ref.filesystem)
        return len(self._known), ref.path


@dataclass
class Places:
    """The files and tables to look at.

    Attributes:
        files: the data files, each once, in order of their paths.
        sidecars: external key material found in the folders.
        signatures: of files, found there too.
        roots: file path → the folder or table that was given and led to it; missing for a file that was named itself.
        unknown: what could not be found out, in words: a place that can't be listed, a part of a log that can't be
            read.
        unsure: with `history`, what may lead to data or become some, and is no problem for a reader, in words.
        nothing: places that were given, and nothing is there; each counts as a file that can't be read.
        empty: with `history`, places that were given and have no file.
        gone: files that were listed, and gone before anybody could look at them.
        versions: with `history`, how many versions of tables their logs still describe.
        missing: files that a retained table version names and that are not there any more.
        outside: files that no reader takes: Parquet files that are hidden, or dead, which no current version of a table
            names, and temporary files, whole or not. The keys of the former are looked at only with `history`.
        unread: files that are neither data nor a table's metadata, into which nobody looked.
        named: place that was given → folders and files in it whose own names have ``=`` in them.
        untold: what of a table's log could not be read, where nobody asked for its history, in words.
        elsewhere: folders outside of a table's, where its log says that files go.
        encrypted: Iceberg tables whose metadata say that they are encrypted.
        opened: what opening these by the policy's master key has shown.
        sealed: their KEKs and, opened, the files of their metadata, as the inventory has files.
        held: table's folder → file of its log → column → what of the column's values stands in it.
    """

    files: list[FileRef] = field(default_factory=list)
    sidecars: list[FileRef] = field(default_factory=list)
    signatures: list[FileRef] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    nothing: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    versions: int = 0
    missing: list[str] = field(default_factory=list)
    outside: list[FoundFile] = field(default_factory=list)
    named: dict[str, list[str]] = field(default_factory=dict)
    untold: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    encrypted: list[EncryptedTable] = field(default_factory=list)
    opened: list[TableFlaw] = field(default_factory=list)
    sealed: list[FileFacts] = field(default_factory=list)
    held: dict[str, dict[str, dict[str, set[str]]]] = field(default_factory=dict)

    def add(self, other: Places) -> None:
        """Take in what was found elsewhere."""
        for one in fields(self):
            mine, more = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, mine | more if isinstance(mine, dict) else mine + more)


def find_files(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    history: bool = False,
) -> Places:
    """All data files at these places, as `bloomseal.storage.discovery.tables` finds them: whatever a reader takes, and
    visible Parquet files of other names. Links are followed: an audit only looks, and must not see less than whoever
    follows them.

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
    seen = _SeenFiles()
    for path in listed:
        _add(resolve_path(path, filesystem), places, seen, history)
    given = [resolve_path(path, filesystem).path.rstrip("/") + "/" for path in listed]
    for place in places.elsewhere:
        if not f"{place}/".startswith(tuple(given)):
            places.unknown.append(f"{_shown(place)}: the table's log says that files go there; name it, too")
    places.files = sorted(seen.files.values(), key=lambda ref: ref.path)
    places.sidecars = sorted(
        {seen.systems.key(ref): ref for ref in places.sidecars if _is_text(ref.path)}.values(), key=lambda ref: ref.path
    )
    return places


class _SeenFiles:
    """Each file once."""

    def __init__(self) -> None:
        self.systems = Systems()
        self.files: dict[Key, FileRef] = {}

    def __contains__(self, ref: FileRef) -> bool:
        return self.systems.key(ref) in self.files

    def add(self, ref: FileRef) -> None:
        self.files.setdefault(self.systems.key(ref), ref)


def _add(ref: FileRef, places: Places, seen: _SeenFiles, history: bool) -> None:
    try:
        found = tables.find_files(ref.path, ref.filesystem, everything=True, follow_links=True)
    except (tables.NothingThereError, tables.UnseenError) as error:
        found = tables.TableFiles()
        places.nothing += [ref.path] if isinstance(error, tables.NothingThereError) else []
        _take(places, seen, [ref])  # a place that can't be reached is a finding, not the end
    _take(places, seen, (one.ref for one in found.files))
    # A sealed index is as telling as its column, and is looked at like a file of the table.
    indexes = [one for one in found.others if one.kind is FileKind.HIDDEN and is_of_index(one.relative)]
    _take(places, seen, (one.ref for one in indexes))
    if history:
        _take(places, seen, (one.ref for one in found.others))
        # A session that seals whatever it writes has sealed its checkpoints too: without their key there is no table.
        _take(places, seen, found.logged)
        places.unsure += [_shown(str(problem)) for problem in found.unsure]
        if not (found.files or found.others or found.problems or ref in seen):
            places.empty.append(ref.path)
    places.outside += [one for one in [*found.others, *found.begun] if _is_text(one.ref.path) and one not in indexes]
    places.unread += [_shown(path) for path in found.unread]
    places.named[ref.path] = found.named
    places.gone += found.gone
    places.sidecars += found.sidecars
    places.signatures += [one for one in found.signatures if _is_text(one.path)]
    places.missing += found.missing
    places.unknown += [_shown(str(problem)) for problem in found.problems]
    for folder, log in sorted(found.logs.items()):
        _from_log(FileRef(folder, ref.filesystem), log, places, seen, history)
        if isinstance(log, IcebergLog):
            _look_at(log, found.unread, places, history)


def _look_at(log: IcebergLog, others: Iterable[str], places: Places, history: bool) -> None:
    try:
        if (table := look_at_table(log, [path for path in others if _is_text(path)])) is not None:
            places.encrypted.append(table)
            places.unknown += [_shown(text) for text in (*table.unseen, *(table.elsewhere if history else ()))]
            (places.unknown if history else places.untold).extend(table.sealed())
    except (BloomsealError, OSError, ValueError, RecursionError) as error:
        places.unknown.append(f"{_shown(log.folder.path)}: its encryption can't be looked at ({type(error).__name__})")


def _from_log(ref: FileRef, log: DeltaLog | IcebergLog, places: Places, seen: _SeenFiles, history: bool) -> None:
    """What only the log knows: values of columns, and the files of older versions."""
    try:
        told = log.history()
    except Exception as error:
        places.unknown.append(f"{_shown(ref.path)}: the log can't be read ({type(error).__name__})")
        return
    places.held[ref.path] = told.held
    if not history:
        places.untold += [_shown(problem) for problem in told.problems]
        return
    places.unknown += [_shown(problem) for problem in told.problems]
    places.elsewhere += sorted(told.elsewhere)
    places.versions += told.versions
    known = {*places.missing, *(text.partition(": ")[0] for text in places.unknown)}
    for name in sorted(told.paths - known):
        one = FileRef(name, ref.filesystem, ref.path)
        if one in seen:
            continue
        if not LiveFile(name).elsewhere and is_file(one):
            _take(places, seen, [one])
        elif _is_inside(name, ref):
            places.missing.append(name)
        else:
            # Outside its own folder a table tidies nothing away: a volume may not be mounted.
            places.unknown.append(f"{_shown(name)}: an older version of the table names it, and it can't be reached")


def _is_inside(name: str, table: FileRef) -> bool:
    """Whether the path is below the table's folder, and its own folder was listed."""
    if LiveFile(name).elsewhere:
        return False
    roots = {table.path.rstrip("/")} | ({os.path.realpath(table.path)} if table.filesystem is None else set())
    return any(name.startswith(f"{root}/") for root in roots)


def _take(places: Places, seen: _SeenFiles, refs: Iterable[FileRef]) -> None:
    for ref in refs:
        if not _is_text(ref.path):
            places.unknown.append(f"{_shown(ref.path)}: its name is no text; it was not looked at")
            continue
        seen.add(ref)
        if ref.root is not None:
            places.roots.setdefault(ref.path, ref.root)


def _is_text(path: str) -> bool:
    return path.isascii() or path.encode(errors="replace").decode() == path


def _shown(path: str) -> str:
    return path.encode(errors="backslashreplace").decode()
