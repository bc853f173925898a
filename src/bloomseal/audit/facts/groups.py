"""The rows of an inventory, what is alike together: a million column chunks give some dozens of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Files = np.ndarray[Any, Any]
"""Numbers of files, each once."""


def groups(rows: pa.Table, names: Sequence[str], counted: Sequence[tuple[str, str]] = ()) -> list[dict[str, Any]]:
    """Rows that are alike in these columns, each with ``files``.

    Args:
        counted: columns, and what is told of them beside (as `pyarrow.TableGroupBy.aggregate` has it).
    """
    # Numbers stand for texts that are only counted: there are as many of those as files, and more.
    only = [name for name in dict.fromkeys(["file", *(name for name, _ in counted)]) if name not in names]
    plain = pa.table({**{name: text(rows[name]) for name in names}, **{name: numbers(rows[name]) for name in only}})
    grouped = plain.group_by(list(names)).aggregate([("file", "distinct"), *counted])
    files = grouped["file_distinct"].combine_chunks()
    found = grouped.drop_columns("file_distinct").to_pylist()
    return [row | {"files": np.sort(files[index].values.to_numpy())} for index, row in enumerate(found)]


def text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without a dictionary."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The index of each text in its dictionary."""
    if not pa.types.is_dictionary(column.type):
        return column
    whole: Any = column.unify_dictionaries() if column.num_chunks > 1 else column
    return pa.chunked_array([chunk.indices for chunk in whole.chunks], pa.int32())
