"""A table's folder that files are written into: the files that it held before, and how they go.

Nothing is removed but those, each compared by inode with the one that was listed. No link is followed on the way; a
link to a file is removed itself, since left behind it would lead nowhere. That is why names are listed here, not the
files that they lead to, which `storage.discovery` tells.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import BloomsealError, Hint, UnsupportedError, UsageError
from ..core.storage.local import identity
from ..core.storage.ref import FileRef
from ..keytools.material.store import MaterialStore, tidy
from ..storage.atomic import fault_point, storage_errors
from ..storage.discovery.kinds import LOGS, FileKind, is_hidden, kind_of
from ..storage.folder import Folder
from ..storage.formats import METADATA_ENDINGS, format_of
from ..storage.objects import NO_MARKERS
from ..storage.places import FilePlace, open_source, resolve_path
from ..storage.replacement import temporary_name
from ..storage.signatures import signature_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class Existing(StrEnum):
    """What becomes of the files that are there."""

    ERROR = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"


class _Old(NamedTuple):
    relative: str
    identity: tuple[int, ...] | None


class TargetFolder:
    """The folder, as it was when this was made.

    Args:
        path: where; it need not be there.
        existing: what becomes of files that are there.

    Attributes:
        ref: where it is.

    Raises:
        UsageError: no folder; files where there may be none; a link to other files among those that are to go.
        UnsupportedError: a table whose log would not know of the new files.
        BloomsealError: it can't be listed.
    """

    def __init__(self, path: FilePlace, filesystem: FileSystem | None, existing: Existing) -> None:
        self.ref = resolve_path(path, filesystem)
        if not self.ref.named:
            raise UsageError("a dataset is written to a folder, not to a file object", hint="write_table")
        self._existing = existing
        self._made: list[str] = []
        self._old: list[_Old] = []
        with storage_errors("list the folder", self.ref.path):
            names = list(self._local() if self.ref.filesystem is None else self._remote())
        for relative, before in names:
            self._note(relative, before)

    @property
    def replaces(self) -> bool:
        """Files go when the new ones have come."""
        return bool(self._old)

    def _note(self, relative: str, before: tuple[int, ...] | None) -> None:
        parts = relative.split("/")
        if not LOGS.keys().isdisjoint(parts) or (parts[-2:-1] == ["metadata"] and relative.endswith(METADATA_ENDINGS)):
            raise UnsupportedError(
                "a table with a log, which would not know of files written into its folder", file=self.ref.path,
                hint="the library that keeps the log",
            )  # fmt: skip
        if is_hidden(relative):
            return
        if self._existing is Existing.ERROR:
            raise UsageError(
                f"the folder holds files already, such as {relative}", file=self.ref.path,
                hint=Hint.EXISTING,
            )  # fmt: skip
        if self._existing is Existing.OVERWRITE and self._is_data(relative):
            self._old.append(_Old(relative, before))

    def _is_data(self, relative: str) -> bool:
        """Would a reader take it? Spark's takes a file of any name."""
        if kind_of(relative) is FileKind.DATA:
            return True
        try:
            with open_source(self._at(relative)) as source:
                return format_of(source) is not None
        except BloomsealError:
            return False

    def _local(self) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        root = self.ref.path
        if not os.path.lexists(root):
            return
        if not os.path.isdir(root):  # noqa: PTH112
            raise UsageError("it is no folder", file=root)
        for folder, below, names in os.walk(root, onerror=_raised):
            # A dataset's files have names of their own, so that nobody else comes by to remove what a killed run has
            # left.
            if any(name.startswith(".") for name in names):
                tidy(folder)
            for name in (*below, *names):
                path = os.path.join(folder, name)  # noqa: PTH118
                relative = os.path.relpath(path, root)
                if name not in below:
                    with contextlib.suppress(FileNotFoundError):
                        yield relative, identity(os.lstat(path))
                elif name in LOGS:
                    yield relative, None
                elif os.path.islink(path) and self._existing is Existing.OVERWRITE:  # noqa: PTH114
                    raise UsageError(
                        "a link to a folder, whose files are the table's and would stay", file=path,
                        hint="remove the link, or write to a new folder",
                    )  # fmt: skip

    def _remote(self) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        from pyarrow.fs import FileSelector, FileType

        assert self.ref.filesystem is not None  # noqa: S101
        if self.ref.filesystem.get_file_info(self.ref.path).type is FileType.File:
            raise UsageError("it is no folder", file=self.ref.path)
        selector = FileSelector(self.ref.path, recursive=True, allow_not_found=True)
        base = "/" + self.ref.path.strip("/")
        for one in self.ref.filesystem.get_file_info(selector):
            if one.type is FileType.File:
                yield posixpath.relpath("/" + one.path.strip("/"), base), None

    def new(self, relative: str) -> FileRef:
        """The place of a new file, its folders made.

        Raises:
            UsageError: there is one of this name already, or a link lies in the place of a folder.
            BloomsealError: the storage failed.
        """
        ref = self._at(relative)
        self._make(posixpath.dirname(relative))
        if ref.filesystem is None:
            taken = os.path.lexists(ref.path)
        else:
            from pyarrow.fs import FileType

            with storage_errors("look for the file", ref.path):
                taken = ref.filesystem.get_file_info(ref.path).type is not FileType.NotFound
        if taken:
            raise UsageError("there is a file of this name already", file=ref.path, hint='file_name= with "{token}"')
        return replace(ref, fresh=True)

    def _make(self, relative: str) -> None:
        path = posixpath.join(self.ref.path, relative) if relative else self.ref.path
        with storage_errors("make the folder", path):
            if self.ref.filesystem is not None:
                if self.ref.filesystem.type_name not in NO_MARKERS:
                    self.ref.filesystem.create_dir(path, recursive=True)
                return
            path = self.ref.path
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)  # noqa: PTH103, PTH120
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)  # noqa: PTH102
                self._made.append(path)
            for part in filter(None, relative.split("/")):
                path = posixpath.join(path, part)
                try:
                    os.mkdir(path)  # noqa: PTH102
                    self._made.append(path)
                except FileExistsError:
                    if os.path.islink(path):  # noqa: PTH114
                        raise UsageError("a link lies in the place of a partition's folder", file=path) from None

    def abort(self) -> None:
        """Remove the folders that were made and hold nothing."""
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                os.rmdir(path)  # noqa: PTH106

    def remove_old(self) -> tuple[list[str], list[str]]:
        """Remove the files that were there, what belongs to them, and folders that hold nothing any more.

        Returns:
            Those that were removed; and those that somebody has exchanged meanwhile, which stay.

        Raises:
            BloomsealError: the storage failed; the others stay.
        """
        removed: list[str] = []
        kept: list[str] = []
        for old in self._old:
            path = posixpath.join(self.ref.path, old.relative)
            with storage_errors("remove the old file", path):
                gone = remove_data_file(self._at(old.relative), old.identity)
            (removed if gone else kept).append(path)
        for folder in sorted({posixpath.dirname(old.relative) for old in self._old}, reverse=True):
            self._remove_empty(folder)
        return removed, kept

    def _remove_empty(self, relative: str) -> None:
        while relative and self.ref.filesystem is None:
            above, name = posixpath.split(relative)
            try:
                with Folder.at(self.ref.path) as root, root.below(above) as here:
                    os.rmdir(name, dir_fd=here.fd)
            except OSError:
                return
            relative = above

    def _at(self, relative: str) -> FileRef:
        return FileRef(posixpath.join(self.ref.path, relative), self.ref.filesystem, self.ref.path)


