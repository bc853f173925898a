"""Reading a run: a search among its pages' bounds, then the few pages in question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.encryption import ModuleType
from ...core.errors import FormatError
from ...core.forked import new_lock
from ...core.parquet.page import Page
from ...core.parquet.walk import Walk
from ...core.thrift.structs import ColumnIndex, OffsetIndex, decode
from ...format.decode import decode_batches, leaf_values
from ...format.minifile import PageSelection, mini_file
from ...read.parquet import ParquetFile
from ..folder import IndexFolder
from ..manifest import IndexRun, Shard
from ..numbers import as_numpy

I64 = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]

_NONE: Final[I64] = np.empty(0, dtype=np.int64)
_KEPT_ENTRIES: Final = 1 << 18
"""A shard of no more entries is held in memory once it was read: 2 MiB."""
_PAGES_AT_ONCE: Final = 256
_ROWS_AT_ONCE: Final = 1 << 20


class RunReader:
    """A run, whose files are opened when they are asked. Threads may share it.

    Raises, in every method:
        MissingFileError: one of its files is gone: somebody has compacted the index.
        BloomsealError: one of them is not what the manifest says, or does not authenticate.
    """

    def __init__(self, folder: IndexFolder, run: IndexRun) -> None:
        self.run = run
        self._folder = folder
        self._opened: dict[str, _OpenShard] = {}
        self._lock = new_lock()

    def find(self, fingerprints: npt.NDArray[np.uint64]) -> tuple[Indices, I64]:
        """Where these fingerprints are.

        Returns:
            Two arrays of one length: which of `fingerprints`, and a place of it.
        """
        order = np.argsort(fingerprints)
        ascending = fingerprints[order]
        bits = self.run.place_bits
        low = ascending.astype(np.int64) << bits
        which, found = [_NONE], [_NONE]
        for shard in self.run.shards:
            # Those that can be in this shard.
            first, end = np.searchsorted(low + (1 << bits) - 1, shard.first), np.searchsorted(low, shard.last, "right")
            if first < end:
                owners, entries = self._open(shard).find(low[first:end], bits)
                which.append(order[owners + first])
                found.append(entries)
        places = np.concatenate(found) & ((1 << bits) - 1)
        owners = np.concatenate(which)
        real = places < self.run.places
        return owners[real], places[real]

    def between(self, low: int, high: int) -> I64:
        """The entries from `low` to `high`, without the latter, ascending."""
        shards = [shard for shard in self.run.shards if shard.first < high and low <= shard.last]
        return np.concatenate([_NONE, *(self._open(shard).between(low, high) for shard in shards)])

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, {}
        for one in opened.values():
            one.file.close()

    def _open(self, shard: Shard) -> _OpenShard:
        with self._lock:
            if (held := self._opened.get(shard.file)) is None:
                file = self._folder.open_shard(shard)
                held = self._opened[shard.file] = _OpenShard(file, shard)
            return held


class _Pages(NamedTuple):
    """The data pages of a shard: bounds, and where each is."""

    low: I64
    high: I64
    offsets: list[int]
    sizes: list[int]


class _OpenShard:
    """One file of a run."""

    def __init__(self, file: ParquetFile, shard: Shard) -> None:
        self.file = file
        self._shard = shard
        self._lock = new_lock()
        self._all: I64 | None = None
        self._known: _Pages | None = None

    def find(self, low: I64, bits: int) -> tuple[Indices, I64]:
        """Of each ``[low, low + 2^bits)``, ascending: which it is, and the entries in it."""
        owners, found = [_NONE], [_NONE]
        for begin, end, entries in self._around(low, bits):
            left = np.searchsorted(entries, low[begin:end])
            counts = np.searchsorted(entries, low[begin:end] + (1 << bits)) - left
            which = np.repeat(np.arange(begin, end), counts)
            # For each hit its place in `entries`: the left end of its range, and on.
            within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
            owners.append(which)
            found.append(entries[np.repeat(left, counts) + within])
        return np.concatenate(owners), np.concatenate(found)

    def between(self, low: int, high: int) -> I64:
        if self._small:
            entries = self.whole()
        else:
            pages = self._pages()
            first = int(np.searchsorted(pages.high, low))
            end = int(np.searchsorted(pages.low, high))
            entries = self._read(range(first, end))
        begin, stop = np.searchsorted(entries, (low, high))
        return entries[begin:stop]

    @property
    def _small(self) -> bool:
        return self._shard.entries <= _KEPT_ENTRIES

    def _around(self, low: I64, bits: int) -> Iterator[tuple[int, int, I64]]:
        """Portions of `low`, from and to, with entries among which theirs are, those of all portions taken together."""
        if self._small:
            yield 0, len(low), self.whole()
            return
        pages = self._pages()
        count = len(pages.low)
        first = np.searchsorted(pages.high, low)
        end = np.searchsorted(pages.low, low + (1 << bits))
        # From its first page to its end each adds one to what a page is wanted for.
        wanted = np.cumsum(np.bincount(first, minlength=count + 1) - np.bincount(end, minlength=count + 1)) > 0
        # What lies on pages of two portions is found in each, on the pages of that one.
        for start in range(int(first[0]), int(end[-1]), _PAGES_AT_ONCE):
            stop = min(start + _PAGES_AT_ONCE, count)
            mine = int(np.searchsorted(end, start, "right")), int(np.searchsorted(first, stop))
            numbers = start + np.flatnonzero(wanted[start:stop])
            if mine[0] < mine[1] and len(numbers):
                yield *mine, self._read(numbers.tolist())

    def whole(self) -> I64:
        with self._lock:
            if self._all is None:
                entries = self._checked(_decoded(self.file.walk, None), self._shard.entries)
                if len(entries) and (int(entries[0]), int(entries[-1])) != (self._shard.first, self._shard.last):
                    raise self._wrong()
                self._all = entries  # not before: who asks again would be answered from what was refused
            return self._all

    def _read(self, numbers: list[int] | range) -> I64:
        if not len(numbers):
            return _NONE
        walk, known = self.file.walk, self._pages()
        chunk = walk.chunk(0, 0)
        pages: list[Page] = []
        for begin, end in _stretches(numbers):
            start = known.offsets[begin]
            if any(known.offsets[one] + known.sizes[one] != known.offsets[one + 1] for one in range(begin, end - 1)):
                raise self._wrong()
            data = memoryview(walk.source.read(start, known.offsets[end - 1] + known.sizes[end - 1] - start))
            for one in range(begin, end):
                at = known.offsets[one] - start
                pages.append(walk.page_at(chunk, known.offsets[one], known.sizes[one], one, data[at:]))
        rows = sum(page.num_values for page in pages)
        return self._checked(_decoded(walk, PageSelection({0: pages}, rows)), rows)

    def _pages(self) -> _Pages:
        with self._lock:
            if self._known is None:
                self._known = self._located()
            return self._known

    def _located(self) -> _Pages:
        """The page index (Parquet page index specification), which authenticates as a whole."""
        walk = self.file.walk
        chunk = walk.chunk(0, 0)
        bounds, places = (walk.index(chunk, kind) for kind in (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX))
        if bounds is None or places is None:
            raise self._wrong()
        index, listed = decode(ColumnIndex, bounds), decode(OffsetIndex, places).pages or []
        low, high = (np.frombuffer(b"".join(of or ()), dtype="<i8") for of in (index.min_values, index.max_values))
        offsets, sizes = [one.offset or 0 for one in listed], [one.size or 0 for one in listed]
        if not len(low) == len(high) == len(listed) or not len(listed):
            raise self._wrong()
        if (low > high).any() or (low[1:] < high[:-1]).any():
            raise self._wrong()
        if (int(low[0]), int(high[-1])) != (self._shard.first, self._shard.last):
            raise self._wrong()
        return _Pages(low.astype(np.int64), high.astype(np.int64), offsets, sizes)

    def _checked(self, entries: I64, count: int) -> I64:
        if len(entries) != count or (len(entries) > 1 and bool((entries[1:] < entries[:-1]).any())):
            raise self._wrong()
        return entries

    def _wrong(self) -> FormatError:
        return FormatError("a file of the index is not as indexes are written", file=self.file.path, hint="rebuild it")


def _stretches(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """From and to of numbers, ascending, that follow one another: one read each."""
    begin = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield numbers[begin], numbers[end - 1] + 1
            begin = end


def _decoded(walk: Walk, selection: PageSelection | None) -> I64:
    """The entries on these pages; None: on all."""
    if not len(walk.footer.row_groups):
        return _NONE
    data = mini_file(walk, 0, [0], physical=True, selection=selection, at_once=_ROWS_AT_ONCE).view
    return np.concatenate([_NONE, *(as_numpy(leaf_values(column)) for column in decode_batches(data, _ROWS_AT_ONCE))])
