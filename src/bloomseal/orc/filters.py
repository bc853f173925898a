"""Bloom filters as ORC stores them, and many of them asked at once (ORC specification, "Bloom Filter Index")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from ..core.cached import cached_property
from ..core.errors import FormatError
from ..core.limits import MAX_ORC_HASHES
from ..sbbf.batch import worthwhile
from .hashing import maybe_in, positions
from .protobuf import fields

MOST_POSITIONS: Final = 1 << 20
"""Bits chosen that are held in memory at a time, 8 bytes each."""
_CHECK: Final = 150
"""Nanoseconds per value and filter without kernels."""
_WORD_BYTES: Final = 8
_FIRST: Final = 3
"""Bits of a value that are looked at in every filter; the others where all of these are set."""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """One row group's filter.

    Attributes:
        num_hashes: k, as far as it is asked: up to `bloomseal.core.limits.MAX_ORC_HASHES`.
        bitset: the words' bytes, little-endian; m is eight times their number.
    """

    num_hashes: int
    bitset: npt.NDArray[np.uint8]

    @property
    def num_bits(self) -> int:
        return 8 * len(self.bitset)

    def check_hashes(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which hashes the filter leaves possible."""
        signed = hashes.view(np.int64)
        if worthwhile(_CHECK * len(signed)):
            from . import kernels

            found = np.empty(len(signed), np.bool_)
            kernels.check(signed, self.num_hashes, self.num_bits, np.ascontiguousarray(self.bitset), found)
            return found
        step = max(1, MOST_POSITIONS // self.num_hashes)
        parts = [signed[at : at + step] for at in range(0, len(signed), step)] or [signed]
        hits = [maybe_in(self.bitset, positions(part, self.num_hashes, self.num_bits)) for part in parts]
        return np.concatenate(hits)

    @property
    def is_empty(self) -> bool:
        """No bit is set: so a filter over nulls looks, and one of a writer that forgot to fill it."""
        return not self.bitset.any()


class Filters(Sequence[BloomFilter]):
    """One per row group. Where all are of one size and number of hash functions, one step asks them all (`hits`)."""

    def __init__(self, each: Iterable[BloomFilter]) -> None:
        self._each = list(each)
        self._stack = np.empty((0, 0), np.uint8)
        self.num_hashes = self.num_bytes = 0
        """k, and the bytes of a bitset, of all of them; 0 where they may differ."""

    @classmethod
    def stacked(cls, data: memoryview, count: int) -> Filters | None:
        """The filters of a stream whose entries are alike but for their bits, as writers make them; else None.

        Raises:
            FormatError: as `parsed_filter`.
        """
        if count < 2 or not len(data) or len(data) % count:
            return None
        rows = np.frombuffer(data, np.uint8).reshape(count, -1)
        try:
            whole = [*fields(data[: rows.shape[1]])]
            # One entry and nothing behind it, in which nothing stands behind the bitset: so that this is a row's end.
            if [number for number, _ in whole] != [1] or isinstance(entry := whole[0][1], int):
                return None
            if [number for number, _ in fields(entry)] != [1, 3]:
                return None
        except FormatError:
            return None
        first = parsed_filter(entry)
        # The bitset comes last: what stands before it is the same in each, and so is what it means.
        head = rows.shape[1] - len(first.bitset)
        if (rows[:, :head] != rows[0, :head]).any():
            return None
        made = cls(())
        made.num_hashes, made.num_bytes, made._stack = first.num_hashes, len(first.bitset), rows[:, head:]
        return made

    def hits(self, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """In which filters all bits of a value are set; of filters of one size only.

        Args:
            chosen: array of shape (values, hash functions), the bits of each value.

        Returns:
            Array of shape (filters, values).
        """
        places, bits = chosen >> 3, (1 << (chosen & 7)).astype(np.uint8)
        found = np.ones((len(self), len(chosen)), np.bool_)
        for one in range(min(_FIRST, chosen.shape[1])):
            found &= (self._stack[:, places[:, one]] & bits[:, one]) != 0
        # Seven eighths are ruled out by now, where half of the bits are set.
        groups, values = np.nonzero(found)
        rest = self._stack[groups[:, None], places[values, _FIRST:]] & bits[values, _FIRST:]
        found[groups, values] = (rest != 0).all(axis=1)
        return found

    @overload
    def __getitem__(self, place: int) -> BloomFilter: ...
    @overload
    def __getitem__(self, place: slice) -> list[BloomFilter]: ...
    def __getitem__(self, place: int | slice) -> BloomFilter | list[BloomFilter]:
        if not self.num_bytes:
            return self._each[place]
        if isinstance(place, slice):
            return [BloomFilter(self.num_hashes, bitset) for bitset in self._stack[place]]
        return BloomFilter(self.num_hashes, self._stack[place])

    def __len__(self) -> int:
        return len(self._stack) or len(self._each)

    @cached_property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Those that have no bit set."""
        if not self.num_bytes:
            return np.array([one.is_empty for one in self], np.bool_)
        # Few begin with a word of zeros, and only those are looked at whole.
        empty = np.logical_not(self._stack[:, :_WORD_BYTES].any(axis=1))
        for place in np.flatnonzero(empty).tolist():
            empty[place] = self[place].is_empty
        return empty


def parsed_filter(entry: memoryview) -> BloomFilter:
    """A ``BloomFilter`` message.

    Raises:
        FormatError: m or k that no writer makes.
    """
    num_hashes = 0
    words, utf8 = bytearray(), memoryview(b"")
    for number, value in fields(entry):
        if number == 1 and isinstance(value, int):
            num_hashes = value
        elif number == 2 and not isinstance(value, int) and len(value) % _WORD_BYTES == 0:
            words += value  # one word, or several packed ones
        elif number == 3 and not isinstance(value, int):
            utf8 = value
    if words and utf8:
        raise FormatError("a Bloom filter with two bitsets: corrupt")
    bitset = np.frombuffer(utf8 or words, np.uint8)
    if not len(bitset) or len(bitset) % _WORD_BYTES:
        raise FormatError(f"a Bloom filter of {len(bitset)} bytes, which is no number of words: corrupt")
    if not num_hashes:
        raise FormatError("a Bloom filter without hash functions: corrupt")
    # A value is absent where any of its bits is not set: whoever looks at fewer of them rules out less, and nothing
    # wrong.
    return BloomFilter(min(num_hashes, MAX_ORC_HASHES), bitset)
