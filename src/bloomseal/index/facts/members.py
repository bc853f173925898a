"""The files of a table as its indexes see them: where each is, and which state of it is there now."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ...read.file import SealedFile
from ...storage.versions import version_at, versions_below
from ..manifest import FileState, state_of
from ..place import state_of_version
from .sighting import authentic_content

__all__ = ["Members", "Trust"]

_BY_IDENTITY: Final = FileState(0, 0, 0, 0, "identity")


class Trust(StrEnum):
    """What makes a fact about a file count for the file that is there now."""

    AUTO = "auto"
    """On this machine inode, size and times; in a store a version's tag, or the name, where a table's log keeps it."""
    TIME = "time"
    """In a store also size and time, where the client tells no tag."""
    IDENTITY = "identity"
    """Each covered file's footer, opened and authenticated at each look-up."""


class Members:
    """Files of one folder. Threads may share it.

    Args:
        root: the folder.
        refs, relative: where each file is, and its path below the folder.
        open: opens the file of a number; the caller closes it.
        logged: what a table's log tells of each file beside its name (`Found.told`); None: no log keeps the list. Delta
            and Iceberg make names that are never used twice; files that were there before the table have any.
        trust: see `Trust`.
    """

    def __init__(
        self,
        root: FileRef,
        refs: Sequence[FileRef],
        relative: Sequence[str],
        open: Callable[[int], SealedFile],  # noqa: A002
        *,
        logged: Sequence[str] | None = None,
        trust: Trust = Trust.AUTO,
    ) -> None:
        self.trust = trust
        self.root, self.refs, self.relative, self.open = root, list(refs), list(relative), open
        self.logged = logged
        self._listed: list[FileState | None] | None = None

    def __len__(self) -> int:
        return len(self.refs)

    @property
    def here(self) -> bool:
        """They are on this machine."""
        return self.root.filesystem is None

    def states(self) -> list[FileState | None]:
        """Of all files, as far as they are to be trusted; None where a file is gone, or nothing tells its state.

        On this machine they are those of this moment; in a store those of one listing, made when they are first asked
        for.
        """
        if self.trust is Trust.IDENTITY:
            return [_BY_IDENTITY] * len(self)
        if self._listed is None or self.here:
            self._listed = self.listed()
        if self.here or self.trust is Trust.TIME:
            return self._listed
        return [state if state is not None and state.tag else None for state in self._listed]

    def listed(self) -> list[FileState | None]:
        """The states of all files now, whatever they are worth.

        Raises:
            UsageError: the store can't be listed.
        """
        if self.here:
            return [_local(ref.path) for ref in self.refs]
        if self.logged is not None:
            return list(map(_by_log, self.logged))
        found = versions_below(self.root)
        there = [found.get(ref.path.lstrip("/")) for ref in self.refs]
        return [None if one is None else state_of_version(one) for one in there]

    def state(self, number: int) -> FileState | None:
        """Of one file, now."""
        ref = self.refs[number]
        if self.here:
            return _local(ref.path)
        if self.logged is not None:
            return _by_log(self.logged[number])
        found = version_at(ref)
        return None if found is None else state_of_version(found)

    def content(self, number: int, column: str) -> bytes | None:
        """What stays the same as long as no page of the column changes, from the file's authenticated footer; None
        where it can't be opened.
        """
        try:
            with self.open(number) as file:
                return authentic_content(file, column)
        except BloomsealError:
            return None


def _by_log(told: str) -> FileState | None:
    return FileState(0, 0, 0, 0, f"log {told}") if told else None


def _local(path: str) -> FileState | None:
    try:
        return state_of(os.stat(path))  # noqa: PTH116
    except OSError:
        return None
