"""A read whose arguments were found good, and the count of what it did."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..core.cached import cached_property
from ..core.exclusion import Exclusion, Reason
from ..core.forked import new_lock
from ..core.parquet.layout import FileMeta
from ..core.parquet.walk import Walk
from ..format.decode import read_in_pieces, read_row_group

if TYPE_CHECKING:
    from ..core.parquet.footer import Footer
    from ..storage.logs.deletion_vector import DeletionVector
    from .page_places import Deleted
    from .predicate.predicate import Left, Predicate

INT96_UNITS: Final = ("ns", "us", "cut")
"""Of the timestamps that INT96 becomes; ``cut`` is for Spark, see `bloomseal.format.decode.read_row_group`."""

_EMPTY: dict[object, pa.Table] = {}
"""Results without rows by footer schema, key-value metadata and what is asked for: files of one table share them."""
_REMEMBERED = 64
_COUNTING = new_lock()
_COUNTERS: Final = {
    Reason.CONDITION: "pruned_by_statistics",
    Reason.STATISTICS: "pruned_by_statistics",
    Reason.FILTER: "pruned_by_filter",
    Reason.INDEX: "pruned_by_index",
}


@dataclass(slots=True)
class ReadStats:
    """What a read did: row groups in the file, pruned by statistics, pruned by filters, and decoded; rows of the
    answer.

    Of a table also: row groups that an index ruled out, files that were not opened for that, and files that no index
    of the predicate's columns covers (0 where nothing is asked, and where there is no index).
    """

    row_groups: int = 0
    pruned_by_statistics: int = 0
    pruned_by_filter: int = 0
    decoded: int = 0
    rows: int = 0
    pruned_by_index: int = 0
    files_unopened: int = 0
    files_not_covered: int = 0

    def add(self, other: ReadStats) -> None:
        """Count another read's in."""
        for one in fields(other):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def exclude(self, exclusions: Iterable[Exclusion], row_groups: int = 1) -> None:
        """Count what is left out, each exclusion as so many row groups."""
        with _COUNTING:
            for one in exclusions:
                name = _COUNTERS[one.reason]
                setattr(self, name, getattr(self, name) + row_groups)

    def count(self, **more: int) -> None:
        """Add to these counts. Threads share a plan, and adding takes more than one step."""
        with _COUNTING:
            for name, number in more.items():
                setattr(self, name, getattr(self, name) + number)


class Asked(NamedTuple):
    """A read, of a file and of every other one of the same `likeness`. It holds nothing of the file.

    Attributes:
        wanted: leaves of the result, ascending.
        order: its top-level fields.
        predicate: which rows; None for all.
        int96_unit: one of `INT96_UNITS`.
    """

    wanted: list[int]
    order: list[str]
    predicate: Predicate | None
    int96_unit: str


def likeness(footer: Footer) -> Hashable:
    """Files of which this is equal have equal columns, by name and by type, in Parquet and in Arrow."""
    fields = footer.struct.fields
    return fields.get(FileMeta.SCHEMA), fields.get(FileMeta.KEY_VALUE)


@dataclass
class ReadPlan:
    """A read whose arguments were found good.

    Attributes:
        walk: the file.
        wanted, order, predicate, int96_unit: see `Asked`.
        stats: filled while it runs.
        pages: row group → column → the only data pages on which it can have a value that the predicate asks for.
        left: row group → what `ruled_out` left of its values, until its rows are read.
        deletes: gives the rows that the file's table has deleted, and no read gives out.
    """

    walk: Walk
    wanted: list[int]
    order: list[str]
    predicate: Predicate | None
    int96_unit: str
    stats: ReadStats
    pages: Mapping[int, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    left: dict[int, Left] = field(default_factory=dict)
    deletes: Callable[[], DeletionVector | None] | None = None

    @property
    def asked(self) -> Asked:
        """The same, for another file."""
        return Asked(self.wanted, self.order, self.predicate, self.int96_unit)

    @cached_property
    def empty(self) -> pa.Table:
        """The result without rows: a read that matches nothing still has a schema."""
        asked = likeness(self.walk.footer), tuple(self.wanted), tuple(self.order), self.int96_unit
        found = _EMPTY.get(asked)
        if found is None:
            found = read_row_group(self.walk, None, self.wanted, int96_unit=self.int96_unit).select(self.order)
            if len(_EMPTY) >= _REMEMBERED:
                _EMPTY.clear()
            _EMPTY[asked] = found
        return found

    def size_of(self, row_group: int) -> int:
        """Roughly the bytes of the columns asked for, in one row group."""
        footer = self.walk.footer
        whole = max(footer.row_group(row_group).total_byte_size or 0, 0)
        return whole * len(self.wanted) // max(len(footer.schema.leaves), 1)

    def rows(self, row_group: int, left: Left, size: int) -> Iterator[pa.Table]:
        """The rows of one row group that are asked for. `left`: of `ruled_out`; `size`: see `read_in_pieces`."""
        if self.predicate is None:
            first, deleted = 0, self._deleted(row_group)
            for table in read_in_pieces(self.walk, row_group, self.wanted, size, int96_unit=self.int96_unit):
                yield _without(table, first, deleted).select(self.order)
                first += table.num_rows
        elif (found := self.matching(row_group, left)) is not None:
            yield found

    def matching(self, row_group: int, left: Left | None = None) -> pa.Table | None:
        """The rows of one row group that the predicate asks for; None where there are none. `left`: of `ruled_out`."""
        from .rows import RowGroupReader

        assert self.predicate is not None  # noqa: S101
        reader = RowGroupReader(
            self.walk, row_group, self.int96_unit, pages=self.pages.get(row_group), deleted=self._deleted(row_group)
        )
        return reader.matching(self.wanted, self.predicate, lambda: self.empty.schema, left)

    def _deleted(self, row_group: int) -> Deleted | None:
        vector = None if self.deletes is None else self.deletes()
        return None if vector is None else partial(vector.among, row_group)


def _without(table: pa.Table, first: int, deleted: Deleted | None) -> pa.Table:
    """Its rows that are not deleted; first: the number of the first one."""
    if deleted is None or not (gone := deleted(np.arange(first, first + table.num_rows))).any():
        return table
    from .rows import take  # most tables delete no single rows

    return take(table, np.flatnonzero(~gone))
