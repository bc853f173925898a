"""The batch operations, each by the cheapest way for its size: xxhash or numpy for few values, numba for many.

Loading the compiled kernels costs some tenths of a second, so a batch must be large enough to earn that back; once
they are loaded, much smaller batches go to them as well.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import xxhash

from . import twins

__all__ = ["check", "false_positive_probability", "hash_fixed", "hash_spans", "hash_views", "insert"]

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]

false_positive_probability = twins.false_positive_probability


def insert(words: U32, hashes: U64) -> None:
    """Insert hashes (n,) into words (blocks × 8,), in place."""
    twins.insert(words, hashes)


def check(words: U32, hashes: U64) -> npt.NDArray[np.bool_]:
    """One bool per hash: False where it was never inserted."""
    return twins.check(words, hashes)


def hash_fixed(data: U8, width: int) -> U64:
    """XXH64 of consecutive values of `width` bytes each."""
    return twins.hash_rows(data.reshape(-1, width))


def hash_spans(data: U8, offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> U64:
    """XXH64 of the bytes between each two neighbouring offsets; one hash fewer than there are offsets."""
    view, ends = data.data, offsets.tolist()
    digests = (xxhash.xxh64_intdigest(view[start:end]) for start, end in pairwise(ends))
    return np.fromiter(digests, dtype=np.uint64, count=len(ends) - 1)


def hash_views(views: U8, buffers: list[U8], valid: npt.NDArray[np.bool_] | None) -> U64:
    """XXH64 of Arrow views (16 bytes each: length, then either the bytes or prefix, buffer index and offset).

    Null slots, where `valid` is False, are not looked at: what stands there is undefined.
    """
    count = len(views) // 16
    fields = views.view(np.int32).reshape(count, 4)
    inline, others = views.data, [buffer.data for buffer in buffers]
    hashes = np.zeros(count, dtype=np.uint64)
    for i in range(count) if valid is None else np.flatnonzero(valid).tolist():
        length, _, index, start = fields[i].tolist()
        data = inline[16 * i + 4 : 16 * i + 4 + length] if length <= 12 else others[index][start : start + length]
        hashes[i] = xxhash.xxh64_intdigest(data)
    return hashes
