"""A table's files, wherever their list is kept: in the folder itself, in a Delta log, in Iceberg's metadata.

A folder that has a log is never read as a plain folder: it holds dead files beside the live ones.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from ...core.errors import BloomsealError, PolicyError, UnsupportedError, UsageError
from ...core.storage.local import NO_NAME, can_name
from ...core.storage.ref import FileRef
from ...core.storage.source import refusal
from ...core.text import articled
from ..formats import METADATA_ENDINGS, Format, named_format
from ..places import FilePlace, exists, is_file, is_folder, is_object, names_in, resolve_path
from .files import list_files
from .kinds import (
    LOGS,
    FileKind,
    FolderContents,
    FoundFile,
    Listing,
    NothingThereError,
    PlaceProblem,
    TableLayout,
    UnseenError,
)
from .pattern import PathPattern

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..logs.delta import DeltaLog
    from ..logs.iceberg import IcebergLog
    from ..logs.iceberg_encrypted import IcebergOpening
    from ..logs.snapshot import LiveFile, Snapshot

__all__ = [
    "NothingThereError",
    "Paths",
    "Places",
    "TableFiles",
    "UnseenError",
    "find_files",
    "is_one_file",
    "open_log",
    "refuse_part_of_table",
]

_DATA, _METADATA = "data", "metadata"
"""An Iceberg table's folders, as all engines call them."""

Path = str | os.PathLike[str]
Paths = Sequence[Path] | Path
Places = Paths | FilePlace
"""Paths, or the one file that a file object or bytes are."""


@dataclass
class TableFiles(FolderContents):
    """The files of a table, or of several places.

    `files` are what a reader takes, in order; with `everything` also visible Parquet files of other names.

    Attributes:
        others: with `everything`, the Parquet files that no reader takes: hidden ones, leftovers (whole or not), files
            that no live version names.
        snapshot: what the log says, where one table with a log was opened to be read.
        live: path → what the log says about the file.
        missing: files that a current version names and that are not there; each is a problem too.
        logs: folders of tables with a log → the log.
    """

    others: list[FoundFile] = field(default_factory=list)
    snapshot: Snapshot | None = None
    live: dict[str, LiveFile] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    logs: dict[str, DeltaLog | IcebergLog] = field(default_factory=dict)


def find_files(
    paths: Places,
    filesystem: FileSystem | None = None,
    *,
    version: int | None = None,
    everything: bool = False,
    follow_links: bool = False,
    iceberg: IcebergOpening | None = None,
) -> TableFiles:
    """The files at these places: files, folders, patterns, Delta tables, Iceberg tables (the folder, or a
    ``….metadata.json``).

    Args:
        paths: each file is taken once, however many names lead to it.
        version: a Delta table's version, an Iceberg table's snapshot id; None: the current one.
        everything: for rotation and audit: all Parquet files, whatever they are called, and problems told instead of
            raised.
        follow_links: files outside a folder that was named, which a link inside it or the table's log leads to.
        iceberg: the place is an encrypted Iceberg table.

    Raises:
        UsageError: nothing there. Without `everything` also: a place that can't be listed, a link out of the table, a
            table with a log below the folder, a folder without files of data, or with both formats.
        UnsupportedError: without `everything`: a table whose files' rows are not its rows.
        MissingDependencyError: a table with a log, and not the library that reads it.
    """
    # What is neither a path nor several is refused as a path is.
    alone = isinstance(paths, str | os.PathLike) or is_object(paths) or not isinstance(paths, Iterable)
    listed = [cast(Path, paths)] if alone else list(cast(Sequence[Path], paths))
    if len(listed) > 1 and any(map(is_object, listed)):
        raise UsageError("file objects are opened one by one", hint="pyarrow.concat_tables")
    if not listed:
        raise UsageError("no path is given", hint="a file, a folder or a table")
    search = _Search(filesystem, version, everything, follow_links, iceberg, alone=len(listed) == 1)
    for path in listed:
        search.add(path)
    result = search.result
    if iceberg is not None and not result.logs:
        raise PolicyError("no Iceberg table, and an encrypted one is expected", file=os.fspath(listed[0]))
    if version is not None and not result.logs:
        raise UsageError("versions are for Delta and Iceberg tables", file=os.fspath(listed[0]))
    if any(problem.leads_out for problem in result.problems):
        # What lies at another place that was named is found there.
        roots = [os.path.realpath(resolve_path(path, filesystem).path) for path in listed]
        result.problems = [one for one in result.problems if not (one.leads_out and _below(one.path, roots))]
    if not everything:
        for problem in result.problems:
            raise UsageError(problem.why, file=problem.path, hint=problem.hint)
        _need_one_format(result.files)
    if len(listed) > 1:
        result.files = _once(result.files)
        result.others = _once(result.others)
    return result


def _need_one_format(files: Sequence[FoundFile]) -> None:
    """A folder of both formats is most likely two tables, or one that somebody is converting: its rows would be read
    twice.
    """
    first: dict[Format, str] = {}
    for found in files:
        if (named := named_format(found.relative)) is not None:
            first.setdefault(named, found.ref.path)
    if len(first) > 1:
        raise UsageError(
            f"Parquet and ORC files in one table: {first[Format.PARQUET]} beside it",
            file=first[Format.ORC],
            hint="a pattern that names those of one format: FOLDER/**/*.orc",
        )


