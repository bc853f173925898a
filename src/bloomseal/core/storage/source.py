"""Random access to a file's bytes, wherever they are; every range is checked against the file's size first."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self

from ..errors import BloomsealError, FormatError, MissingFileError, UsageError
from .local import NoRegularFileError, identity
from .ref import FileRef

if TYPE_CHECKING:
    pass

Buffer = bytes | bytearray | memoryview

_NOT_TAKEN: Final = "the storage takes no such name (two slashes in a row), or the file was closed"
_PAGED: Final = 1 << 20


def fresh(size: int) -> bytearray | mmap.mmap:
    """New memory of that many bytes. A large one goes back to the system when it is dropped: the C library's allocator
    would keep up to 64 MiB of them for each thread.
    """
    if size < _PAGED:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Scratch:
    """Memory that one reader after another fills: fresh memory costs more than opening what is read into it."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer: bytearray | mmap.mmap = bytearray()

    def take(self, length: int) -> memoryview:
        """`length` bytes, whose content is whatever was there before; good until the next `take`."""
        if len(self._buffer) < length:
            # A new one, not a longer one: somebody may still look at the old.
            self._buffer = fresh(length)
        return memoryview(self._buffer)[:length]


class Source:
    """A file opened for reading at positions; threads may share it.

    Obtain it with `open_source` (local path, URI or any ``pyarrow.fs`` file system) or `Source.memory`.
    """

    __slots__ = ("_close", "_read", "fd", "ref", "size")

    def __init__(
        self,
        ref: FileRef,
        size: int,
        read: Callable[[int, int], Buffer],
        close: Callable[[], object],
        fd: int | None = None,
    ) -> None:
        self.ref = ref
        self.size = size
        self.fd = fd
        self._read = read
        self._close = close

    @property
    def name(self) -> str:
        """The path, as errors name it."""
        return self.ref.path

    @property
    def identity(self) -> tuple[int, ...] | None:
        """Tells the open file from another one put in its place meanwhile; None where the file system is not local.

        Raises:
            UsageError: the storage failed.
        """
        try:
            return None if self.fd is None else identity(os.fstat(self.fd))
        except OSError as error:
            raise refusal("can't look at the file", self.name, error) from error

    @property
    def real_path(self) -> str | None:
        """Where the open file lies, whatever its name leads to by now; None where the system does not tell."""
        if self.fd is None:
            return None
        try:
            if sys.platform == "darwin":
                return os.fsdecode(fcntl.fcntl(self.fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
            return os.readlink(f"/proc/self/fd/{self.fd}")  # noqa: PTH115
        except OSError:
            return None

    @classmethod
    def memory(cls, data: Buffer, name: str = "memory") -> Source:
        """A source over bytes in memory, without a copy."""
        view = memoryview(data).cast("B")
        return cls(FileRef(name), len(view), lambda offset, length: view[offset : offset + length], lambda: None)

    def read(self, offset: int, length: int) -> Buffer:
        """Exactly `length` bytes from `offset`.

        Raises:
            FormatError: the range reaches outside the file.
            BloomsealError: the storage failed.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise FormatError(
                f"{length} bytes at offset {offset} reach outside the file's {self.size} bytes: truncated or corrupt",
                file=self.name,
            )
        try:
            data = self._read(offset, length)
        except UsageError:  # of ours, which is a ValueError too
            raise
        except (OSError, ValueError) as error:
            raise BloomsealError(
                f"can't read the file: {_reason(error)}", file=self.name, hint=_where_said(error)
            ) from error
        if len(data) != length:
            raise FormatError("the file became shorter while it was read", file=self.name)
        return data

    def hold_end(self, length: int) -> None:
        """Read the last `length` bytes in one request, and serve what lies in them from memory from now on.

        Raises:
            BloomsealError: the storage failed.
        """
        begin, read = max(self.size - length, 0), self._read
        held = memoryview(self.read(begin, self.size - begin))
        self._read = lambda offset, length: (
            held[offset - begin : offset - begin + length] if offset >= begin else read(offset, length)
        )

    def read_into(self, scratch: Scratch, offset: int, length: int) -> memoryview:
        """As `read`, with the bytes in `scratch` where that saves fresh memory."""
        fd = self.fd  # another thread may close the file
        if fd is None or not hasattr(os, "preadv") or not 0 <= offset <= offset + length <= self.size:
            return memoryview(self.read(offset, length))
        out = scratch.take(length)
        try:
            done = os.preadv(fd, [out], offset)
        except OSError as error:
            raise BloomsealError(
                f"can't read the file: {_reason(error)}", file=self.name, hint=_where_said(error)
            ) from error
        # The kernel hands out at most 2 GiB at a time.
        return out if done == length else memoryview(self.read(offset, length))

    def close(self) -> None:
        # The descriptor's number is soon another file's, whose bytes nobody here asks for.
        close, self._close, self._read, self.fd = self._close, lambda: None, _closed, None
        close()

    def __reduce__(self) -> NoReturn:
        # Two that close one descriptor: the second time it is another file's.
        raise TypeError("an open file is neither copied nor pickled")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A user who never closes must not run out of file descriptors.
        if hasattr(self, "_close"):
            self.close()


def _closed(*_: int) -> NoReturn:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def refusal(what: str, path: str, error: Exception) -> UsageError:
    """The error for a path that storage refuses; a MissingFileError where nothing is there."""
    if isinstance(error, UsageError) and not isinstance(error, OSError):
        return error
    kind = MissingFileError if isinstance(error, FileNotFoundError) else UsageError
    return kind(f"{what}: {_reason(error)}", file=path, hint=_where_said(error))


def _reason(error: Exception) -> str:
    if isinstance(error, NoRegularFileError):
        return str(error.strerror)
    # By the number where there is one: Arrow's texts name paths, and more.
    number = errno.ENOENT if isinstance(error, FileNotFoundError) else getattr(error, "errno", None)
    return os.strerror(number) if number else _NOT_TAKEN if isinstance(error, ValueError) else type(error).__name__


def _where_said(error: Exception) -> str | None:
    """The place of a store's own message, which is not repeated: it may quote addresses, and secrets in them."""
    if isinstance(error, IsADirectoryError):
        return "open_table, which takes folders"
    known = isinstance(error, FileNotFoundError) or getattr(error, "errno", None)
    return None if known else "the storage's own message: __cause__, or --debug"
