"""Threads that work on many files at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final, SupportsIndex, TypeVar

from ...core.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")

_SHORT: Final = 0.002
"""Seconds. Python's threads hand the interpreter over at every call of the system: of work that takes less than this,
several threads make twice the processor time and no less time.
"""


def side_by_side(work: Callable[[T], R], items: Sequence[T], threads: int | None) -> list[R]:
    """What `work` makes of each item, in order; by several threads from the second item in a row on that takes long.

    Raises:
        Whatever `work` raises for the first item, in their order, that it fails for.
    """
    count, done, long = workers(threads), [], 0
    for item in items:
        began = time.perf_counter()
        done.append(work(item))
        long = long + 1 if time.perf_counter() - began > _SHORT else 0
        if long == 2 and count > 1:
            break
    if len(done) < len(items):
        from concurrent.futures import ThreadPoolExecutor  # a first look-up need not load it

        with ThreadPoolExecutor(min(count, len(items) - len(done))) as pool:
            done += pool.map(work, items[len(done) :])
    return done


def workers(threads: int | None) -> int:
    """How many threads; None: one per processor.

    Raises:
        UsageError: fewer than one, or no whole number.
    """
    if threads is not None and (not isinstance(threads, SupportsIndex) or int(threads) < 1):
        raise UsageError(
            f"no such number of threads: {threads!r}", hint="threads= of at least 1; None for one per processor"
        )
    return threads or os.cpu_count() or 1
