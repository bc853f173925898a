"""The rule of discovery: which files a place holds, told once for readers, rotation, audit and Spark.

A reader takes the names that say *Parquet* or *ORC* and are not hidden. Rotation and audit ask for `everything`: all
files that end as either does, whatever they are called. Whatever could not be looked at is a `PlaceProblem`, never left
out: not seen is not absent. docs/adr/0012-one-rule-of-discovery.md says why.
"""

from __future__ import annotations

import os
import posixpath
import stat
from typing import TYPE_CHECKING, Final

from ...core.errors import BloomsealError, Hint, UsageError
from ...core.storage.ref import FileRef
from ...core.storage.source import Source, refusal
from ..formats import METADATA_ENDINGS, begins_as_data, format_of, may_hold_data
from ..places import exists, open_source, resolve_path
from .kinds import (
    LOGS,
    MATERIAL_PREFIX,
    SIGNATURE_PREFIX,
    FileKind,
    FoundFile,
    Listing,
    NothingThereError,
    PlaceProblem,
    TableLayout,
    UnseenError,
    is_hidden,
    is_mark,
    kind_of,
    promises_data,
    table_of_log,
)
from .pattern import PathPattern

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_DELTA_LOG: Final = "_delta_log"


def real_root(folder: str) -> str:
    """A local folder as `refuse_outside` takes it: its real path, with a slash behind it."""
    return os.path.realpath(folder).rstrip("/") + "/"


def refuse_outside(source: Source, roots: tuple[str, ...]) -> None:
    """Act on a file only where it lies in its table, whatever its name leads to by now.

    Args:
        source: the open file. One on another file system passes: there are no links.
        roots: the table's folders, each as `real_root` gives it.

    Raises:
        UsageError: since the table was listed, a link out of it took the place of the file, or of a folder on the way.
    """
    real = source.real_path
    if real is not None and not real.startswith(roots):
        raise UsageError("the file lies outside the table now", file=source.ref.path, hint=Hint.FOLLOW_LINKS)


def refuse_outside_of(source: Source, folder: str) -> None:
    """As `refuse_outside`, of one folder by its name."""
    # An open file's real path has no link in it. Where it begins with the folder's name, that has none either, and is
    # real too: so nobody need look at each of its parts, for each file.
    real = source.real_path
    if real is not None and not real.startswith(f"{folder.rstrip('/')}/"):
        refuse_outside(source, (real_root(folder),))


def list_files(
    path: str | os.PathLike[str],
    filesystem: FileSystem | None = None,
    *,
    everything: bool = False,
    any_name: bool = False,
    follow_links: bool = False,
) -> Listing:
    """The files at one place, without opening those whose names say enough.

    Args:
        path: a file, taken whatever it is called; a folder, searched to any depth; or a pattern
            (``day=2024-*/*.parquet``, ``**`` for any folders), whose matches count as they would below the folder in
            front of it.
        everything: also files of every other `FileKind` that end as data does, and leftovers however they end.
        any_name: also files that are not hidden, whatever they are: what Spark reads.
        follow_links: follow links that lead out of the folder. Links inside it lead to the same files again.

    Raises:
        NothingThereError: nothing there.
    """
    ref = resolve_path(path, filesystem)
    base, pattern = PathPattern.split(ref.path)
    if pattern is not None and not exists(ref):
        ref = FileRef(base, ref.filesystem)
    else:
        pattern = None
    walk = _Walk(ref, everything, any_name, follow_links, pattern)
    if ref.filesystem is None:
        walk.local()
    else:
        walk.remote()
    if pattern is not None and not (walk.listing.files or walk.listing.problems):
        raise NothingThereError(
            "nothing matches the pattern", file=os.fspath(path), hint="files named *.parquet or *.orc"
        )
    return walk.listing


