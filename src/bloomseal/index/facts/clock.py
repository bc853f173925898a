"""When a file's time says that nobody has changed it since: git's rule for racy files, turned round."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..manifest import FileState
    from ..place import FilePlace

__all__ = ["Clock"]

_FINE, _COARSE = 20_000_000, 2_000_000_000
"""Nanoseconds: two changes within that time may bear the same time. Kernels tick every 1 to 10 ms; some file systems
keep whole seconds, or every other one."""
_PATIENCE: Final = 5.0
_SECOND: Final = 1_000_000_000


class Clock:
    """The storage's own clock, by which its files bear their times.

    Args:
        place: where files can be made.
    """

    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._now = 0
        self._grain = _FINE

    def settled(self, state: FileState) -> bool:
        """Wait until a change to a file, from now on, would bear another state than its last one.

        Returns:
            False where that does not come about: the file's time lies ahead of the clock, or nothing tells its time.

        Raises:
            BloomsealError: no file can be made there; times of change are not the storage's own.
        """
        if state.tag:
            return True
        changed = state.ctime or state.mtime
        until = time.monotonic() + _PATIENCE
        while changed and self._now <= changed + self._grain:
            self._now = self._place.now()
            self._grain = _COARSE if self._now % _SECOND == 0 else _FINE
            if time.monotonic() > until:
                return False
            if self._now <= changed + self._grain:
                time.sleep(0.005 if self._grain == _FINE else 0.2)
        return changed > 0
