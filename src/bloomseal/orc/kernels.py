"""Compiled batch operations (numba); `hashing` says what they compute, and property tests hold them to it."""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numba import types

from .._compiled import compiled_for, frozen
from .hashing import C1, C2, MIX_1, MIX_2, N1, SEED

_LOW: Final = np.uint64(0xFFFFFFFF)


@compiled_for(frozen(types.int64), types.int64, types.int64, frozen(types.uint8), types.Array(types.boolean, 1, "C"))
def check(hashes: Any, num_hashes: Any, num_bits: Any, bitset: Any, found: Any) -> None:
    """Where a filter leaves hashes possible. Of absent ones about half leave with every bit asked."""
    bits = np.uint64(num_bits)
    # Remainders of 32-bit numbers by multiplication (Lemire, Kaser, Kurz: Faster Remainder by Direct Computation).
    magic = np.uint64(0xFFFFFFFFFFFFFFFF) // bits + np.uint64(1)
    for place in range(len(hashes)):
        whole = hashes[place]
        low, high = np.uint32(np.uint64(whole) & _LOW), np.uint32(np.uint64(whole) >> np.uint64(32))
        combined = low
        there = True
        for _ in range(num_hashes):
            combined = np.uint32(combined + high)
            chosen = np.uint64(np.uint32(~combined) if combined >> np.uint32(31) else combined)
            part = magic * chosen
            at = ((part >> np.uint64(32)) * bits + (((part & _LOW) * bits) >> np.uint64(32))) >> np.uint64(32)
            if not (bitset[at >> np.uint64(3)] >> np.uint8(at & np.uint64(7))) & np.uint8(1):
                there = False
                break
        found[place] = there


@numba.njit(inline="always")
def _rotated(word: Any, by: Any) -> Any:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled_for(frozen(types.uint8), frozen(types.int64), types.Array(types.uint64, 1, "C"))
def hash_spans(data: Any, ends: Any, hashes: Any) -> None:
    """ORC's Murmur3 of ``data[ends[i]:ends[i + 1]]``; the caller has checked that the spans are inside."""
    for place in range(len(hashes)):
        at, end = ends[place], ends[place + 1]
        length = end - at
        state = SEED
        while end - at >= 8:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            state ^= _rotated(word * C1, 31) * C2
            state = _rotated(state, 27) * np.uint64(5) + N1
            at += 8
        if at < end:
            word = np.uint64(0)
            for byte in range(end - at):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            state ^= _rotated(word * C1, 31) * C2
        state ^= np.uint64(length)
        state ^= state >> np.uint64(33)
        state *= MIX_1
        state ^= state >> np.uint64(33)
        state *= MIX_2
        hashes[place] = state ^ (state >> np.uint64(33))
