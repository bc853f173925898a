"""A run is searched for many fingerprints at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bloomseal.index.runs import shard

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
def test_the_first_entry_of_each_range_is_found(entries: I64, low: I64, bits: int) -> None:
    width = 1 << bits
    wanted = [
        (number, int(np.searchsorted(entries, one)))
        for number, one in enumerate(low.tolist())
        if ((entries >= one) & (entries < one + width)).any()
    ]
    which, places = shard._first_ones(entries, low, width)
    assert list(zip(which.tolist(), places.tolist(), strict=True)) == wanted
