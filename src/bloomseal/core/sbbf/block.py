"""The specification's pseudocode (Parquet Bloom filter, "Technical Approach") in plain Python.

It is the twin that property tests hold the numpy and numba versions to; for a hash or two it is also the fastest.
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


def block_insert(block: Block, x: int) -> None:
    """Set every bit of ``mask(x)``."""
    for i, word in enumerate(mask(x)):
        block[i] |= word


def block_check(block: Block, x: int) -> bool:
    """True when every bit of ``mask(x)`` is set."""
    return all(block[i] & word == word for i, word in enumerate(mask(x)))


def block_index(number_of_blocks: int, h: int) -> int:
    """The block that the 64-bit hash `h` selects by its upper half."""
    return ((h >> 32) * number_of_blocks) >> 32


def filter_insert(blocks: list[Block], h: int) -> None:
    """Insert the 64-bit hash `h` into a filter of one or more blocks."""
    block_insert(blocks[block_index(len(blocks), h)], h & 0xFFFFFFFF)


def filter_check(blocks: list[Block], h: int) -> bool:
    """False: `h` was never inserted. True: it probably was."""
    return block_check(blocks[block_index(len(blocks), h)], h & 0xFFFFFFFF)


# The same for a bitset as it stands in a file, asked for one hash again and again


def halves(h: int) -> tuple[int, int]:
    """The 64-bit hash `h` as `bitset_check` takes it: its upper half, and the mask of its lower half as a number of 256
    bits.
    """
    return h >> 32, sum(word << 32 * i for i, word in enumerate(mask(h & 0xFFFFFFFF)))


def bitset_check(bitset: memoryview, upper: int, bits: int) -> bool:
    """`filter_check` for a hash's `halves`, in a bitset of at least one block; bytes beyond the last whole block don't
    count.
    """
    begin = block_index(len(bitset) // BLOCK_BYTES, upper << 32) * BLOCK_BYTES
    return int.from_bytes(bitset[begin : begin + BLOCK_BYTES], "little") & bits == bits
