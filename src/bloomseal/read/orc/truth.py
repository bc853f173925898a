"""Holding ORC's filters against the values of their own row groups, see `bloomseal.format.hashes.truth`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...core.errors import BloomsealError
from ...core.parquet.schema import Leaf
from ...format.hashes.truth import Truth
from ...orc.asking.values import OrcProbeSet
from ...orc.filters import BloomFilter
from ...orc.layout import OrcLayout
from ...orc.rewrite.build import leaf_values
from ...orc.schema import OrcColumn


def held_against_values(
    file: OrcLayout, stripe: int, column: OrcColumn, leaf: Leaf, rows: pa.Table, filters: Sequence[BloomFilter]
) -> list[Truth]:
    """Ask the filters of a stripe, which are believed, for every value of their row group.

    Args:
        rows: the whole stripe.
        filters: one per row group.
    """
    zone, hybrid = file.index(stripe).writer_timezone, file.tail.hybrid_calendar
    way, rows = file.schema.down_to(column.id), rows.select([leaf.path[0]])
    found = []
    for (first, end), bloom_filter in zip(file.row_spans(stripe), filters, strict=True):
        values = leaf_values(rows.slice(first, end - first), way).drop_null()
        try:
            asked = OrcProbeSet.of_column(values, column, zone=zone, hybrid=hybrid)
        except BloomsealError as error:
            found.append(Truth(unasked=f"its column's values can't be told: {error.what}"))
            continue
        found.append(Truth(len(asked), len(asked) - int(asked.check(bloom_filter).sum())))
    return found
