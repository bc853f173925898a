"""Filters built by a specification of their size."""

from __future__ import annotations

import numpy as np
import pytest

from bloomseal.core.errors import UsageError
from bloomseal.sbbf import FilterSpec, num_bytes


def hashes(count: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)


@pytest.mark.parametrize("probability", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("count", [1, 100, 5_000, 100_000])
def test_built_by_counting_what_comes(count: int, probability: float) -> None:
    values = hashes(count)
    repeated = np.concatenate([values] * 8)
    made = FilterSpec(fpp=probability).build(repeated)
    assert made.check_hashes(values).all()
    # Folded to the smallest power of two: one more fold breaks the promise, unless there is nothing left to fold.
    assert made.num_bytes & (made.num_bytes - 1) == 0
    assert made.false_positive_probability() <= probability or made.num_bytes >= num_bytes(count, probability)
    assert made.num_blocks == 1 or made.fold().false_positive_probability() > probability
    assert made.num_bytes <= 4 * num_bytes(count, probability)


def test_sized_by_ndv() -> None:
    values = hashes(10_000)
    made = FilterSpec(ndv=10_000).build(values)
    assert made.num_bytes == 16_384  # 13,184 bytes would do; other readers want a power of two
    assert made.false_positive_probability() < 0.01
    assert FilterSpec(ndv=10_000).build(values[:3]).num_bytes == 16_384


def test_fixed_size() -> None:
    assert FilterSpec(num_bytes=96).build(hashes(1000)).num_bytes == 96


def test_no_values() -> None:
    nothing = hashes(0)
    assert FilterSpec().build(nothing).num_blocks == 1
    assert FilterSpec().build(nothing).is_empty
    hidden = FilterSpec(ndv=10_000, hide_size=True).build(nothing)
    assert hidden.is_empty
    assert hidden.num_bytes == 16_384


def test_ceiling() -> None:
    made = FilterSpec(max_bytes=96).build(hashes(100_000))
    assert made.num_bytes == 64
    assert FilterSpec(ndv=100_000, max_bytes=4096).build(hashes(10)).num_bytes == 4096


def test_hidden_size_is_constant_and_refuses_to_overfill() -> None:
    spec = FilterSpec(fpp=0.01, ndv=12_000, hide_size=True)
    sizes = {spec.build(hashes(count)).num_bytes for count in (0, 1, 100, 12_000)}
    assert sizes == {16_384}
    capacity = 12_448  # 131,072 bits at 10.53 bits per value
    spec.build(np.concatenate([hashes(capacity)] * 3))
    with pytest.raises(UsageError, match=r"12448.*16384 bytes.*stay hidden") as caught:
        spec.build(hashes(2 * capacity))
    assert "smaller row groups" in str(caught.value)


def test_hidden_size_lets_pass_the_scatter_of_a_small_filter() -> None:
    spec = FilterSpec(fpp=0.01, num_bytes=64, hide_size=True)
    capacity = 48  # 512 bits at 10.53 bits per value
    tries = [spec.build(hashes(capacity, seed)).false_positive_probability() for seed in range(40)]
    assert max(tries) > 0.01  # refusing by the probability alone would be refusing at random


@pytest.mark.parametrize(
    "wrong",
    [
        {"fpp": 0.0},
        {"fpp": 1},
        {"ndv": -1},
        {"num_bytes": 33},
        {"num_bytes": 0},
        {"max_bytes": 16},
        {"ndv": 10, "num_bytes": 64},
        {"num_bytes": 128, "max_bytes": 64},
        {"hide_size": True},
        {"hide_size": True, "ndv": 1_000_000, "max_bytes": 1024},
        {"hide_size": True, "ndv": 1 << 40},
        {"hide_size": True, "ndv": 70, "max_bytes": 96},  # three blocks; the power of two below has two
    ],
    ids=str,
)
def test_specifications_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        FilterSpec(**wrong)
