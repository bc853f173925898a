"""The one engine of a table's reads: files opened for their schemas, then row groups decoded ahead of whoever takes
them, in order, and not far ahead.

Of each row group under way its pages are held as they are stored, and one portion of decoded rows. A condition's own
columns are decoded a row group at a time.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..core.errors import BloomsealError, UsageError
from ..core.forked import new_lock
from ..core.storage.local import identity
from ..read.file import STREAMED
from .query.query import Fragment, Query, Shape
from .query.workers import side_by_side, workers

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from ..read.plan import ReadStats

Progress = Callable[[float, int], None]
_Portion = tuple[deque[pa.RecordBatch], bool]
"""Rows, and whether those were all that there are."""
_Identity = tuple[int, ...] | None
_COUNTING = new_lock()
_WORTH_RELEASING: Final = 1 << 18
_AHEAD: Final = 256 << 20
"""Bytes of row groups under way beyond which no other is begun, however many threads there are."""
_MOST_OPEN: Final = 256
"""Files of a scan that are open before their turn."""
_BLOCK: Final = 64
"""Files that are opened for their rows at a time."""
_TOGETHER: Final = 1 << 18
"""Bytes of row groups that one thread decodes at once: to hand over fewer takes longer than to decode them."""


class FileOpener:
    """Opens the files of a scan: all of them for their schemas, and each at its turn for its rows.

    A file that was opened for its schema stays open until its turn, if not too many do; and one of which filters leave
    nothing is not opened again. At its turn a local file whose place another one has taken, or that was written to, is
    opened anew.

    Args:
        stats: what was done for each file is added to it, when the file is done with.
        size: bytes of decoded rows after which a row group waits until they are taken.
    """

    def __init__(self, query: Query, stats: ReadStats, size: int) -> None:
        self.query, self.size = query, size
        self._stats = stats
        self._open: dict[int, tuple[Fragment, _Identity]] = {}
        self._done: dict[int, tuple[ReadStats, _Identity]] = {}
        self._reading: dict[Fragment, int] = {}

    def shapes(self, numbers: Sequence[int]) -> list[Shape]:
        """What these files have of the columns."""
        return side_by_side(self._shape_of, numbers, None)

    def _shape_of(self, number: int) -> Shape:
        fragment = Fragment(self.query, number)
        seen = fragment.file.source.identity
        try:
            fragment.rule_out()
        except BloomsealError:
            # Whoever takes the rows is told, at the file's turn.
            fragment.file.close()
            return fragment.shape
        if not fragment.groups:
            self._done[number] = fragment.plan.stats, seen
        elif len(self._open) < _MOST_OPEN and spare_descriptors():
            self._open[number] = fragment, seen
            return fragment.shape
        fragment.file.close()
        return fragment.shape

    def in_turn(self, numbers: Sequence[int], threads: int) -> Iterator[Fragment]:
        """Those of the files that have rows, open until each of their `groups` is `done`."""
        first = 0
        while first < len(numbers):
            block = numbers[first : first + max(min(_BLOCK, spare_descriptors()), 1)]
            for taken in side_by_side(self._take, block, threads):
                if isinstance(taken, BloomsealError):
                    raise taken
                if taken is not None:
                    yield taken
            first += len(block)

    def _take(self, number: int) -> Fragment | BloomsealError | None:
        """The file, open, for its rows; None: there are none. An error is raised at the file's turn, not before."""
        path = self.query.parts.files[number].ref.path
        if (done := self._done.pop(number, None)) is not None and _is_still(path, done[1]):
            self._count(done[0])
            return None
        fragment, seen = self._open.pop(number, (None, None))
        try:
            if fragment is not None and _is_still(path, seen):
                self.query.parts.refuse_outside(number, fragment.file)
            else:
                if fragment is not None:
                    fragment.file.close()
                fragment = Fragment(self.query, number)
                fragment.rule_out()
        except BaseException as error:
            if fragment is not None:
                fragment.file.close()
            if isinstance(error, BloomsealError):
                return error
            raise
        if fragment.groups:
            self._reading[fragment] = len(fragment.groups)
            return fragment
        self._close(fragment)
        return None

    def done(self, fragment: Fragment, groups: int) -> None:
        """So many of its row groups were read; with the last one it is closed."""
        with _COUNTING:
            self._reading[fragment] -= groups
            last = not self._reading[fragment]
        if last:
            del self._reading[fragment]
            self._close(fragment)

    def _close(self, fragment: Fragment) -> None:
        self._count(fragment.plan.stats)
        fragment.file.close()

    def _count(self, stats: ReadStats) -> None:
        with _COUNTING:
            self._stats.add(stats)

    def close(self) -> None:
        """Close all that are open."""
        while self._open:
            self._open.popitem()[1][0].file.close()
        while self._reading:
            self._close(self._reading.popitem()[0])


