"""Files that stay open from the question for a table's schema to the question for its rows."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING, Final

from ...core.errors import KeyAccessError
from ...core.storage.local import identity
from ...read.parquet import ParquetFile

if TYPE_CHECKING:
    from ...read.file import SealedFile

__all__ = ["AHEAD", "KEPT", "KeptFiles", "Place", "is_still", "to_spare"]

_MOST: Final = 256
_ALLOWED: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_SHARE: Final = _MOST if _ALLOWED == resource.RLIM_INFINITY else min(_MOST, _ALLOWED // 4)


class Place:
    """One file's place in a `Room`. To drop it gives it back."""

    __slots__ = ("_left",)

    def __init__(self, left: list[None]) -> None:
        self._left = left

    def __del__(self) -> None:
        self._left.append(None)


class Room:
    """Places for files that are open before somebody reads them: 256 in a process, and no more than a quarter of the
    files that it may have open.
    """

    def __init__(self) -> None:
        # A list, since its steps can't be interrupted: a semaphore's can, by the collector of garbage, which may drop
        # files then and would wait for the semaphore for ever.
        self.left: list[None] = [None] * _SHARE

    def place(self) -> Place | None:
        """None where none is left."""
        try:
            self.left.pop()
        except IndexError:
            return None
        return Place(self.left)

    def places(self, most: int) -> list[Place]:
        """As many as are left."""
        found: list[Place] = []
        while len(found) < most and (place := self.place()) is not None:
            found.append(place)
        return found


KEPT: Final = Room()
AHEAD: Final = Room()
"""Of streams, whose files would else find no place while a table waits for its reader."""


class KeptFiles:
    """Open files by their number, without keys, as many as have a place, and none more where the process has half of
    the files open that it may have. Threads may share this; to drop it closes them, and so does the end of a read.

    A file whose place another one has taken, or that was written to, is not given out again, and keys are asked for
    again: whoever takes a file finds what he would find if he opened it.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[ParquetFile, tuple[int, ...], Place]] = {}

    def keep(self, number: int, file: SealedFile) -> bool:
        """False: it is not kept, and the caller closes it. Only local Parquet files are, whose footers were found
        good.
        """
        good = file.footer_verified or not file.encrypted
        if (
            not isinstance(file, ParquetFile)
            or not good
            or number in self._held
            or not to_spare(file)
            or (seen := file.source.identity) is None
        ):
            return False
        if (place := KEPT.place()) is None:
            return False
        file.forget_keys()
        entry = file, seen, place
        return self._held.setdefault(number, entry) is entry

    def look(self, number: int) -> SealedFile | None:
        """The file, for its footer alone; it stays here."""
        return self._held.get(number, (None,))[0]

    def take(self, number: int) -> SealedFile | None:
        """The caller closes it. None: it is to be opened."""
        file, seen, _ = self._held.pop(number, (None, (), None))
        if file is None:
            return None
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
                self._held.popitem()[1][0].close()

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
