"""Memory that a thread uses again and again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from ..core.storage.source import Scratch

__all__ = ["leased", "lend"]

_KEPT: Final = 16 << 20
_lent = threading.local()
_left_behind: list[dict[int, Scratch]] = []


class _Held:
    """One thread's scratches. What a thread that ends leaves behind is the next one's, and nobody's else: threads of a
    caller's, as Polars has them, are new ones to Python whenever they call.
    """

    def __init__(self) -> None:
        try:
            self.scratches = _left_behind.pop()
        except IndexError:
            self.scratches = {}

    def __del__(self, behind: list[dict[int, Scratch]] = _left_behind, most: int = _KEPT) -> None:
        # By arguments: the module's names are gone when the interpreter ends.
        if not behind:
            behind.append({number: one for number, one in self.scratches.items() if one.size <= most})


def lend(number: int) -> Scratch:
    """This thread's scratch of that number, which keeps up to 16 MiB from one use to the next.

    Whoever borrows it is done with it before anything else on the thread can borrow the same number.
    """
    if not hasattr(_lent, "held"):
        _lent.held = _Held()
    held: dict[int, Scratch] = _lent.held.scratches
    scratch = held.get(number)
    if scratch is None or scratch.size > _KEPT:
        scratch = held[number] = Scratch()
    return scratch


@contextlib.contextmanager
def leased(number: int) -> Iterator[Scratch]:
    """As `lend`, and nothing else on the thread can borrow it meanwhile: for uses in which a caller's code may run.

    A key retriever, which is asked at the first use of a key, may itself read.
    """
    scratch = lend(number)
    held: dict[int, Scratch] = _lent.held.scratches
    del held[number]
    try:
        yield scratch
    finally:
        held[number] = scratch
