"""The operations on whole arrays, each by the cheaper way for its size: the core's reference for few values, numba for
many.

Loading the compiled kernels costs some tenths of a second: a single look-up must not pay that, a writer must not do
without. So the time spent without them is added up (from costs per value that were measured once), and they are loaded
when a batch would take that sum past the price of loading. Nobody waits twice as long as with perfect foresight.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct
from types import ModuleType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from .._uninterrupted import uninterrupted
from ..core.sbbf import reference
from ..core.sbbf.reference import outside

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

_LOADING: Final = 400_000_000
"""Nanoseconds to import numba and load the kernels from their cache."""
_INSERT, _CHECK, _FIXED, _SPAN, _PREFIXED, _PACKED, _RUN = 75, 40, 150, 170, 280, 40, 1_200
"""Nanoseconds per value without kernels; `_RUN` per run of levels or indices."""
_MOST_BITS: Final = 32
_length_at: Final = Struct("<I").unpack_from

_kernels: ModuleType | None = None
_spent = 0


class Among(NamedTuple):
    """A set of texts, each of another hash.

    Attributes:
        words: a filter of all hashes (blocks × 8,).
        known: the hashes, ascending, and the number of the text of each: of shape (2, texts).
        texts: the bytes of all texts; `offsets`: where each begins, and the end of the last.
    """

    words: U32
    known: U64
    texts: U8
    offsets: I64

    def __repr__(self) -> str:
        return "<Among>"


def _kernels_for(cost: int) -> ModuleType | None:
    """The kernels, if they are loaded or work of `cost` nanoseconds makes loading them worth it."""
    global _kernels, _spent
    if _kernels is None:
        _spent += cost
        if _spent >= _LOADING:
            # Of numba an interrupt left a half, which could not be loaded again in this process.
            _kernels = uninterrupted(lambda: import_module(f"{__package__}.kernels"))
    return _kernels


def worthwhile(cost: int) -> bool:
    """Whether kernels are loaded, or work of `cost` nanoseconds without them is worth loading them."""
    return _kernels_for(cost) is not None


def expect(values: int) -> None:
    """So many values will be hashed: load the kernels now if they earn it back, not when half of the work is done."""
    if _PREFIXED * values >= _LOADING:
        _kernels_for(_PREFIXED * values)


def insert(words: U32, hashes: U64) -> None:
    """Insert hashes (n,) into words (blocks × 8,), in place."""
    (_kernels_for(_INSERT * len(hashes)) or reference).insert(words, hashes)


def check(words: U32, hashes: U64) -> Bools:
    """One bool per hash: False where it was never inserted."""
    kernels = _kernels_for(_CHECK * len(hashes))
    if kernels is None:
        return reference.check(words, hashes)
    found = np.empty(len(hashes), dtype=np.bool_)
    kernels.check(words, hashes, found)
    return found


def hash_fixed(data: U8, width: int, count: int) -> U64:
    """XXH64 of `count` consecutive values of `width` bytes each.

    Raises:
        FormatError: `data` is not exactly that long.
    """
    if len(data) != count * width:
        raise outside()
    kernels = _kernels_for(_FIXED * count)
    if kernels is None:
        return reference.hash_fixed(data, width, count)
    hashes = np.empty(count, dtype=np.uint64)
    kernels.hash_width(data.ctypes.data, width, hashes)
    return hashes


def hash_spans(data: U8, offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> U64:
    """XXH64 of the bytes between each two neighbouring offsets; one hash fewer than there are offsets.

    Raises:
        FormatError: offsets that fall, or that leave `data`.
    """
    kernels = _kernels_for(_SPAN * len(offsets))
    if kernels is None:
        return reference.hash_spans(data, offsets)
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    hash_kernel = kernels.hash_spans32 if offsets.dtype == np.int32 else kernels.hash_spans64
    if not hash_kernel(data.ctypes.data, len(data), offsets, hashes):
        raise outside()
    return hashes


def hash_prefixed(data: U8, most: int) -> U64 | None:
    """XXH64 of values that each stand behind their length, u32le: BYTE_ARRAY in PLAIN encoding.

    None where `data` is not filled by them exactly, or by more than `most`.
    """
    most = max(min(most, len(data) // 4), 0)
    kernels = _kernels_for(_PREFIXED * most)
    if kernels is not None:
        out = np.empty(most, dtype=np.uint64)
        count = kernels.hash_prefixed(data.ctypes.data, len(data), out)
        return None if count < 0 else out[:count]
    view, size, at = data.data, len(data), 0
    hashes: list[int] = []
    while at + 4 <= size:
        start = at + 4
        at = start + _length_at(view, at)[0]
        if at > size or len(hashes) == most:
            return None
        hashes.append(xxhash.xxh64_intdigest(view[start:at]))
    return np.array(hashes, dtype=np.uint64) if at == size else None


def find_prefixed(data: U8, count: int, among: Among) -> tuple[I64, I64] | None:
    """Which of `count` values as `hash_prefixed` takes them are texts of a set, exactly: their numbers, ascending, and
    that of the text for each.

    None where `data` does not hold exactly so many, and where kernels are not worth loading.
    """
    kernels = _kernels_for(_PREFIXED * count)
    if kernels is None or not 0 <= count <= len(data) // 4:
        return None
    found = np.empty((2, count), dtype=np.int64)
    words, known, texts, offsets = among
    hits = kernels.find_prefixed(data.ctypes.data, len(data), words, known, texts.ctypes.data, offsets, found)
    return None if hits < 0 else (found[0, :hits], found[1, :hits])


def tally(data: U8, width: int, count: int, tallies: npt.NDArray[np.int64]) -> bool:
    """As `reference.tally`."""
    if not 0 <= width <= _MOST_BITS:
        return False
    runs = min(len(data) // 2, count // 8 + 1)  # encoders repeat what comes eight times or more
    kernels = _kernels_for(_PACKED * min(count, 8 * len(data) // max(width, 1)) + _RUN * runs)
    if kernels is None:
        return reference.tally(data, width, count, tallies)
    return bool(kernels.tally(data.ctypes.data, len(data), width, count, tallies))
