"""The rows of a stripe, decoded by pyarrow from the bytes that were opened once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.orc

from ...core.errors import FormatError, UnsupportedError
from ...orc import Column, Stripe
from ...orc.layout import OrcLayout

__all__ = ["decoded", "neighbourhoods", "row_groups", "rows_of"]

_WORTH_LEAVING: Final = 256 * 1024
"""Bytes of a stripe's columns between two row groups: for fewer it is not decoded in two parts."""

Rows = npt.NDArray[np.int64]


def decoded(
    file: OrcLayout, stripe: int, columns: Sequence[Column], names: Sequence[str] | None, groups: range | None = None
) -> tuple[pa.Table, int]:
    """Columns of a stripe, in the file's order, and how many bytes were read for them.

    Args:
        columns: leaves.
        names: the same, as dotted paths for pyarrow; None: it would take one for another, so that all columns are read.
        groups: the row groups that are wanted, neighbours; None: all.

    Raises:
        KeyAccessError, PolicyError: a column is encrypted, and can't be opened.
        UnsupportedError: one is encrypted, and pyarrow would take another one for it.
        IntegrityError, FormatError: the stripe does not decode, or has other rows than the footer says.
    """
    place: dict[str, Any] = {"file": file.path, "module": file.stripes[stripe].place}
    if names is None:
        if any(column.id in file.tail.encrypted for column in columns):
            raise UnsupportedError("several columns have the same path, and one is encrypted", **place)
        columns = file.schema.leaves
    clear = file.cleared(stripe, columns, groups)
    try:
        reader = pyarrow.orc.ORCFile(pa.PythonFile(clear, mode="r"))
        batch = reader.read_stripe(0, columns=None if names is None else list(names))
        table = pa.Table.from_batches([batch])
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"the stripe's rows do not decode: {type(error).__name__}", **place) from error
    where = file.stripes[stripe]
    groups = range(where.num_row_groups) if groups is None else groups
    begin, first, end = (
        min(at * stride_of(file, where), where.num_rows) for at in (clear.first, groups.start, groups.stop)
    )
    if table.num_rows != end - begin:
        raise FormatError(f"{table.num_rows} rows, the footer says {end - begin}: corrupt", **place)
    return table.slice(first - begin), clear.num_bytes


def neighbourhoods(kept: Sequence[int], stripe: Stripe) -> list[list[int]]:
    """Row groups, ascending, so that those between two that stand in one list are fewer bytes than are worth leaving
    out.
    """
    share = stripe.data_length / max(1, stripe.num_row_groups)
    found = [[kept[0]]] if kept else []
    for before, group in pairwise(kept):
        if (group - before - 1) * share > _WORTH_LEAVING:
            found.append([])
        found[-1].append(group)
    return found


def row_groups(file: OrcLayout, stripe: int) -> list[tuple[int, int]]:
    """The first row of each row group of a stripe, and the row after its last one."""
    where = file.stripes[stripe]
    stride = stride_of(file, where)
    return [(group * stride, min((group + 1) * stride, where.num_rows)) for group in range(where.num_row_groups)]


def stride_of(file: OrcLayout, stripe: Stripe) -> int:
    """Rows of a row group, of which the last may have fewer."""
    return file.tail.row_index_stride or stripe.num_rows


def rows_of(spans: Sequence[tuple[int, int]]) -> Rows:
    """The numbers of the rows in these ranges."""
    return np.concatenate([np.arange(first, end) for first, end in spans] or [np.empty(0, np.int64)])
