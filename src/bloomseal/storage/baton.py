"""Threads that compute one after another, and wait for disk and KMS side by side.

Python's threads hand the interpreter over at every call of the system. Where each of many small files makes fifty of
those and computes hardly anything between two, eight threads need twice the processor time of one. A `Baton` has them
hand over where something is waited for, and nowhere else. It saves time and guards nothing: whoever does not get it
soon goes on without it, so that nobody waits for ever for somebody who waits for him.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["Baton", "waiting"]

_PATIENCE: Final = 0.1
_mine = threading.local()


class Baton:
    """What one of several threads holds while it computes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have it, except while `waiting`."""
        self.keep()
        try:
            yield
        finally:
            _give()

    def keep(self) -> None:
        """Try again, between two pieces of work, if this thread went on without it."""
        if getattr(_mine, "lock", None) is not self._lock:
            _take(self._lock)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Let another thread compute: what is done here takes long, and no processor."""
    lock = _give()
    try:
        yield
    finally:
        if lock is not None:
            _take(lock)


def _take(lock: threading.Lock) -> None:
    _mine.lock = lock if lock.acquire(timeout=_PATIENCE) else None


def _give() -> threading.Lock | None:
    lock: threading.Lock | None = getattr(_mine, "lock", None)
    if lock is not None:
        _mine.lock = None
        lock.release()
    return lock
