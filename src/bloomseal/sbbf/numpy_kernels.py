"""numpy versions of two batch operations: good where loading numba would cost more than it saves.

Property tests hold them to the xxhash library, and `kernels` to them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["hash_rows", "tally"]

U64 = npt.NDArray[np.uint64]

_CHUNK: Final = 1 << 15
"""Numbers per step: keeps the temporary arrays inside the cache."""

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


def tally(data: npt.NDArray[np.uint8], width: int, count: int, tallies: npt.NDArray[np.int64]) -> bool:
    """As `kernels.tally`. Packed runs are whole bytes, so that all of them, put together, are one."""
    raw, at = data.tobytes(), 0
    repeated: list[int] = []
    times: list[int] = []
    packed: list[bytes] = []
    numbers = 0
    while count > 0:
        header = shift = 0
        while True:
            if at == len(raw) or shift > 28:
                return False
            header |= (raw[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if raw[at - 1] < 0x80:
                break
        if not 2 <= header < 1 << 32:
            return False
        size = (header >> 1) * width if header & 1 else (width + 7) // 8
        if size > len(raw) - at:
            return False
        run = min(8 * (header >> 1) if header & 1 else header >> 1, count)
        if header & 1 and width:
            packed.append(raw[at : at + -(-run // 8) * width])
            numbers += run
        else:
            repeated.append(int.from_bytes(raw[at : at + size], "little"))
            times.append(run)
        at, count = at + size, count - run
    if max(repeated, default=-1) >= len(tallies):
        return False
    np.add.at(tallies, np.array(repeated, dtype=np.int64), np.array(times, dtype=np.int64))
    return _tally_packed(b"".join(packed), width, numbers, tallies)


def _tally_packed(raw: bytes, width: int, count: int, tallies: npt.NDArray[np.int64]) -> bool:
    weights = np.int64(1) << np.arange(width)
    for start in range(0, count, _CHUNK):
        part = min(_CHUNK, count - start)
        held = np.frombuffer(raw, dtype=np.uint8, offset=start * width // 8, count=-(-part * width // 8))
        values = np.unpackbits(held, bitorder="little")[: part * width].reshape(part, width) @ weights
        if int(values.max()) >= len(tallies):
            return False
        np.add.at(tallies, values, 1)
    return True
