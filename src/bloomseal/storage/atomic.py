"""Write aside, sync, check, rename: at every instant a path holds the old file or the new one.

`AtomicFile` is for data files, `replace_durably` for small ones; both are an `Aside` that takes a name. Object stores
and file objects have no rename: there the new file is assembled in an anonymous local temporary file, checked, and then
sent to its final place in one go.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from ..errors import BloomsealError, UsageError
from .aside import Aside
from .baton import waiting
from .local import NO_NAME, can_name, identity, open_regular, pread
from .places import type_at
from .ref import FileRef
from .source import Buffer, Scratch, Source

__all__ = [
    "AtomicFile",
    "Output",
    "fault_point",
    "final_place",
    "identity_at",
    "replace_durably",
    "storage_errors",
]

_COPY_BYTES = 1 << 20
_ALIGNED_BYTES = 256 << 10
_WRITEBACK_BYTES = 8 << 20
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def fault_point(name: str) -> None:
    """Die here by SIGKILL when the environment says so: the crash tests' way to stop at a named instant."""
    if os.environ.get("BLOOMSEAL_FAULT_POINT") == name:
        os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def storage_errors(what: str, path: str) -> Iterator[None]:
    """Errors of the operating system become ours; its own messages may name other paths."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError) and not isinstance(error, OSError):
            raise
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise BloomsealError(f"can't {what}: {reason}", file=path) from error


class Output(Protocol):
    """Where a new file's bytes go, in order."""

    def write(self, data: Buffer) -> None:
        """Append."""

    def take(self, length: int) -> memoryview:
        """Room for the next `length` bytes, to be filled before anything else is written."""


