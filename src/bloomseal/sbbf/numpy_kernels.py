"""numpy versions of the batch operations: good for small batches, where loading numba would cost more than it saves.

Property tests hold them to `block` and to the xxhash library, and `kernels` to them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .block import SALT, WORDS

__all__ = ["block_indices", "check", "false_positive_probability", "hash_rows", "insert", "masks", "tally"]

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]

_SALT: Final = np.array(SALT, dtype=np.uint32)
_CHUNK: Final = 1 << 15
"""Values per step: keeps the temporary (values × 8 words) arrays inside the cache."""
_FEW: Final = 64
"""So few hashes are looked up all words at once: a call of numpy's costs more than its work."""

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)


def block_indices(hashes: U64, number_of_blocks: int) -> U64:
    """The block that each hash selects."""
    return ((hashes >> np.uint64(32)) * np.uint64(number_of_blocks)) >> np.uint64(32)


def masks(hashes: U64) -> U32:
    """The masks of the lower halves of the hashes, shape (n, 8)."""
    low = hashes.astype(np.uint32)
    return np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))


def insert(words: U32, hashes: U64) -> None:
    """Insert hashes (n,) into words (blocks × 8,), in place."""
    blocks = words.reshape(-1, WORDS)
    for start in range(0, len(hashes), _CHUNK):
        part = hashes[start : start + _CHUNK]
        np.bitwise_or.at(blocks, block_indices(part, len(blocks)), masks(part))


def check(words: U32, hashes: U64) -> npt.NDArray[np.bool_]:
    """One bool per hash: False where it was never inserted."""
    blocks = words.reshape(-1, WORDS)
    found = np.empty(len(hashes), dtype=np.bool_)
    for start in range(0, len(hashes), _CHUNK):
        part = hashes[start : start + _CHUNK]
        found[start : start + _CHUNK] = _check(blocks, part) if len(part) > _FEW else _check_whole(blocks, part)
    return found


def _check_whole(blocks: U32, hashes: U64) -> npt.NDArray[np.bool_]:
    wanted = masks(hashes)
    whole: npt.NDArray[np.bool_] = ((blocks[block_indices(hashes, len(blocks))] & wanted) == wanted).all(axis=1)
    return whole


def _check(blocks: U32, hashes: U64) -> npt.NDArray[np.bool_]:
    """Word by word: about half of the hashes that are not there leave with every word."""
    found = np.zeros(len(hashes), dtype=np.bool_)
    places, low = block_indices(hashes, len(blocks)) * np.uint64(WORDS), hashes.astype(np.uint32)
    words, left = blocks.reshape(-1), np.arange(len(hashes))
    for word in range(WORDS):
        bits = words[places + np.uint64(word)] >> ((low * _SALT[word]) >> np.uint32(27))
        kept = np.flatnonzero(bits & np.uint32(1))
        if len(kept) < len(left):
            left, places, low = left[kept], places[kept], low[kept]
    found[left] = True
    return found


def false_positive_probability(words: U32) -> float:
    """Mean over the blocks of Π over the eight words of (set bits / 32): exact, from the bits."""
    blocks = words.reshape(-1, WORDS)
    total = 0.0
    for start in range(0, len(blocks), _CHUNK):
        set_bits = np.bitwise_count(blocks[start : start + _CHUNK])
        total += float(np.prod(set_bits / np.float64(32), axis=1).sum())
    return total / len(blocks)


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
