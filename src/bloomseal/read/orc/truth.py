"""Holding ORC's filters against the values of their own row groups, see `bloomseal.format.hashes.truth`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import BloomsealError
from ...core.parquet.schema import Leaf
from ...format.hashes.truth import Truth
from ...orc import BloomFilter, Column
from ...orc.asking.values import Asked
from ...orc.layout import OrcLayout
from ...orc.rewrite.build import entries_of
from .rows import row_groups

__all__ = ["held_against_values", "leaf_values"]


def leaf_values(column: pa.ChunkedArray, place: int) -> pa.Array:
    """The values of a top-level column's leaf, those inside lists one after the other.

    Args:
        place: which of the column's leaves, in schema order.
    """
    found = [[*_leaves(chunk)][place] for chunk in column.chunks]
    return pa.concat_arrays(found) if found else pa.nulls(0)


def held_against_values(
    file: OrcLayout, stripe: int, column: Column, leaf: Leaf, place: int, rows: pa.Table, filters: Sequence[BloomFilter]
) -> list[Truth]:
    """Ask the filters of a stripe, which are believed, for every value of their row group.

    Args:
        place: which leaf of its top-level column it is.
        rows: the whole stripe.
        filters: one per row group.
    """
    zone, hybrid = file.index(stripe).writer_timezone, file.tail.hybrid_calendar
    found = []
    for (first, end), bloom_filter in zip(row_groups(file, stripe), filters, strict=True):
        values = leaf_values(rows.column(leaf.path[0]).slice(first, end - first), place).drop_null()
        try:
            asked = Asked(values, column, zone=zone, hybrid=hybrid)
        except BloomsealError as error:
            found.append(Truth(unasked=f"its column's values can't be told: {error.what}"))
            continue
        found.append(Truth(len(asked), len(asked) - int(asked.maybe_in(bloom_filter).sum())))
    return found


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            yield from _leaves(pc.struct_field(array, [place]))
    elif pa.types.is_map(kind):
        for entries in entries_of(array):
            yield from _leaves(entries)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(array.flatten())
    else:
        yield array
