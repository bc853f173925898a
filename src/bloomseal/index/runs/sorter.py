"""Entries as they come up, as one sorted run: what does not fit into memory waits in sealed runs, and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..folder import IndexFolder
from ..manifest import IndexRun, Manifest
from .shard import RunReader
from .writer import RunWriter, filled_up, most_places, place_bits_for

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Move = Callable[[I64, int, int], I64]

_ENTRIES_AT_ONCE: Final = 8_000_000
"""In memory, 8 bytes each, twice while they are sorted."""
_MERGED_AT_ONCE: Final = 1_000_000


class Sorter:
    """Makes one run of the fingerprints of many row groups.

    Args:
        like: the index that the run will be a part of.
    """

    def __init__(self, folder: IndexFolder, like: Manifest) -> None:
        self._folder, self._like = folder, like
        self._waiting: list[tuple[U64, int]] = []
        self._count = 0
        self._most = most_places(like.bits).bit_length()
        self._spilled: list[IndexRun] = []

    def add(self, fingerprints: U64, place: int) -> None:
        """Those of the row group at `place`."""
        self._waiting.append((fingerprints, place))
        self._count += len(fingerprints)
        if self._count >= _ENTRIES_AT_ONCE:
            # Nobody knows yet how many places there will be: these have the longest numbers that fit.
            self._spilled.append(self._written(self._most, 0, pad=False))

    def finish(self, places: int) -> IndexRun:
        """The run.

        Args:
            places: how many row groups it is about.
        """
        bits = place_bits_for(places)
        if not self._spilled:
            return self._written(bits, places, pad=self._like.pad)
        if self._count:
            self._spilled.append(self._written(self._most, 0, pad=False))
        writer = RunWriter(self._folder, self._like, places, bits)
        readers = [RunReader(self._folder, run) for run in self._spilled]
        run = merged(writer, readers, [_renumbered] * len(readers), self._like)
        self.abort()
        return run

    def abort(self) -> None:
        """Forget what waits, and remove what was spilled."""
        spilled, self._spilled, self._waiting, self._count = self._spilled, [], [], 0
        self._folder.remove_runs(spilled)

    def _written(self, bits: int, places: int, *, pad: bool) -> IndexRun:
        """What waits, as a run."""
        entries = np.empty(self._count, dtype=np.int64)
        self._waiting.reverse()
        end = 0
        while self._waiting:
            fingerprints, place = self._waiting.pop()
            begin, end = end, end + len(fingerprints)
            np.left_shift(fingerprints.view(np.int64), bits, out=entries[begin:end])
            entries[begin:end] |= place
        self._count = 0
        entries.sort()
        if pad:
            entries = filled_up(entries, 0, 1 << self._like.bits, bits, places)
        with RunWriter(self._folder, self._like, places, bits) as writer:
            writer.add(entries)
            return writer.finish()


def _renumbered(entries: I64, old: int, new: int) -> I64:
    return ((entries >> old) << new) | (entries & ((1 << old) - 1))


def merged(
    writer: RunWriter,
    readers: Sequence[RunReader],
    moves: Sequence[Move],
    like: Manifest,
    progress: Callable[[int, int], None] | None = None,
    *,
    part: tuple[int, int] = (0, 1),
) -> IndexRun:
    """Several runs as one, a slice of all fingerprints at a time. `readers` are closed.

    Args:
        moves: per run, what makes its entries those of the new one, given the lengths of places in both. It keeps
            their order by fingerprints.
        part: which one of how many equal parts of all fingerprints.
    """
    slices = max(1, -(-sum(reader.run.entries for reader in readers) // (_MERGED_AT_ONCE * part[1])))
    first, parts_in_all = part[0] * slices, part[1] * slices
    edges = [((first + number) << like.bits) // parts_in_all for number in range(slices + 1)]
    with contextlib.ExitStack() as ending:
        for reader in readers:
            ending.callback(reader.close)
        ending.enter_context(writer)
        for number in range(slices):
            if progress is not None:
                progress(number, slices)
            low, high = edges[number], edges[number + 1]
            parts = []
            for reader, move in zip(readers, moves, strict=True):
                old = reader.run.place_bits
                parts.append(move(reader.between(low << old, high << old), old, writer.place_bits))
            entries = parts[0] if len(parts) == 1 else np.concatenate(parts)
            # Numpy's stable sort merges what is in order already; of more than two such parts the other one is quicker.
            entries.sort(kind="stable" if len(parts) <= 2 else None)
            del parts
            if like.pad:
                entries = filled_up(entries, low, high, writer.place_bits, writer.places)
            writer.add(entries)
        if progress is not None:
            progress(slices, slices)
        return writer.finish()
