"""A row predicate over a table: what folders and missing columns decide, and what is left for each file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UsageError

__all__ = ["Bound", "Condition", "conjunctions"]

Term = tuple[Any, ...]


class Bound:
    """A predicate of any form, over the columns of the whole table.

    Attributes:
        schema: the top-level columns that it is about.

    Raises:
        UsageError: no such column, or a value of the wrong kind.
    """

    def __init__(self, filters: Any, table: pa.Schema) -> None:
        from ..read.predicate import Predicate
        from .leaves import leaves_of

        self._predicate = Predicate(filters, leaves_of(table))
        names = dict.fromkeys(leaf.path[0] for leaf in self._predicate.leaves)
        self.schema = pa.schema([table.field(name) for name in names])

    def hits(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The rows that satisfy it; `rows` has the columns of `schema`."""
        return self._predicate.hits(rows)


class Condition:
    """A predicate in which some columns have one value per file.

    Args:
        filters: as for `SealedFile.read`. What is no list of tuples has to be bound to the table's schema (`bind`).
        known: column → its value in each file.

    Attributes:
        bound: after `bind`, for a predicate that is no list of tuples.

    Raises:
        UsageError: a term about a known column that is wrong.
    """

    def __init__(self, filters: Any, known: Mapping[str, pa.Array]) -> None:
        self._whole = filters
        self._known_values = known
        self.bound: Bound | None = None
        self._decided: list[bool] | None = None
        self._any_of = None if filters is None else conjunctions(filters)
        self._holds: dict[int, list[bool]] = {}
        self.columns = {term[0] for conjunction in self._any_of or () for term in conjunction}
        for conjunction in self._any_of or ():
            for term in conjunction:
                if term[0] in known:
                    self._holds[id(term)] = _answers(term, known[term[0]])

    @property
    def needs_schema(self) -> bool:
        """Is it of a form that has to be bound to the table's schema?"""
        return self._whole is not None and self._any_of is None

    def bind(self, table: pa.Schema) -> None:
        """Find the columns that it is about.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
        """
        self.bound = bound = Bound(self._whole, table)
        if bound.schema.names and {*bound.schema.names} <= {*self._known_values}:
            values = [self._known_values[name].cast(bound.schema.field(name).type) for name in bound.schema.names]
            self._decided = _flags(bound.hits(pa.table(values, schema=bound.schema)), len(values[0]))

    def may_hold(self, file: int) -> bool:
        """Can a row of this file satisfy it, as far as the known columns say?"""
        if self._any_of is None:
            return self._decided is None or self._decided[file]
        return any(all(self._known(term, file) for term in conjunction) for conjunction in self._any_of)

    def left(self, file: int, has: Callable[[str], bool], decided: Callable[[str], bool]) -> Any:
        """What the rows of one file must be asked: filters; None where every row satisfies it; False where none does;
        or `bound`, where a column that it is about is not the file's own.

        Args:
            has: does the file hold the column?
            decided: does the file's known value count?
        """
        if self._any_of is None:
            if self.bound is None:
                return self._whole
            if self._decided is not None and all(map(decided, self.bound.schema.names)):
                return None if self._decided[file] else False
            own = all(
                has(name) and not (name in self._known_values and decided(name)) for name in self.bound.schema.names
            )
            return self._whole if own else self.bound
        left: list[list[Term]] = []
        for conjunction in self._any_of:
            terms: list[Term] | None = []
            for term in conjunction:
                if id(term) in self._holds and decided(term[0]):
                    terms = terms if self._known(term, file) else None
                elif not has(term[0]):
                    terms = None  # null in every row, and comparison with null keeps none
                elif terms is not None:
                    terms.append(term)
                if terms is None:
                    break
            if terms == []:
                return None
            if terms is not None:
                left.append(terms)
        return left or False

    def _known(self, term: Term, file: int) -> bool:
        answers = self._holds.get(id(term))
        return answers is None or answers[file]


def conjunctions(filters: Any) -> list[list[Term]] | None:
    """The terms; None for a predicate of another form, which `Predicate` takes or refuses."""
    if not isinstance(filters, list | tuple) or not filters:
        return None
    if all(map(_is_term, filters)):
        return [list(map(_shared, filters))]
    if all(isinstance(item, list | tuple) and item and all(map(_is_term, item)) for item in filters):
        return [list(map(_shared, item)) for item in filters]
    return None


def _shared(term: Term) -> Term:
    """The same term, its values in a form that is encoded once for all files; an iterator gives them only once."""
    from ..read.values import Values

    column, op, values = term
    several = op in ("in", "not in") and isinstance(values, Iterable) and not isinstance(values, str | bytes | Values)
    return (column, op, Values(values)) if several else term


def _is_term(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str) and isinstance(item[1], str)


def _answers(term: Term, values: pa.Array) -> list[bool]:
    name = term[0]
    if pa.types.is_null(values.type):
        return [False] * len(values)
    distinct = values.dictionary_encode()
    rows = pa.table({name: distinct.dictionary})
    try:
        answers = _flags(Bound([term], rows.schema).hits(rows), rows.num_rows)
    except UsageError as error:
        raise error.at(column=name) from None
    return [place is not None and answers[place] for place in distinct.indices.to_pylist()]


def _flags(hits: npt.NDArray[np.int64], count: int) -> list[bool]:
    flags = [False] * count
    for place in hits.tolist():
        flags[place] = True
    return flags
