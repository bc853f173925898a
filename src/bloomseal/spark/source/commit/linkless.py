"""A folder on this machine in which no link is followed, as a file system of pyarrow's.

Whoever may write to a table's folder can put a link there, or swap a folder for one between a check and its use. So
whatever is done is done within an open `Folder` below the root.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from ....storage.folder import Folder
from ....storage.replacement import replace

__all__ = ["LinklessFolder"]

_KINDS: Final = {stat.S_IFREG: FileType.File, stat.S_IFDIR: FileType.Directory}


class LinklessFolder(FileSystemHandler):  # type: ignore[misc]
    """The folder `root` and what is below it; other paths are refused. Links are neither files nor folders here, but
    `Unknown`.

    Args:
        root: absolute path.

    Raises:
        OSError: from every method; ELOOP where a link is in the way.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")

    @property
    def filesystem(self) -> PyFileSystem:
        """For whoever takes pyarrow's file systems."""
        return PyFileSystem(self)

    def replace(self, path: str, data: bytes) -> None:
        """Killed at any instant, it is the old file or the new one."""
        with self._parent(path) as (folder, name):
            replace(folder, name, data)

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Be alone with something in the folder, among those who ask; see `Folder.locked`."""
        with self._parent(path) as (folder, name), folder.locked(name):
            yield

    def remove_empty_folder(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder.fd)

    # As pyarrow calls them

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        found: list[FileInfo] = []
        waiting = [selector.base_dir]
        while waiting:
            path = waiting.pop()
            try:
                with self._opened(path) as folder, os.scandir(folder.fd) as entries:
                    inside = [_info(f"{path}/{_text(one.name)}", status) for one in entries if (status := _status(one))]
            except FileNotFoundError:
                if path == selector.base_dir and not selector.allow_not_found:
                    raise
                continue  # gone since its name was read
            found += inside
            if selector.recursive:
                waiting += [one.path for one in inside if one.type is FileType.Directory]
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        if recursive:
            os.makedirs(self._root, exist_ok=True)  # noqa: PTH103  # the way to the root is the caller's
            with Folder.at(self._root or "/") as root:
                root.below("/".join(self._parts(path)), make=True).close()
            return
        with self._parent(path) as (folder, name):
            folder.below(name, make=True).close()

    def delete_file(self, path: str) -> None:
        """Also a link; never its target."""
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder.fd)

    def delete_dir(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            # It follows no link either, and refuses one in the place of the folder.
            shutil.rmtree(name, dir_fd=folder.fd)

    def move(self, source: str, target: str) -> None:
        """A regular file only."""
        with self._parent(source) as (old, name), self._parent(target) as (new, wanted):
            if not stat.S_ISREG(os.stat(name, dir_fd=old.fd, follow_symlinks=False).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", source)
            os.rename(name, wanted, src_dir_fd=old.fd, dst_dir_fd=new.fd)

    def open_input_file(self, path: str) -> pa.NativeFile:
        with self._parent(path) as (folder, name):
            return pa.PythonFile(os.fdopen(folder.open(name), "rb"), mode="r")

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:  # noqa: ARG002
        """A new file; one that is there already is never opened, since it could be a second name of another one."""
        with self._parent(path) as (folder, name):
            file = folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            return pa.PythonFile(io.BufferedWriter(_Synced(file, "w"), 1 << 20), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def get_type_name(self) -> str:
        return "linkless"

    def normalize_path(self, path: str) -> str:
        return path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinklessFolder) and other._root == self._root

    __hash__ = None  # type: ignore[assignment]

    # Within open folders

    def _parts(self, path: str) -> list[str]:
        if path == (self._root or "/"):
            return []
        parts = path[len(self._root) + 1 :].split("/")
        if not path.startswith(f"{self._root}/") or any(part in ("", ".", "..") for part in parts):
            raise OSError(errno.EINVAL, "not a path below the table", path)
        return parts

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Folder]:
        with Folder.at(self._root or "/") as root, root.below("/".join(self._parts(path))) as folder:
            yield folder

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[Folder, str]]:
        """The open folder that something lies in, and its name there."""
        above, _, name = path.rpartition("/")
        if not self._parts(path):
            raise OSError(errno.EINVAL, "the table's folder itself", path)
        with self._opened(above or "/") as folder:
            yield folder, name

    def _info(self, path: str) -> FileInfo:
        try:
            if not self._parts(path):
                return _info(path, os.stat(path))  # noqa: PTH116
            with self._parent(path) as (folder, name):
                return _info(path, os.stat(name, dir_fd=folder.fd, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return FileInfo(path, FileType.NotFound)


class _Synced(io.FileIO):
    def close(self) -> None:
        try:
            if not self.closed:
                os.fsync(self.fileno())
        finally:
            super().close()


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        # Passed over, an overwrite would leave it.
        raise OSError(errno.EILSEQ, "a name below the table is not UTF-8") from None
    return name


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _info(path: str, status: os.stat_result) -> FileInfo:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), FileType.Unknown)
    size = status.st_size if kind is FileType.File else None
    return FileInfo(path, kind, mtime_ns=status.st_mtime_ns, size=size)
