"""The one way to replace a file, or make one: beside its place, durably, and all at once.

The new file is ``.NAME.TOKEN.bloomseal-tmp`` in the same folder, locked while its writer lives, and nobody but its
owner may read it until it takes its name: it may be plaintext, and a reader could keep it locked. All names are looked
up in the open folder, no link is followed, and what was created is compared by inode before it takes the name: whoever
writes to the folder meanwhile can make a replacement fail, not turn it elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Final, Self

from ..core.errors import BloomsealError
from ..core.storage.local import identity, open_regular
from .folder import LOCK, TEMPORARY_ENDING, Folder, lock_open
from .rights import Rights

_TEMPORARY: Final = re.compile(rf"\.(.+)\.(?:[0-9a-f]{{8,16}}|{LOCK}){re.escape(TEMPORARY_ENDING)}", re.DOTALL)


class Replacement:
    """A new file that takes its name by `commit`; leaving the ``with`` block without it leaves no trace.

    Args:
        folder: where; it is the replacement's from now on.
        name: the file's. A link of that name is replaced, not what it points to.
        like: descriptor of a file whose rights the new one gets, narrowed to those of the file that it replaces. None:
            those of that file.
        beside: `like` is the file that the new one belongs to, so that both have one owner.
        mode: rights where there is neither, narrowed by the umask.
        private: readable by its owner alone, whatever is there.

    Attributes:
        folder: where; closed with the file.
        fd: its descriptor, to read and write.
        placed: the final place may hold the new file.

    Raises:
        OSError: the folder can't be written to, or there is something that is no regular file.
        BloomsealError: access list or attributes of the file that is there can't be carried over.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        *,
        like: int | None = None,
        beside: bool = False,
        mode: int = 0o666,
        private: bool = False,
    ) -> None:
        self.folder, self._name = folder, name
        self._like, self._beside, self._private = like, beside, private
        self.placed = False
        try:
            rights = self._rights()
            self._temporary, self.fd = _created(folder, name, mode if rights is None and not private else 0o600)
        except BaseException:
            folder.close()
            raise
        # For a writer that is dropped, or that the interpreter's end finds at work.
        self._remove = weakref.finalize(self, _remove, os.getpid(), folder, self._temporary, self.fd)
        try:
            self._mine = Rights.of(self.fd) if rights is None else rights
            if self._mine.acl or self._mine.attributes:
                self._mine.give(self.fd)  # what can't be carried over is told now
            self._hide()
        except BaseException:
            self.remove()
            raise

    def _hide(self) -> None:
        try:
            os.fchmod(self.fd, 0o600)
        except PermissionError:
            # FAT and the like have one mode for all files: nobody may read it now who may not in the end.
            shown = os.fstat(self.fd).st_mode & 0o777
            if shown & ~(0o600 if self._private else self._mine.mode):
                raise

    def commit(
        self,
        check: Callable[[int], object] | None = None,
        *,
        replaces: tuple[int, ...] | None = None,
        alone: bool = False,
        sync_name: bool = True,
    ) -> None:
        """Have it on the disk, and give it its name. The old file's checksums by Hadoop go.

        Args:
            check: called with the descriptor before that; what it raises is raised, and the old file stays.
            replaces: what must be there now (`Source.identity`); nothing may be there where it is empty.
            alone: the caller keeps other writers of this file away, by a lock of his own.
            sync_name: have the folder synced. False where the caller does so himself (`sync_name`): until then a crash
                of the machine may leave the old file, whole.

        Raises:
            BloomsealError: somebody else has changed the file.
            OSError: the storage failed. Where it failed after the rename, `placed` says so.
        """
        os.fsync(self.fd)
        if check is not None:
            check(self.fd)
        with contextlib.nullcontext() if alone else self.folder.locked(self._name):
            self._place(replaces)
        if sync_name:
            self.sync_name()

    def sync_name(self) -> None:
        """Its name is on the disk when this returns."""
        os.fsync(self.folder.fd)

    def _place(self, replaces: tuple[int, ...] | None) -> None:
        if replaces is not None:
            there = self.folder.stat(self._name)
            if (() if there is None else identity(there)) != replaces:
                raise _changed() if replaces else _taken()
        # Somebody may have narrowed the old one's since the new file was made.
        ((None if replaces == () else self._rights(replaces)) or self._mine).give(self.fd)
        if not self.folder.holds(self._temporary, self.fd):
            raise BloomsealError("somebody exchanged the temporary file before it took its name; it was not placed")
        # Hadoop keeps checksums of local files beside them, and reads no file that stale ones belong to. None is fine.
        self.folder.remove(f".{self._name}.crc")
        self.placed, fd = True, self.folder.fd
        try:
            os.rename(self._temporary, self._name, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError:
            # Over a network a rename may be done and fail all the same: only a look tells, if it can be had.
            with contextlib.suppress(OSError):
                self.placed = not self.folder.holds(self._temporary, self.fd)
            raise

    def occupied(self) -> bool:
        """Whether there is something that it would replace."""
        return self.folder.stat(self._name) is not None

    def remove(self) -> None:
        """Close it, and remove it unless it has its name. Never raises: the next writer removes what stays."""
        self._remove()

    def _rights(self, replaces: tuple[int, ...] | None = None) -> Rights | None:
        """What the new file may be given away to; None where nothing says so. No other file's than `replaces`."""
        try:
            there = self.folder.open(self._name)
        except OSError as error:
            # A link that lies in the place is replaced; the file that it points to has no say.
            if error.errno in (errno.ENOENT, errno.ELOOP):
                if replaces:
                    raise _changed() from None
                return None if self._like is None else Rights.of(self._like, whole=self._beside)
            if not isinstance(error, PermissionError):
                raise
            # Its list of users, if any, can't be read by us: only the owner is sure to have been on it.
            status = os.stat(self._name, dir_fd=self.folder.fd, follow_symlinks=False)
            return None if self._private else Rights(status.st_mode & 0o700, status.st_gid, None)
        try:
            if replaces is not None and identity(os.fstat(there)) != replaces:
                raise _changed()
            if self._private:
                return None
            old = Rights.of(there, whole=True, attributes=True)
            if self._like is None or os.path.samestat(os.fstat(there), os.fstat(self._like)):
                return old
            return old.within(Rights.of(self._like))
        finally:
            os.close(there)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _changed() -> BloomsealError:
    return BloomsealError(
        "the file was changed by someone else meanwhile; it was left as it is", hint="again, on the file as it is now"
    )


def _taken() -> BloomsealError:
    return BloomsealError(
        "somebody has put a file of this name there meanwhile; it was left as it is", hint="again, or another name"
    )


def replace(
    folder: Folder,
    name: str,
    data: bytes | Iterable[bytes],
    *,
    mode: int = 0o666,
    beside: str | None = None,
    alone: bool = False,
) -> None:
    """Replace a small file in an open folder, which stays open, or make it.

    Args:
        data: whole, or in pieces that are made while it is written.
        mode: a new file's permissions, narrowed by the umask; a file that is replaced hands on its own.
        beside: the path of a file that a new one belongs to, whose owner and permissions it gets instead; it need not
            be there.
        alone: as for `Replacement.commit`.

    Raises:
        BloomsealError: the old file's access list or attributes can't be carried over.
        OSError: the old file stays as it was. Where the storage failed after the rename, the new one is there.
    """
    like = None
    if beside is not None and folder.stat(name) is None:
        with contextlib.suppress(FileNotFoundError):
            like = open_regular(beside)
    try:
        with Replacement(folder.below(""), name, like=like, beside=True, mode=mode) as new:
            for piece in (data,) if isinstance(data, bytes) else data:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(new.fd, rest) :]
            new.commit(alone=alone)
    finally:
        if like is not None:
            os.close(like)


