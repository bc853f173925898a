"""Random access to a file's bytes, wherever they are; every range is checked against the file's size first."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, NoReturn, Self

from ..errors import BloomsealError, FormatError, MissingFileError, UsageError
from .local import NO_NAME, NoRegularFileError, can_name, identity, open_regular, pread
from .ref import FileRef

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem, FileType

__all__ = [
    "Buffer",
    "FilePlace",
    "Scratch",
    "Source",
    "fresh",
    "is_object",
    "leased",
    "lend",
    "refusal",
    "resolve_path",
    "type_at",
]

Buffer = bytes | bytearray | memoryview

FilePlace = str | os.PathLike[str] | IO[bytes] | Buffer
"""A path or URI; a file object opened for bytes; to read from, also the bytes themselves."""

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

    @property
    def size(self) -> int:
        """Bytes that it holds on to."""
        return len(self._buffer)

    def take(self, length: int) -> memoryview:
        """`length` bytes, whose content is whatever was there before; good until the next `take`."""
        if len(self._buffer) < length:
            # A new one, not a longer one: somebody may still look at the old.
            self._buffer = fresh(length)
        return memoryview(self._buffer)[:length]


_KEPT: Final = 16 << 20
_lent = threading.local()
_left_behind: list[dict[int, Scratch]] = []


class _Held:
    """One thread's scratches. What a thread that ends leaves behind is the next one's, and nobody's else: threads of a
    caller's, as Polars has them, are new ones to Python whenever they call.
    """

    def __init__(self) -> None:
        try:
            self.scratches = _left_behind.pop()
        except IndexError:
            self.scratches = {}

    def __del__(self, behind: list[dict[int, Scratch]] = _left_behind, most: int = _KEPT) -> None:
        # By arguments: the module's names are gone when the interpreter ends.
        if not behind:
            behind.append({number: one for number, one in self.scratches.items() if one.size <= most})


def lend(number: int) -> Scratch:
    """This thread's scratch of that number, which keeps up to 16 MiB from one use to the next.

    Whoever borrows it is done with it before anything else on the thread can borrow the same number.
    """
    if not hasattr(_lent, "held"):
        _lent.held = _Held()
    held: dict[int, Scratch] = _lent.held.scratches
    scratch = held.get(number)
    if scratch is None or scratch.size > _KEPT:
        scratch = held[number] = Scratch()
    return scratch


@contextlib.contextmanager
def leased(number: int) -> Iterator[Scratch]:
    """As `lend`, and nothing else on the thread can borrow it meanwhile: for uses in which a caller's code may run.

    A key retriever, which is asked at the first use of a key, may itself read.
    """
    scratch = lend(number)
    held: dict[int, Scratch] = _lent.held.scratches
    del held[number]
    try:
        yield scratch
    finally:
        held[number] = scratch


class Source:
    """A file opened for reading at positions; threads may share it.

    Obtain it with `Source.open` (local path, URI or any ``pyarrow.fs`` file system) or `Source.memory`.
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
    def open(cls, path: FilePlace | FileRef, filesystem: FileSystem | None = None) -> Source:
        """Open a file, see `resolve_path`.

        Raises:
            MissingFileError: there is no such file.
            UsageError: it can't be opened.
        """
        ref = path if isinstance(path, FileRef) else resolve_path(path, filesystem)
        try:
            if ref.filesystem is None:
                fd = open_regular(ref.path)
                return cls(ref, os.fstat(fd).st_size, partial(pread, fd), partial(os.close, fd), fd)
            if not ref.named:
                from .objects import plain_file

                if (plain := plain_file(ref.filesystem)) is not None:
                    return cls(ref, *plain, lambda: None)
            file = ref.filesystem.open_input_file(ref.path)
            return cls(ref, file.size(), lambda offset, length: file.read_at(length, offset), file.close)
        except (OSError, ValueError) as error:
            raise refusal("can't open the file", ref.path, error) from error

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


def is_object(value: object) -> bool:
    """Is it an open file, or bytes, rather than a path or several?"""
    return isinstance(value, bytes | bytearray | memoryview) or any(
        hasattr(value, name) for name in ("read", "write", "to_pybytes")
    )


def resolve_path(path: FilePlace | FileRef, filesystem: FileSystem | None = None) -> FileRef:
    """Where a file is: the one place that tells.

    Args:
        path: a path; a URI such as ``s3://bucket/key``, which pyarrow or else fsspec knows; an open file; or bytes.
        filesystem: of pyarrow or fsspec; None means local.

    Raises:
        UsageError: none of these, or a location that can't be opened.
    """
    if isinstance(path, FileRef):
        return path
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        if not is_object(path):
            kind = type(path).__name__
            hint = "with fsspec.open(...) as file" if kind == "OpenFile" else None
            raise UsageError(f"a path is a str or an os.PathLike of str, or an open binary file, not {kind}", hint=hint)
        from .objects import file_object

        own, name = file_object(path)
        if filesystem is not None:
            raise UsageError("a file object is on no file system", file=name, hint="filesystem=None")
        return FileRef(name, own, named=False)
    if filesystem is not None:
        from .objects import as_filesystem

        filesystem = as_filesystem(filesystem)
    elif "://" in text:
        from pyarrow.fs import FileSystem

        from .objects import TO_PYARROW, fsspec_location

        try:
            filesystem, text = fsspec_location(text) or FileSystem.from_uri(text)
        except (ValueError, OSError) as error:
            if isinstance(error, UsageError):
                raise
            if (scheme := text.partition("://")[0]) not in TO_PYARROW:
                what = f"no storage is known by the scheme {scheme}"
                raise UsageError(
                    what, file=text, hint="filesystem=, or pip install the library that fsspec asks"
                ) from error
            raise refusal("can't open the location", text, error) from error
    if getattr(filesystem, "type_name", None) == "local":
        # pyarrow's own local file system is local too, so that files are locked and renamed there.
        filesystem = None
    if filesystem is None and not can_name(text):
        raise UsageError(NO_NAME, file=text)
    return FileRef(text, filesystem)


def type_at(ref: FileRef) -> FileType:
    """What stands at a place on a file system that is not local.

    Raises:
        UsageError: nobody could look: not seen is not absent.
    """
    assert ref.filesystem is not None  # noqa: S101
    try:
        return ref.filesystem.get_file_info(ref.path).type
    except (OSError, ValueError) as error:
        raise refusal("can't look at the place", ref.path, error) from error


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
    known = isinstance(error, FileNotFoundError) or getattr(error, "errno", None)
    return None if known else "the storage's own message: __cause__, or --debug"
