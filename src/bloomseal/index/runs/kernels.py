"""Compiled search (numba) for many fingerprints at once in the entries of a run."""

from __future__ import annotations

from typing import Any

from numba import types

from ..._compiled import compiled_for, frozen

__all__ = ["seek"]


@compiled_for(
    frozen(types.int64),
    frozen(types.int64),
    types.int64,
    types.int64[::1],
    types.int64[::1],
    result=types.intp,
)
def seek(entries: Any, low: Any, width: Any, which: Any, places: Any) -> Any:
    """Which of ``[low, low + width)`` hold an entry: their numbers into `which`, and where the first one is into
    `places`; returns how many. `entries` and `low` ascend.
    """
    count, left, end = 0, 0, len(entries)
    for number in range(len(low)):
        wanted = low[number]
        # In steps that double, from where the last one was: what is behind that is never looked at again.
        step, ahead = 1, left
        while ahead < end and entries[ahead] < wanted:
            left = ahead + 1
            ahead += step
            step <<= 1
        right = min(ahead, end)
        while left < right:
            middle = (left + right) >> 1
            if entries[middle] < wanted:
                left = middle + 1
            else:
                right = middle
        if left < end and entries[left] < wanted + width:
            which[count], places[count] = number, left
            count += 1
    return count
