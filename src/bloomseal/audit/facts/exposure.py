"""What stands in clear of each column, and in which files."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .files.views import EXPOSED
from .groups import Files, groups

VALUES: Final = "values"
FILTER: Final = "Bloom filter"
_INDEX: Final = "column index"
MARKS: Final = (VALUES, FILTER, _INDEX, *EXPOSED)
"""What may stand in clear. `VALUES` are the pages themselves: whoever reads those needs no statistics."""
ALL_FILES: Final = "all files"
HIDDEN: Final = "not visible"


def exposures(inventory: pa.Table) -> dict[tuple[str | None, str], dict[str, Files]]:
    """Table and column → what stands in clear → files. `ALL_FILES` has those with the column, `HIDDEN` those of which
    nobody could tell, for want of a key.
    """
    seen = inventory.filter(pc.is_valid(inventory["row_group"]))
    in_clear = pc.binary_join(seen["in_clear"], "\n")
    alike = seen.set_column(seen.schema.get_field_index("in_clear"), "in_clear", in_clear)
    found: dict[tuple[str | None, str], dict[str, Files]] = {}
    for row in groups(alike, ("table", "column", "protection", "filter", "column_index", "in_clear")):
        marks = found.setdefault((row["table"], row["column"]), {})
        for mark in (ALL_FILES, *_marks(row)):
            marks[mark] = np.union1d(marks[mark], row["files"]) if mark in marks else row["files"]
    return dict(sorted(found.items(), key=lambda one: (one[0][0] or "", one[0][1])))


def _marks(row: dict[str, Any]) -> list[str]:
    plaintext = row["protection"] == "plaintext"
    marks = [VALUES] if plaintext else [one for one in (row["in_clear"] or "").split("\n") if one]
    if row["filter"] == "in clear":
        marks.append(FILTER)
    if row["column_index"] == "in clear" and not plaintext:
        marks.append(_INDEX)
    if row["filter"] == "not visible" or row["protection"] == "unknown":
        marks.append(HIDDEN)
    return marks
