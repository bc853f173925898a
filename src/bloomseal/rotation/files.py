"""Find the files of a rotation, keep a second rotation away from each, and notice a file that took another one's place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import BloomsealError
from ..storage.atomic import identity_at
from ..storage.ref import FileRef
from ..storage.source import refusal, resolve_path, walk_tree

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["ChangedError", "DataFile", "find_files", "in_turn", "mark_of", "place_of"]

_ENDINGS: Final = (".parquet", ".parq", ".pq", ".parquet.encrypted")


class ChangedError(BloomsealError):
    """Somebody else changed the file, or is changing it."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file.

    Attributes:
        ref: where it is.
        relative: its path below the folder that was named; its name where it was named itself.
        size: bytes.
    """

    ref: FileRef
    relative: str
    size: int

    @property
    def name(self) -> str:
        """How journal and report call it: its path, with the kind of file system in front of it unless that is local."""
        filesystem = self.ref.filesystem
        return self.ref.path if filesystem is None else f"{filesystem.type_name}:{self.ref.path}"

    @property
    def is_link(self) -> bool:
        """Is it a symbolic link to the file?"""
        return self.ref.filesystem is None and os.path.islink(self.ref.path)  # noqa: PTH114


def find_files(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str], filesystem: FileSystem | None = None
) -> list[DataFile]:
    """All Parquet files at `paths`, in the order of their names, each once, however many links lead to it.

    A file that is named itself is taken whatever it is called. In folders, at any depth, those that end in ``.parquet``,
    ``.parq``, ``.pq`` or ``.parquet.encrypted`` are; names that begin with ``_`` or ``.`` are left out, as Spark does
    (Hive's ``column=value`` folders are not). Links to folders are followed.

    Raises:
        UsageError: nothing at one of the paths.
    """
    found: dict[str, DataFile] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        ref = place_of(path, filesystem)
        for file in _local(ref.path) if ref.filesystem is None else _remote(ref):
            found.setdefault(file.name, file)
    # A file and the symbolic links to it are one: it is done under its own name, beside which its key material is.
    own: dict[str, DataFile] = {}
    real = {name: os.path.realpath(name) if file.ref.filesystem is None else name for name, file in found.items()}
    for name, file in sorted(found.items(), key=lambda item: (item[1].is_link, real[item[0]] != item[0], item[0])):
        own.setdefault(real[name], file)
    return sorted(own.values(), key=lambda file: file.name)


def place_of(path: str | os.PathLike[str], filesystem: FileSystem | None) -> FileRef:
    """As `resolve_path`; pyarrow's own local file system is local too, so that files are locked and renamed there."""
    ref = resolve_path(path, filesystem)
    if ref.filesystem is not None and ref.filesystem.type_name == "local":
        return FileRef(ref.path)
    return ref


def _local(path: str) -> Iterator[DataFile]:
    path = os.path.abspath(path)  # noqa: PTH100  # the journal outlives the working directory
    if not os.path.isdir(path):  # noqa: PTH112
        try:
            size = os.stat(path).st_size  # noqa: PTH116
        except OSError as error:
            raise refusal("can't read the file", path, error) from error
        yield DataFile(FileRef(path), posixpath.basename(path), size)
        return

    def refused(error: OSError) -> None:
        # A folder that can't be listed may hold files that would then be missed in silence.
        raise refusal("can't list the folder", error.filename, error) from error

    for folder, folders, names in walk_tree(path, refused):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        for name in names:
            if _is_data(name):
                full = posixpath.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    yield DataFile(FileRef(full), os.path.relpath(full, path), os.stat(full).st_size)  # noqa: PTH116


def _remote(ref: FileRef) -> Iterator[DataFile]:
    from pyarrow.fs import FileSelector, FileType

    assert ref.filesystem is not None  # noqa: S101
    try:
        info = ref.filesystem.get_file_info(ref.path)
        if info.type is FileType.File:
            yield DataFile(ref, info.base_name, info.size)
            return
        if info.type is FileType.NotFound:
            raise FileNotFoundError
        below = ref.filesystem.get_file_info(FileSelector(ref.path, recursive=True))
    except OSError as error:
        raise refusal("can't list the folder", ref.path, error) from error
    for one in below:
        relative = posixpath.relpath(one.path, ref.path)
        *folders, name = relative.split("/")
        if one.type is FileType.File and _is_data(name) and not any(map(_is_hidden, folders)):
            yield DataFile(FileRef(one.path, ref.filesystem), relative, one.size)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_")) and "=" not in name


def _is_data(name: str) -> bool:
    return name.endswith(_ENDINGS) and not _is_hidden(name)


def mark_of(ref: FileRef) -> tuple[int, ...] | None:
    """What differs once another file stands in the place; None where there is none."""
    if ref.filesystem is None:
        return identity_at(ref.path)
    try:
        info = ref.filesystem.get_file_info(ref.path)
    except OSError as error:
        raise BloomsealError(f"can't reach the file: {type(error).__name__}", file=ref.path) from None
    return (info.size, info.mtime_ns or 0) if info.is_file else None


@contextlib.contextmanager
def in_turn(ref: FileRef) -> Iterator[None]:
    """Keep other rotations away from a local file. Object stores have no locks; there the mark is compared before the upload.

    Raises:
        ChangedError: another rotation is at work on the file, or has just replaced it.
    """
    if ref.filesystem is not None:
        yield
        return
    try:
        fd = os.open(ref.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise refusal("can't read the file", ref.path, error) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ChangedError("another rotation is at work on the file; it was left as it is", file=ref.path) from None
        # The lock may have been waiting on a file that had lost its name by then.
        mine = os.fstat(fd)
        if (mark := identity_at(ref.path)) is None or mark[:2] != (mine.st_dev, mine.st_ino):
            raise ChangedError("the file was replaced by someone else just now; it was left as it is", file=ref.path)
        yield
    finally:
        os.close(fd)
