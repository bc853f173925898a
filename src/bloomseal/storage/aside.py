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
from pathlib import Path
from typing import Final

from ..errors import BloomsealError
from .baton import waiting
from .local import identity, open_regular
from .rights import Rights
from .shared_sync import SharedSync

__all__ = [
    "ASIDE_ENDING",
    "Aside",
    "aside_name",
    "asides",
    "create_aside",
    "folder_below",
    "folder_lock",
    "remove_leftovers",
    "sync_folder",
    "target_of",
    "turn",
]

ASIDE_ENDING: Final = ".bloomseal-tmp"
_ASIDE: Final = re.compile(r"\.(.+)\.[0-9a-f]{8,16}" + re.escape(ASIDE_ENDING), re.DOTALL)
_LOCK_SECONDS: Final = 60.0
_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)
_MOST_FOLDERS: Final = 10_000
_tidied: dict[tuple[int, int], tuple[int, frozenset[str]]] = {}
"""Folder (device, inode) → its time of change when this process last looked, and the names that had files aside then.
"""
_syncs: dict[tuple[int, int], SharedSync] = {}
"""Folder (device, inode) → the syncs that threads of this process share."""
os.register_at_fork(after_in_child=_syncs.clear)


class Aside:
    """A new file beside its target.

    Args:
        target: the final place, links in it resolved.
        like: descriptor of a file whose rights the new one gets, narrowed to the target's where there is one. None:
            those of the target.
        beside: `like` is the file that the new one belongs to, so that both have one owner.
        mode: rights where there is neither, narrowed by the umask.

    Attributes:
        fd: its descriptor, to read and write.
        placed: the final place may hold the new file.

    Raises:
        OSError: the folder can't be written to, or the target is no regular file.
        BloomsealError: the target's access list or attributes can't be carried over.
    """

    def __init__(self, target: Path, *, like: int | None = None, beside: bool = False, mode: int = 0o666) -> None:
        self._name = target.name
        self._like = like
        self._beside = beside
        self._folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._tidy()
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
            self._given = rights
            self._note()
        except BaseException:
            self.remove()
            raise

    def _tidy(self) -> None:
        """Remove what dead writers of this name have left. The folder is listed only if somebody else has changed it
        since this process last looked: listing thousands of names for each of thousands of files would take long.
        """
        status = os.fstat(self._folder)
        seen, waiting = _tidied.get((status.st_dev, status.st_ino), (None, frozenset[str]()))
        self._waiting = waiting if seen == status.st_mtime_ns else frozenset(asides(self._folder).values())
        # Others of the folder go with their key material, which whoever tidies all of it looks after.
        if self._name in self._waiting:
            remove_leftovers(self._folder, of=self._name)

    def _note(self) -> None:
        """The folder has just been changed by us."""
        status = os.fstat(self._folder)
        if len(_tidied) >= _MOST_FOLDERS:
            _tidied.clear()
        _tidied[status.st_dev, status.st_ino] = status.st_mtime_ns, self._waiting

    def place(self, *, replaces: tuple[int, ...] | None = None, lock: bool = True) -> None:
        """Take the target's name. The old file's checksums by Hadoop go.

        Args:
            replaces: what must be there now (`Source.identity`).
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
            # Somebody may have narrowed the old one's since the new file was made.
            if (rights := self._rights()) is not None and rights != self._given:
                rights.give(self.fd)
            if not _is_at(self._folder, self._aside, self.fd):
                raise BloomsealError("somebody exchanged the file aside before it took its name; it was not placed")
            # Hadoop keeps checksums of local files beside them, and reads no file that stale ones belong to. None is
            # fine.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f".{self._name}.crc", dir_fd=self._folder)
            self.placed = True
            try:
                os.rename(self._aside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except OSError:
                # Over a network a rename may be done and fail all the same: only a look tells, if it can be had.
                with contextlib.suppress(OSError):
                    self.placed = not _is_at(self._folder, self._aside, self.fd)
                raise
            self._note()

    def sync_folder(self) -> None:
        """The name is on the disk when this returns."""
        _sync(self._folder)

    def remove(self) -> None:
        """Close it, and remove it unless it has the target's name. Never raises: the next writer removes what stays."""
        self._remove()

    def _present(self) -> tuple[int, ...] | None:
        try:
            return identity(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def _rights(self) -> Rights | None:
        """What the new file may be given away to; None where nothing says so."""
        try:
            there = open_regular(self._name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder)
        except OSError as error:
            # A link that lies in the place is replaced; the file that it points to has no say.
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return None if self._like is None else Rights.of(self._like, whole=self._beside)
            if not isinstance(error, PermissionError):
                raise
            # Its list of users, if any, can't be read by us: only the owner is sure to have been on it.
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            return Rights(status.st_mode & 0o700, status.st_gid, None)
        try:
            old = Rights.of(there, whole=True, attributes=True)
            if self._like is None or os.path.samestat(os.fstat(there), os.fstat(self._like)):
                return old
            return old.within(Rights.of(self._like))
        finally:
            os.close(there)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """All names in a folder are on the disk when this returns.

    Raises:
        OSError: the storage failed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _sync(folder: int) -> None:
    status = os.fstat(folder)
    if len(_syncs) >= _MOST_FOLDERS:
        _syncs.clear()  # whoever waits there keeps it
    syncs = _syncs.setdefault((status.st_dev, status.st_ino), SharedSync())
    syncs.until(syncs.wrote(), folder)


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
            time.sleep(0.001)
        else:
            locked = True
    try:
        yield
    finally:
        if locked:
            fcntl.flock(folder, fcntl.LOCK_UN)


@contextlib.contextmanager
def folder_below(root: str, relative: str) -> Iterator[int]:
    """The descriptor of a folder below `root`. The way to the root is the caller's own.

    Raises:
        OSError: a link lies in the place of one on the way, or it can't be opened.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, relative.split("/")):
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def turn(path: str) -> Iterator[int | None]:
    """Be alone, among those who ask, with one small local file that each of them replaces; with its folder as long as
    there is none. Those who work on its neighbours do not wait.

    Yields:
        The descriptor of the file, to read; None where there is none, or where it can't be opened.

    Raises:
        OSError: no such folder; or as `folder_lock`.
    """
    while True:
        there = missing = False
        try:
            fd, there = open_regular(path), True
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
        try:
            with folder_lock(fd):
                # While we waited, another writer may have put a new one in its place.
                if (there and not _is_named(path, fd)) or (missing and os.path.exists(path)):  # noqa: PTH110
                    continue
                yield fd if there else None
                return
        finally:
            # The last to close a file that has lost its name waits until the disk has forgotten it.
            with waiting():
                os.close(fd)


def _is_named(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))  # noqa: PTH116
    except OSError:
        return False


def aside_name(name: str) -> str:
    """A fresh name for the file beside `name`."""
    return f".{name}.{os.urandom(4).hex()}{ASIDE_ENDING}"


def target_of(name: str) -> str | None:
    """The name that a file aside is to take; None where it has the name of none."""
    found = _ASIDE.fullmatch(name)
    return None if found is None else found[1]


def asides(folder: int) -> dict[str, str]:
    """The files aside in an open folder, by name, and the names that they are to take.

    Raises:
        OSError: the folder can't be listed.
    """
    names = (name for name in os.listdir(folder) if name.endswith(ASIDE_ENDING))  # of an open folder
    return {name: target for name in names if (target := target_of(name)) is not None}


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
