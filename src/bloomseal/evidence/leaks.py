"""What anybody can read today, column by column: values, bounds, filters in clear, and how fast those give away
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from ..audit.facts.exposure import ALL_FILES, FILTER, HIDDEN, MARKS, exposures
from ..audit.leaks import Pace, pace
from ..core.errors import BloomsealError
from ..core.storage.ref import FileRef

__all__ = ["ColumnLeak", "leaks_of"]

_SAMPLES: Final = 3


@dataclass(frozen=True)
class ColumnLeak:
    """One column of one table.

    Attributes:
        table: by the policy; None where it names none.
        column: dotted path.
        files: in which it was seen.
        in_clear: what stands in clear → in how many files. ``values`` are the pages themselves.
        unseen: files of which nobody could tell, for want of a key.
        example: a file with a filter in clear.
        values_in_filter: the example's, estimated from its filters' bits.
        candidates_per_second: candidates that the example's filters answer for, on one core of this machine.
    """

    table: str | None
    column: str
    files: int
    in_clear: dict[str, int]
    unseen: int
    example: str | None = None
    values_in_filter: int | None = None
    candidates_per_second: float | None = None

    @property
    def seconds_for_nine_digits(self) -> float | None:
        """How long it takes to ask for all numbers of nine digits, such as social security numbers."""
        return None if not self.candidates_per_second else 1e9 / self.candidates_per_second

    def to_dict(self) -> dict[str, Any]:
        """As plain data; what was measured is rounded to two digits."""
        told = asdict(self)
        for name in ("candidates_per_second", "values_in_filter"):
            told[name] = None if told[name] is None else int(float(f"{told[name]:.2g}"))
        return told


def leaks_of(inventory: pa.Table, refs: Callable[[str], FileRef], keys: Any = None) -> list[ColumnLeak]:
    """Every column, by table.

    Args:
        refs: a file's path → where it is.
        keys: only to find filters in clear of which an encrypted footer tells.
    """
    names = inventory["file"].unify_dictionaries().combine_chunks().dictionary if inventory.num_rows else []
    told = []
    for (table, column), marks in exposures(inventory).items():
        some = sorted(names[int(one)].as_py() for one in marks.get(FILTER, ())[:_SAMPLES])
        example, paced = _paced(some, column, refs, keys)
        counts = {mark: len(marks[mark]) for mark in sorted(marks.keys() & set(MARKS))}
        told.append(
            ColumnLeak(
                table,
                column,
                len(marks[ALL_FILES]),
                counts,
                len(marks.get(HIDDEN, ())),
                example,
                None if paced is None else paced.values,
                None if paced is None else paced.per_second,
            )
        )
    return told


def _paced(
    files: Sequence[str], column: str, refs: Callable[[str], FileRef], keys: Any
) -> tuple[str | None, Pace | None]:
    for name in files:
        ref = refs(name)
        try:
            found = pace(ref.path, column, keys=keys, filesystem=ref.filesystem)
        except BloomsealError:
            continue
        if found is not None:
            return name, found
    return None, None
