"""Threads that work on many files at the same time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import SupportsIndex, TypeVar

from ...core.errors import UsageError
from ...storage.baton import Baton

__all__ = ["side_by_side", "workers"]

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(
    work: Callable[[T], R], items: Sequence[T], threads: int | None, *, handing_over: bool = False
) -> list[R]:
    """What `work` makes of each, in order, several at a time; the first error in that order is raised.

    Args:
        handing_over: one thread computes at a time, see `Baton`: for local files that take a fraction of a millisecond.
    """
    count = workers(threads)
    if min(len(items), count) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    if not handing_over:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(work, items))
    numbered = enumerate(items)
    done: dict[int, R] = {}
    failed: dict[int, BaseException] = {}
    idle = [None] * (min(count, len(items)) - 1)

    def several() -> None:
        with baton.held():
            # Whoever has it goes on to the next item with it: to hand it over takes longer than many an item.
            for number, item in numbered:
                baton.keep()
                try:
                    done[number] = work(item)
                except BaseException as error:
                    failed[number] = error
                if failed:
                    return  # items are taken in order: those before are done, or under way

    with ThreadPoolExecutor(count) as pool:

        def one_more() -> None:
            # No thread is left to begin; or all items are taken, and the pool takes nothing more (a RuntimeError).
            with contextlib.suppress(IndexError, RuntimeError):
                idle.pop()
                pool.submit(several)

        # This thread is the first; another begins where one waits. A thread more, of which none waits, is only a price.
        baton = Baton(one_more)
        try:
            several()
        except BaseException as error:  # somebody pressed Ctrl-C
            failed[-1] = error
    # Else a circle of references would keep what was worked on, open files too, until garbage is collected.
    baton.others = None
    if failed:
        raise failed[min(failed)]
    return [done[number] for number in range(len(items))]


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
