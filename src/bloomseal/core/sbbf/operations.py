"""The operations on whole arrays, by the fastest kernels that were handed in; by the reference as long as none were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from . import reference

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


class Kernels(Protocol):
    """What `reference` does, faster: every result is equal, and so are the errors."""

    def insert(self, words: U32, hashes: U64, /) -> None: ...

    def check(self, words: U32, hashes: U64, /) -> Bools: ...

    def hash_fixed(self, data: U8, width: int, count: int, /) -> U64: ...

    def hash_spans(self, data: U8, offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64], /) -> U64: ...

    def tally(self, data: U8, width: int, count: int, tallies: npt.NDArray[np.int64], /) -> bool: ...


_load: Callable[[], Kernels] | None = None
_loaded: Kernels = reference


def hand_in(load: Callable[[], Kernels]) -> None:
    """Use the kernels that `load` gives, from the first operation on."""
    global _load
    _load = load


def kernels() -> Kernels:
    """The kernels to use."""
    global _load, _loaded
    if _load is not None:
        _loaded, _load = _load(), None
    return _loaded
