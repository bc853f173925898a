"""Split-block Bloom filters: typed values to hashes, hashes to bits, and how many bits it takes."""

from . import batch, operations
from .encoding import encode_value
from .filter import SplitBlockBloomFilter
from .hashing import hash_array, hash_bytes
from .keyset import KeySet
from .probe import ProbeSet
from .sizing import bits_per_value, fpp, legacy_num_bytes, num_blocks, num_bytes
from .spec import FilterSpec
from .types import ColumnType, LogicalType, PhysicalType

operations.hand_in(lambda: batch)

__all__ = [
    "ColumnType",
    "FilterSpec",
    "KeySet",
    "LogicalType",
    "PhysicalType",
    "ProbeSet",
    "SplitBlockBloomFilter",
    "bits_per_value",
    "encode_value",
    "fpp",
    "hash_array",
    "hash_bytes",
    "legacy_num_bytes",
    "num_blocks",
    "num_bytes",
]
