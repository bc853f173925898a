"""A file beside the one it is to replace: locked while its writer lives, renamed within a folder that was opened once.

It is ``.NAME.TOKEN.bloomseal-tmp``. From the first byte on nobody may read it who may not read what it replaces, since
it may be the plaintext of that. All names are looked up in the open folder, no link is followed, and what was created
is compared by inode before it takes the name: whoever writes to the folder meanwhile can make a replacement fail, not
turn it elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ..errors import BloomsealError
from .source import identity, open_regular

__all__ = ["Aside", "aside_name", "asides", "create_aside", "folder_lock", "remove_leftovers"]

_SUFFIX: Final = ".bloomseal-tmp"
_ASIDE: Final = re.compile(r"\.(.+)\.[0-9a-f]{8,16}" + re.escape(_SUFFIX), re.DOTALL)
_ACL: Final = "system.posix_acl_access"
_LOCK_SECONDS: Final = 60.0
_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)


class Aside:
    """A new file beside its target.

    Args:
        target: the final place, links in it resolved.
        like: descriptor of a file whose rights the new one gets, narrowed to the target's where there is one. None:
            those of the target.
        mode: rights where there is neither, narrowed by the umask.

    Attributes:
        fd: its descriptor, to read and write.
        placed: the final place may hold the new file.

    Raises:
        OSError: the folder can't be written to, or the target is no regular file.
    """

    def __init__(self, target: Path, *, like: int | None = None, mode: int = 0o666) -> None:
        self._name = target.name
        self._like = like
        self._folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_leftovers(self._folder, of=self._name)
            rights = self._rights()
            self._aside, self.fd = create_aside(self._folder, self._name, mode if rights is None else 0o600)
        except BaseException:
            os.close(self._folder)
            raise
        self.placed = False
        # For a writer that is dropped, or that the interpreter's end finds at work.
        self._remove = weakref.finalize(self, _remove, os.getpid(), self._folder, self._aside, self.fd)
        try:
            if rights is not None:
                rights.give(self.fd)
        except BaseException:
            self.remove()
            raise

    def place(self, *, replaces: tuple[int, ...] | None = None, drop: str | None = None, lock: bool = True) -> None:
        """Take the target's name, and have the folder synced.

        Args:
            replaces: what must be there now (`Source.identity`).
            drop: another name in the folder that goes with the old file.
            lock: keep other replacements in this folder away from the comparison to the renaming. False where the
                caller holds a lock of its own.

        Raises:
            BloomsealError: someone else has changed the file.
            OSError: the storage failed. Where it failed after the rename, `placed` says so.
        """
        with folder_lock(self._folder) if lock else contextlib.nullcontext():
            if replaces is not None and self._present() != replaces:
                raise BloomsealError(
                    "the file was changed by someone else meanwhile; it was left as it is",
                    hint="again, on the file as it is now",
                )
            if (rights := self._rights()) is not None:
                rights.give(self.fd)
            if not _is_at(self._folder, self._aside, self.fd):
                raise BloomsealError("somebody exchanged the file aside before it took its name; it was not placed")
            if drop is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(drop, dir_fd=self._folder)
            self.placed = True
            try:
                os.rename(self._aside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except OSError:
                # Over a network a rename may be done and fail all the same: only a look tells, if it can be had.
                with contextlib.suppress(OSError):
                    self.placed = not _is_at(self._folder, self._aside, self.fd)
                raise

    def sync_folder(self) -> None:
        """The name is on the disk when this returns."""
        os.fsync(self._folder)

    def remove(self) -> None:
        """Close it, and remove it unless it has the target's name. Never raises: the next writer removes what stays."""
        self._remove()

    def _present(self) -> tuple[int, ...] | None:
        try:
            return identity(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def _rights(self) -> _Rights | None:
        """What the new file may be given away to; None where nothing says so."""
        try:
            there = open_regular(self._name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder)
        except OSError as error:
            # A link that lies in the place is replaced; the file that it points to has no say.
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return None if self._like is None else _Rights.of(self._like)
            if not isinstance(error, PermissionError):
                raise
            # Its list of users, if any, can't be read by us: only the owner is sure to have been on it.
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            return _Rights(status.st_mode & 0o700, status.st_gid, None)
        try:
            old = _Rights.of(there)
            if self._like is None or os.path.samestat(os.fstat(there), os.fstat(self._like)):
                return old
            return old.within(_Rights.of(self._like))
        finally:
            os.close(there)


@dataclass(frozen=True, slots=True)
class _Rights:
    """Who may use a file.

    Attributes:
        mode: permission bits; with an access list, its group bits are the list's mask.
        group: whom the group bits are about.
        acl: the POSIX access list as Linux stores it; None where there is none.
    """

    mode: int
    group: int
    acl: bytes | None

    @classmethod
    def of(cls, fd: int) -> Self:
        status = os.fstat(fd)
        acl = None
        if hasattr(os, "getxattr"):
            with contextlib.suppress(OSError):
                acl = os.getxattr(fd, _ACL)
        return cls(status.st_mode & 0o777, status.st_gid, acl)

    def within(self, other: Self) -> _Rights:
        """Those that both grant; of two that differ in group or list, the owner's and everybody's only."""
        if (self.group, self.acl) == (other.group, other.acl):
            return _Rights(self.mode & other.mode, self.group, self.acl)
        return _Rights(_without_group(self.mode & other.mode, self.acl or other.acl), self.group, None)

    def give(self, fd: int) -> None:
        """Make them a file's. What can't be carried over is left out, so that it is never open to more.

        Raises:
            OSError: the mode can't be set.
        """
        mode, acl = self.mode, self.acl
        if os.fstat(fd).st_gid != self.group:
            try:
                os.fchown(fd, -1, self.group)
            except OSError:
                mode, acl = _without_group(mode, acl), None
        if hasattr(os, "setxattr"):
            try:
                if acl is not None:
                    os.setxattr(fd, _ACL, acl)
                else:
                    # The folder's default list, which the old file need not have had.
                    os.removexattr(fd, _ACL)
            except OSError as error:
                if acl is not None or error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                    mode &= 0o700
        os.fchmod(fd, mode)


def _without_group(mode: int, acl: bytes | None) -> int:
    """The mode for another group: its members have what everybody has. A list may refuse some of everybody."""
    return mode & 0o700 if acl is not None else mode & 0o707 | mode & (mode << 3) & 0o070


@contextlib.contextmanager
def folder_lock(folder: int) -> Iterator[None]:
    """Be alone, among those who ask, with a local folder's names. The folder itself is locked: a lock file would lie
    about beside the data for ever. File systems that lock no folders (NFS) let everybody in.

    Args:
        folder: its descriptor, used for nothing else that locks.

    Raises:
        TimeoutError: another process has had it for a minute.
    """
    locked, patience = False, time.monotonic() + _LOCK_SECONDS
    while not locked:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _BUSY:
                break
            if time.monotonic() > patience:
                raise TimeoutError(errno.ETIMEDOUT, "another process keeps the folder locked") from None
            time.sleep(0.002)
        else:
            locked = True
    try:
        yield
    finally:
        if locked:
            fcntl.flock(folder, fcntl.LOCK_UN)


def aside_name(name: str) -> str:
    """A fresh name for the file beside `name`."""
    return f".{name}.{os.urandom(4).hex()}{_SUFFIX}"


def asides(folder: int) -> dict[str, str]:
    """The files aside in an open folder, by name, and the names that they are to take.

    Raises:
        OSError: the folder can't be listed.
    """
    names = (name for name in os.listdir(folder) if name.endswith(_SUFFIX))  # of an open folder
    return {name: found[1] for name in names if (found := _ASIDE.fullmatch(name))}


def remove_leftovers(folder: int, *, of: str | None = None) -> None:
    """Remove the files aside whose writers have died from an open folder: those of one name, or all.

    Raises:
        OSError: the folder can't be listed. Leftovers that can't be removed stay.
    """
    for name, target in asides(folder).items():
        if of not in (None, target):
            continue
        with contextlib.suppress(OSError):
            fd = open_regular(name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
            try:
                # The lock says that the writer lives; it is gone with the process, however that ends.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(folder, name, fd):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)


def create_aside(folder: int, name: str, mode: int) -> tuple[str, int]:
    """A new file beside `name` in an open folder, locked: its name, and its descriptor.

    Raises:
        OSError: it can't be made.
    """
    while True:
        aside = aside_name(name)
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Between creation and lock another writer may have taken it for a leftover.
            if _is_at(folder, aside, fd):
                return aside, fd
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=folder)
            raise
        os.close(fd)


def _remove(owner: int, folder: int, aside: str, fd: int) -> None:
    """Close both descriptors; the file goes, unless it was placed, or is another process's (after a fork)."""
    with contextlib.suppress(OSError):
        if os.getpid() == owner and _is_at(folder, aside, fd):
            os.unlink(aside, dir_fd=folder)
    for one in (fd, folder):
        with contextlib.suppress(OSError):
            os.close(one)


def _is_at(folder: int, name: str, fd: int) -> bool:
    """Is the open file the one of that name?"""
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(there.st_mode) and os.path.samestat(there, os.fstat(fd))
