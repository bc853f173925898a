"""A table as a stream: row groups decoded ahead of whoever takes them, in order, and not far ahead.

Of each row group under way its pages are held as they are stored, and one portion of decoded rows. A condition's own
columns are decoded a row group at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from .query.query import Fragment, Query
from .query.workers import workers

if TYPE_CHECKING:
    from ..read.file import ReadStats

__all__ = ["Progress", "stream"]

T = TypeVar("T")
Progress = Callable[[float, int], None]
_COUNTING = threading.Lock()
_PORTION: Final = 1 << 19
"""Bytes of decoded rows after which a row group waits until they are taken."""
_WORTH_RELEASING: Final = 1 << 18
_AHEAD: Final = 256 << 20
"""Bytes of row groups under way beyond which no other is begun, however many threads there are."""


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
        threads: row groups that are under way at the same time, if they are not many bytes; None: one per processor.
        stats: what was done for each file is added to it, when the file is done with.
        progress: see `SealedTable.scan`.
    """
    batches = _batches(query, numbers, schema, workers(threads), stats, progress)
    return pa.RecordBatchReader.from_batches(schema, batches)


class _Opened:
    """A file, until the last of its row groups is done.

    Args:
        alive: the files that are open.
        stats: of all files; this one's are added when it is closed.

    Attributes:
        groups: the row groups to read.
    """

    def __init__(self, query: Query, number: int, alive: set[_Opened], stats: ReadStats) -> None:
        self.number = number
        self._alive, self._stats = alive, stats
        self.fragment = Fragment(query, number)
        self._lock = threading.Lock()
        alive.add(self)
        self.groups = self._kept() if query.parts.local else self.fragment.groups
        self._left = len(self.groups)
        if not self._left:
            self.close()

    def _kept(self) -> Sequence[int]:
        """Without those that filters rule out: to ask takes less than to hand over to another thread."""
        file, plan = self.fragment.file, self.fragment.plan
        if plan.predicate is None or not plan.predicate.few:
            return self.fragment.groups
        return [group for group in self.fragment.groups if not file.skips(plan, group)]

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


class _Unit:
    """A row group, whose matching rows are decoded portion by portion.

    Args:
        schema: of the answer.

    Attributes:
        part: of its file, that is done with it.
        size: roughly its bytes.
    """

    def __init__(self, opened: _Opened, group: int, query: Query, schema: pa.Schema) -> None:
        fragment = opened.fragment
        self.part = (group + 1) / fragment.file.num_parts
        self.size = fragment.plan.size_of(group)
        self.number = opened.number
        self._opened = opened
        self._pieces = (query.in_schema(opened.number, rows, schema) for rows in fragment.pieces(group))

    def portion(self) -> tuple[deque[pa.RecordBatch], bool]:
        """The next rows, and whether that is all of them."""
        batches: deque[pa.RecordBatch] = deque()
        held, more = 0, False
        try:
            for rows in self._pieces:
                batches.extend(rows.to_batches())
                held += rows.nbytes
                if more := held >= _PORTION:
                    break
        finally:
            if not more:
                self._opened.done()
            if held >= _WORTH_RELEASING:
                # Arrow's pools keep what was freed a moment ago: several times as much as is in use here.
                pa.default_memory_pool().release_unused()
        return batches, not more


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
    units = (
        _Unit(opened, group, query, schema) for one in coming for opened in (one.result(),) for group in opened.groups
    )
    pending: deque[tuple[_Unit, Future[tuple[deque[pa.RecordBatch], bool]]]] = deque()
    try:
        while True:
            while len(pending) < threads and sum(unit.size for unit, _ in pending) < _AHEAD:
                if (unit := next(units, None)) is None:
                    break
                pending.append((unit, pool.submit(unit.portion)))
            if not pending:
                return
            unit, future = pending.popleft()
            batches, whole = future.result()
            # Nothing else holds the rows on: neither the queue nor a name.
            del future
            if not whole:
                pending.appendleft((unit, pool.submit(unit.portion)))
            while batches:
                yield batches.popleft()
            if whole and progress is not None:
                progress(places[unit.number] + unit.part, len(numbers))
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
