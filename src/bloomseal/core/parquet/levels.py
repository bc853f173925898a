"""Repetition and definition levels of a data page (Parquet encodings, RLE/bit-packing hybrid)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import IntegrityError
from ..sbbf.operations import kernels
from .page import Page
from .schema import Leaf

U8 = npt.NDArray[np.uint8]

_RLE: Final = 3


def tallied(levels: npt.NDArray[np.uint8], greatest: int, count: int) -> npt.NDArray[np.int64] | None:
    """How often each level from 0 to `greatest` occurs among `count` of them; None where there are fewer."""
    tallies = np.zeros(greatest + 1, dtype=np.int64)
    if not greatest:
        tallies[0] = count
        return tallies
    return tallies if kernels().tally(levels, greatest.bit_length(), count, tallies) else None


def check_clear_levels(page: Page, leaf: Leaf) -> bool:
    """Hold the levels that an encrypted V2 page leaves in clear against its sealed header, which counts rows and nulls.

    So nobody without the key takes values away by calling them null. That nulls and values change places stays
    possible.

    Returns:
        False where the header does not count nulls, as parquet-java's does not without statistics.

    Raises:
        IntegrityError: they contradict each other.
    """
    v2 = page.v2
    if v2 is None or not page.clear_levels:
        return True
    cut, data = v2.repetition_levels or 0, np.frombuffer(page.stored, dtype=np.uint8, count=page.clear_levels)
    repetition = tallied(data[:cut], leaf.repetition, page.num_values)
    definition = tallied(data[cut:], leaf.definition, page.num_values)
    counted = v2.num_nulls is not None and v2.num_nulls >= 0
    if (
        repetition is None
        or definition is None
        or (v2.num_rows is not None and repetition[0] != v2.num_rows)
        or (counted and page.num_values - definition[-1] != v2.num_nulls)
    ):
        raise IntegrityError(
            "the levels, which stand in clear, are not those that the page's sealed header counts",
            module=f"{page.kind.label} {page.ordinal}",
        )
    return counted


def parts_of(page: Page, data: U8, leaf: Leaf) -> tuple[U8, U8, U8] | None:
    """Repetition levels, definition levels and values of a data page (Parquet data pages); None where they can't be
    told apart.
    """
    if (v2 := page.v2) is not None:
        first = v2.repetition_levels or 0
        second = first + (v2.definition_levels or 0)
        ends = [(0, first), (first, second)]
    elif (v1 := page.view.data) is not None:
        ends, end = [], 0
        for there, encoding in ((leaf.repetition, v1.repetition_encoding), (leaf.definition, v1.definition_encoding)):
            start = end
            if there:
                if encoding != _RLE:
                    return None
                start = end + 4
                end = start + int.from_bytes(data[end:start].tobytes(), "little")
            ends.append((start, end))
    else:
        return None
    if not all(0 <= start <= end <= len(data) for start, end in ends):
        return None
    repetition, definition = (data[start:end] for start, end in ends)
    return repetition, definition, data[ends[-1][1] :]