def spare_descriptors() -> int:
    """How many more files may be open that need not be: until the process has half of those open that it may have. A
    new descriptor is the lowest that is free, so it tells how many there are.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return _MOST_OPEN
    try:
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    os.close(fd)
    return max(allowed // 2 - fd, 0)


def _is_still(path: str, seen: _Identity) -> bool:
    """Whether a file is the one that was opened, and was not written to since. Of a store nothing tells."""
    try:
        return seen is None or identity(os.stat(path)) == seen  # noqa: PTH116
    except OSError:
        return False


class _Unit:
    """Row groups of a file, whose matching rows are decoded portion by portion.

    Args:
        groups: of the file.
        schema: of the answer.

    Attributes:
        part: of its file, that is done with them.
        size: roughly their bytes.
        chosen: only some of their rows are asked for.
    """

    def __init__(self, opener: FileOpener, fragment: Fragment, groups: list[int], schema: pa.Schema) -> None:
        self.part = (groups[-1] + 1) / fragment.file.num_parts
        self.size = sum(map(fragment.plan.size_of, groups))
        self.number = fragment.number
        self.chosen = fragment.plan.predicate is not None
        pieces = (rows for group in groups for rows in fragment.pieces(group, opener.size))
        self._pieces = (opener.query.in_schema(self.number, rows, schema) for rows in pieces)
        self._opener, self._fragment, self._groups = opener, fragment, groups

    def portion(self) -> _Portion:
        """The next rows, and whether that is all of them."""
        decoded: deque[pa.RecordBatch] = deque()
        held, more = 0, False
        try:
            for rows in self._pieces:
                decoded.extend(rows.to_batches())
                held += rows.nbytes
                if more := held >= self._opener.size:
                    break
        finally:
            if not more:
                self._opener.done(self._fragment, len(self._groups))
            if held >= _WORTH_RELEASING and self._opener.size == STREAMED:
                # Arrow's pools keep what was freed a moment ago: several times as much as is in use here.
                pa.default_memory_pool().release_unused()
        return decoded, not more


def _units(opener: FileOpener, fragments: Iterable[Fragment], schema: pa.Schema) -> Iterator[_Unit]:
    """All row groups, small ones of a file together."""
    for one in fragments:
        groups: list[int] = []
        size = 0
        for group in one.groups:
            groups.append(group)
            size += one.plan.size_of(group)
            if size >= _TOGETHER:
                yield _Unit(opener, one, groups, schema)
                groups, size = [], 0
        if groups:
            yield _Unit(opener, one, groups, schema)


def scanned(
    opener: FileOpener,
    numbers: Sequence[int],
    schema: pa.Schema,
    threads: int | None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """The matching rows of these files. Whoever drops the iterator, or an error, ends the work: what is not begun is
    cancelled, and files are closed.

    Args:
        schema: of the answer, see `Query.target`.
        threads: row groups that are under way at the same time, if they are not many bytes; None: one per processor.
        progress: see `SealedTable.scan`.

    Raises:
        UsageError: fewer than one thread; at once, and not with the first rows.
    """
    return _scanned(opener, numbers, schema, workers(threads), progress)


def _scanned(
    opener: FileOpener, numbers: Sequence[int], schema: pa.Schema, threads: int, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    pool: ThreadPoolExecutor | None = None
    owner = os.getpid()
    places = {number: place for place, number in enumerate(numbers)}
    units = _units(opener, opener.in_turn(numbers, threads), schema)
    pending: deque[tuple[_Unit, Future[_Portion] | None]] = deque()

    def begun(unit: _Unit) -> Future[_Portion]:
        nonlocal pool
        if pool is None:
            from concurrent.futures import ThreadPoolExecutor  # a first look-up need not load it

            pool = ThreadPoolExecutor(threads, thread_name_prefix="bloomseal-scan")
        return pool.submit(unit.portion)

    try:
        while True:
            if os.getpid() != owner:
                raise UsageError("the stream is the parent's, whose threads are not here", hint="scan in each process")
            while len(pending) < threads and sum(unit.size for unit, _ in pending) < _AHEAD:
                if (unit := next(units, None)) is None:
                    break
                # The one row group of most look-ups is not worth another thread, where this one would only wait.
                mine = unit.chosen and not pending
                pending.append((unit, None if mine else begun(unit)))
            if not pending:
                return
            unit, future = pending.popleft()
            decoded, whole = unit.portion() if future is None else future.result()
            # Nothing else holds the rows on: neither the queue nor a name.
            del future
            if not whole:
                pending.appendleft((unit, begun(unit)))
            while decoded:
                yield decoded.popleft()
            if whole and progress is not None:
                progress(places[unit.number] + unit.part, len(numbers))
    finally:
        if pool is not None:
            pool.shutdown(wait=os.getpid() == owner, cancel_futures=True)
        opener.close()