class AtomicFile:
    """A new file that takes its name only by `commit`; leaving the ``with`` block without it leaves no trace.

    Args:
        ref: the final place.
        replaces: the file's identity as it was read (`Source.identity`); if it differs at commit, someone else has
            changed the file meanwhile and nothing is replaced.
        like: the file that the new one is made from. Where both are local, nobody may read the new one who may not read
            that.

    Attributes:
        placed: the final place may hold the new file. What the file needs must stay from then on, whatever fails.

    Raises:
        UsageError: the folder can't be written to, or the final place holds a folder, a pipe or a device.
    """

    def __init__(self, ref: FileRef, *, replaces: tuple[int, ...] | None = None, like: Source | None = None) -> None:
        self._ref = ref
        self._replaces = replaces
        self._uploaded = False
        self._aside: Aside | None = None
        self._spool: IO[bytes] | None = None
        self._gathered = bytearray(_COPY_BYTES)
        self._length = 0
        self._written = self._sent = 0
        if ref.filesystem is not None:
            from .objects import need_empty

            need_empty(ref.filesystem)
            import tempfile  # takes longer to load than a small file to write

            self._spool = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed by commit or abort
            self._fd = self._spool.fileno()
            return
        # A link stays a link: what it points to is replaced. But nobody has named a new file of a table, and whoever
        # writes to the table's folder may know its name: a link there is replaced itself.
        if ref.path.endswith(os.sep):
            raise UsageError("the output is a folder", file=ref.path, hint="a file's name in it")
        self._target = final_place(ref.path) if ref.root is None or replaces is not None else own_place(ref.path)
        try:
            self._aside = Aside(self._target, like=None if like is None else like.fd)
            self._fd = self._aside.fd
        except OSError as error:
            hint = "a file's name in it" if isinstance(error, IsADirectoryError) else None
            raise UsageError(f"can't write beside the file: {error.strerror}", file=ref.path, hint=hint) from error
        except BloomsealError as error:
            raise error.at(file=ref.path) from None

    @property
    def placed(self) -> bool:
        """The final place may hold the new file."""
        return self._uploaded if self._aside is None else self._aside.placed

    def takes_a_place(self) -> bool:
        """May there be something at the final place that `commit` would replace? Where nobody can look there may: not
        seen is not absent.
        """
        if self._aside is not None:
            return os.path.lexists(self._target)
        if not self._ref.named:
            return False  # an object of the caller's, which is empty
        from pyarrow.fs import FileType

        try:
            return type_at(self._ref) is not FileType.NotFound
        except UsageError:
            return True

    def write(self, data: Buffer) -> None:
        """Append.

        Raises:
            BloomsealError: the storage failed (disk full); the old file stays.
        """
        if len(data) < _COPY_BYTES:
            self.take(len(data))[:] = data
        else:
            self._flush()
            self._send(memoryview(data))

    def take(self, length: int) -> memoryview:
        """Room for the next `length` bytes, to be filled before anything else is written: sealing into it saves a copy.

        Raises:
            BloomsealError: the storage failed (disk full); the old file stays.
        """
        if self._length + length > len(self._gathered):
            self._flush_aligned()
            if self._length + length > len(self._gathered):
                self._gathered = self._gathered[: self._length].ljust(self._length + length)
        begin, self._length = self._length, self._length + length
        return memoryview(self._gathered)[begin : self._length]

    def zero(self, offset: int, length: int) -> None:
        """Overwrite a range that was already written."""
        self._flush()
        end, self._written = self._written, offset
        for done in range(0, length, _COPY_BYTES):
            self._send(memoryview(bytes(min(length - done, _COPY_BYTES))))
        self._written = end

    def copy_from(self, source: Source, length: int) -> None:
        """Append the first `length` bytes of `source`; within local file systems the kernel copies."""
        self._flush()
        if source.fd is not None and self._ref.filesystem is None:
            with storage_errors("copy the file", self._ref.path):
                self._kernel_copy(source.fd, length)
        scratch = Scratch()
        while self._written < length:
            self._send(source.read_into(scratch, self._written, min(_COPY_BYTES, length - self._written)))

    def _kernel_copy(self, original: int, length: int) -> None:
        """As far as the kernel can; the rest is for the caller."""
        copy: Any = getattr(os, "copy_file_range", None)
        while copy and self._written < length:
            piece, begin = min(length - self._written, _WRITEBACK_BYTES), self._written
            try:
                done = copy(original, self._fd, piece, begin, begin)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                return
            if done == 0:
                return
            self._written += done
            self._begin_to_sync()

    def _flush(self) -> None:
        length, self._length = self._length, 0
        self._send(memoryview(self._gathered)[:length])

    def _flush_aligned(self) -> None:
        """Send up to a round position, where the kernel caches large pieces whole: it fills, reads and frees those
        faster.
        """
        length, whole = self._length, self._length - (self._written + self._length) % _ALIGNED_BYTES
        if whole <= 0:
            return
        self._send(memoryview(self._gathered)[:whole])
        self._length = length - whole
        self._gathered[: self._length] = self._gathered[whole:length]

    def _send(self, data: memoryview) -> None:
        with storage_errors("write", self._ref.path):
            while len(data):
                done = os.pwrite(self._fd, data, self._written)
                data, self._written = data[done:], self._written + done
            self._begin_to_sync()

    def _begin_to_sync(self) -> None:
        """The disk begins with what it has while the rest is made, so that the sync at the end is short. Pages that are
        on their way stay cached.
        """
        if self._written - self._sent >= _WRITEBACK_BYTES and hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, self._sent, self._written - self._sent, os.POSIX_FADV_DONTNEED)
            self._sent = self._written

    def commit(self, check: Callable[[Source], None]) -> None:
        """Sync, reopen for `check`, and rename into place.

        Raises:
            BloomsealError: what `check` raises; the file was changed by someone else meanwhile; the storage failed.
                Where the storage failed after the rename, the new file is there, and `placed` says so.
        """
        self._flush()
        # A disk that is full often says so only now.
        with storage_errors("write", self._ref.path):
            if self._aside is None:
                self._upload(check)
            else:
                self._rename(self._aside, check)
        self._close()

    def _rename(self, aside: Aside, check: Callable[[Source], None]) -> None:
        fault_point("written")
        with waiting():
            os.fsync(self._fd)
        fault_point("synced")
        check(self._as_written(self._fd))
        fault_point("checked")
        try:
            aside.place(replaces=self._replaces)
        except BloomsealError as error:
            raise error.at(file=self._ref.path) from None
        fault_point("renamed")
        aside.sync_folder()

    def _as_written(self, fd: int) -> Source:
        """The new file, for the check; by its descriptor, so that it is the very file that takes the name."""
        size = os.fstat(fd).st_size
        return Source(self._ref, size, partial(pread, fd), lambda: None, fd)

    def _upload(self, check: Callable[[Source], None]) -> None:
        import mmap

        from .objects import put

        assert self._ref.filesystem is not None  # noqa: S101
        assert self._spool is not None  # noqa: S101
        check(self._as_written(self._fd))
        self._uploaded = True
        with storage_errors("upload", self._ref.path):
            put(self._ref.filesystem, self._ref.path, mmap.mmap(self._fd, 0, prot=mmap.PROT_READ))

    def abort(self) -> None:
        """Remove what was written, unless it has its name already; a second time does nothing."""
        self._close()

    def _close(self) -> None:
        if self._aside is not None:
            self._aside.remove()
        elif self._spool is not None:
            with contextlib.suppress(OSError):
                self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def final_place(path: str | os.PathLike[str]) -> Path:
    """Where a file is made that somebody has named: a link at the name is followed.

    Raises:
        UsageError: somebody else has put the link into a folder that everybody may write to, such as ``/tmp``. It would
            have us replace a file that he chooses. (Linux's `protected_symlinks` has the same rule; `realpath` goes
            past it.) Or no file can have the name.
    """
    if not can_name(path):
        raise UsageError(NO_NAME, file=os.fspath(path))
    place, seen = os.path.abspath(path), set[str]()  # noqa: PTH100
    while os.path.islink(place) and place not in seen:  # noqa: PTH114
        seen.add(place)
        folder = os.stat(os.path.dirname(place))  # noqa: PTH116, PTH120
        if folder.st_mode & stat.S_IWOTH and os.lstat(place).st_uid not in (os.geteuid(), folder.st_uid):
            raise UsageError(
                "somebody else's link, in a folder that everybody may write to, is not followed",
                file=os.fspath(path), hint="name the file that is meant",
            )  # fmt: skip
        place = os.path.join(os.path.dirname(place), os.readlink(place))  # noqa: PTH115, PTH118, PTH120
    return Path(os.path.realpath(place))


