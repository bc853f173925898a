"""Write aside, sync, check, rename: at every instant a path holds the old file or the new one.

On this machine that is a `Replacement`. Object stores and file objects have no rename: there the new file is assembled
in an anonymous local temporary file, checked, and then sent to its final place in one go.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Protocol, Self

from ..core.errors import BloomsealError, UsageError
from ..core.storage.local import identity, pread
from ..core.storage.ref import FileRef
from ..core.storage.source import Buffer, Scratch, Source
from .folder import Folder
from .places import type_at
from .replacement import Replacement
from .signatures import SignatureBeside, signature_of

_HINTS: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "make its folder first",
    IsADirectoryError: "a file's name in it",
}
Signing = Callable[[Source], tuple[str, bytes]]
_COPY_BYTES = 1 << 20
_WRITEBACK_BYTES = 8 << 20


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
        sign: signs the new file, once it was checked and before it takes its place; the digest of what is signed, and
            the signature, see `SignatureBeside`.
        like: the file that the new one is made from. Where both are local, nobody may read the new one who may not read
            that.

    Attributes:
        placed: the final place may hold the new file. What the file needs must stay from then on, whatever fails.

    Raises:
        UsageError: the folder can't be written to, or the final place holds a folder, a pipe or a device.
    """

    def __init__(
        self,
        ref: FileRef,
        *,
        replaces: tuple[int, ...] | None = None,
        like: Source | None = None,
        sign: Signing | None = None,
    ) -> None:
        self._ref = ref
        self._sign = sign
        self._signature: SignatureBeside | None = None
        self._replaces = () if ref.fresh else replaces
        self._uploaded = False
        self._new: Replacement | None = None
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
        try:
            self._new = Replacement(*self._place(), like=None if like is None else like.fd)
            self._fd = self._new.fd
        except OSError as error:
            hint = _HINTS.get(type(error))
            raise UsageError(f"can't write beside the file: {error.strerror}", file=ref.path, hint=hint) from error
        except BloomsealError as error:
            raise error.at(file=ref.path) from None

    def _place(self) -> tuple[Folder, str]:
        """A link stays a link: what it points to is replaced. But nobody has named a new file of a table, and whoever
        writes to the table's folder may know its name: there no link is followed.
        """
        path, root = self._ref.path, self._ref.root
        if path.endswith(os.sep):
            raise UsageError("the output is a folder", file=path, hint="a file's name in it")
        if root is None or self._replaces:
            return Folder.of(path, anyones_links=bool(self._replaces))
        above, name = os.path.split(path)
        below = os.path.relpath(above, root)
        if below.startswith(os.pardir):
            return Folder.at(above), name
        with Folder.at(root) as table:
            return table.below("" if below == os.curdir else below), name

    @property
    def placed(self) -> bool:
        """The final place may hold the new file."""
        return self._uploaded if self._new is None else self._new.placed

    def takes_a_place(self) -> bool:
        """Whether something may be at the final place that `commit` would replace. Where nobody can look there may: not
        seen is not absent.
        """
        if self._new is not None:
            return self._new.occupied()
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
            self._flush()
            if length > len(self._gathered):
                self._gathered = bytearray(length)
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
        """Append the first `length` bytes of `source`."""
        self._flush()
        scratch = Scratch()
        while self._written < length:
            self._send(source.read_into(scratch, self._written, min(_COPY_BYTES, length - self._written)))

    def _flush(self) -> None:
        length, self._length = self._length, 0
        self._send(memoryview(self._gathered)[:length])

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

    def commit(self, check: Callable[[Source], object]) -> None:
        """Sync, reopen for `check`, and rename into place.

        Raises:
            BloomsealError: what `check` raises; the file was changed by someone else meanwhile; the storage failed.
                Where the storage failed after the rename, the new file is there, and `placed` says so.
        """
        self._flush()
        # A disk that is full often says so only now.
        with storage_errors("write", self._ref.path):
            if self._new is None:
                self._upload(check)
            else:
                self._rename(self._new, check)
        self._close()

    def _rename(self, new: Replacement, check: Callable[[Source], object]) -> None:
        def checked(fd: int) -> None:
            fault_point("synced")
            check(self._as_written(fd))
            fault_point("checked")
            self._place_signature(self._as_written(fd), self._beside())

        fault_point("written")
        before = self._signature_before()
        try:
            new.commit(checked, replaces=self._replaces, sync_name=False)
        except BloomsealError as error:
            raise error.at(file=self._ref.path) from None
        fault_point("renamed")
        new.sync_name()
        if before is not None:
            before.remove(self._beside())

    def _beside(self) -> Folder | None:
        """The open folder that the file's signature lies in; not where a link leads to another one."""
        return None if self._new is None or os.path.islink(self._ref.path) else self._new.folder  # noqa: PTH114

    def _place_signature(self, made: Source, folder: Folder | None) -> None:
        """The signature comes before the file: nobody finds one that is not signed."""
        if self._sign is not None:
            digest, data = self._sign(made)
            self._signature = SignatureBeside(self._ref, digest)
            self._signature.write(data, folder)
            fault_point("signed")

    def _signature_before(self) -> SignatureBeside | None:
        """That of the file in whose place the new one comes. A store is asked only where files are signed: that takes
        requests.
        """
        asked = self._sign is not None or self._new is not None
        return signature_of(self._ref) if asked and self.takes_a_place() else None

    def _as_written(self, fd: int) -> Source:
        """The new file, for the check; by its descriptor, so that it is the very file that takes the name."""
        size = os.fstat(fd).st_size
        return Source(self._ref, size, partial(pread, fd), lambda: None, fd)

    def _upload(self, check: Callable[[Source], object]) -> None:
        import mmap

        from .objects import put

        assert self._ref.filesystem is not None  # noqa: S101
        assert self._spool is not None  # noqa: S101
        check(self._as_written(self._fd))
        before = self._signature_before()
        self._place_signature(self._as_written(self._fd), None)
        self._uploaded = True
        with storage_errors("upload", self._ref.path):
            put(self._ref.filesystem, self._ref.path, mmap.mmap(self._fd, 0, prot=mmap.PROT_READ))
        if before is not None:
            before.remove()

    def abort(self) -> None:
        """Remove what was written, unless it has its name already; a second time does nothing."""
        if self._signature is not None and not self.placed:
            self._signature.remove(self._beside())
        self._signature = None
        self._close()

    def _close(self) -> None:
        if self._new is not None:
            self._new.remove()
        elif self._spool is not None:
            with contextlib.suppress(OSError):
                self._spool.close()

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
