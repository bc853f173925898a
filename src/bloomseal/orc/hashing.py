"""The hashes of ORC Bloom filters, and the bits that they choose (ORC specification, "Bloom Filter Index").

All arithmetic is that of Java's `long` and `int`: it wraps around.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

SEED: Final = np.uint64(104_729)
C1: Final = np.uint64(0x87C37B91114253D5)
C2: Final = np.uint64(0x4CF5AD432745937F)
N1: Final = np.uint64(0x52DCE729)
MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)


def hash_longs(values: I64) -> I64:
    """Thomas Wang's hash of 64-bit integers, with *signed* shifts to the right, as every writer has it."""
    key = values.astype(np.int64)
    key = ~key + (key << 21)
    key ^= key >> 24
    key = key + (key << 3) + (key << 8)
    key ^= key >> 14
    key = key + (key << 2) + (key << 4)
    key ^= key >> 28
    return np.asarray(key + (key << 31), np.int64)


def hash_bytes(values: Sequence[bytes]) -> I64:
    """ORC's Murmur3 of 64 bits, seed 104729. It is *not* the upper half of MurmurHash3_x64_128."""
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    hashes = np.empty(len(values), np.uint64)
    # Values of one length are hashed together.
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length).tolist()
        padded = -(-length // 8) * 8
        joined = b"".join(values[place].ljust(padded, b"\0") for place in places)
        words = np.frombuffer(joined, "<u8").reshape(len(places), padded // 8)
        hashes[places] = _murmur(words.astype(np.uint64), length)
    return hashes.view(np.int64)


def _murmur(words: U64, length: int) -> U64:
    """Hash rows of little-endian words; the last is padded with zeros where `length` is no multiple of 8."""
    state = np.full(len(words), SEED)
    for place in range(words.shape[1]):
        state ^= _rotated(words[:, place] * C1, 31) * C2
        if place < length // 8:
            state = _rotated(state, 27) * np.uint64(5) + N1
    state ^= np.uint64(length)
    state ^= state >> np.uint64(33)
    state *= MIX_1
    state ^= state >> np.uint64(33)
    state *= MIX_2
    return np.asarray(state ^ (state >> np.uint64(33)), np.uint64)


def _rotated(words: U64, by: int) -> U64:
    return np.asarray((words << np.uint64(by)) | (words >> np.uint64(64 - by)), np.uint64)


def positions(hashes: I64, num_hashes: int, num_bits: int) -> I64:
    """The bits that values choose: an array of shape (values, hash functions)."""
    low, high = hashes.astype(np.int32)[:, None], (hashes >> 32).astype(np.int32)[:, None]
    combined = low + np.arange(1, num_hashes + 1, dtype=np.int32) * high
    return np.asarray(np.where(combined < 0, ~combined, combined).astype(np.int64) % num_bits, np.int64)


def maybe_in(bitset: npt.NDArray[np.uint8], chosen: I64) -> npt.NDArray[np.bool_]:
    """Which values may be in a filter.

    Args:
        bitset: the words' bytes, little-endian.
        chosen: `positions` of the values, in a filter of this size.
    """
    return np.asarray(((bitset[chosen >> 3] >> (chosen & 7).astype(np.uint8)) & 1).all(axis=1), np.bool_)