def own_place(path: str | os.PathLike[str]) -> Path:
    """Where a file is made at this very name: links on the way to its folder are followed, and none at the name."""
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
    return Path(os.path.realpath(folder), name)


def identity_at(path: Path | str) -> tuple[int, ...] | None:
    """What tells the local file at a path from another one put in its place; None where there is none."""
    try:
        return identity(os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return None


def replace_durably(
    target: Path, data: bytes | Iterable[bytes], *, mode: int, beside: str | None = None, sync_name: bool = True
) -> None:
    """Replace a small local file, or make it. The caller keeps other writers of the same file away.

    Args:
        target: a link is replaced, not what it points to.
        data: whole, or in pieces that are made while it is written.
        mode: a new file's permissions, narrowed by the umask; a file that is replaced hands on its own.
        beside: a file that a new one belongs to, whose owner and permissions it gets instead; it need not be there.
        sync_name: have the folder synced. False where the caller does so for many files (`aside.sync_folder`): until
            then a crash of the machine may leave the old file, whole.

    Raises:
        BloomsealError: the old file's access list or attributes can't be carried over.
        OSError: the old file stays as it was. Where the storage failed after the rename, the new one is there.
    """
    like = None if beside is None or os.path.lexists(target) else _opened(beside)
    try:
        _replace(Aside(target, like=like, beside=True, mode=mode), data, sync_name)
    finally:
        if like is not None:
            os.close(like)


def _opened(path: str) -> int | None:
    try:
        return open_regular(path)
    except FileNotFoundError:
        return None


def _replace(aside: Aside, data: bytes | Iterable[bytes], sync_name: bool) -> None:
    try:
        for piece in (data,) if isinstance(data, bytes) else data:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(aside.fd, rest) :]
        with waiting():
            os.fsync(aside.fd)
        aside.place(lock=False)
        if sync_name:
            aside.sync_folder()
    finally:
        aside.remove()
