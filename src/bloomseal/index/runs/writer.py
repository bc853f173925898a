"""Writing a run: sorted entries, cut into shards, each a sealed Parquet file of small pages."""

from __future__ import annotations

import secrets
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...storage.atomic import fault_point
from ..folder import IndexFolder, keys_of
from ..manifest import SHARD_ENTRIES, IndexRun, Manifest, Shard

I64 = npt.NDArray[np.int64]

_PAGE_BYTES: Final = 32 << 10
_BITS: Final = 62
"""Of an entry: the end of the largest fingerprint's entries is a number of 64 bits with a sign, too."""


def place_bits_for(places: int) -> int:
    """The length of a place, with one more than there are, for filling."""
    return max(places, 1).bit_length()


def most_places(bits: int) -> int:
    """How many row groups a run can be about beside fingerprints of `bits` bits."""
    return (1 << (_BITS - bits)) - 1


class RunWriter:
    """One new run.

    Args:
        like: the index that it will be a part of.
        places: how many row groups it is about.
        place_bits: length of a place, at least `place_bits_for(places)`.

    Each file is opened with the folder's keys before the next is written: an index that its readers can't open would be
    worth nothing. In a ``with`` block that an exception leaves, what was written is removed.
    """

    def __init__(self, folder: IndexFolder, like: Manifest, places: int, place_bits: int) -> None:
        self.places, self.place_bits = places, place_bits
        self._folder, self._like = folder, like
        self._id = secrets.token_hex(8)
        self._shards: list[Shard] = []
        self._waiting: I64 = np.empty(SHARD_ENTRIES, dtype=np.int64)
        self._count = 0

    def add(self, entries: I64) -> None:
        """Append entries, ascending, none below those before."""
        while len(entries):
            piece = entries[: SHARD_ENTRIES - self._count]
            entries = entries[len(piece) :]
            # Copied to where those of all shards wait: fresh memory costs more than to encode what is in it.
            self._waiting[self._count : self._count + len(piece)] = piece
            self._count += len(piece)
            if self._count == SHARD_ENTRIES:
                self._flush()

    def finish(self) -> IndexRun:
        """The run, all of whose files are there."""
        self._flush()
        return IndexRun(self._id, self.place_bits, self.places, tuple(self._shards))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for shard in self._shards:
                self._folder.remove(shard.file)

    def _flush(self) -> None:
        if not self._count:
            return
        entries, self._count = self._waiting[: self._count], 0
        name = f"run-{self._id}-{len(self._shards)}.parquet"
        # Equal fingerprints lie close together, and their differences take fewer bits: where sizes are to tell nothing
        # beyond a number of entries, each takes eight bytes.
        encoding = "PLAIN" if self._like.pad else "DELTA_BINARY_PACKED"
        self._folder.write(
            name, self._like.path, pa.array(entries), compression="NONE",
            column_encoding={self._like.column: encoding}, data_page_size=_PAGE_BYTES,
        )  # fmt: skip
        fault_point("index shard")
        with self._folder.open(name) as file:
            crypto, size = file.walk.footer.crypto, file.source.size
            assert crypto is not None  # noqa: S101
            ends = int(entries[0]), int(entries[-1])
            self._shards.append(Shard(name, crypto.aad_unique, size, len(entries), *ends, keys_of(file)))


def filled_up(entries: I64, low: int, high: int, place_bits: int, places: int) -> I64:
    """Entries with random ones about no row group, up to a power of two: their number then tells the number of values
    within a factor of two only.

    Args:
        low, high: fingerprints to draw from, the latter excluded.
    """
    wanted = (1 << max(len(entries) - 1, 0).bit_length()) - len(entries)
    if not wanted:
        return entries
    drawn = np.frombuffer(secrets.token_bytes(8 * wanted), dtype=np.uint64) % np.uint64(high - low)
    filling = ((drawn.astype(np.int64) + low) << place_bits) | places
    return np.sort(np.concatenate([entries, filling]))
