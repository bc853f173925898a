"""The operations on whole arrays as the specifications have them, in numpy and by the xxhash library.

Property tests hold them to `block`. Faster kernels can be handed in (`operations`), and are held to these.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from ..errors import FormatError
from .block import SALT, WORDS

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SALT: Final = np.array(SALT, dtype=np.uint32)
_CHUNK: Final = 1 << 15
"""Values per step: keeps the temporary (values × 8 words) arrays inside the cache."""
_MOST_BITS: Final = 32


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


def check(words: U32, hashes: U64) -> Bools:
    """One bool per hash: False where it was never inserted."""
    blocks = words.reshape(-1, WORDS)
    found = np.empty(len(hashes), dtype=np.bool_)
    for start in range(0, len(hashes), _CHUNK):
        part = hashes[start : start + _CHUNK]
        wanted = masks(part)
        found[start : start + _CHUNK] = ((blocks[block_indices(part, len(blocks))] & wanted) == wanted).all(axis=1)
    return found


def false_positive_probability(words: U32) -> float:
    """Mean over the blocks of Π over the eight words of (set bits / 32): exact, from the bits."""
    blocks = words.reshape(-1, WORDS)
    total = 0.0
    for start in range(0, len(blocks), _CHUNK):
        set_bits = np.bitwise_count(blocks[start : start + _CHUNK])
        total += float(np.prod(set_bits / np.float64(32), axis=1).sum())
    return total / len(blocks)


def hash_fixed(data: U8, width: int, count: int) -> U64:
    """XXH64 of `count` consecutive values of `width` bytes each.

    Raises:
        FormatError: `data` is not exactly that long.
    """
    if len(data) != count * width:
        raise outside()
    view = data.data
    digests = [xxhash.xxh64_intdigest(view[i * width : (i + 1) * width]) for i in range(count)]
    return np.array(digests, dtype=np.uint64)


def hash_spans(data: U8, offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> U64:
    """XXH64 of the bytes between each two neighbouring offsets; one hash fewer than there are offsets.

    Raises:
        FormatError: offsets that fall, or that leave `data`.
    """
    view, ends = data.data, offsets.tolist()
    if ends[0] < 0 or ends[-1] > len(data) or bool((offsets[1:] < offsets[:-1]).any()):
        raise outside()
    digests = [xxhash.xxh64_intdigest(view[start:end]) for start, end in pairwise(ends)]
    return np.array(digests, dtype=np.uint64)


def tally(data: U8, width: int, count: int, tallies: I64) -> bool:
    """Add to ``tallies[v]`` how often v is among the first `count` numbers of `width` bits in `data`.

    They stand there in the RLE/bit-packing hybrid (Parquet encodings). False where there are fewer, or one is beyond
    `tallies`, which may have been added to by then. Packed runs are whole bytes, so that all of them, put together,
    are one.
    """
    if not 0 <= width <= _MOST_BITS:
        return False
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


def _tally_packed(raw: bytes, width: int, count: int, tallies: I64) -> bool:
    weights = np.int64(1) << np.arange(width)
    for start in range(0, count, _CHUNK):
        part = min(_CHUNK, count - start)
        held = np.frombuffer(raw, dtype=np.uint8, offset=start * width // 8, count=-(-part * width // 8))
        values = np.unpackbits(held, bitorder="little")[: part * width].reshape(part, width) @ weights
        if int(values.max()) >= len(tallies):
            return False
        np.add.at(tallies, values, 1)
    return True


def outside() -> FormatError:
    """The error of an Arrow array whose offsets or views leave its buffers."""
    return FormatError("an Arrow array points outside its own buffers")