def is_one_file(path: Places, filesystem: FileSystem | None = None) -> bool:
    """Whether it is a file object, the path of a file, or of nothing: what is opened as it is."""
    if not isinstance(path, str | os.PathLike):
        return is_object(path)
    ref = resolve_path(path, filesystem)
    if ref.path.endswith(METADATA_ENDINGS):
        return False
    if ref.filesystem is not None:
        return is_file(ref)
    return not is_folder(ref) and (exists(ref) or not any(c in ref.path for c in "*?["))


def open_log(
    ref: FileRef, layout: TableLayout, version: int | None = None, iceberg: IcebergOpening | None = None
) -> DeltaLog | IcebergLog:
    """The log of a table.

    Args:
        iceberg: the table is an encrypted Iceberg table.

    Raises:
        MissingDependencyError, UsageError.
        UnsupportedError: a log that no library here reads.
    """
    # Folders without a log need not load these.
    if iceberg is not None:
        if layout is not TableLayout.ICEBERG:
            raise PolicyError(f"{articled(layout)} table where an encrypted Iceberg table is expected", file=ref.path)
        from ..logs.iceberg_encrypted import EncryptedIcebergLog

        return EncryptedIcebergLog(ref, iceberg, version)
    if layout is TableLayout.DELTA:
        from ..logs.delta import DeltaLog

        return DeltaLog(ref, version)
    if layout is TableLayout.ICEBERG:
        from ..logs.iceberg import IcebergLog

        return IcebergLog(ref, version)
    raise UnsupportedError(f"{layout} tables are not read", file=ref.path, hint="a list of the live files")


@dataclass
class _Search:
    """A look at one place after the other.

    Attributes:
        version, everything, follow_links: as for `find_files`.
        alone: there is one place only.
        result: what was found so far.
    """

    filesystem: FileSystem | None
    version: int | None
    everything: bool
    follow_links: bool
    iceberg: IcebergOpening | None
    alone: bool
    result: TableFiles = field(default_factory=TableFiles)

    def add(self, path: Path) -> None:
        """One place."""
        ref = named = resolve_path(path, self.filesystem)
        if named.path.endswith(METADATA_ENDINGS):
            above = posixpath.dirname(named.path)
            if posixpath.basename(above) == "metadata":
                above = posixpath.dirname(above)
            ref = FileRef(above or ".", ref.filesystem)
        else:
            refuse_part_of_table(ref)
        listing = list_files(ref.path, ref.filesystem, everything=self.everything, follow_links=self.follow_links)
        if named is not ref:
            listing.tables[""] = TableLayout.ICEBERG
        files = {found.relative: found for found in listing.files}
        for below, layout in sorted(listing.tables.items()):
            folder = FileRef(posixpath.join(ref.path, below), ref.filesystem) if below else ref
            try:
                live = self._live(folder, folder if below else named, layout, inside=bool(below))
            except BloomsealError as error:
                if not (below and self.everything):
                    raise
                listing.problems.append(PlaceProblem(folder.path, str(error)))
            else:
                if live is not None:
                    self._keep_live(files, live, listing, folder, below)
                    self._look_for_deletes(listing, folder)
        self._sort_out(files.values(), listing)
        if not self.everything and listing.root is not None and not (files or listing.problems or self.result.logs):
            raise UsageError(
                "the folder holds no Parquet or ORC files", file=ref.path, hint="files named *.parquet or *.orc"
            )

    def _live(self, folder: FileRef, named: FileRef, layout: TableLayout, *, inside: bool) -> Sequence[LiveFile] | None:
        """The live files of a table with a log; None with `everything`, where the list of them is sealed."""
        if not self.everything and inside:
            raise UsageError(
                f"{articled(layout)} table lies below the folder", file=folder.path, hint="open it by its own path"
            )
        log = open_log(named, layout, self.version, self.iceberg)
        live: Sequence[LiveFile] | None = None
        if self.everything:
            from ..logs.snapshot import LiveFile

            if not log.sealed:
                live = tuple(map(LiveFile, sorted(log.paths())))
        elif not self.alone:
            raise UsageError("a table with a log is opened alone", file=folder.path)
        else:
            self.result.snapshot = log.snapshot()
            live = self.result.snapshot.files
        self.result.logs[folder.path] = log
        return live

    def _sort_out(self, files: Iterable[FoundFile], listing: Listing) -> None:
        wanted = (FileKind.DATA, FileKind.OTHER) if self.everything else (FileKind.DATA,)
        for found in files:
            (self.result.files if found.kind in wanted else self.result.others).append(found)
        self.result.take_over(listing)

    def _keep_live(
        self, files: dict[str, FoundFile], live: Sequence[LiveFile], listing: Listing, folder: FileRef, below: str
    ) -> None:
        """Of the files below the folder keep those that the log names; the others are dead, whatever their names."""
        prefix = f"{below}/" if below else ""
        for relative, found in list(files.items()):
            if relative.startswith(prefix) and found.kind in (FileKind.DATA, FileKind.OTHER):
                files[relative] = replace(found, kind=FileKind.DEAD)
        for one in live:
            inside = _inside(one, folder)
            if (problem := self._problem(one, folder, inside)) is not None:
                listing.problems.append(problem)
                continue
            name = prefix + inside if inside is not None else one.path.lstrip("/")
            if (held := files.get(name)) is None:
                path = posixpath.join(folder.path, inside) if inside is not None else one.path
                if not is_file(FileRef(path, folder.filesystem)):
                    listing.problems.append(PlaceProblem(one.path, "the table's log names it, and it is not there"))
                    self.result.missing.append(one.path)
                    continue
                held = FoundFile(FileRef(path, folder.filesystem, folder.path), name, FileKind.DATA)
            if held.ref.path in self.result.live and self.result.snapshot is not None:
                # By one name, or by two that lead to it.
                why = "the table's log names it twice, so that its rows count twice"
                listing.problems.append(PlaceProblem(one.path, why))
                continue
            files[name] = replace(
                held, kind=FileKind.DATA, told=one.told, key=one.key, name=one.name, deletes=one.deletes
            )
            self.result.live[held.ref.path] = one

    def _look_for_deletes(self, listing: Listing, folder: FileRef) -> None:
        """A delete file that is not there, or elsewhere, is none that deletes nothing."""
        snapshot = self.result.snapshot
        for one in {one.file.path: one.file for one in snapshot.deletes}.values() if snapshot is not None else ():
            if (problem := self._problem(one, folder, _inside(one, folder))) is not None:
                listing.problems.append(problem)
            elif not is_file(FileRef(one.path, folder.filesystem)):
                listing.problems.append(PlaceProblem(one.path, "the table's log names it, and it is not there"))

    def _problem(self, one: LiveFile, folder: FileRef, inside: str | None) -> PlaceProblem | None:
        """Why nobody looks at a file that the log names."""
        if one.elsewhere:
            return PlaceProblem(one.path, "on another file system than its table")
        if folder.filesystem is None and not can_name(one.path):
            return PlaceProblem(one.path, NO_NAME)
        if inside is None and not self.follow_links:
            # Nobody sealed the log: whoever writes it must not choose which files elsewhere are read or replaced.
            why = "the table's log leads out of the table; it was not followed"
            return PlaceProblem(one.path, why, leads_out=True)
        return None


