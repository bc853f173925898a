"""A folder on this machine, opened once. What is done in it is done by its descriptor: no path is resolved twice.

There are three ways to one. `Folder.at` and `Folder.of` go the way that the caller has named, links on it included.
`Folder.below` goes down from there and follows no link, since others may write below. `Folder.own` is for what gets
believed, or run: nobody else may change the folder, nor put another one in its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from typing import Final, Self

from .._ownership import exposure, exposure_of
from ..core.errors import PolicyError, UsageError
from ..core.storage.local import NO_NAME, can_name, open_regular

TEMPORARY_ENDING: Final = ".bloomseal-tmp"
LOCK: Final = "lock"
"""What a lock's name has in the place of a temporary file's token, so that whoever knows the one knows the other."""

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)
_UNWRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOST_LINKS: Final = 40
_HINT: Final = "chmod go-w where it is yours, or another place"
_LINK: Final = "there is a link on the way, and none is followed"
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class Folder:
    """An open folder.

    Args:
        fd: its descriptor, which is the folder's from now on.
        path: what it is called in messages.
    """

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """The folder at a path; links are followed.

        Raises:
            OSError: it can't be opened, or is none.
        """
        name = os.fspath(path) or "."
        return cls(os.open(name, _OPEN), name)

    @classmethod
    def of(cls, path: str | os.PathLike[str], *, anyones_links: bool = False) -> tuple[Self, str]:
        """The folder of a file that somebody has named, and the file's name in it. A link at the name is followed, and
        there is none at the name that is returned.

        Args:
            anyones_links: the caller compares the file with one that was opened by the same path.

        Raises:
            UsageError: no file can have the name, or somebody else has put a link there: it would have us write to a
                file that he chooses. (Linux's `protected_symlinks` refuses that in folders like ``/tmp`` alone.)
            OSError: the folder can't be opened.
        """
        if not can_name(path):
            raise UsageError(NO_NAME, file=os.fspath(path))
        above, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
        folder = cls.at(above)
        try:
            for _ in range(_MOST_LINKS):
                status = folder.stat(name)
                if status is None or not stat.S_ISLNK(status.st_mode):
                    return folder, name
                if not anyones_links and status.st_uid not in (0, os.geteuid()):
                    raise UsageError(
                        "somebody else's link is not followed", file=os.fspath(path), hint="name the file that is meant"
                    )
                above, name = os.path.split(os.readlink(name, dir_fd=folder.fd))
                if name in ("", ".", ".."):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                inner = cls(os.open(above or ".", _OPEN, dir_fd=folder.fd), os.path.join(folder.path, above))  # noqa: PTH118
                folder.close()
                folder = inner
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        except BaseException:
            folder.close()
            raise

    @classmethod
    def own(cls, path: str | os.PathLike[str], *, make: bool = True, shared: bool = False) -> Self:
        """A folder whose content only this user (and root) has a say in.

        Args:
            make, shared: as for `exposure`.

        Raises:
            PolicyError: others can change it, or the way to it.
            OSError: it can't be opened or made.
        """
        name = os.fspath(path)
        if (why := exposure(name, make=make, shared=shared)) is not None:
            raise PolicyError(f"{why}, so nothing in {name} can be trusted", hint=_HINT)
        return cls.at(name)

    def below(self, relative: str, *, make: bool = False) -> Self:
        """A folder below this one; no link is followed.

        Args:
            make: make what is missing.

        Raises:
            OSError: it can't be opened; ELOOP where a link lies in the place of one on the way.
        """
        folder = type(self)(os.dup(self.fd), self.path)
        try:
            for part in filter(None, relative.split("/")):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder.fd)
                below = folder._entered(part)
                folder.close()
                folder = below
        except BaseException:
            folder.close()
            raise
        return folder

    def _entered(self, name: str) -> Self:
        path = os.path.join(self.path, name)  # noqa: PTH118
        try:
            return type(self)(os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=self.fd), path)
        except OSError as error:
            # Linux says ENOTDIR, others ELOOP.
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                status = self.stat(name)
                if status is not None and stat.S_ISLNK(status.st_mode):
                    raise OSError(errno.ELOOP, _LINK, path) from None
            raise

    # What lies in it -------------------------------------------------------------------------------------------------

    def open(self, name: str, flags: int = os.O_RDONLY, *, mode: int = 0o666) -> int:
        """A descriptor of a file in it.

        Raises:
            OSError: it can't be opened, is a link, or no regular file.
        """
        return open_regular(name, flags | os.O_NOFOLLOW, mode=mode, dir_fd=self.fd)

    def open_own(self, name: str, flags: int = os.O_RDONLY) -> int:
        """As `open`, of a file that gets believed; a new one has mode 0600.

        Raises:
            PolicyError: it belongs to somebody else, or others can write to it.
        """
        fd = self.open(name, flags, mode=0o600)
        try:
            path = os.path.join(self.path, name)  # noqa: PTH118
            status = os.fstat(fd)
            why = f"{path} belongs to others" if status.st_uid != os.geteuid() else exposure_of(status, path)
            if why is not None:
                raise PolicyError(f"{why}, so it can't be trusted", hint=_HINT)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def stat(self, name: str) -> os.stat_result | None:
        """What is there, a link as a link; None where there is nothing."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def holds(self, name: str, fd: int) -> bool:
        """Whether the regular file of that name is the open one."""
        there = self.stat(name)
        return there is not None and stat.S_ISREG(there.st_mode) and os.path.samestat(there, os.fstat(fd))

    def remove(self, name: str) -> bool:
        """Remove a file, or a link and not what it points to; False where there is none."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def need_writable(self) -> None:
        """Raises PermissionError where no file can be made in it, before the work is done that the file is to hold."""
        if not os.access(".", os.W_OK, dir_fd=self.fd, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, "the folder can't be written to")

    # Alone with a name -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, name: str, *, patience: float = 60.0) -> Iterator[bool]:
        """Be alone with a name in it, among those who ask; there need be no such file.

        The lock is a file of its own, which only those can open who may write to the folder: a lock on the folder or
        on the file itself could be held by whoever may read them. It is removed in the end; what a killed process
        leaves is a temporary file like others. File systems without locks let everybody in.

        Args:
            patience: seconds to wait.

        Yields:
            Whether a process had it that was killed, and has left the lock.

        Raises:
            TimeoutError: somebody else has it.
            OSError: the lock can't be made, though the folder can be written to.
        """
        lock = f".{name}.{LOCK}{TEMPORARY_ENDING}"
        until, pause = time.monotonic() + patience, 0.001
        while (taken := self._lock(lock))[0] == _TAKEN:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, "somebody else is at work on it")
            time.sleep(pause)
            pause = min(pause * 1.1, 0.05)
        fd, left = taken
        try:
            yield left
        finally:
            if fd is not None:
                with contextlib.suppress(OSError):
                    if self.holds(lock, fd):
                        self.remove(lock)
                os.close(fd)

    def _lock(self, lock: str) -> tuple[int | None, bool]:
        """The lock's descriptor; `_TAKEN`; or None for whoever can't write to the folder, and so has nothing to
        guard. And whether it was there.
        """
        left = False
        try:
            fd = self._made_lock(lock)
        except FileExistsError:
            try:
                fd, left = self.open(lock, os.O_RDWR), True
            except (FileNotFoundError, PermissionError):
                # Removed just now, or somebody else's. That says nothing of our rights to the folder, even if it is
                # gone by the time of another look.
                return _TAKEN, left
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            return None, left
        # Whoever had it has removed it; or it was taken for a leftover between creation and lock.
        if lock_open(fd) and self.holds(lock, fd):
            return fd, left
        os.close(fd)
        return _TAKEN, left

    def _made_lock(self, lock: str) -> int:
        fd = self.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
        status = os.fstat(self.fd)
        if os.geteuid() == 0 and status.st_uid != 0:
            with contextlib.suppress(OSError):
                os.fchown(fd, status.st_uid, status.st_gid)
        if status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
            writers = status.st_mode & (stat.S_IWUSR | _OTHERS)
            with contextlib.suppress(OSError):
                os.fchown(fd, -1, status.st_gid)
            if os.fstat(fd).st_gid != status.st_gid and not writers & stat.S_IWOTH:
                writers &= ~stat.S_IWGRP  # it has a group of ours, which may have no say in the folder
            with contextlib.suppress(OSError):
                os.fchmod(fd, writers | writers << 1)
        return fd

    # Its descriptor --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """A second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lock_open(fd: int) -> bool:
    """Lock an open file; False where somebody else has it locked. File systems without locks let everybody in."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _BUSY
    return True


_TAKEN: Final = -1
