"""What a filter answers, whatever the file's format."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Verdict(StrEnum):
    """What one row group's filter says about one value."""

    ABSENT = "absent"
    MAYBE_PRESENT = "maybe present"
    NO_FILTER = "no filter"


class Hits(NamedTuple):
    """One row group's answers: an array with False where a value is absent; without a filter only statistics, which
    ORC files are asked too, make it so.
    """

    maybe: npt.NDArray[np.bool_]
    no_filter: bool


def verdicts(hits: Hits) -> list[Verdict]:
    """The answers by name."""
    common, rare, exceptions = (
        Verdict.ABSENT,
        Verdict.NO_FILTER if hits.no_filter else Verdict.MAYBE_PRESENT,
        hits.maybe,
    )
    if 2 * np.count_nonzero(exceptions) > len(exceptions):
        common, rare, exceptions = rare, common, ~exceptions
    # Of a million keys most are absent: to write the few over them is a small part of the work of naming each.
    named = [common] * len(exceptions)
    for place in np.flatnonzero(exceptions).tolist():
        named[place] = rare
    return named
