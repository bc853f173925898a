"""Which rows of a stripe are decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from ...orc.tail import Stripe

_WORTH_LEAVING: Final = 256 * 1024
"""Bytes of a stripe's columns between two row groups: for fewer it is not decoded in two parts."""

Rows = npt.NDArray[np.int64]


def neighbourhoods(kept: Sequence[int], stripe: Stripe) -> list[list[int]]:
    """Row groups, ascending, so that those between two that stand in one list are fewer bytes than are worth leaving
    out.
    """
    share = stripe.data_length / max(1, stripe.num_row_groups)
    found = [[kept[0]]] if kept else []
    for before, group in pairwise(kept):
        if (group - before - 1) * share > _WORTH_LEAVING:
            found.append([])
        found[-1].append(group)
    return found


def rows_of(spans: Sequence[tuple[int, int]]) -> Rows:
    """The numbers of the rows in these ranges."""
    return np.concatenate([np.arange(first, end) for first, end in spans] or [np.empty(0, np.int64)])
