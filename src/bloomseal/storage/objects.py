"""An open file or bytes in memory as a file system of one file; fsspec's file systems as pyarrow's."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import posixpath
import stat
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystem, FileSystemHandler, FileType, FSSpecHandler, PyFileSystem

from .._uninterrupted import uninterrupted
from ..core.errors import UsageError
from ..core.forked import new_lock
from ..core.storage.local import pread
from .replacement import temporary_name

TO_PYARROW: Final = frozenset({"file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "mock"})
NO_MARKERS: Final = ("s3", "gcs", "abfs")
"""Stores without folders: an empty object in the place of one serves nobody."""
_PIECE_BYTES: Final = 1 << 20
_turn: Final = new_lock()
"""Whoever moves a file object's position: to seek and to read are two steps, and two readers may share one object."""


def as_filesystem(value: Any) -> FileSystem:
    """A file system of pyarrow, or of fsspec, as one of pyarrow.

    Raises:
        UsageError: neither.
    """
    if isinstance(value, FileSystem):
        return value
    abstract = getattr(sys.modules.get("fsspec"), "AbstractFileSystem", None)
    if abstract is None or not isinstance(value, abstract):
        raise UsageError(f"filesystem= takes one of pyarrow.fs or of fsspec, not {type(value).__name__}")
    protocols = (value.protocol,) if isinstance(value.protocol, str) else value.protocol
    if "file" in protocols:
        from pyarrow.fs import LocalFileSystem

        # Files of this machine are locked and renamed, which fsspec can't.
        return LocalFileSystem()
    return PyFileSystem(FSSpecHandler(value))


def abstract_filesystem(filesystem: FileSystem) -> Any:
    """The file system of fsspec that pyarrow was given; None where it is none."""
    return getattr(getattr(filesystem, "handler", None), "fs", None)


def fsspec_location(uri: str) -> tuple[FileSystem, str] | None:
    """The file system and path of a URI that only fsspec knows; None where it does not, or is not installed.

    Raises:
        UsageError: fsspec knows the scheme, and can't open it.
    """
    scheme = uri.partition("://")[0]
    if scheme in TO_PYARROW:
        return None
    try:
        import fsspec
    except ImportError:
        return None
    if scheme not in fsspec.available_protocols():
        return None
    try:
        filesystem, path = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise UsageError(f"can't open the location: {error}", file=uri) from None
    except (ValueError, OSError) as error:
        raise UsageError(f"can't open the location: {type(error).__name__}", file=uri) from None
    return as_filesystem(filesystem), path


def put(filesystem: FileSystem, path: str, data: Any) -> None:
    """Send a whole object to its place.

    A stream of Arrow's or fsspec's can only be closed, and dropped it closes itself: the object is then complete, with
    whatever it has. So nothing may break in between: an interrupt (Ctrl-C) is raised after it. A stream that fails does
    not complete.

    Args:
        data: bytes, or a map of a file.

    Raises:
        OSError: the storage failed. Unless it did so at the very end, the old object is there.
    """
    abstract = abstract_filesystem(filesystem)
    if isinstance(filesystem, PyFileSystem) and abstract is None:
        _send(filesystem.open_output_stream(path), data)  # the caller's own object, and it may be bound to his thread
        return

    def send() -> None:
        if abstract is None:
            _send(filesystem.open_output_stream(path), data)
        else:
            _send_to_fsspec(abstract.open(path, "wb"), data)

    uninterrupted(send)


def put_in_place(filesystem: FileSystem, path: str, data: bytes) -> None:
    """As `replacement.replace`, elsewhere: an object appears when its upload is complete, another file by a rename.

    Raises:
        OSError: the storage failed. Unless it did so at the very end, the old file is there.
    """
    if filesystem.type_name in NO_MARKERS:
        put(filesystem, path, data)
        return
    folder, name = posixpath.split(path)
    new = posixpath.join(folder, temporary_name(name))
    try:
        put(filesystem, new, data)
        filesystem.move(new, path)
    except BaseException:
        # Its name is another one each time: nobody would write over it.
        with contextlib.suppress(OSError, ValueError):
            filesystem.delete_file(new)
        raise


def _send(stream: Any, data: Any) -> None:
    with stream, memoryview(data) as view:
        for start in range(0, len(view), _PIECE_BYTES):
            stream.write(view[start : start + _PIECE_BYTES])


def _send_to_fsspec(stream: Any, data: Any) -> None:
    try:
        with memoryview(data) as view:
            for start in range(0, len(view), _PIECE_BYTES):
                stream.write(view[start : start + _PIECE_BYTES])
    except BaseException:
        with contextlib.suppress(Exception):
            stream.discard()
        with contextlib.suppress(AttributeError):
            stream.closed = True  # it would close itself, and complete the object
        raise
    stream.close()


def file_object(value: Any) -> tuple[FileSystem, str]:
    """An open file or bytes (`is_object`) as the one file of a file system, and its name there.

    Raises:
        UsageError: a file opened as text, or closed.
    """
    name = f"<{type(value).__name__}>"
    if isinstance(value, bytes | bytearray | memoryview | pa.Buffer):
        value = pa.BufferReader(value)
    if isinstance(value, io.TextIOBase):
        raise UsageError("a file object opened as text", file=name, hint="open it in binary mode: 'rb' or 'wb'")
    if getattr(value, "closed", False):
        raise UsageError("the file object is closed", file=name)
    return PyFileSystem(_OneFile(value, name)), name


