"""The size of a column's filters, and building a filter of that size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..core import limits
from ..core.errors import Hint, UsageError
from ..core.sbbf.filter import SplitBlockBloomFilter, check_fpp, check_num_bytes
from ..core.spelling import named_options
from .sizing import bits_per_value, check_ndv, num_bytes


@named_options
@dataclass(frozen=True)
class FilterSpec:
    """The filter that a column gets.

    Sizes that Bloomseal chooses are powers of two: Arrow C++, Velox and ClickHouse refuse any other bitset.

    Args:
        fpp: the false positive probability to reach, between 0 and 1.
        ndv: distinct values to expect per row group. None: every row group's filter is built large and folded down
            to the smallest size that reaches `fpp`.
        num_bytes: a fixed size instead, a multiple of 32; the probability then follows from the data.
        hide_size: the length of a sealed filter is visible and tells how many distinct values there are. With this,
            all row groups of the column get one constant size (from `ndv` or `num_bytes`), and one that would
            overfill it is refused.
        max_bytes: ceiling of the size; a filter that meets it has a higher probability than asked.

    Raises:
        UsageError: a value out of range, or a combination that cannot be met.
    """

    fpp: float = 0.01
    ndv: int | None = None
    num_bytes: int | None = None
    hide_size: bool = False
    max_bytes: int = limits.MAX_BITSET_BYTES

    def __post_init__(self) -> None:
        check_fpp(self.fpp)
        check_num_bytes(self.max_bytes)
        if self.ndv is not None:
            check_ndv(self.ndv)
        if self.num_bytes is not None:
            check_num_bytes(self.num_bytes)
            if self.ndv is not None:
                raise UsageError("a filter is sized by ndv or by num_bytes, not by both")
            if self.num_bytes > self.max_bytes:
                raise UsageError("num_bytes is greater than max_bytes")
        if self.hide_size:
            if self.ndv is None and self.num_bytes is None:
                raise UsageError("a constant size is needed to hide it", hint=Hint.SIZE_TO_HIDE)
            if self.ndv is not None and num_bytes(self.ndv, self.fpp) > self._size(0):
                raise UsageError(
                    f"{self.ndv} distinct values do not fit into max_bytes at this probability",
                    hint="a higher fpp=, or smaller row groups",
                )

    def build(self, hashes: npt.NDArray[np.uint64]) -> SplitBlockBloomFilter:
        """A filter that holds these hashes, an array of shape (n,), repetitions allowed.

        No hashes make an empty filter (of one block, unless the size is given): right for a column chunk that holds
        nulls only.

        With `hide_size` a filter counts as overfilled when its exact probability, from its bits, exceeds `fpp` *and*
        there are more distinct hashes than its size is for. The second condition lets pass what is only the
        scatter of a small filter.

        Raises:
            UsageError: with `hide_size`, the filter would be overfilled.
        """
        built = SplitBlockBloomFilter(self._size(len(hashes)))
        built.insert_hashes(hashes)
        if self.ndv is None and self.num_bytes is None:
            return built.fold_to(self.fpp)
        if self.hide_size and built.false_positive_probability() > self.fpp:
            capacity = int(8 * built.num_bytes / bits_per_value(self.fpp))
            if len(np.unique(hashes)) > capacity:
                raise UsageError(
                    f"a row group holds more distinct values than the {capacity} that a filter of {built.num_bytes} "
                    f"bytes can at a false positive probability of {self.fpp:g}, and its size is to stay hidden",
                    hint=Hint.HIDDEN_SIZE,
                )
        return built

    def _size(self, values: int) -> int:
        if self.num_bytes is not None:
            return self.num_bytes
        wanted = num_bytes(values if self.ndv is None else self.ndv, self.fpp)
        return min(1 << (wanted - 1).bit_length(), 1 << (self.max_bytes.bit_length() - 1))
