"""A table as a stream: row groups decoded ahead of whoever takes them, in order, never more than there are threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import pyarrow as pa

from .query import Fragment, Query

__all__ = ["stream"]


def stream(query: Query, numbers: Sequence[int], schema: pa.Schema, threads: int | None) -> pa.RecordBatchReader:
    """The matching rows of these files.

    Whoever drops the reader, or an error, ends the work: what is not begun is cancelled, and files are closed.

    Args:
        schema: of the answer, see `Query.target`.
        threads: row groups that are decoded at the same time, and so held; None: one per processor.
    """
    return pa.RecordBatchReader.from_batches(schema, _batches(query, numbers, schema, threads or os.cpu_count() or 1))


class _Opened:
    """A file, until the last of its row groups is done."""

    def __init__(self, query: Query, number: int) -> None:
        self.number = number
        self.fragment = Fragment(query, number)
        self._left = len(self.fragment.groups)
        self._lock = threading.Lock()
        if not self._left:
            self.close()

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self.close()

    def close(self) -> None:
        self.fragment.file.close()


def _batches(
    query: Query, numbers: Sequence[int], schema: pa.Schema, threads: int
) -> Generator[pa.RecordBatch, None, None]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="bloomseal-scan")
    # Two files at a time are enough to never wait for one: row groups keep the other threads at work.
    opening = _opened(query, numbers, pool, 2)
    units = ((opened, group) for opened in opening for group in opened.fragment.groups)
    pending: deque[tuple[_Opened, Future[list[pa.RecordBatch]]]] = deque()

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
        pending.extend((opened, pool.submit(rows, opened, group)) for opened, group in islice(units, count))

    try:
        submit(threads)
        while pending:
            # Nothing else holds the rows on: neither the queue nor a name.
            yield from pending.popleft()[1].result()
            submit(1)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        opening.close()
        for opened, _ in pending:
            opened.close()


def _opened(
    query: Query, numbers: Sequence[int], pool: ThreadPoolExecutor, ahead: int
) -> Generator[_Opened, None, None]:
    """Files in order, opened a little ahead."""
    left = iter(numbers)
    coming: deque[Future[_Opened]] = deque()
    current: _Opened | None = None
    try:
        while True:
            coming.extend(pool.submit(_Opened, query, number) for number in islice(left, ahead - len(coming)))
            if not coming:
                return
            current = coming.popleft().result()
            yield current
    finally:
        if current is not None:
            current.close()
        for one in coming:
            if not one.cancelled() and one.exception() is None:
                one.result().close()
