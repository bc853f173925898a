"""From a number of distinct values and a false positive probability to a size, and back.

At `b` bits per distinct value a block of 256 bits holds a Poisson-distributed number of them, 256/b on average, so
the probability is ``fpp(b) = Σ_k Poisson(k; 256/b) · (1 − (31/32)^k)^8``. The specification's table follows this sum.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from ..core.errors import UsageError
from ..core.sbbf.block import BLOCK_BYTES, WORDS
from ..core.sbbf.filter import check_fpp

_BLOCK_BITS: Final = 8 * BLOCK_BYTES
_KEPT: Final = 31 / 32
"""Probability that one insert leaves a given bit of a word unset."""


def fpp(bits_per_value: float) -> float:
    """False positive probability of a filter with so many bits of space per distinct value.

    Raises:
        UsageError: not a positive number of bits.
    """
    if not bits_per_value > 0:
        raise UsageError("bits per value must be positive")
    return _poisson_fpp(bits_per_value)


def _poisson_fpp(bits: float) -> float:
    mean = _BLOCK_BITS / bits
    spread = 12 * math.sqrt(mean)
    if not math.isfinite(mean) or mean > 1e6:  # every bit is set
        return 1.0
    if mean == 0:
        return 0.0
    total = 0.0
    for k in range(max(1, int(mean - spread)), int(mean + spread) + 64):
        weight = math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
        total += weight * (1 - _KEPT**k) ** WORDS
    return min(total, 1.0)


@lru_cache(maxsize=256)
def bits_per_value(fpp: float) -> float:
    """Bits of space per distinct value that give the probability `fpp`: the inverse of the sum.

    Raises:
        UsageError: `fpp` is not between 0 and 1.
    """
    check_fpp(fpp)
    low, high = -8.0, 300.0  # decimal logarithms of the bits
    for _ in range(64):
        middle = (low + high) / 2
        if _poisson_fpp(10**middle) > fpp:
            low = middle
        else:
            high = middle
    return float(10**high)


def num_blocks(ndv: int, fpp: float) -> int:
    """Fewest blocks that hold `ndv` distinct values at the probability `fpp`; at least one.

    Raises:
        UsageError: `ndv` is negative or `fpp` is not between 0 and 1.
    """
    check_ndv(ndv)
    return max(1, math.ceil(ndv * bits_per_value(fpp) / _BLOCK_BITS))


def num_bytes(ndv: int, fpp: float) -> int:
    """`num_blocks` in bytes. Not a power of two: `FilterSpec` rounds up, because some readers accept nothing else."""
    return BLOCK_BYTES * num_blocks(ndv, fpp)


def check_ndv(ndv: int) -> None:
    """Refuse what is no number of distinct values."""
    if isinstance(ndv, bool) or not isinstance(ndv, int) or ndv < 0:
        raise UsageError("a number of distinct values is an int of at least 0")
