"""Find the files of a rotation, keep a second rotation away from each, and notice a file that took another
one's place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..core.errors import BloomsealError, UsageError
from ..core.parquet.walk import Walk
from ..core.storage.local import identity
from ..core.storage.ref import FileRef
from ..core.storage.source import Source, refusal
from ..storage.atomic import identity_at
from ..storage.discovery import tables
from ..storage.discovery.kinds import FileKind, FoundFile, PlaceProblem, is_of_index
from ..storage.discovery.tables import Paths
from ..storage.folder import Folder
from ..storage.places import open_source, resolve_path
from ..table.folder import remove_data_file

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_END_BYTES: Final = 64


class ChangedError(BloomsealError):
    """Somebody else changed the file, or is changing it."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file.

    Attributes:
        ref: where it is.
        relative: its path below the folder that was named; its name where it was named itself.
        size: bytes.
        unseen: why nobody could look at it, so that nothing can be done with it.
        outside: why it is no file of the table, though it is Parquet and lies in its folder: dead to the log, or
            hidden. It is told, since an audit of all versions counts it; None for a file of the table.
    """

    ref: FileRef
    relative: str
    size: int
    unseen: PlaceProblem | None = None
    outside: FileKind | None = None

    @property
    def name(self) -> str:
        """How journal and report call it: its path, with the kind of file system in front of it unless that is
        local.
        """
        filesystem = self.ref.filesystem
        return self.ref.path if filesystem is None else f"{filesystem.type_name}:{self.ref.path}"

    def check(self) -> None:
        """Refuse what could not be looked at, so that the run does not call itself done.

        Raises:
            UsageError: it could not: a link that leads out of all places that were named, a folder that can't be
                listed.
        """
        if self.unseen is not None:
            raise UsageError(self.unseen.why, file=self.ref.path, hint=self.unseen.hint)


def find_files(
    paths: Paths,
    filesystem: FileSystem | None = None,
    *,
    follow_links: bool = False,
    indexes: bool = False,
    leftovers: bool = False,
    shown: Callable[[FileRef], Iterable[DataFile]] | None = None,
) -> list[DataFile]:
    """All files that a rotation is about, in the order of their names, each once, however many links lead to it.

    They are those of `bloomseal.storage.discovery.tables`: whatever a reader takes, and visible Parquet files of other
    names, which Spark reads. Of Delta and Iceberg tables the live ones are to be rotated, the dead ones are told; so
    are hidden Parquet files, and whatever could not be seen. An audit, and `may_destroy`, count no file that is not in
    this list.

    Args:
        follow_links: follow links, and logs, that lead out of a folder.
        indexes: also the files of the tables' sealed indexes.
        leftovers: tell temporary files too, which killed writers have left.
        shown: the files of an encrypted Iceberg table, which none but its engine changes; None: it is refused.

    Raises:
        UsageError: nothing at one of the paths; an encrypted Iceberg table.
        MissingDependencyError: a table without its library.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    # Absolute: the journal outlives the working directory.
    places = [path if filesystem or "://" in os.fspath(path) else os.path.abspath(path) for path in listed]  # noqa: PTH100
    found = tables.find_files(places, filesystem, everything=True, follow_links=follow_links)
    sealed = [place for place, log in found.logs.items() if log.sealed]
    if sealed and shown is None:  # whoever changes such files breaks the table
        raise UsageError(
            "an encrypted Iceberg table, whose files only the engine of its catalog changes",
            file=sealed[0],
            hint="a dry run under the table's policy, or an audit, shows which keys they hang from",
        )
    parts = [one for one in found.others if indexes and one.kind is FileKind.HIDDEN and is_of_index(one.relative)]
    files = [data for one in (*found.files, *parts) if (data := sized(one)) is not None]
    # Leftovers go with the next run on this machine.
    outside = (FileKind.DEAD, FileKind.HIDDEN, *((FileKind.LEFTOVER,) if leftovers else ()))
    others = [one for one in found.others if one.kind in outside and one not in parts]
    files += [replace(data, outside=one.kind) for one in others if (data := sized(one)) is not None]
    files += [DataFile(FileRef(one.path, filesystem), one.path, 0, one) for one in found.problems]
    if shown is not None:
        told = {one.name: one for place in sealed for one in shown(FileRef(place, filesystem))}
        files = [*({one.name: one for one in files} | told).values()]
    return sorted(files, key=lambda file: file.name)


