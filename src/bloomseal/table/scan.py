"""A table as a stream: row groups decoded ahead of whoever takes them, in order, and not far ahead.

Of each row group under way its pages are held as they are stored, and one portion of decoded rows. A condition's own
columns are decoded a row group at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from ..core.errors import BloomsealError, UsageError
from ..core.forked import new_lock
from .query.kept import AHEAD, Place, is_still, to_spare
from .query.query import Fragment, Query, Shape
from .query.workers import side_by_side, workers

if TYPE_CHECKING:
    from ..read.plan import ReadStats

__all__ = ["Files", "Progress", "batches", "stream"]

T = TypeVar("T")
Progress = Callable[[float, int], None]
_Portion = tuple[deque[pa.RecordBatch], bool]
"""Rows, and whether those were all that there are."""
_Identity = tuple[int, ...]
_COUNTING = new_lock()
_PORTION: Final = 1 << 19
"""Bytes of decoded rows after which a row group waits until they are taken."""
_WORTH_RELEASING: Final = 1 << 18
_AHEAD: Final = 256 << 20
"""Bytes of row groups under way beyond which no other is begun, however many threads there are."""
_OPEN: Final = 64
"""Files that are open before their turn."""


class Files:
    """The files of a stream, before their turn.

    A local one that was opened for its shape stays open until its turn, if not too many do; and one of which filters
    leave nothing is not opened again. At its turn a file whose place another one has taken, or that was written to, is
    opened anew.

    Args:
        stats: what was done for each file is added to it, when the file is done with.
    """

    def __init__(self, query: Query, stats: ReadStats) -> None:
        self.query = query
        self.stats = stats
        self._open: dict[int, tuple[Fragment, _Identity, Place]] = {}
        self._done: dict[int, tuple[ReadStats, _Identity]] = {}

    def shape_of(self, number: int) -> Shape:
        """What one file has of the columns."""
        fragment = Fragment(self.query, number)
        source, plan = fragment.file.source, fragment.plan
        if self.query.parts.local and (seen := source.identity) is not None and self._rules_out(fragment):
            if not fragment.groups:
                self._done[number] = plan.stats, seen
            elif len(self._open) < _OPEN and to_spare(fragment.file) and (place := AHEAD.place()) is not None:
                self._open[number] = fragment, seen, place
                return fragment.shape
        fragment.file.close()
        return fragment.shape

    @staticmethod
    def _rules_out(fragment: Fragment) -> bool:
        """False where that failed: whoever takes the rows is told, at the file's turn."""
        try:
            fragment.rule_out()
        except BloomsealError:
            return False
        return True

    def take(self, number: int) -> Fragment | None:
        """The file, open, for its rows; whoever takes it closes it. None: there are none."""
        path = self.query.parts.files[number].ref.path
        if (done := self._done.pop(number, None)) is not None and is_still(path, done[1]):
            self.count(done[0])
            return None
        if (held := self._open.pop(number, None)) is not None:
            if is_still(path, held[1]):
                self.query.parts.refuse_outside(number, held[0].file)
                return held[0]
            held[0].file.close()
        fragment = Fragment(self.query, number)
        try:
            fragment.rule_out()
        except BaseException:
            fragment.file.close()
            raise
        if fragment.groups:
            return fragment
        self.count(fragment.plan.stats)
        fragment.file.close()
        return None

    def count(self, stats: ReadStats) -> None:
        """Add what was done for a file."""
        with _COUNTING:
            self.stats.add(stats)

    def close(self) -> None:
        """Close those that were not taken."""
        while self._open:
            self._open.popitem()[1][0].file.close()
        self.query.parts.opened.close()


def stream(
    files: Files, numbers: Sequence[int], schema: pa.Schema, threads: int | None, progress: Progress | None
) -> pa.RecordBatchReader:
    """As `batches`, as a reader.

    Whoever drops the reader, or an error, ends the work: what is not begun is cancelled, and files are closed.

    Args:
        schema: of the answer, see `Query.target`.
        threads: row groups that are under way at the same time, if they are not many bytes; None: one per processor.
        progress: see `SealedTable.scan`.
    """
    return pa.RecordBatchReader.from_batches(schema, batches(files, numbers, schema, threads, progress))


class _Opened:
    """A file, until the last of its row groups is done.

    Args:
        alive: the files that are open.
    """

    def __init__(self, files: Files, number: int, fragment: Fragment, alive: set[_Opened]) -> None:
        self.number = number
        self.fragment = fragment
        self._files, self._alive = files, alive
        self._lock = new_lock()
        self._left = len(fragment.groups)
        alive.add(self)

    @classmethod
    def of(cls, files: Files, number: int, alive: set[_Opened]) -> _Opened | None:
        """The file at its turn; None where no row group of it is left."""
        fragment = files.take(number)
        return None if fragment is None else cls(files, number, fragment, alive)

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self.close()

    def close(self) -> None:
        self._alive.discard(self)
        self._files.count(self.fragment.plan.stats)
        self.fragment.file.close()


