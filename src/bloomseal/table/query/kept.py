"""Files that stay open from the question for a table's schema to the question for its rows."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING, Final

from ...errors import KeyAccessError
from ...storage.formats import Format
from ...storage.source import identity

if TYPE_CHECKING:
    from ...read.file import SealedFile

__all__ = ["KeptFiles", "is_still", "to_spare"]

_MOST: Final = 256
_ALLOWED: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_ROOM: Final = [None] * (_MOST if _ALLOWED == resource.RLIM_INFINITY else min(_MOST, _ALLOWED // 4))
"""A place for each file that may still be kept in the whole process. A list, since its steps can't be interrupted: a
semaphore's can, by the collector of garbage, which may drop kept files then and would wait for the semaphore for ever.
"""


class KeptFiles:
    """Open files by their number, without keys. There are at most 256 of them in a process, no more than a quarter of
    the files that it may have open, and none more where it has half of those open already. Threads may share this; to
    drop it closes them, and so does the end of a read.

    A file whose place another one has taken, or that was written to, is not given out again, and keys are asked for
    again: whoever takes a file finds what he would find if he opened it.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[SealedFile, tuple[int, ...]]] = {}

    def keep(self, number: int, file: SealedFile) -> bool:
        """False: it is not kept, and the caller closes it. Only local Parquet files are, whose footers were found
        good.
        """
        good = file.format is Format.PARQUET and (file.footer_verified or not file.encrypted)
        if not good or number in self._held or not to_spare(file) or (seen := file.source.identity) is None:
            return False
        try:
            _ROOM.pop()
        except IndexError:
            return False
        file.forget_keys()
        entry = file, seen
        if self._held.setdefault(number, entry) is entry:
            return True
        _ROOM.append(None)
        return False

    def look(self, number: int) -> SealedFile | None:
        """The file, for its footer alone; it stays here."""
        return self._held.get(number, (None,))[0]

    def take(self, number: int) -> SealedFile | None:
        """The caller closes it. None: it is to be opened."""
        file, seen = self._held.pop(number, (None, ()))
        if file is None:
            return None
        _ROOM.append(None)
        try:
            if is_still(file.path, seen):
                file.ask_keys_again()
                return file
        except KeyAccessError:  # to open it says what follows
            pass
        except BaseException:
            file.close()
            raise
        file.close()
        return None

    def close(self) -> None:
        """Close those that nobody took."""
        while self._held:
            with contextlib.suppress(KeyError):  # another thread took it
                file, _ = self._held.popitem()[1]
                _ROOM.append(None)
                file.close()

    def __del__(self) -> None:
        self.close()


def to_spare(file: SealedFile) -> int:
    """How many more files may be open that need not be, beside this local one: until the process has half of those open
    that it may have. A new descriptor is the lowest that is free, so it tells how many there are.
    """
    allowed, fd = resource.getrlimit(resource.RLIMIT_NOFILE)[0], file.source.fd
    if fd is None:
        return 0
    return _MOST if allowed == resource.RLIM_INFINITY else max(allowed // 2 - fd, 0)


def is_still(path: str, seen: tuple[int, ...]) -> bool:
    """Is a local file the one of this `identity`, and was not written to since?"""
    try:
        return identity(os.stat(path)) == seen  # noqa: PTH116
    except OSError:
        return False
