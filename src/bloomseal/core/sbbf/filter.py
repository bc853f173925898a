"""The split-block Bloom filter as an object: a bitset, and what can be asked of it and done to it."""

from __future__ import annotations

import math
import operator
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from .. import limits
from ..errors import FormatError, UsageError
from ..text import articled
from . import reference
from .block import BLOCK_BYTES, WORDS, bitset_check, halves
from .encoding import encode_value
from .hashing import hash_bytes
from .operations import kernels
from .types import ColumnType

_WORD_BITS: Final = 32


class SplitBlockBloomFilter:
    """A split-block Bloom filter over 64-bit hashes (Parquet Bloom filter specification, "Technical Approach").

    Any number of threads may check one filter at once; only one may insert, and then nobody else checks.

    Args:
        num_bytes: size of the empty filter's bitset: a multiple of 32, from 32 to `limits.MAX_BITSET_BYTES`.

    Raises:
        UsageError: any other size.
    """

    __slots__ = ("_bytes", "_words")

    def __init__(self, num_bytes: int) -> None:
        check_num_bytes(num_bytes)
        self._adopt(np.zeros(num_bytes, dtype=np.uint8))

    @classmethod
    def from_bitset(cls, buffer: bytes | bytearray | memoryview) -> Self:
        """Take a bitset as it stands in a file, without copying it where its memory is aligned.

        Any size is lawful: the number of blocks is the floor of size / 32, and what is left over is kept as it is.
        The buffer itself is never changed: the first insert copies it.

        Raises:
            FormatError: shorter than one block, or longer than `limits.MAX_BITSET_BYTES`.
            UsageError: a buffer that is not contiguous.
        """
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise UsageError("a bitset's bytes lie one behind the other", hint="bytes(...)")
        size = view.nbytes
        if size < limits.MIN_BITSET_BYTES:
            raise FormatError("a Bloom filter's bitset is shorter than one block of 32 bytes")
        if size > limits.MAX_BITSET_BYTES:
            raise FormatError(f"a Bloom filter's bitset is longer than {limits.MAX_BITSET_BYTES} bytes")
        made = cls.__new__(cls)
        made._adopt(np.frombuffer(view, dtype=np.uint8))
        if not made._words.flags.aligned:
            made._adopt(made._bytes.copy())
        made._bytes.flags.writeable = made._words.flags.writeable = False
        return made

    def _adopt(self, data: npt.NDArray[np.uint8]) -> None:
        self._bytes = data
        self._words = data[: len(data) // BLOCK_BYTES * BLOCK_BYTES].view("<u4")

    def _own(self) -> None:
        if not self._words.flags.writeable:
            self._adopt(self._bytes.copy())

    @property
    def num_bytes(self) -> int:
        """Size of the bitset in bytes, as the Bloom filter header gives it."""
        return len(self._bytes)

    @property
    def num_blocks(self) -> int:
        """The specification's z."""
        return len(self._words) // WORDS

    @property
    def bitset(self) -> memoryview:
        """The bitset, read-only, with any bytes beyond the last whole block; a view, not a copy."""
        return self._bytes.data.toreadonly()

    # Values and hashes -------------------------------------------------------------------------------------------

    def insert(self, value: Any, column_type: ColumnType) -> None:
        """Insert one value, in the encoding that writers use for it. Null and NaN are not inserted.

        Raises:
            UsageError: the value is of the wrong kind for the column, or its type cannot hold it.
        """
        encodings = encode_value(value, column_type, int96_utc=True)
        if encodings is None:
            return
        if not encodings:
            raise UsageError(f"{articled(column_type)} column cannot hold this value")
        self.insert_hash(hash_bytes(encodings[0]))

    def check(self, value: Any, column_type: ColumnType, *, int96_utc: bool = False) -> bool:
        """False: the value is absent. True: it may be present.

        The answer is about the bits alone: that an empty filter over a column with values proves nothing is for the
        caller to know.

        Raises:
            UsageError: the value is of the wrong kind for the column.
        """
        encodings = encode_value(value, column_type, int96_utc=int96_utc)
        return encodings is None or any(self.check_hash(hash_bytes(data)) for data in encodings)

    def insert_hash(self, value: int) -> None:
        """Insert one hash, an unsigned number of 64 bits.

        Raises:
            UsageError: a number below 0 or beyond 64 bits.
        """
        self.insert_hashes(np.array([_as_hash(value)], dtype=np.uint64))

    def check_hash(self, value: int) -> bool:
        """False: the hash, an unsigned number of 64 bits, was never inserted.

        Raises:
            UsageError: a number below 0 or beyond 64 bits.
        """
        return bitset_check(self._bytes.data, *halves(_as_hash(value)))

    def insert_hashes(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Insert 64-bit hashes, an array of shape (n,)."""
        self._own()
        kernels().insert(self._words, _as_hashes(hashes))

    def check_hashes(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """One bool per hash of an array of shape (n,): False where it was never inserted."""
        return kernels().check(self._words, _as_hashes(hashes))

    # The whole filter --------------------------------------------------------------------------------------------

    def fold(self, factor: int = 2) -> SplitBlockBloomFilter:
        """The filter that the same inserts would have made in `num_blocks` / `factor` blocks.

        A block's index is the upper half of the hash scaled down to the number of blocks, so it is *adjacent* blocks
        that fall together. Bytes beyond the last whole block are dropped.

        Raises:
            UsageError: `factor` does not divide the number of blocks.
        """
        if factor < 1 or self.num_blocks % factor:
            raise UsageError(f"{self.num_blocks} blocks cannot be folded by {factor}")
        folded = SplitBlockBloomFilter(self.num_blocks // factor * BLOCK_BYTES)
        groups = self._words.reshape(-1, factor, WORDS)
        np.bitwise_or.reduce(groups, axis=1, out=folded._words.reshape(-1, WORDS))
        return folded

    def fold_to(self, fpp: float) -> SplitBlockBloomFilter:
        """Halve as long as the exact false positive probability stays at or below `fpp`.

        Returns this filter itself where not even one halving is possible.

        Raises:
            UsageError: `fpp` is not between 0 and 1.
        """
        check_fpp(fpp)
        best = self
        while best.num_blocks % 2 == 0:
            halved = best.fold()
            if halved.false_positive_probability() > fpp:
                break
            best = halved
        return best

    def merge(self, other: SplitBlockBloomFilter) -> None:
        """Add all that was inserted into `other`, a filter with as many blocks.

        Raises:
            UsageError: the numbers of blocks differ.
        """
        if other.num_blocks != self.num_blocks:
            raise UsageError(f"filters of {self.num_blocks} and {other.num_blocks} blocks cannot be merged")
        self._own()
        np.bitwise_or(self._words, other._words, out=self._words)

    def false_positive_probability(self) -> float:
        """The probability that a hash never inserted is found: exact, from the bits as they are."""
        return reference.false_positive_probability(self._words)

    @property
    def fill(self) -> float:
        """The share of bits that are set, 0 to 1."""
        return self._set_bits() / (len(self._words) * _WORD_BITS)

    @property
    def is_empty(self) -> bool:
        """True when no bit is set: nothing was inserted, or the writer never filled it."""
        # A filter in use shows it in its first block; the whole is looked through only where that one is empty.
        return not any(self._words[:WORDS].tolist()) and not self._words.any()

    def estimated_ndv(self) -> int:
        """The likely number of distinct values, from the share of unset bits; for a full filter a lower bound."""
        bits = len(self._words) * _WORD_BITS
        unset = max(bits - self._set_bits(), 0.5)
        return round(-_WORD_BITS * self.num_blocks * math.log(unset / bits))

    def _set_bits(self) -> int:
        return int(np.bitwise_count(self._words).sum(dtype=np.int64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SplitBlockBloomFilter):
            return NotImplemented
        return np.array_equal(self._bytes, other._bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SplitBlockBloomFilter.from_bitset, (self._bytes.tobytes(),))

    def __repr__(self) -> str:
        # No bits, and nothing derived from them: the filter may be the opened form of a sealed one.
        return f"<SplitBlockBloomFilter of {self.num_bytes} bytes>"


def check_num_bytes(num_bytes: int) -> None:
    """Refuse a size that Bloomseal does not write."""
    if (
        isinstance(num_bytes, bool)
        or not isinstance(num_bytes, int)
        or num_bytes % BLOCK_BYTES
        or not limits.MIN_BITSET_BYTES <= num_bytes <= limits.MAX_BITSET_BYTES
    ):
        raise UsageError(
            f"a Bloom filter's size is a multiple of {BLOCK_BYTES} bytes from {limits.MIN_BITSET_BYTES} "
            f"to {limits.MAX_BITSET_BYTES}"
        )


def check_fpp(fpp: float) -> None:
    """Refuse what is no probability strictly between 0 and 1."""
    if isinstance(fpp, bool) or not isinstance(fpp, int | float) or not 0 < fpp < 1:
        raise UsageError("a false positive probability lies between 0 and 1", hint="0.01")


def _as_hash(value: int) -> int:
    number = operator.index(value)  # numpy's numbers would overflow where Python's don't
    if not 0 <= number < 1 << 64:
        # Another block would be asked, which may well be empty: a false absent.
        raise UsageError("a hash is an unsigned number of 64 bits", hint="int(value) % 2**64, if it is a signed one")
    return number


def _as_hashes(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    if not isinstance(hashes, np.ndarray) or hashes.dtype != np.uint64 or hashes.ndim != 1:
        raise UsageError("hashes are a one-dimensional numpy array of uint64")
    flags = hashes.flags
    return hashes if flags.c_contiguous and flags.aligned else np.require(hashes, requirements=("C", "A"))