def sized(found: FoundFile) -> DataFile | None:
    """The file with its size; None where it is gone meanwhile."""
    ref = found.ref
    try:
        if ref.filesystem is not None:
            return DataFile(ref, found.relative, ref.filesystem.get_file_info(ref.path).size or 0)
        return DataFile(ref, found.relative, os.stat(ref.path).st_size)  # noqa: PTH116
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # the latter of a name that a store's client does not take
        why = f"can't read the file: {getattr(error, 'strerror', None) or type(error).__name__}"
        return DataFile(ref, found.relative, 0, PlaceProblem(ref.path, why))


def mark_of(ref: FileRef) -> tuple[int, ...] | None:
    """What differs once another file stands in the place; None where there is none.

    Raises:
        BloomsealError: nobody could look.
    """
    try:
        if ref.filesystem is None:
            return identity_at(ref.path)
        info = ref.filesystem.get_file_info(ref.path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise BloomsealError(f"can't reach the file: {reason}", file=ref.path) from None
    return (info.size, info.mtime_ns or 0) if info.is_file else None


def need_unchanged(ref: FileRef, before: tuple[int, ...] | None) -> None:
    """A last look before another file is put in this one's place, where the storage can't compare and swap by itself.

    Raises:
        ChangedError: another file stands there than the one with this mark.
    """
    if mark_of(ref) != before:
        raise ChangedError("the file was changed by someone else meanwhile; it was left as it is", file=ref.path)


def remove_unchanged(ref: FileRef, before: tuple[int, ...] | None) -> bool:
    """As `remove_data_file`, of the file with this mark: a store can't compare and remove, so that it is asked just
    before. A link goes after the file that it leads to, since it would lead nowhere.
    """
    if ref.filesystem is not None:
        return now is None if (now := mark_of(ref)) != before else remove_data_file(ref, before)
    if not os.path.islink(ref.path):  # noqa: PTH114
        return remove_data_file(ref, before)
    link = identity(os.lstat(ref.path))
    folder, name = Folder.of(ref.path)
    folder.close()
    return remove_data_file(FileRef(os.path.join(folder.path, name)), before) and remove_data_file(ref, link)  # noqa: PTH118


class NewFile:
    """A file that is made anew.

    Args:
        old: what it is made of.
        place: where it goes.
    """

    def __init__(self, old: FileRef, place: FileRef) -> None:
        self.place = place
        self._old, self._before, self._end = old, mark_of(old), b""

    def accept(self, made: Walk) -> None:
        """A last look before it is put in its place. Raises ChangedError."""
        need_unchanged(self._old, self._before)
        self._end = _end_of(made.source)

    def is_there(self) -> bool:
        """Whether it is still in its place: no other encrypted file has the same end, where the footer's tag stands."""
        with open_source(self.place) as source:
            return _end_of(source) == self._end


def _end_of(source: Source) -> bytes:
    length = min(source.size, _END_BYTES)
    return bytes(source.read(source.size - length, length))


@contextlib.contextmanager
def in_turn(ref: FileRef, patience: float = 0, *, after_kill: bool = True) -> Iterator[tuple[int, ...] | None]:
    """Keep other rotations away from a local file. Object stores have no locks; there the mark is compared before the
    upload.

    Args:
        patience: seconds to wait for another rotation that is at work on it.
        after_kill: take the turn of a process that was killed meanwhile. It may have been a compaction, which has put
            the file's rows into another one.

    Yields:
        The file's mark, as `mark_of`.

    Raises:
        ChangedError: another rotation is at work on the file, or was killed.
    """
    if ref.filesystem is not None:
        yield mark_of(ref)
        return
    try:
        folder, name = Folder.of(ref.path, anyones_links=True)
    except OSError as error:
        raise refusal("can't read the file", ref.path, error) from error
    with folder, contextlib.ExitStack() as held:
        try:
            # Not the lock of the file's name: that one is for whoever gives it a new file, as this rotation will.
            left = held.enter_context(folder.locked(f"{name}.turn", patience=patience))
        except TimeoutError:
            raise ChangedError("another rotation is at work on the file; it was left as it is", file=ref.path) from None
        if left and not after_kill:
            raise ChangedError("whoever was at work on the file was killed: begin again", file=ref.path)
        if (status := folder.stat(name)) is None:
            missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise refusal("can't read the file", ref.path, missing) from missing
        yield identity(status)


def below(folder: str, file: DataFile) -> FileRef:
    """Where a file goes below an output folder."""
    root = resolve_path(folder, file.ref.filesystem)
    return replace(root, path=posixpath.join(root.path, file.relative), root=root.path)


def make_folder(target: FileRef) -> None:
    """The folder of an output."""
    folder = posixpath.dirname(target.path)
    try:
        if target.filesystem is None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        else:
            target.filesystem.create_dir(folder, recursive=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise BloomsealError(f"can't make the folder: {reason}", file=folder) from None
