"""Whole columns of values: fast kernels, sets of keys, and how many bits a filter takes."""

from ..core.sbbf import operations
from . import batch
from .keyset import KeySet
from .sizing import bits_per_value, fpp, num_blocks, num_bytes
from .spec import FilterSpec

operations.hand_in(lambda: batch)

__all__ = [
    "FilterSpec",
    "KeySet",
    "bits_per_value",
    "fpp",
    "num_blocks",
    "num_bytes",
]
