"""A split-block Bloom filter as the Parquet specification words it (BloomFilter.md), with a switch for each thing to
get wrong.

It shares no code with Bloomseal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


@dataclass(frozen=True)
class Kind:
    """How filters are made; the defaults are right.

    Attributes:
        seed: of XXH64.
        salts: of the mask.
        modulo: the block is the hash modulo the number of blocks, and not the upper half multiplied and shifted.
        halves_swapped: the lower half of the hash chooses the block, the upper half the bits.
        big_endian: the words of the bitset stand there with their first byte last.
    """

    seed: int = 0
    salts: tuple[int, ...] = SALTS
    modulo: bool = False
    halves_swapped: bool = False
    big_endian: bool = False

    def place(self, value: bytes, blocks: int) -> tuple[int, list[int]]:
        """Block and mask of a value."""
        digest = xxhash.xxh64_intdigest(value, seed=self.seed)
        if self.halves_swapped:
            digest = digest >> 32 | (digest & 0xFFFFFFFF) << 32
        block = (digest >> 32) % blocks if self.modulo else (digest >> 32) * blocks >> 32
        return block, [1 << ((digest * salt & 0xFFFFFFFF) >> 27) for salt in self.salts]

    def bitset(self, values: Iterable[bytes], blocks: int) -> bytes:
        """The filter of these values."""
        words = [0] * (8 * blocks)
        for value in values:
            block, mask = self.place(value, blocks)
            for number, bit in enumerate(mask):
                words[8 * block + number] |= bit
        return struct.pack(f"{'>' if self.big_endian else '<'}{len(words)}I", *words)


RIGHT = Kind()


def denied(bitset: bytes, values: Iterable[bytes]) -> list[bytes]:
    """Those that a reader which follows the specification calls absent."""
    words = struct.unpack(f"<{len(bitset) // 4}I", bitset)

    def there(value: bytes) -> bool:
        block, mask = RIGHT.place(value, len(words) // 8)
        return all(words[8 * block + number] & bit for number, bit in enumerate(mask))

    return [value for value in values if not there(value)]
