"""Arrays of values, hashed as a whole: what `OrcProbeSet` makes of each value, made of millions at once."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.errors import UsageError
from ...sbbf.batch import worthwhile
from ..hashing import hash_bytes, hash_longs
from ..schema import INTEGER_BITS, OrcColumn, OrcKind

_FLOATS: Final = {OrcKind.FLOAT: np.float32, OrcKind.DOUBLE: np.float64}
_SPAN: Final = 2_000
"""Nanoseconds to hash a text without kernels."""


class HashedValues(NamedTuple):
    """What stands for values in a filter: hashes; of which value each is; which values no hash decides; the numbers
    themselves.
    """

    hashes: npt.NDArray[np.int64]
    owners: npt.NDArray[np.intp]
    undecided: npt.NDArray[np.bool_]
    longs: npt.NDArray[np.int64] | None


def hashed(values: Any, column: OrcColumn) -> HashedValues | None:
    """Arrays of the column's own kind, without nulls and NaN; None for all else."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        if values.null_count:
            return None
        if column.kind in (OrcKind.STRING, OrcKind.VARCHAR) and (
            pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        ):
            return _texts(values)
        if column.kind is OrcKind.BINARY and (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
            return _texts(values)
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            return None
        values = values.to_numpy(zero_copy_only=False)
    if type(values) is not np.ndarray or values.ndim != 1:
        return None
    if column.kind in INTEGER_BITS and values.dtype.kind in "iu" and values.dtype != np.uint64:
        return _integers(values.astype(np.int64), INTEGER_BITS[column.kind])
    if column.kind in _FLOATS and values.dtype == _FLOATS[column.kind]:
        return _floats(values.astype(np.float64))
    return None


def _integers(values: npt.NDArray[np.int64], bits: int) -> HashedValues:
    half = 1 << bits - 1
    owners = np.flatnonzero((values >= -half) & (values <= half - 1))
    longs = values[owners]
    return HashedValues(hash_longs(longs), owners, np.zeros(len(values), np.bool_), longs)


def _floats(values: npt.NDArray[np.float64]) -> HashedValues | None:
    if np.isnan(values).any():
        return None
    zeros = np.flatnonzero(values == 0)
    # Both zeros are asked for.
    owners = np.concatenate([np.arange(len(values)), zeros])
    inputs = np.concatenate([values, -values[zeros]])
    return HashedValues(hash_longs(inputs.view(np.int64)), owners, np.zeros(len(values), np.bool_), None)


def _texts(values: pa.Array) -> HashedValues:
    owners, decided = np.arange(len(values)), np.zeros(len(values), np.bool_)
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    if not len(values) or not worthwhile(_SPAN * len(values)):
        return HashedValues(
            hash_bytes(values.cast(pa.large_binary() if wide else pa.binary()).to_pylist()), owners, decided, None
        )
    from .. import kernels

    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    spans = offsets.astype(np.int64)
    whole = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    hashes = np.empty(len(values), np.uint64)
    if spans[0] < 0 or spans[-1] > len(whole) or (np.diff(spans) < 0).any():
        raise UsageError("an Arrow array with offsets outside its data")
    kernels.hash_spans(whole, spans, hashes)
    return HashedValues(hashes.view(np.int64), owners, decided, None)