def _inside(one: LiveFile, folder: FileRef) -> str | None:
    """A live file's path below its table's folder; None where it lies outside."""
    if one.elsewhere or (folder.filesystem is None and not can_name(one.path)):
        return None
    if folder.filesystem is not None:
        base = folder.path.rstrip("/") + "/"
        return one.path.removeprefix(base) if one.path.startswith(base) and "/../" not in one.path else None
    # The log has the path as its writer saw it; the folder may have been named by another way there.
    base = os.path.realpath(folder.path)
    real = os.path.realpath(one.path)
    return os.path.relpath(real, base) if real.startswith(base.rstrip("/") + "/") else None


def refuse_part_of_table(ref: FileRef, *, inside: bool = False) -> None:
    """A folder inside a table with a log holds dead files too, and so does a pattern's: the log lies above.

    Args:
        inside: it is the folder of a file that is to be changed: the log may lie in it, too.
    """
    base, pattern = PathPattern.split(ref.path)
    parted = pattern is not None and not exists(ref)
    above = (base if parted else ref.path).rstrip("/")
    if ref.filesystem is None:
        above = os.path.abspath(above)  # noqa: PTH100
    looks_at = parted or inside
    while True:
        if looks_at and (layout := _log_in(FileRef(above, ref.filesystem))) is not None:
            what = "pattern names files" if parted else "folder is a part"
            raise UsageError(
                f"the {what} of {articled(layout)} table", file=ref.path, hint=f"{above} as a whole, and a condition"
            )
        name = posixpath.basename(above)
        if not ("=" in name or name == _DATA):
            return
        above, looks_at = posixpath.dirname(above), True
        if not above:  # of a store that is all of its buckets
            return


def _log_in(folder: FileRef) -> TableLayout | None:
    """Which log the folder has; None: none, or no such folder.

    Raises:
        UsageError: nobody could look.
    """
    for name, layout in LOGS.items():
        if is_folder(FileRef(posixpath.join(folder.path, name), folder.filesystem)):
            return layout
    metadata = posixpath.join(folder.path, _METADATA)
    try:
        names = names_in(FileRef(metadata, folder.filesystem))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refusal("can't look at the place", metadata, error) from error
    return TableLayout.ICEBERG if any(name.endswith(METADATA_ENDINGS) for name in names) else None


def _below(path: str, roots: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def _once(files: list[FoundFile]) -> list[FoundFile]:
    own: dict[str, FoundFile] = {}
    for found in files:
        own.setdefault(found.ref.path if found.ref.filesystem else os.path.realpath(found.ref.path), found)
    return list(own.values())
