"""Write aside, sync, reopen, check, rename: at every instant a path holds the old file or the new one.

The file aside is ``.NAME.TOKEN.bloomseal-tmp`` in the same folder, locked while its writer lives. The next writer of the
same path removes those whose writer has died. Object stores have no rename: there the new file is assembled in an
anonymous local temporary file, checked, and then sent to its final key in one upload.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from ..errors import BloomsealError, UsageError
from ..storage.ref import FileRef
from .source import Buffer, Scratch, Source, identity

__all__ = ["AtomicFile", "Output", "fault_point", "identity_at", "storage_errors"]

_SUFFIX = ".bloomseal-tmp"
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
    except OSError as error:
        raise BloomsealError(f"can't {what}: {error.strerror or type(error).__name__}", file=path) from error


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
        replaces: the file's identity as it was read (`Source.identity`); if it differs at commit, someone else has changed the
            file meanwhile and nothing is replaced.

    Attributes:
        placed: the final place may hold the new file. What the file needs must stay from then on, whatever fails.

    Raises:
        UsageError: the folder can't be written to.
    """

    def __init__(self, ref: FileRef, *, replaces: tuple[int, ...] | None = None) -> None:
        self._ref = ref
        self._replaces = replaces
        self._done = False
        self.placed = False
        self._file: IO[bytes]
        self._gathered = bytearray(_COPY_BYTES)
        self._length = 0
        self._written = self._sent = 0
        if ref.filesystem is not None:
            import tempfile  # takes longer to load than a small file to write, as does shutil below

            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed by commit or abort
            return
        # A link stays a link: what it points to is replaced.
        self._target = Path(os.path.realpath(ref.path))
        try:
            _remove_leftovers(self._target)
            self._aside, self._file = _create_aside(self._target)
        except OSError as error:
            raise UsageError(f"can't write beside the file: {error.strerror}", file=ref.path) from error

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
            piece, begin = min(length - self._written, 1 << 30), self._written
            try:
                done = copy(original, self._file.fileno(), piece, begin, begin)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                return
            if done == 0:
                return
            self._written += done

    def _flush(self) -> None:
        length, self._length = self._length, 0
        self._send(memoryview(self._gathered)[:length])

    def _flush_aligned(self) -> None:
        """Send up to a round position, where the kernel caches large pieces whole: it fills, reads and frees those faster."""
        length, whole = self._length, self._length - (self._written + self._length) % _ALIGNED_BYTES
        if whole <= 0:
            return
        self._send(memoryview(self._gathered)[:whole])
        self._length = length - whole
        self._gathered[: self._length] = self._gathered[whole:length]

    def _send(self, data: memoryview) -> None:
        with storage_errors("write", self._ref.path):
            while len(data):
                done = os.pwrite(self._file.fileno(), data, self._written)
                data, self._written = data[done:], self._written + done
            if self._written - self._sent >= _WRITEBACK_BYTES and hasattr(os, "posix_fadvise"):
                # The disk begins with what it has while the rest is made, so that the sync at the end is short. Pages that
                # are on their way stay cached.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(
                        self._file.fileno(), self._sent, self._written - self._sent, os.POSIX_FADV_DONTNEED
                    )
                self._sent = self._written

    def commit(self, check: Callable[[Source], None]) -> None:
        """Sync, reopen for `check`, and rename into place.

        Raises:
            BloomsealError: what `check` raises; the file was changed by someone else meanwhile; the storage failed. Where the
                storage failed after the rename, the new file is there, and `placed` says so.
        """
        self._flush()
        # A disk that is full often says so only now.
        with storage_errors("write", self._ref.path):
            if self._ref.filesystem is not None:
                self._upload(check)
            else:
                self._rename(check)
        self._close()

    def _rename(self, check: Callable[[Source], None]) -> None:
        fault_point("written")
        os.fsync(self._file.fileno())
        fault_point("synced")
        with Source.open(self._aside) as reopened:
            check(reopened)
        fault_point("checked")
        if self._replaces is not None and identity_at(self._target) != self._replaces:
            raise BloomsealError(
                "the file was changed by someone else meanwhile; it was left as it is", file=self._ref.path
            )
        with contextlib.suppress(FileNotFoundError):
            self._aside.chmod(stat.S_IMODE(self._target.stat().st_mode))
        # Hadoop keeps checksums of local files beside them, and reads no file that stale ones belong to. None is fine.
        self._target.with_name(f".{self._target.name}.crc").unlink(missing_ok=True)
        self.placed = True
        self._aside.replace(self._target)
        fault_point("renamed")
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _upload(self, check: Callable[[Source], None]) -> None:
        import shutil

        size, fd = self._written, self._file.fileno()
        check(Source(self._ref, size, lambda offset, length: os.pread(fd, length, offset), lambda: None))
        assert self._ref.filesystem is not None  # noqa: S101
        self.placed = True
        with (
            storage_errors("upload", self._ref.path),
            self._ref.filesystem.open_output_stream(self._ref.path) as stream,
        ):
            self._file.seek(0)
            shutil.copyfileobj(self._file, stream, _COPY_BYTES)

    def abort(self) -> None:
        """Remove what was written; the final place stays as it was."""
        if self._done:
            return
        if self._ref.filesystem is None:
            # Whatever went wrong before is the error to report; the next writer removes what stays.
            with contextlib.suppress(OSError):
                self._aside.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        self._done = True
        with contextlib.suppress(OSError):
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def identity_at(path: Path | str) -> tuple[int, ...] | None:
    """What tells the local file at a path from another one put in its place; None where there is none."""
    try:
        return identity(os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return None


def _create_aside(target: Path) -> tuple[Path, IO[bytes]]:
    # From the first byte on, nobody may read the new file who could not read the old one: it may be the plaintext of it.
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666
    while True:
        aside = target.with_name(f".{target.name}.{os.urandom(4).hex()}{_SUFFIX}")
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(fd, fcntl.LOCK_EX)
        # Between creation and lock another writer may have taken it for a leftover.
        if aside.exists() and os.fstat(fd).st_ino == aside.stat().st_ino:
            return aside, os.fdopen(fd, "w+b", buffering=0)
        os.close(fd)


def _remove_leftovers(target: Path) -> None:
    for entry in os.scandir(target.parent):
        if not (entry.name.startswith(f".{target.name}.") and entry.name.endswith(_SUFFIX)):
            continue
        with contextlib.suppress(OSError):
            fd = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(entry.path).unlink()
            finally:
                os.close(fd)
