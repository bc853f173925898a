"""Threads that work on many files at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...errors import UsageError

__all__ = ["side_by_side", "workers"]

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Sequence[T], threads: int | None) -> list[R]:
    """What `work` makes of each, in order, several at a time; the first error in that order is raised."""
    count = workers(threads)
    if min(len(items), count) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, items))


def workers(threads: int | None) -> int:
    """How many threads; None: one per processor.

    Raises:
        UsageError: fewer than one.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"{threads} threads", hint="threads= of at least 1; None for one per processor")
    return threads or os.cpu_count() or 1
