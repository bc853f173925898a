"""The specification's numbers, by the formula and by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bloomseal.core.errors import UsageError
from bloomseal.core.sbbf import SplitBlockBloomFilter
from bloomseal.sbbf import bits_per_value, fpp, num_blocks, num_bytes

BLOCKS = 1024
SPECIFICATION_EXAMPLE = [(26_214, 0.0126), (52_428, 0.18), (13_107, 0.0004)]
SPECIFICATION_TABLE = [(6.0, 0.1), (10.5, 0.01), (16.9, 0.001), (26.4, 0.0001), (41.0, 0.00001)]


def random_hashes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)


@pytest.mark.parametrize(("values", "expected"), SPECIFICATION_EXAMPLE)
def test_example_of_1024_blocks(values: int, expected: float) -> None:
    digits = 4 if expected < 0.1 else 2
    assert round(fpp(BLOCKS * 256 / values), digits) == pytest.approx(expected)


@pytest.mark.parametrize(("values", "expected"), SPECIFICATION_EXAMPLE)
def test_example_of_1024_blocks_measured(values: int, expected: float) -> None:
    made = SplitBlockBloomFilter(32 * BLOCKS)
    made.insert_hashes(random_hashes(values, 1))
    exact = made.false_positive_probability()
    assert exact == pytest.approx(expected, rel=0.12)
    strangers = 1_000_000
    found = np.count_nonzero(made.check_hashes(random_hashes(strangers, 2)))
    # From its own bits the probability is exact, so only the count of strangers scatters.
    assert abs(found - exact * strangers) < 5 * math.sqrt(exact * strangers)
    assert made.estimated_ndv() == pytest.approx(values, rel=0.02)


@pytest.mark.parametrize(("bits", "probability"), SPECIFICATION_TABLE)
def test_table_of_bits_per_value(bits: float, probability: float) -> None:
    assert bits_per_value(probability) == pytest.approx(bits, abs=0.06)
    assert fpp(bits) == pytest.approx(probability, rel=0.02)


@pytest.mark.parametrize("probability", [1 - 1e-9, 0.999, 0.5, 0.1, 1e-3, 1e-9, 1e-15, 1e-40, 1e-300])
def test_bits_per_value_inverts_the_sum(probability: float) -> None:
    assert fpp(bits_per_value(probability)) == pytest.approx(probability, rel=1e-6)


def test_sum_at_its_ends() -> None:
    assert fpp(1e-9) == 1.0
    assert fpp(math.inf) == 0.0
    assert fpp(5e-324) == 1.0


def test_sizes_grow_with_values_and_strictness() -> None:
    assert num_blocks(0, 0.01) == num_blocks(1, 0.5) == 1
    assert num_bytes(1_000_000, 0.01) == 32 * num_blocks(1_000_000, 0.01) == 32 * 41130
    assert num_blocks(1_000_001, 0.01) >= num_blocks(1_000_000, 0.01)
    assert num_blocks(1_000_000, 0.001) > num_blocks(1_000_000, 0.01)


@pytest.mark.parametrize(("probability", "excess"), [(0.01, 1.5), (0.001, 2.0), (0.00001, 5.5)])
def test_closed_form_gives_more_false_positives_than_asked(probability: float, excess: float) -> None:
    unsplit = -8 / math.log(1 - probability ** (1 / 8))  # bits per value, by the formula of other implementations
    assert fpp(unsplit) / probability == pytest.approx(excess, rel=0.06)


@pytest.mark.parametrize("probability", [0, 1, -0.1, 1.5, math.nan, math.inf, True, "0.01", None])
def test_no_probability(probability: object) -> None:
    for function in (lambda: bits_per_value(probability), lambda: num_bytes(10, probability)):
        with pytest.raises(UsageError, match="between 0 and 1"):
            function()


@pytest.mark.parametrize("ndv", [-1, 1.5, True, None])
def test_no_number_of_values(ndv: object) -> None:
    with pytest.raises(UsageError, match="distinct values"):
        num_blocks(ndv, 0.01)


@pytest.mark.parametrize("bits", [0, -1.0, math.nan])
def test_no_number_of_bits(bits: float) -> None:
    with pytest.raises(UsageError):
        fpp(bits)
