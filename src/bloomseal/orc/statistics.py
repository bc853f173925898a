"""Statistics that may rule something out (ORC specification, "Column Statistics"): those whose counts fit the rows that
the structure gives. Some writers leave statistics that have counted nothing, over rows that are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from .protobuf import Message, signed
from .schema import OrcColumn, OrcKind

_VALUES, _HAS_NULL = 1, 10


def fitting(chain: Sequence[tuple[OrcColumn, Message | None]], rows: int) -> Message | None:
    """The ``ColumnStatistics`` of the last column; None where they are missing, or contradict the structure.

    Args:
        chain: the columns around it from the outermost on, and itself, each with its statistics.
        rows: of the stripe or the row group.
    """
    places: int | None = rows
    statistics = None
    for column, statistics in chain:
        if statistics is None or not _fits(statistics, places):
            return None
        # A struct has a place for each of its fields; how many a list or a map has, no count tells.
        values = signed(statistics.number(_VALUES))
        places = values if column.kind is OrcKind.STRUCT or not values else None
    return statistics


def _fits(statistics: Message, places: int | None) -> bool:
    """Whether values and nulls fill the places. `places`: None where nobody knows how many there are."""
    if _VALUES not in statistics:
        return False
    values = signed(statistics.number(_VALUES))
    if values < 0 or (places is not None and values > places):
        return False
    if values == places:
        return True
    if _HAS_NULL in statistics:
        return bool(statistics.number(_HAS_NULL)) or (places is None and values > 0)
    # Older writers do not say whether there are nulls. What counted some values is taken to have counted all.
    return values > 0


class GroupStatistics:
    """The statistics of a column's row groups, taken apart where they are asked for.

    Args:
        chain: as `fitting` has it, each column with its ``RowIndexEntry`` of each row group.
        rows: of the stripe.
        stride: rows of a row group, of which the last has what is left.
    """

    def __init__(self, chain: Sequence[tuple[OrcColumn, list[memoryview] | None]], rows: int, stride: int) -> None:
        self._chain, self._rows, self._stride = chain, rows, stride

    def of(self, group: int) -> Message | None:
        """The ``ColumnStatistics`` of a row group; None where they prove nothing. Raises FormatError."""
        parsed = [(column, None if every is None else _in(every[group])) for column, every in self._chain]
        return fitting(parsed, min(self._stride, self._rows - group * self._stride))


def _in(entry: memoryview) -> Message:
    return Message(Message(entry).bytes(2))
