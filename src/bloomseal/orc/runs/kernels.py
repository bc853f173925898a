"""The walks, compiled (numba)."""

from __future__ import annotations

from numba import types

from ...sbbf.kernels import compiled_for, frozen
from . import walk

__all__ = ["bytes_walk", "lz4_walk", "runs_v1", "runs_v2"]

_BYTES = frozen(types.uint8)
_NUMBERS = (_BYTES, types.int64, types.boolean, types.int64)

bytes_walk = compiled_for(_BYTES, types.int64, types.Array(types.int64, 1, "C"), result=types.int64)(walk.bytes_walk)
runs_v1 = compiled_for(*_NUMBERS, result=types.int64)(walk.runs_v1)
runs_v2 = compiled_for(*_NUMBERS, result=types.int64)(walk.runs_v2)
lz4_walk = compiled_for(_BYTES, result=types.int64)(walk.lz4_walk)
