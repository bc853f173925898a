"""Holding a filter against the values of its own column chunk: one that denies a value of its own is wrong, whoever
wrote it.

Authentication tells who sealed a filter, not whether it is right: a writer with a bug seals a wrong one as well, and
readers then skip rows that are there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.errors import FormatError, UnsupportedError
from ...core.parquet.filter_bytes import FilterBytes
from ...core.parquet.walk import Chunk, Walk
from ...core.sbbf import PhysicalType, SplitBlockBloomFilter
from .chunk_hashes import pieces


@dataclass(frozen=True, slots=True)
class Truth:
    """A filter, asked for every value of its chunk.

    Attributes:
        values: how many it was asked for: all non-null ones, those of dictionaries once each.
        denied: how many of them it calls absent. Any makes it wrong.
        unasked: why it could not be asked; None where it was.
    """

    values: int = 0
    denied: int = 0
    unasked: str | None = None

    @property
    def wrong(self) -> str | None:
        """What is wrong with the filter, in words that name no value."""
        if not self.denied:
            return None
        return f"the filter denies {self.denied} of the {self.values} values of its own column chunk"


def held_against_values(walk: Walk, chunk: Chunk, found: FilterBytes) -> Truth:
    """Ask the filter for every value that the chunk's pages hold, as they are stored (XXH64 of their plain encoding).

    Raises:
        IntegrityError: a page does not authenticate.
        KeyAccessError: the column's key is not at hand.
    """
    if found.unknown is not None:
        return Truth(unasked=found.unknown.what)
    if chunk.leaf.type.physical is PhysicalType.BOOLEAN:
        return Truth(unasked="BOOLEAN values have no hash in any implementation")
    asked, values, there = SplitBlockBloomFilter.from_bitset(found.bitset), 0, 0
    try:
        for hashes in pieces(walk, chunk.row_group, chunk.leaf):
            values += len(hashes)
            there += int(np.count_nonzero(asked.check_hashes(hashes)))
    except (FormatError, UnsupportedError) as error:
        return Truth(unasked=f"its column's values can't be told: {error.what}")
    return Truth(values, values - there)
