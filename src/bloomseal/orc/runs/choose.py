"""The walks, each by the cheaper way: plain Python or numpy for few values, compiled for many."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...sbbf.batch import worthwhile
from . import walk

Walked = int
"""A number below zero says why a walk ended: `walk.CUT`, `walk.MALFORMED`, `walk.OUTSIDE`."""

_BYTE, _VALUE, _PACKED, _SEQUENCE = 80, 400, 50, 60
"""Nanoseconds without kernels: per byte of a byte stream, per value walked through, per byte of packed ones, per byte
of LZ4.
"""
_ANY: Final = -1
_NOWHERE: Final = np.empty(0, np.int64)


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
    cost = _PACKED * len(data) if most < 0 else _VALUE * wanted
    walked, through = _chosen("runs_v1" if version == 1 else "runs_v2", cost, data)
    return int(walked(through, wanted, signed, most, out))


def lz4_length(data: memoryview) -> Walked:
    """The length to which an LZ4 block inflates."""
    walked, through = _chosen("lz4_walk", _SEQUENCE * len(data), data)
    return int(walked(through))
