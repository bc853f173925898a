"""XXH64 of rows in numpy: good where loading numba would cost more than it saves.

Property tests hold it to the xxhash library, and `kernels` to it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["hash_rows"]

U64 = npt.NDArray[np.uint64]


_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)


def hash_rows(rows: npt.NDArray[np.uint8]) -> U64:
    """XXH64 with seed 0 of each row of an array of shape (n, width); the xxHash specification, section XXH64.

    A call of the xxhash library for every value takes some twelve times as long, and a write of a million numbers a
    fifth longer.
    """
    count, width = rows.shape
    at = 0
    if width >= 32:
        starts = (int(_P1) + int(_P2), int(_P2), 0, -int(_P1))
        lanes = [np.full(count, start % (1 << 64), dtype=np.uint64) for start in starts]
        while at + 32 <= width:
            lanes = [_round(lane, _read(rows, at + 8 * i, 8)) for i, lane in enumerate(lanes)]
            at += 32
        h = _rotl(lanes[0], 1) + _rotl(lanes[1], 7) + _rotl(lanes[2], 12) + _rotl(lanes[3], 18)
        for lane in lanes:
            h = (h ^ _round(np.uint64(0), lane)) * _P1 + _P4
        h += np.uint64(width)
    else:
        h = np.full(count, _P5 + np.uint64(width), dtype=np.uint64)
    while at + 8 <= width:
        h = _rotl(h ^ _round(np.uint64(0), _read(rows, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= width:
        h = _rotl(h ^ (_read(rows, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < width:
        h = _rotl(h ^ (rows[:, at].astype(np.uint64) * _P5), 11) * _P1
        at += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _read(rows: npt.NDArray[np.uint8], at: int, size: int) -> U64:
    """The `size` bytes at column `at` of every row, as little-endian numbers."""
    return np.ascontiguousarray(rows[:, at : at + size]).view(f"<u{size}").reshape(len(rows)).astype(np.uint64)


def _rotl(x: U64, bits: int) -> U64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _round(accumulator: U64 | np.uint64, lane: U64) -> U64:
    return _rotl(accumulator + lane * _P2, 31) * _P1
