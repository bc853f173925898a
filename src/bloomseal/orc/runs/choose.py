"""The walks, each by the cheaper way: plain Python or numpy for few values, compiled for many."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...sbbf.batch import worthwhile
from . import walk

__all__ = ["Walked", "histogram", "lz4_length", "sum_of"]

Walked = int
"""A number below zero says why a walk ended: `walk.CUT`, `walk.MALFORMED`, `walk.OUTSIDE`."""

_BYTE, _VALUE, _LONG_RUNS, _PACKED, _SEQUENCE = 80, 400, 35, 50, 60
"""Nanoseconds without kernels: per byte of a byte stream, per value walked through and in `_long_runs`, per byte of
packed ones, per byte of LZ4.
"""
_ANY: Final = -1
_NOWHERE: Final = np.empty(0, np.int64)
_WORTH_NUMPY: Final = 64
"""Values of a run; shorter ones are walked through."""
_GREAT: Final = 1 << 40
"""Sums of so many as a run has stay far below 64 bits."""


def _chosen(name: str, cost: int, data: memoryview) -> tuple[Any, Any]:
    """The walk of this name and what it walks through, where plain Python takes `cost` nanoseconds for it."""
    if worthwhile(cost):
        from . import kernels

        return kernels.compiled(name), _array(data)
    return getattr(walk, name), data


def _array(data: memoryview) -> npt.NDArray[np.uint8]:
    found = np.frombuffer(data, np.uint8)
    found.flags.writeable = False
    return found


def histogram(data: memoryview, wanted: int) -> tuple[Walked, npt.NDArray[np.int64]]:
    """Of the first `wanted` bytes of a byte stream: the last one, and how often each byte comes."""
    counts = np.zeros(256, np.int64)
    walked, through = _chosen("bytes_walk", _BYTE * len(data), data)
    return int(walked(through, wanted, counts)), counts


def sum_of(
    data: memoryview,
    wanted: int,
    *,
    version: int,
    signed: bool = False,
    most: int = _ANY,
    out: npt.NDArray[np.int64] = _NOWHERE,
) -> Walked:
    """The sum of the first `wanted` values of an integer stream.

    Args:
        version: of the encoding, 1 or 2.
        signed: values are zigzag encoded.
        most: each lies between 0 and this, which is below 2^32; not given: runs are only counted.
        out: takes the values, where `most` is given.
    """
    if version != 1 and not signed and most >= 0 and not len(out) and not worthwhile(_LONG_RUNS * wanted):
        found = _long_runs(data, wanted, most)
        if found is not None:
            return found
    cost = _PACKED * len(data) if most < 0 else _VALUE * wanted
    walked, through = _chosen("runs_v1" if version == 1 else "runs_v2", cost, data)
    return int(walked(through, wanted, signed, most, out))


def _long_runs(data: memoryview, wanted: int, most: int) -> Walked | None:
    """As `walk.runs_v2` of values that are not signed, a run at a time; None: where that does not pay, or something is
    met that only the walk tells.
    """
    total = at = done = 0
    while done < wanted:
        values, at = _long_run(data, at)
        # Where a stream was cut, its first run can be short.
        if len(values) < min(_WORTH_NUMPY if done else 1, wanted - done):
            return None
        values = values[: wanted - done]
        if int(values.min()) < 0 or int(values.max()) > most:
            return walk.OUTSIDE
        total, done = total + int(values.sum()), done + len(values)
    return total


def _long_run(data: memoryview, at: int) -> tuple[npt.NDArray[np.generic], int]:
    """The values of a run, and where the next one begins; no values where the walk is to look at it."""
    none = np.empty(0, np.int64), at
    if len(data) - at < 2 or (kind := data[at] >> 6) not in (1, 3):
        return none
    code, count = data[at] >> 1 & 31, ((data[at] & 1) << 8 | data[at + 1]) + 1
    width, at = walk.WIDTHS[code], at + 2
    if kind == 1:
        end = at + (count * width + 7) // 8
        return (_unpacked(data[at:end], count, width), end) if end <= len(data) else none
    value, at = walk.varint(data, at)
    delta, at = walk.varint(data, at) if at >= 0 else (0, at)
    end = at + ((count - 2) * width + 7) // 8
    if at < 0 or max(value, delta) > _GREAT or count < 2 or not code or width > _GREAT.bit_length() or end > len(data):
        return none
    delta = delta >> 1 ^ -(delta & 1)
    steps = np.empty(count, np.int64)
    steps[:2] = value, delta
    steps[2:] = _unpacked(data[at:end], count - 2, width)
    if delta < 0:
        np.negative(steps[2:], out=steps[2:])
    return steps.cumsum(), end


def _unpacked(data: memoryview, count: int, width: int) -> npt.NDArray[np.uint64]:
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * width).reshape(count, width)
    values = np.zeros(count, np.uint64)
    for place in range(width):
        values = values << np.uint64(1) | bits[:, place]
    return values


def lz4_length(data: memoryview) -> Walked:
    """The length to which an LZ4 block inflates."""
    walked, through = _chosen("lz4_walk", _SEQUENCE * len(data), data)
    return int(walked(through))
