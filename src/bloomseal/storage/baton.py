"""Threads that compute one after another, and wait for disk and KMS side by side.

Python's threads hand the interpreter over at every call of the system. Where each of many small files makes fifty of
those and computes hardly anything between two, eight threads need twice the processor time of one. A `Baton` has them
hand over where something is waited for, and nowhere else. It saves time and guards nothing: whoever does not get it
soon goes on without it, so that nobody waits for ever for somebody who waits for him.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["Baton", "waiting"]

_PATIENCE: Final = 0.1
_mine = threading.local()


class Baton:
    """What one of several threads holds while it computes.

    Attributes:
        others: called where a thread that has it begins to wait: others may compute meanwhile.
    """

    def __init__(self, others: Callable[[], object] | None = None) -> None:
        self._lock = threading.Lock()
        self.others = others

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have it, except while `waiting`. A thread has one at a time: that which it had before it has again behind."""
        outer = _had()
        if outer is self:
            yield
            return
        _mine.baton = None
        self.keep()
        try:
            yield
        finally:
            _give()
            _mine.baton = outer

    def keep(self) -> None:
        """Try again, between two pieces of work, if this thread went on without it."""
        if _had() is not self:
            self._take()

    def _take(self) -> None:
        _mine.baton = self if self._lock.acquire(timeout=_PATIENCE) else None


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Let another thread compute: what is done here takes long, and no processor."""
    baton = _give()
    if baton is not None and baton.others is not None:
        baton.others()
    try:
        yield
    finally:
        if baton is not None:
            baton._take()


def _had() -> Baton | None:
    baton: Baton | None = getattr(_mine, "baton", None)
    return baton


def _give() -> Baton | None:
    baton = _had()
    if baton is not None:
        _mine.baton = None
        baton._lock.release()
    return baton
