"""What anybody can read today, column by column: values, bounds, filters in clear, and how fast those give away
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..audit.facts.groups import Files, groups
from ..audit.leaks import Pace, pace
from ..core.errors import BloomsealError
from ..core.storage.ref import FileRef

__all__ = ["ColumnLeak", "leaks_of"]

VALUES: Final = "values"
FILTER: Final = "Bloom filter"
_INDEX: Final = "column index"
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


def leaks_of(
    inventory: pa.Table, refs: Callable[[str], FileRef], keys: Any = None, *, measure: bool = True
) -> list[ColumnLeak]:
    """Every column, by table.

    Args:
        refs: a file's path → where it is.
        keys: only to find filters in clear of which an encrypted footer tells.
        measure: ask one file's filters in clear for candidates, to tell how many a second.
    """
    seen = inventory.filter(pc.is_valid(inventory["row_group"]))
    found: dict[tuple[str | None, str], dict[str, Files]] = {}
    exposed = pc.binary_join(seen["in_clear"], "\n")
    alike = seen.set_column(seen.schema.get_field_index("in_clear"), "in_clear", exposed)
    for row in groups(alike, ("table", "column", "protection", "filter", "column_index", "in_clear")):
        files = row["files"]
        marks = found.setdefault((row["table"], row["column"]), {})
        for mark in ("", *_marks(row)):
            marks[mark] = np.union1d(marks[mark], files) if mark in marks else files
    names = seen["file"].unify_dictionaries().combine_chunks().dictionary if seen.num_rows else []
    told = []
    for (table, column), marks in sorted(found.items(), key=lambda one: (one[0][0] or "", one[0][1])):
        files, unseen = marks.pop(""), marks.pop("?", ())
        some = sorted(names[int(one)].as_py() for one in marks.get(FILTER, ())[:_SAMPLES]) if measure else []
        example, paced = _paced(some, column, refs, keys)
        counts = {mark: len(numbers) for mark, numbers in sorted(marks.items())}
        told.append(
            ColumnLeak(
                table,
                column,
                len(files),
                counts,
                len(unseen),
                example,
                None if paced is None else paced.values,
                None if paced is None else paced.per_second,
            )
        )
    return told


def _marks(row: dict[str, Any]) -> list[str]:
    marks = [one for one in (row["in_clear"] or "").split("\n") if one]
    if row["protection"] == "plaintext":
        # Whoever reads the pages needs no statistics.
        marks = [VALUES]
    if row["filter"] == "in clear":
        marks.append(FILTER)
    if row["column_index"] == "in clear" and row["protection"] != "plaintext":
        marks.append(_INDEX)
    if row["filter"] == "not visible" or row["protection"] == "unknown":
        marks.append("?")
    return marks


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