def temporary_name(name: str) -> str:
    """A name for the file that is to take `name`, where nobody can look which ones there are."""
    return _temporary_name(name, int.from_bytes(os.urandom(4), "little"))


def _temporary_name(name: str, number: int) -> str:
    return f".{name}.{number:08x}{TEMPORARY_ENDING}"


def target_of(name: str) -> str | None:
    """The name that a temporary file, or a lock, is about; None where it has the name of none."""
    found = _TEMPORARY.fullmatch(name)
    return None if found is None else found[1]


def temporaries(folder: Folder) -> dict[str, str]:
    """Temporary files in a folder, by name, and the names that they are to take.

    Raises:
        OSError: the folder can't be listed.
    """
    names = (name for name in os.listdir(folder.fd) if name.endswith(TEMPORARY_ENDING))  # noqa: PTH208  # of an open folder
    return {name: target for name in names if (target := target_of(name)) is not None}


def remove_leftovers(folder: Folder) -> None:
    """Remove the temporary files whose writers have died.

    Raises:
        OSError: the folder can't be listed. Leftovers that can't be removed stay.
    """
    for name in temporaries(folder):
        _removed_if_dead(folder, name)


def _removed_if_dead(folder: Folder, temporary: str) -> bool:
    """Remove a temporary file unless its writer lives; False where it stays, or somebody else was first."""
    try:
        fd = folder.open(temporary, os.O_RDWR)
        try:
            # The lock says that the writer lives; it is gone with the process, however that ends.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return folder.holds(temporary, fd) and folder.remove(temporary)
        finally:
            os.close(fd)
    except OSError:
        return False


def _created(folder: Folder, name: str, mode: int) -> tuple[str, int]:
    """A new temporary file, locked: its name, and its descriptor. Tokens are counted, so that what dead writers of this
    name have left is met without a listing, and goes: of thousands of files each would list thousands of names.
    """
    number = 0
    while True:
        made = _temporary_name(name, number)
        try:
            fd = folder.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=mode)
        except FileExistsError:
            number += not _removed_if_dead(folder, made)
            continue
        try:
            # Between creation and lock another writer may have taken it for a leftover, or a reader have locked it.
            locked = lock_open(fd)
            if folder.holds(made, fd):
                if locked:
                    break
                folder.remove(made)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                folder.remove(made)
            raise
        os.close(fd)
        number += 1
    for later in itertools.count(number + 1):
        if folder.stat(beyond := _temporary_name(name, later)) is None:
            break
        _removed_if_dead(folder, beyond)
    return made, fd


def _remove(owner: int, folder: Folder, temporary: str, fd: int) -> None:
    """Close both descriptors; the file goes, unless it was placed, or is another process's (after a fork)."""
    with contextlib.suppress(OSError):
        if os.getpid() == owner and folder.holds(temporary, fd):
            folder.remove(temporary)
    with contextlib.suppress(OSError):
        os.close(fd)
    folder.close()
