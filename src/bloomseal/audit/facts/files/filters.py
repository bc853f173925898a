"""The facts of one filter: whether it is authentic, how full it is, whether it denies a value of its own chunk."""

from __future__ import annotations

from ....core.errors import BloomsealError, IntegrityError, UnsupportedError
from ....core.parquet.filter_bytes import FilterBytes
from ....core.parquet.statistics import has_values
from ....core.parquet.walk import Chunk, Walk
from ....core.sbbf import PhysicalType, SplitBlockBloomFilter
from ....format.hashes.truth import held_against_values
from .file import FilterCheck, FilterFacts


def filter_facts(walk: Walk, chunk: Chunk, check: FilterCheck) -> FilterFacts | None:
    """The facts of a column chunk's filter; None where it has none. What is wrong with it is a fact, never raised."""
    bloom = FilterFacts()
    try:
        found = walk.stored_filter(chunk)
        if found is None:
            return None
        if check is FilterCheck.VALUES:
            _hold_against_values(bloom, walk, chunk, found)
        if found.unknown is not None:
            raise found.unknown
        bloom.authentic = found.sealed if chunk.encrypted else None
        parsed = SplitBlockBloomFilter.from_bitset(found.bitset)
        bloom.kind = "BLOCK, XXHASH, UNCOMPRESSED"  # the walk refuses any other
        bloom.num_bytes, bloom.fill = parsed.num_bytes, parsed.fill
        bloom.fpp, bloom.ndv = parsed.false_positive_probability(), parsed.estimated_ndv()
        bloom.empty = parsed.is_empty and has_values(walk.meta(chunk), chunk.leaf)
        if bloom.empty and chunk.leaf.type.physical is PhysicalType.BOOLEAN:
            bloom.empty = None  # parquet-java never inserts booleans
    except UnsupportedError as error:
        bloom.kind = error.what
    except IntegrityError as error:
        bloom.authentic, bloom.error = False, error.what
    except BloomsealError as error:
        bloom.error = error.what
    return bloom


def _hold_against_values(bloom: FilterFacts, walk: Walk, chunk: Chunk, found: FilterBytes) -> None:
    try:
        truth = held_against_values(walk, chunk, found)
    except BloomsealError as error:
        # A page that is broken is no fault of the filter.
        bloom.unasked = f"its column's values can't be told: {error.what}"
    else:
        bloom.unasked = truth.unasked
        if truth.unasked is None:
            bloom.values, bloom.denied = truth.values, truth.denied
