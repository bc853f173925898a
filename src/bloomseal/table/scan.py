"""A table as a stream: row groups decoded ahead of whoever takes them, in order, never more than there are threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from .query.query import Fragment, Query

if TYPE_CHECKING:
    from ..read.file import ReadStats

__all__ = ["Progress", "stream"]

T = TypeVar("T")
Progress = Callable[[float, int], None]
_COUNTING = threading.Lock()


def stream(
    query: Query,
    numbers: Sequence[int],
    schema: pa.Schema,
    threads: int | None,
    stats: ReadStats,
    progress: Progress | None,
) -> pa.RecordBatchReader:
    """The matching rows of these files.

    Whoever drops the reader, or an error, ends the work: what is not begun is cancelled, and files are closed.

    Args:
        schema: of the answer, see `Query.target`.
        threads: row groups that are decoded at the same time, and so held; None: one per processor.
        stats: what was done for each file is added to it, when the file is done with.
        progress: see `SealedTable.scan`.
    """
    batches = _batches(query, numbers, schema, threads or os.cpu_count() or 1, stats, progress)
    return pa.RecordBatchReader.from_batches(schema, batches)


class _Opened:
    """A file, until the last of its row groups is done.

    Args:
        alive: the files that are open.
        stats: of all files; this one's are added when it is closed.
    """

    def __init__(self, query: Query, number: int, alive: set[_Opened], stats: ReadStats) -> None:
        self.number = number
        self._alive, self._stats = alive, stats
        self.fragment = Fragment(query, number)
        self._left = len(self.fragment.groups)
        self._lock = threading.Lock()
        alive.add(self)
        if not self._left:
            self.close()

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self.close()

    def close(self) -> None:
        self._alive.discard(self)
        with _COUNTING:
            self._stats.add(self.fragment.plan.stats)
        self.fragment.file.close()


def _batches(
    query: Query,
    numbers: Sequence[int],
    schema: pa.Schema,
    threads: int,
    stats: ReadStats,
    progress: Progress | None,
) -> Iterator[pa.RecordBatch]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="bloomseal-scan")
    alive: set[_Opened] = set()
    places = {number: place for place, number in enumerate(numbers)}
    # Two files at a time are enough to never wait for one: row groups keep the other threads at work.
    coming = _ahead((pool.submit(_Opened, query, number, alive, stats) for number in numbers), 2)
    units = ((opened, group) for one in coming for opened in (one.result(),) for group in opened.fragment.groups)
    pending: deque[Future[list[pa.RecordBatch]]] = deque()
    done: deque[float] = deque()

    def rows(opened: _Opened, group: int) -> list[pa.RecordBatch]:
        try:
            found = opened.fragment.rows(group)
            batches: list[pa.RecordBatch] = (
                [] if found is None else query.in_schema(opened.number, found, schema).to_batches()
            )
            return batches
        finally:
            opened.done()

    def submit(count: int) -> None:
        for opened, group in islice(units, count):
            pending.append(pool.submit(rows, opened, group))
            done.append(places[opened.number] + (group + 1) / opened.fragment.file.num_parts)

    try:
        submit(threads)
        while pending:
            # Nothing else holds the rows on: neither the queue nor a name.
            yield from pending.popleft().result()
            if progress is not None:
                progress(done[0], len(numbers))
            done.popleft()
            submit(1)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for opened in [*alive]:
            opened.close()


def _ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """The same items, so many of them begun before the first is given out."""
    begun: deque[T] = deque()
    while True:
        begun.extend(islice(items, count - len(begun)))
        if not begun:
            return
        yield begun.popleft()
