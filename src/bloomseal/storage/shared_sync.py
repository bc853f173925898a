"""Syncs for several threads at once: one of them syncs for all that have written by then."""

from __future__ import annotations

import os

from ..core.forked import new_lock

__all__ = ["SharedSync"]


class SharedSync:
    """The syncs of one file or folder. Nobody returns before what it has written is on the disk."""

    def __init__(self) -> None:
        self._counting = new_lock()
        self._syncing = new_lock()
        self._written = self._synced = 0

    def wrote(self) -> int:
        """Something was written; its number, for `until`."""
        with self._counting:
            self._written += 1
            return self._written

    def until(self, number: int, fd: int) -> None:
        """Have it on the disk.

        Args:
            fd: the file or folder, by any of its descriptors.

        Raises:
            OSError: the storage failed. Whoever waited tries by itself.
        """
        with self._syncing:
            if self._synced < number:
                # Whatever was written before the sync begins goes with it.
                written = self._written
                os.fsync(fd)
                self._synced = written
