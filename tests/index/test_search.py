"""Many fingerprints are found by compiled search where few are found by numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bloomseal.index.runs import kernels, shard
from bloomseal.sbbf import batch

I64 = npt.NDArray[np.int64]


def cases() -> list[tuple[I64, I64, int]]:
    draw = np.random.default_rng(7)
    found: list[tuple[I64, I64, int]] = []
    for bits in (1, 5, 18):
        for count, asked, values in (
            (1, 1, 2),
            (1, 50, 3),
            (40, 7, 9),
            (500, 500, 90),
            (20_000, 60, 1 << 30),
            (60, 20_000, 64),
        ):
            entries = np.sort((draw.integers(0, values, count) << bits) | draw.integers(0, 1 << bits, count))
            found.append((entries, np.sort(draw.integers(0, values + 2, asked)) << bits, bits))
    most = (1 << 62) - 1
    found.append((np.array([0, most - 1, most]), np.array([0, 1 << 8, most >> 8 << 8]), 8))
    return found


@pytest.mark.parametrize(("entries", "low", "bits"), cases())
def test_both_searches_find_the_same(entries: I64, low: I64, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    width = 1 << bits
    wanted = [
        (number, int(np.searchsorted(entries, one)))
        for number, one in enumerate(low.tolist())
        if ((entries >= one) & (entries < one + width)).any()
    ]
    monkeypatch.setattr(shard, "_WORTH_KERNELS", 0)
    for compiled in (True, False):
        monkeypatch.setattr(batch, "worthwhile", lambda _, compiled=compiled: compiled)
        which, places = shard._first_ones(entries, low, width)
        assert list(zip(which.tolist(), places.tolist(), strict=True)) == wanted


def test_kernels_are_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    seek = kernels.seek
    monkeypatch.setattr(kernels, "seek", lambda *given: (asked.append(len(given[1])), seek(*given))[1])
    monkeypatch.setattr(batch, "worthwhile", lambda _: True)
    entries = np.arange(0, 1 << 20, 8)
    for count in (10, shard._WORTH_KERNELS - 1, shard._WORTH_KERNELS):
        shard._first_ones(entries, np.arange(count, dtype=np.int64) * 16, 8)
    assert asked == [shard._WORTH_KERNELS]


@pytest.mark.parametrize("bits", [1, 36, 44, 60])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 16, 17, 100_000])
def test_fingerprints_are_ordered_with_their_numbers(bits: int, count: int) -> None:
    """However long they are: of long ones the numbers do not fit behind them."""
    draw: Any = np.random.default_rng(bits + count)
    given = draw.integers(0, 1 << bits, count, dtype=np.uint64)
    if count:
        given[-1] = (1 << bits) - 1
    ascending, order = shard._in_order(given)
    assert np.array_equal(ascending, np.sort(given))
    assert np.array_equal(given[order], ascending)
    assert np.array_equal(np.sort(order), np.arange(count))
