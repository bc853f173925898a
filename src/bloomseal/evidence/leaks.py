"""What anybody can read today, column by column: values, bounds, filters in clear, and how fast those give away
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ..audit.facts.exposure import ALL_FILES, FILTER, HIDDEN, MARKS, exposures
from ..audit.leaks import Pace, pace
from ..core.errors import BloomsealError
from ..core.storage.ref import FileRef

__all__ = ["NO_LEAK", "leaks_of"]

_SAMPLES: Final = 3
NO_LEAK: Final[dict[str, Any]] = {
    "seen_in": 0,
    "in_clear": {},
    "unseen": 0,
    "example": None,
    "values_in_filter": None,
    "candidates_per_second": None,
}
"""Of a column that no file has."""


def leaks_of(
    inventory: pa.Table, refs: Callable[[str], FileRef], keys: Any = None
) -> dict[tuple[str | None, str], dict[str, Any]]:
    """Table and column → in how many files it is, in how many of them what stands in clear, and how many nobody could
    look into. Where a filter does, an example: about how many values are in its file's filters, and for how many
    candidates a second they answer, both rounded to two digits.

    Args:
        refs: a file's path → where it is.
        keys: only to find filters in clear of which an encrypted footer tells.
    """
    names = inventory["file"].unify_dictionaries().combine_chunks().dictionary if inventory.num_rows else []
    told = {}
    for place, marks in exposures(inventory).items():
        some = sorted(names[int(one)].as_py() for one in marks.get(FILTER, ())[:_SAMPLES])
        example, paced = _paced(some, place[1], refs, keys)
        told[place] = {
            "seen_in": len(marks[ALL_FILES]),
            "in_clear": {mark: len(marks[mark]) for mark in sorted(marks.keys() & set(MARKS))},
            "unseen": len(marks.get(HIDDEN, ())),
            "example": example,
            "values_in_filter": None if paced is None else _rounded(paced.values),
            "candidates_per_second": None if paced is None else _rounded(paced.per_second),
        }
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


def _rounded(number: float) -> int:
    return int(float(f"{number:.2g}"))
