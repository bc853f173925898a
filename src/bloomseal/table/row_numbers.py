"""Which rows of which files a condition keeps, by their numbers: for whoever takes those out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.exclusion import Exclusion
from ..read.file import GATHERED, STREAMED
from ..read.predicate.condition import columns_of, shared
from ..read.predicate.where import from_text
from .query.query import Fragment, Query
from .query.workers import workers
from .scan import Progress

if TYPE_CHECKING:
    from .sealed import SealedTable

I64 = npt.NDArray[np.int64]


class MatchedRows(NamedTuple):
    """The rows of one file that a condition keeps.

    Attributes:
        number: of the file, in the table.
        rows: in the file.
        groups: part → numbers of its rows, ascending; parts without any are left out.
        identity: of the file that was looked at, see `SealedFile.identity`.
        mark: likewise, of a local one: `Source.identity`.
    """

    number: int
    rows: int
    groups: dict[int, I64]
    identity: bytes
    mark: tuple[int, ...] | None


def row_numbers(table: SealedTable, where: Any, progress: Progress | None = None) -> list[MatchedRows]:
    """Of the files of a table, those with rows that a condition keeps. Filters, statistics and indexes are believed
    where they rule out, and no further.

    Args:
        where: as for `SealedTable.read`.
        progress: called with (files looked at, files to look at).

    Raises:
        As `SealedTable.read`.
    """
    where = from_text(where, lambda: table.leaves)
    query = table.query(columns_of(shared(where)), where, "ns")
    opener, left, _ = table.opener(query, STREAMED)
    numbers = left.numbers
    found: list[MatchedRows] = []
    places = {number: place for place, number in enumerate(numbers, 1)}
    try:
        for fragment in opener.in_turn(numbers, workers(None)):
            file, plan = fragment.file, fragment.plan
            known = plan.predicate is not None and plan.predicate.few  # asked already
            groups: dict[int, I64] = {}
            for group in fragment.groups:
                if (known or not file.skips(plan, group)) and len(hits := _hits(query, fragment, group)):
                    groups[group] = hits
            if groups:
                # Writers exist whose footers count otherwise than their row groups.
                rows = sum(map(file.rows_in_part, range(file.num_parts)))
                found.append(MatchedRows(fragment.number, rows, groups, file.identity, file.source.identity))
            opener.done(fragment, len(fragment.groups))
            if progress is not None:
                progress(places[fragment.number], len(numbers))
    finally:
        opener.close()
    return found


def _hits(query: Query, fragment: Fragment, group: int) -> I64:
    """The numbers of the matching rows of one part."""
    file, condition = fragment.file, query.condition
    if isinstance(fragment.left, Exclusion):
        return np.zeros(0, dtype=np.int64)
    if fragment.left.again:
        names = [*filter(file.has, condition.schema.names)] or file.leaves.top_level[:1]
        return condition.hits(query.in_schema(fragment.number, _read(query, fragment, group, names), condition.schema))
    if (predicate := fragment.plan.predicate) is None:
        return np.arange(file.rows_in_part(group))
    return predicate.hits(_read(query, fragment, group, [leaf.name for leaf in predicate.leaves]))


def _read(query: Query, fragment: Fragment, group: int, names: list[str]) -> pa.Table:
    plan = fragment.file.plan(names, int96_unit=query.int96_unit)
    return pa.concat_tables([*fragment.file.pieces(plan, group, GATHERED)] or [plan.empty])