class _Walk:
    """One pass over a place.

    Real folders come before links, and visible names before hidden ones: a file is found under the name that says
    most about it.
    """

    def __init__(
        self, ref: FileRef, everything: bool, any_name: bool, follow_links: bool, pattern: PathPattern | None
    ) -> None:
        self.listing = Listing()
        self._ref = ref
        self._everything = everything
        self._named = (FileKind.DATA, FileKind.OTHER) if any_name else (FileKind.DATA,)
        self._follow = follow_links
        self._pattern = pattern
        self._found: dict[str, FoundFile] = {}
        self._logs: list[tuple[str, str, FileKind, FileRef]] = []

    def local(self) -> None:
        """A place on this machine."""
        path = self._ref.path
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except OSError as error:
            raise _unseen("can't read the file", self._ref.path, error) from error
        if not stat.S_ISDIR(mode):
            self.listing.files = [FoundFile(self._ref, posixpath.basename(path), FileKind.DATA)]
            return
        self.listing.root = FileRef(path)
        self._real_root = os.path.realpath(path)
        self._visited: set[str] = set()
        waiting: tuple[list[tuple[str, str, str]], ...] = ([("", path, self._real_root)], [], [])
        self._visible, self._linked, self._concealed = waiting
        while folders := next((stack for stack in waiting if stack), None):
            relative, folder, real = folders.pop()
            # Each real folder once: links between folders would otherwise lead to each in a factorial number of ways.
            if real not in self._visited:
                self._visited.add(real)
                self._folder(relative, folder, real)
        self._done()

    def _folder(self, relative: str, folder: str, real: str) -> None:
        try:
            with os.scandir(folder) as inside:
                entries = sorted(inside, key=lambda entry: entry.name)
        except OSError as error:
            self._problem(folder, f"can't list the folder: {error.strerror}")
            return
        for entry in entries:
            name = f"{relative}/{entry.name}" if relative else entry.name
            self._mark(name)
            if entry.is_symlink():
                self._link(name, entry)
            elif entry.is_dir(follow_symlinks=False):
                self._below(name, entry.path, f"{real}/{entry.name}", self._visible)
            else:
                self._file(name, entry.path, f"{real}/{entry.name}", entry.is_file(follow_symlinks=False))

    def _below(self, name: str, path: str, real: str, stack: list[tuple[str, str, str]]) -> None:
        if self._pattern is not None and not self._pattern.may_lead(name):
            return
        if not is_hidden(name):
            stack.append((name, path, real))
        elif self._everything:
            self._concealed.append((name, path, real))

    def _link(self, name: str, entry: os.DirEntry[str]) -> None:
        if is_hidden(name) and not self._everything:
            return
        real = os.path.realpath(entry.path)
        try:
            mode = os.stat(real).st_mode  # noqa: PTH116
        except OSError as error:
            # A link to nothing holds nothing, but where its name promises data, somebody misses them.
            if kind_of(name) is FileKind.DATA or not isinstance(error, FileNotFoundError):
                self._problem(entry.path, f"a link that leads nowhere: {error.strerror}", name)
            else:
                self.listing.unsure.append(PlaceProblem(entry.path, f"a link that leads nowhere: {error.strerror}"))
            return
        if stat.S_ISDIR(mode):
            if self._leads_out(name, entry.path, real):
                return
            self._below(name, entry.path, real, self._linked)
        elif not (self._matters(name, real) and self._leads_out(name, entry.path, real)):
            self._file(name, entry.path, real, stat.S_ISREG(mode), link=True)

    def _leads_out(self, name: str, path: str, real: str) -> bool:
        if self._follow or real == self._real_root or real.startswith(self._real_root.rstrip("/") + "/"):
            return False
        if not is_hidden(name):
            self._problem(path, "a link that leads out of the table; it was not followed", name, leads_out=True)
        return True

    def _matters(self, name: str, path: str) -> bool:
        return kind_of(name) in self._named or (self._everything and self._ends_as_data(path) is not False)

    def _file(self, name: str, path: str, real: str, regular: bool, *, link: bool = False) -> None:
        if self._pattern is not None and not self._pattern.matches(name):
            return
        ref = FileRef(path, None, self._ref.path)
        kind = kind_of(name)
        if self._keep(name, kind, ref, regular):
            found = FoundFile(ref, name, kind)
            before = self._found.get(real)
            # Under its own name rather than a link's, as long as that one is not hidden.
            if before is None or (not link and found.kind is before.kind) or _RANK[found.kind] < _RANK[before.kind]:
                self._found[real] = found

    def remote(self) -> None:
        """A place on another file system, which lists it in one request as it sees fit."""
        from pyarrow.fs import FileSelector, FileType

        filesystem = self._ref.filesystem
        assert filesystem is not None  # noqa: S101
        try:
            info = filesystem.get_file_info(self._ref.path)
            if info.type is FileType.NotFound:
                raise NothingThereError("can't read the file: no such file", file=self._ref.path)
            if info.type is not FileType.Directory:
                self.listing.files = [FoundFile(self._ref, info.base_name, FileKind.DATA, info.size)]
                return
            entries = filesystem.get_file_info(FileSelector(self._ref.path, recursive=True))
        except (OSError, ValueError) as error:
            raise _unseen("can't list the folder", self._ref.path, error) from error
        self.listing.root = self._ref
        base = self._ref.path.rstrip("/") + "/" if self._ref.path else ""
        for one in sorted(entries, key=lambda entry: entry.path):
            name = one.path.removeprefix(base)
            self._mark(name)
            matched = self._pattern is None or self._pattern.matches(name)
            if one.type is FileType.Directory or not matched:
                continue
            ref = FileRef(one.path, filesystem, self._ref.path)
            kind = kind_of(name)
            if self._keep(name, kind, ref, one.type is FileType.File):
                self._found[one.path] = FoundFile(ref, name, kind, one.size)
        self._done()

    def _mark(self, name: str) -> None:
        """Remember the folder of a table with a log, and names that may hold values."""
        folder, _, last = name.rpartition("/")
        if "=" in last and self._everything:
            self.listing.named.append(posixpath.join(self._ref.path, name))
        parent, _, own = folder.rpartition("/")
        if last in LOGS and not is_hidden(folder):
            self.listing.tables[folder] = LOGS[last]
        elif last.endswith(METADATA_ENDINGS) and own == "metadata" and not is_hidden(parent):
            self.listing.tables[parent] = TableLayout.ICEBERG

    def _keep(self, name: str, kind: FileKind, ref: FileRef, regular: bool) -> bool:
        """Whether it is a file that was asked for. Key material and signatures are put aside."""
        last = posixpath.basename(name)
        aside = {MATERIAL_PREFIX: self.listing.sidecars, SIGNATURE_PREFIX: self.listing.signatures}
        kept = [these for prefix, these in aside.items() if last.startswith(prefix) and last.endswith(".json")]
        if material := bool(kept):
            kept[0].append(ref)
        elif kind in self._named:
            return True
        if not self._everything or not regular:
            self.listing.unread += [ref.path] if self._everything else []
            return False
        if kind is FileKind.LEFTOVER:
            return True  # its writer may have been killed half-way, and what there is may be plaintext
        if not name.endswith(".parquet") and (table := table_of_log(name)) is not None:
            # Thousands, and read as what they are where their table's log is. What that is, the whole listing tells.
            self._logs.append((table, name, kind, ref))
            return False
        return self._look(name, kind, ref, material=material)

    def _look(self, name: str, kind: FileKind, ref: FileRef, *, material: bool = False) -> bool:
        """Whether it is data, by its content. What else it is, or may be, is noted."""
        begun, why = False, None
        try:
            with open_source(ref.path, self._ref.filesystem) as source:
                whole = format_of(source) is not None
                other = not (whole or material or is_mark(name, source))
                if other:
                    begun, why = begins_as_data(source), may_hold_data(source)
        except BloomsealError:
            if self._ref.filesystem is None and not os.path.lexists(ref.path):
                self.listing.gone.append(ref.path)
            elif not material:
                self._problem(ref.path, "can't be read, so that nobody knows whether it is data", name)
            return False
        if whole and f"/{_DELTA_LOG}/" in f"/{posixpath.dirname(name)}/":
            # A log's own checkpoints are no data: sealed, they would end the table.
            self.listing.logged.append(ref)
            return False
        if not other:
            return whole
        if begun:
            self.listing.begun.append(FoundFile(ref, name, kind))
        else:
            self.listing.unread.append(ref.path)
        if promises_data(posixpath.basename(name)):
            why = "it does not end as Parquet or ORC does: it is unfinished, or broken off"
        if why is not None:
            self.listing.unsure.append(PlaceProblem(ref.path, why))
        return False

    def _ends_as_data(self, path: str) -> bool | None:
        """Whether the file ends as Parquet or ORC does. None where it can't be read."""
        try:
            with open_source(path, self._ref.filesystem) as source:
                return format_of(source) is not None
        except BloomsealError:
            return None if os.path.lexists(path) or self._ref.filesystem is not None else False  # gone meanwhile

    def _problem(self, path: str, why: str, name: str | None = None, *, leads_out: bool = False) -> None:
        if name is None or self._pattern is None or self._pattern.matches(name) or self._pattern.may_lead(name):
            self.listing.problems.append(PlaceProblem(path, why, leads_out))

    def _done(self) -> None:
        for table, name, kind, ref in self._logs:
            # In a backup, or in a hidden folder, nobody reads it as a log.
            if table not in self.listing.tables and self._look(name, kind, ref):
                self._found[ref.path] = FoundFile(ref, name, kind)
        self.listing.files = sorted(self._found.values(), key=lambda found: found.relative)
        self.listing.sidecars.sort(key=lambda ref: ref.path)
        self.listing.signatures.sort(key=lambda ref: ref.path)
        self.listing.logged.sort(key=lambda ref: ref.path)
        self.listing.unread.sort()


def _unseen(what: str, path: str, error: Exception) -> UsageError:
    told = refusal(what, path, error)
    kind = NothingThereError if isinstance(error, FileNotFoundError | NotADirectoryError) else UnseenError
    return kind(told.what, file=path, hint=told.hint)


_RANK: Final = {kind: rank for rank, kind in enumerate(FileKind)}