def folder_of(ref: FileRef) -> Folder:
    """The folder of a file on this machine; below that of the table, where there is one, no link is followed.

    Raises:
        OSError: it can't be opened, or a link lies on the way.
    """
    top = os.path.dirname(os.path.abspath(ref.path))  # noqa: PTH100, PTH120
    with Folder.at(ref.root or top) as root:
        return root.below("" if ref.root is None else os.path.relpath(top, ref.root))


def remove_data_file(ref: FileRef, before: tuple[int, ...] | None) -> bool:
    """Remove a file of a table, and what belongs to it.

    Args:
        ref: as for `folder_of`.
        before: `identity` of the file that is meant, where it is on this machine.

    Returns:
        False: somebody has exchanged it meanwhile, and it stays.

    Raises:
        OSError: the storage failed.
    """
    material = MaterialStore(ref).path
    if ref.filesystem is not None:
        signature = signature_of(ref)
        ref.filesystem.delete_file(ref.path)
        for one in (material, *(() if signature is None else (signature.path,))):
            with contextlib.suppress(FileNotFoundError):
                ref.filesystem.delete_file(one)
        return True
    name = posixpath.basename(ref.path)
    with folder_of(ref) as here, here.locked(name):
        if (now := here.stat(name)) is None:
            return True
        if identity(now) != before:
            return False
        beside = posixpath.basename(material)
        signature = signature_of(ref)
        if here.stat(beside) is not None:
            # Not the file first: killed then, its material would stay for good. A temporary file is tidied.
            name, taken = temporary_name(name), name
            os.rename(taken, name, src_dir_fd=here.fd, dst_dir_fd=here.fd)
        for other in (f".{name}.crc", beside):
            here.remove(other)
        fault_point("removing")
        here.remove(name)
        if signature is not None:  # not before the file, which nobody reads without it
            here.remove(signature.name)
    return True


def _raised(error: OSError) -> None:
    raise error
