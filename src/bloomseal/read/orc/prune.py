"""Which row groups of a stripe are left once statistics and Bloom filters have been asked about a predicate.

Statistics of the whole stripe come first. Then filters, where a condition has values to ask them for: thousands of them
are asked in one step, while the statistics of each row group are a message to be parsed. These are parsed only where
filters leave a row group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.errors import UsageError
from ...orc import Column
from ...orc.asking.values import Asked
from ...orc.layout import OrcLayout
from ...orc.protobuf import Message
from ...orc.statistics import GroupStatistics
from ...storage.lent import leased
from ..predicate.predicate import Predicate, Term
from .bounds import Said, said

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


def ruled_out(file: OrcLayout, stripe: int, predicate: Predicate, stored: Mapping[int, Column]) -> Pruned:
    """Ask the stripe's statistics, then its filters, then the statistics of the row groups that are left.

    Args:
        stored: index of a leaf → the file's column.

    Raises:
        FormatError: an index or a filter is broken.
    """
    asking = _Asking(file, stripe, stored)
    count = file.stripes[stripe].num_row_groups
    ways = [way for way in predicate.any_of if not any(asking.outside_stripe(term) for term in way)]
    unfiltered = [_left(np.ones(count, np.bool_), way, asking.maybe_in) for way in ways]
    alive = [_left(left, way, asking.not_outside) for left, way in zip(unfiltered, ways, strict=True)]
    by_filter = count - int(_any_of(unfiltered).sum()) if ways else 0
    kept = np.flatnonzero(_any_of(alive)).tolist()
    return Pruned(kept, count - by_filter - len(kept), by_filter)


def _any_of(each: list[Bools]) -> Bools:
    return np.asarray(np.logical_or.reduce(each), np.bool_) if each else np.zeros(0, np.bool_)


def _left(left: Bools, way: list[Term], ask: Callable[[Term, Bools], Bools | None]) -> Bools:
    """The row groups among those of `left` in which all terms are possible."""
    for term in way:
        if left.any() and (found := ask(term, left)) is not None:
            left = left & found
    return left


class _Asking:
    """One stripe's statistics and filters, each read once."""

    def __init__(self, file: OrcLayout, stripe: int, stored: Mapping[int, Column]) -> None:
        self._file, self._stripe, self._stored = file, stripe, stored
        self._zone = file.index(stripe).writer_timezone
        self._statistics: dict[int, GroupStatistics | None] = {}
        self._groups: dict[int, dict[int, Said]] = {}
        self._filters: dict[int, Bools | None] = {}

    def outside_stripe(self, term: Term) -> bool:
        """Do the stripe's statistics prove that no value satisfies the term?"""
        column = self._stored[term.leaf.index]
        found = self._file.stripe_statistics(self._stripe, column)
        return _outside(term, self._said(term, column, found))

    def not_outside(self, term: Term, left: Bools) -> Bools | None:
        """The row groups of `left` in which their statistics leave the term possible; None: all."""
        column = self._stored[term.leaf.index]
        if column.id not in self._statistics:
            self._statistics[column.id] = self._file.statistics(self._stripe, column)
        if (statistics := self._statistics[column.id]) is None:
            return None
        asked = np.flatnonzero(left).tolist()
        known = self._groups.setdefault(column.id, {})
        new = [group for group in asked if group not in known]
        for group, one in zip(new, self._file.parsed(self._stripe, column, statistics, new), strict=True):
            known[group] = self._said(term, column, one)
        found = left.copy()
        found[asked] = [not _outside(term, known[group]) for group in asked]
        return found

    def maybe_in(self, term: Term, left: Bools) -> Bools | None:  # noqa: ARG002
        """The row groups whose filters leave the term possible; None: all."""
        if not term.by_equality:
            return None
        if id(term) not in self._filters:
            self._filters[id(term)] = self._ask(term)
        return self._filters[id(term)]

    def _ask(self, term: Term) -> Bools | None:
        column = self._stored[term.leaf.index]
        try:
            asked = term.once(
                ("orc", column.kind, column.length, column.precision, column.scale, self._zone, self._hybrid),
                lambda values: Asked(values, column, zone=self._zone, hybrid=self._hybrid),
            )
        except UsageError:
            return None  # a value that rows can be compared with, and the filter can't be asked for
        with leased(4) as scratch:
            if (filters := self._file.believed(self._stripe, column, scratch)) is None:
                return None
            every = asked.maybe_in_all(filters)
            found = (
                np.array([hits.any() for hits in map(asked.maybe_in, filters)], np.bool_)
                if every is None
                else every.any(axis=1)
            )
            # An empty filter proves nothing. Where it is one over nulls, statistics say so.
            return np.asarray(found | filters.empty, np.bool_)

    @property
    def _hybrid(self) -> bool:
        return self._file.tail.hybrid_calendar

    def _said(self, term: Term, column: Column, found: Message | None) -> Said:
        return said(found, column, term.leaf, self._file.tail, self._zone)


def _outside(term: Term, known: Said) -> bool:
    if term.op == "null":
        return known.no_nulls
    return known.only_nulls or (known.between is not None and term.outside(*known.between))
