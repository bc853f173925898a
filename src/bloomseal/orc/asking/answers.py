"""A stripe's answers about one column: statistics of the stripe, then filters, then statistics where filters fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.verdict import Hits, Verdict, verdicts
from ..index import Bounds, StripeIndex, bounds
from ..streams import Stream
from .values import OrcProbeSet

Bools = npt.NDArray[np.bool_]

_EMPTY: Final = "untrusted: an empty filter, where statistics do not say that there are only nulls"


class RowGroupVerdicts(NamedTuple):
    """The answers of one row group.

    Attributes:
        stripe: index from 0.
        row_group: index from 0, within the stripe.
        verdicts: one per value. *Absent* is what statistics or filter exclude.
        untrusted: why a filter that is there proves nothing; else None.
    """

    stripe: int
    row_group: int
    verdicts: list[Verdict]
    untrusted: str | None = None


class Answers(NamedTuple):
    """The answers of a stripe's row groups, not named yet.

    Attributes:
        stripe: index from 0.
        maybe: array of shape (row groups, values); False where a value is absent.
        asked: for each row group, whether a filter that is believed was asked.
        untrusted: for each row group, why a filter that is there proves nothing; else None.
    """

    stripe: int
    maybe: Bools
    asked: Bools
    untrusted: list[str | None]

    @property
    def hits(self) -> list[Hits]:
        """The answers of each row group."""
        return [Hits(maybe, not asked) for maybe, asked in zip(self.maybe, self.asked.tolist(), strict=True)]

    def named(self) -> list[RowGroupVerdicts]:
        """One entry per row group."""
        each = enumerate(zip(self.hits, self.untrusted, strict=True))
        return [RowGroupVerdicts(self.stripe, group, verdicts(hits), why) for group, (hits, why) in each]


def undecided(index: StripeIndex, values: int, why: str) -> Answers:
    """All values are possible, and no filter was asked."""
    count = index.stripe.num_row_groups
    return Answers(index.stripe.index, np.ones((count, values), np.bool_), np.zeros(count, np.bool_), [why] * count)


def asked_of_stripe(
    asked: OrcProbeSet,
    index: StripeIndex,
    column: int,
    variant: int | None,
    known: Bounds | None,
    why_untrusted: Callable[[Stream], str | None],
) -> Answers:
    """Ask a stripe for values.

    Args:
        column, variant: whose filters and row index are asked; `variant` is None for those in clear.
        known: the stripe's statistics.
        why_untrusted: why filters prove nothing; None where they do.

    Raises:
        FormatError: indexes or filters are broken.
    """
    count, possible = index.stripe.num_row_groups, asked.within(known)
    maybe = np.tile(possible, (count, 1))
    empty = believed = np.zeros(count, np.bool_)
    untrusted: list[str | None] = [None] * count
    if possible.any() and (stream := index.filter_stream(column, variant)) is not None:
        why = why_untrusted(stream)
        untrusted = [why] * count
        filters = index.filters(stream)
        if why is None:
            believed, empty = np.ones(count, np.bool_), filters.empty
            if (every := asked.check_all(filters)) is not None:
                maybe &= every
            else:
                for group, one in enumerate(filters):
                    maybe[group] &= asked.check(one)
    # Most row groups are ruled out by now, and their statistics, of which a stripe has many, are not parsed.
    left = np.flatnonzero(maybe.any(axis=1) | empty).tolist()
    statistics = index.statistics(column, variant) if left else None
    for group in left:
        within = possible if statistics is None else possible & asked.within(bounds(statistics.of(group)))
        if empty[group] and within.any():
            maybe[group], believed[group], untrusted[group] = within, False, _EMPTY
        else:
            maybe[group] &= within
    return Answers(index.stripe.index, maybe, believed, untrusted)