def plain_file(filesystem: FileSystem) -> tuple[int, Callable[[int, int], bytes]] | None:
    """The size of a file object, and how to read at places in it, where it is a file of Python's own that is open to
    read alone: neither position nor lock is then shared with a forked child.

    Raises:
        OSError: it is closed.
    """
    value = getattr(getattr(filesystem, "handler", None), "value", None)
    raw = value.raw if type(value) is io.BufferedReader else value
    if type(raw) is not io.FileIO or raw.writable() or not stat.S_ISREG((status := os.fstat(raw.fileno())).st_mode):
        return None

    def read(offset: int, length: int) -> bytes:
        if raw.closed:
            raise OSError(errno.EBADF, "the file object is closed")
        return pread(raw.fileno(), offset, length)

    return status.st_size, read


def need_empty(filesystem: FileSystem) -> None:
    """Before a file object is written to: it must be able to take bytes, and hold none.

    Raises:
        UsageError: it is not open to write, or holds bytes. A file that does not begin or end where the object does
            can't be read; and to replace one in its place leaves no old file to go back to.
    """
    handler = getattr(filesystem, "handler", None)
    if isinstance(handler, _OneFile):
        handler.need_empty()


class _OneFile(FileSystemHandler):  # type: ignore[misc]
    """A file system whose one file is an object of the caller's, who alone closes it.

    Args:
        value: with read and seek, or write.
        name: what the file is called.
    """

    def __init__(self, value: Any, name: str) -> None:
        self._value = value
        self._name = name

    @property
    def value(self) -> Any:
        return self._value

    def need_empty(self) -> None:
        value = self._value
        if not hasattr(value, "write") or not getattr(value, "writable", lambda: True)():
            raise UsageError("the file object is not open to write", file=self._name, hint="open(path, 'wb')")
        if getattr(value, "seekable", lambda: False)() and self._size():
            raise UsageError(
                "the file object holds bytes already", file=self._name, hint="an empty one; seek(0), then truncate()"
            )

    def get_type_name(self) -> str:
        return "file object"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [
            FileInfo(path, FileType.File, size=self._size())
            if path == self._name
            else FileInfo(path, FileType.NotFound)
            for path in paths
        ]

    def open_input_file(self, path: str) -> pa.PythonFile:
        self._need_own(path)
        value = self._value
        if not (hasattr(value, "read") and hasattr(value, "seek") and getattr(value, "readable", lambda: True)()):
            raise UsageError("the file object is not open to read", file=self._name, hint="open(path, 'rb')")
        return pa.PythonFile(_ObjectReader(self._value, self._name), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:  # noqa: ARG002  # files have none
        self._need_own(path, writing=True)
        return pa.PythonFile(_ObjectWriter(self._value), mode="w")

    def _need_own(self, path: str, *, writing: bool = False) -> None:
        if path == self._name:
            return
        if writing:
            raise OSError(0, "a file object has no folder for key material beside it; keep it in the file")
        raise FileNotFoundError(path)

    def _size(self) -> int:
        with _turn:
            before = self._value.tell()
            size = self._value.seek(0, io.SEEK_END)
            size = self._value.tell() if size is None else size
            self._value.seek(before)
        return int(size)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError(0, "a file object is one file")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_append_stream = get_file_info_selector = _refuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OneFile) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


class _ObjectReader:
    """A position of its own in a file object."""

    closed = False

    def __init__(self, value: Any, name: str) -> None:
        self._value, self._name = value, name
        self._position, self._owner = 0, os.getpid()

    def read(self, length: int = -1) -> Any:
        with _turn:
            self._move(self._position)
            data = self._value.read(length)
        self._position += len(data)
        return data

    def _move(self, *place: int) -> None:
        if self._owner != os.getpid() and _has_descriptor(self._value):
            raise UsageError(
                "the file object's position is also the parent process's",
                file=self._name,
                hint="open the file in each process",
            )
        self._value.seek(*place)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            with _turn:
                self._move(offset, io.SEEK_END)
                offset = self._value.tell()
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """It is the caller's."""


class _ObjectWriter:
    """The file object's end: all bytes, or an error."""

    closed = False

    def __init__(self, value: Any) -> None:
        self._value = value

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        while rest:
            done = self._value.write(rest)
            if done is None and isinstance(self._value, io.RawIOBase):
                raise BlockingIOError("the file object would block")
            # Those that are no files of io's need not say how much they took.
            rest = rest[done if isinstance(done, int) else len(rest) :]
        return len(data)

    def tell(self) -> int:
        return 0

    def flush(self) -> None:
        flush: Callable[[], object] = getattr(self._value, "flush", lambda: None)
        flush()

    def close(self) -> None:
        self.flush()


def _has_descriptor(value: Any) -> bool:
    try:
        return isinstance(value.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False