class _Unit:
    """A row group, whose matching rows are decoded portion by portion.

    Args:
        schema: of the answer.

    Attributes:
        part: of its file, that is done with it.
        size: roughly its bytes.
        chosen: only some of its rows are asked for.
    """

    def __init__(self, opened: _Opened, group: int, query: Query, schema: pa.Schema) -> None:
        fragment = opened.fragment
        self.part = (group + 1) / fragment.file.num_parts
        self.size = fragment.plan.size_of(group)
        self.number = opened.number
        self.chosen = fragment.plan.predicate is not None
        self._opened = opened
        self._pieces = (query.in_schema(opened.number, rows, schema) for rows in fragment.pieces(group))

    def portion(self) -> _Portion:
        """The next rows, and whether that is all of them."""
        decoded: deque[pa.RecordBatch] = deque()
        held, more = 0, False
        try:
            for rows in self._pieces:
                decoded.extend(rows.to_batches())
                held += rows.nbytes
                if more := held >= _PORTION:
                    break
        finally:
            if not more:
                self._opened.done()
            if held >= _WORTH_RELEASING:
                # Arrow's pools keep what was freed a moment ago: several times as much as is in use here.
                pa.default_memory_pool().release_unused()
        return decoded, not more


def batches(
    files: Files, numbers: Sequence[int], schema: pa.Schema, threads: int | None, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    """The matching rows of these files; for the arguments see `stream`.

    Raises:
        UsageError: fewer than one thread; at once, and not with the first rows.
    """
    return _batches(files, numbers, schema, workers(threads), progress)


def _batches(
    files: Files, numbers: Sequence[int], schema: pa.Schema, threads: int, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    query = files.query
    pool, owner = ThreadPoolExecutor(threads, thread_name_prefix="bloomseal-scan"), os.getpid()
    alive: set[_Opened] = set()
    places = {number: place for place, number in enumerate(numbers)}
    if query.parts.local:
        coming = _in_blocks(files, numbers, threads, alive)
    else:
        # Two files at a time are enough to never wait for one: row groups keep the other threads at work.
        begun = _ahead((pool.submit(_Opened.of, files, number, alive) for number in numbers), 2)
        coming = (one.result() for one in begun)
    units = (_Unit(one, group, query, schema) for one in coming if one is not None for group in one.fragment.groups)
    pending: deque[tuple[_Unit, Future[_Portion] | None]] = deque()
    try:
        while True:
            if os.getpid() != owner:
                raise UsageError("the stream is the parent's, whose threads are not here", hint="scan in each process")
            while len(pending) < threads and sum(unit.size for unit, _ in pending) < _AHEAD:
                if (unit := next(units, None)) is None:
                    break
                # The one row group of most look-ups is not worth another thread, where this one would only wait.
                mine = unit.chosen and not pending
                pending.append((unit, None if mine else pool.submit(unit.portion)))
            if not pending:
                return
            unit, future = pending.popleft()
            decoded, whole = unit.portion() if future is None else future.result()
            # Nothing else holds the rows on: neither the queue nor a name.
            del future
            if not whole:
                pending.appendleft((unit, pool.submit(unit.portion)))
            while decoded:
                yield decoded.popleft()
            if whole and progress is not None:
                progress(places[unit.number] + unit.part, len(numbers))
    finally:
        pool.shutdown(wait=os.getpid() == owner, cancel_futures=True)
        for opened in [*alive]:
            opened.close()
        files.close()


def _in_blocks(files: Files, numbers: Sequence[int], threads: int, alive: set[_Opened]) -> Iterator[_Opened | None]:
    """Local files: many are opened at a time, as a read opens them; at first few, so that rows come soon."""

    def one(number: int) -> _Opened | BloomsealError | None:
        try:
            return _Opened.of(files, number, alive)
        except BloomsealError as error:  # not before its turn
            return error

    first, size = 0, 1
    while first < len(numbers):
        # Open before their turn are all but the first.
        places = AHEAD.places(min(size, len(numbers) - first) - 1)
        block = numbers[first : first + 1 + len(places)]
        more = _OPEN
        for opened in side_by_side(one, block, threads, handing_over=True):
            if isinstance(opened, BloomsealError):
                raise opened
            if opened is not None:
                more = min(more, to_spare(opened.fragment.file))
            yield opened
        first, size = first + len(block), max(min(8 * size, more), 1)
        del places  # the next block has them, or somebody else


def _ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """The same items, so many of them begun before the first is given out."""
    begun: deque[T] = deque()
    while True:
        begun.extend(islice(items, count - len(begun)))
        if not begun:
            return
        yield begun.popleft()
