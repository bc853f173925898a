"""Split-block Bloom filters: typed values to hashes, and hashes to bits."""

from .encoding import encode_value
from .filter import SplitBlockBloomFilter
from .hashing import hash_array, hash_bytes
from .probe import ProbeSet
from .types import ColumnType, LogicalType, PhysicalType

__all__ = [
    "ColumnType",
    "LogicalType",
    "PhysicalType",
    "ProbeSet",
    "SplitBlockBloomFilter",
    "encode_value",
    "hash_array",
    "hash_bytes",
]
