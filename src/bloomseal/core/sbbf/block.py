"""The specification's pseudocode (Parquet Bloom filter, "Technical Approach") in plain Python.

Property tests hold the numpy and numba versions to it; for a hash or two it is also the fastest.
"""

from __future__ import annotations

from typing import Final

SALT: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
WORDS: Final = 8
BLOCK_BYTES: Final = 32

Block = list[int]
"""Eight unsigned 32-bit words."""


def mask(x: int) -> Block:
    """A block in which each word has exactly one bit set, chosen by the 32-bit `x`."""
    result = [0] * WORDS
    for i in range(WORDS):
        y = (x * SALT[i]) & 0xFFFFFFFF
        result[i] |= 1 << (y >> 27)
    return result


def block_index(number_of_blocks: int, h: int) -> int:
    """The block that the 64-bit hash `h` selects by its upper half."""
    return ((h >> 32) * number_of_blocks) >> 32


def halves(h: int) -> tuple[int, int]:
    """The 64-bit hash `h` as `bitset_check` takes it: its upper half, and the mask of its lower half as a number of 256
    bits.
    """
    return h >> 32, sum(word << 32 * i for i, word in enumerate(mask(h & 0xFFFFFFFF)))


def bitset_check(bitset: memoryview, upper: int, bits: int) -> bool:
    """Whether a hash of these `halves` may be in a bitset of at least one block (False: it was never inserted); bytes
    beyond the last whole block don't count.
    """
    begin = block_index(len(bitset) // BLOCK_BYTES, upper << 32) * BLOCK_BYTES
    return int.from_bytes(bitset[begin : begin + BLOCK_BYTES], "little") & bits == bits
