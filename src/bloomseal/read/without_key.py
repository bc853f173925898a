"""What becomes of columns to whose key a reader has no access; which those are, `SealedFile.without_key` tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

import pyarrow as pa

from ..core.errors import UsageError

WithoutKey = Literal["error", "null", "drop"]


def checked_without_key(word: str) -> str:
    """What becomes of columns without a key. Raises UsageError: none of the words for it."""
    if word not in get_args(WithoutKey):
        raise UsageError("columns_without_key= is 'error', 'null' or 'drop'")
    return word


def without_lost(rows: pa.Table, schema: pa.Schema, lost: Collection[str], word: str) -> pa.Table:
    """Rows in this schema, the lost columns as nulls, or left out."""
    fields = [field for field in schema if word == "null" or field.name not in lost]
    columns = [pa.nulls(rows.num_rows, one.type) if one.name in lost else rows.column(one.name) for one in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, schema.metadata))
