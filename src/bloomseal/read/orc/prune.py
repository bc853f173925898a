"""Which row groups of a stripe are left once statistics, then Bloom filters have been asked about a predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from ...orc import Column, OrcFile
from ...orc.protobuf import Message
from ...orc.values import Asked
from ..predicate.predicate import Predicate, Term
from .bounds import NOTHING_SAID, Said, said

__all__ = ["Pruned", "ruled_out"]

Bools = npt.NDArray[np.bool_]


class Pruned(NamedTuple):
    """What is left of a stripe.

    Attributes:
        kept: row groups, ascending.
        by_statistics, by_filter: how many of the others each ruled out.
    """

    kept: list[int]
    by_statistics: int = 0
    by_filter: int = 0


def ruled_out(file: OrcFile, stripe: int, predicate: Predicate, stored: Mapping[int, Column]) -> Pruned:
    """Ask the stripe's statistics, those of its row groups, and then its filters; no filter is read before all
    statistics are asked.

    Args:
        stored: index of a leaf → the file's column.

    Raises:
        FormatError: an index or a filter is broken.
    """
    asking = _Asking(file, stripe, stored)
    count = file.stripes[stripe].num_row_groups
    ways = [way for way in predicate.any_of if not any(asking.outside_stripe(term) for term in way)]
    alive = [_all_of(count, way, asking.not_outside) for way in ways]
    left = np.logical_or.reduce(alive) if alive else np.zeros(count, np.bool_)
    by_statistics = count - int(left.sum())
    if left.any() and any(term.by_equality for way in ways for term in way):
        asked = [one & _all_of(count, way, asking.maybe_in) for one, way in zip(alive, ways, strict=True)]
        left = np.logical_or.reduce(asked)
    kept = np.flatnonzero(left).tolist()
    return Pruned(kept, by_statistics, count - by_statistics - len(kept))


def _all_of(count: int, way: list[Term], ask: Callable[[Term], Bools | None]) -> Bools:
    left = np.ones(count, np.bool_)
    for term in way:
        if left.any() and (found := ask(term)) is not None:
            left &= found
    return left


class _Asking:
    """One stripe's statistics and filters, each read once."""

    def __init__(self, file: OrcFile, stripe: int, stored: Mapping[int, Column]) -> None:
        self._file, self._stripe, self._stored = file, stripe, stored
        self._zone = file.index(stripe).writer_timezone
        self._groups: dict[int, list[Said] | None] = {}
        self._filters: dict[int, Bools | None] = {}

    def outside_stripe(self, term: Term) -> bool:
        """Do the stripe's statistics prove that no value satisfies the term?"""
        column = self._stored[term.leaf.index]
        found = self._file.stripe_statistics(self._stripe, column)
        return found is not None and _outside(term, self._said(term, column, found, merged=True))

    def not_outside(self, term: Term) -> Bools | None:
        """The row groups in which their statistics leave the term possible; None: all."""
        column = self._stored[term.leaf.index]
        if column.id not in self._groups:
            found = self._file.statistics(self._stripe, column)
            self._groups[column.id] = (
                None if found is None else [self._said(term, column, one, merged=False) for one in found]
            )
        groups = self._groups[column.id]
        return None if groups is None else np.array([not _outside(term, one) for one in groups], np.bool_)

    def maybe_in(self, term: Term) -> Bools | None:
        """The row groups whose filters leave the term possible; None: all."""
        if not term.by_equality:
            return None
        if id(term) not in self._filters:
            self._filters[id(term)] = self._ask(term)
        return self._filters[id(term)]

    def _ask(self, term: Term) -> Bools | None:
        column = self._stored[term.leaf.index]
        if (filters := self._file.believed(self._stripe, column)) is None:
            return None
        try:
            asked = term.once(
                ("orc", column.kind, column.length, column.precision, column.scale, self._zone, self._hybrid),
                lambda values: Asked(values, column, zone=self._zone, hybrid=self._hybrid),
            )
        except UsageError:
            return None  # a value that rows can be compared with, and the filter can't be asked for
        groups = self._groups.get(column.id) or [NOTHING_SAID] * len(filters)
        return np.array(
            [
                (empty and not known.only_nulls) or bool(hits.any())
                for hits, empty, known in zip(asked.maybe_in_each(filters), filters.empty, groups, strict=True)
            ],
            np.bool_,
        )

    @property
    def _hybrid(self) -> bool:
        return self._file.tail.hybrid_calendar

    def _said(self, term: Term, column: Column, found: Message, *, merged: bool) -> Said:
        return said(found, column, term.leaf, self._file.tail, self._zone, merged=merged)


def _outside(term: Term, known: Said) -> bool:
    if term.op == "null":
        return known.no_nulls
    return known.only_nulls or (known.between is not None and term.outside(*known.between))
