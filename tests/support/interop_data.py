"""The two tables that every interop matrix writes, in the three forms in which they are compared."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .java_types import (
    NESTED_LEAVES,
    NESTED_SCHEMA,
    TYPES,
    arrow_table,
    leaf_values,
    message,
    nested_physical,
    nested_table,
    sample,
)

__all__ = ["DATA", "ROWS", "ROW_GROUP", "DataSet", "comparable", "key_places"]

ROWS = 120
ROW_GROUP = 70  # the second row group is the smaller one


@dataclass(frozen=True)
class DataSet:
    """A table: `rows` as Parquet stores them, `schema` for parquet-java, `python` the rows as a caller gets them.

    `leaves` is each leaf column's dotted path, `table` the Arrow table that makes these rows (None where Arrow lacks a
    type).
    """

    schema: str
    rows: Sequence[Mapping[str, Any]]
    python: Sequence[Mapping[str, Any]]
    leaves: Sequence[str]
    table: pa.Table | None

    def stored(self, leaf: str, row_group: int) -> list[Any]:
        """The leaf's values in one row group, physical, without nulls."""
        return leaf_values(self._part(self.rows, row_group), leaf)

    def asked(self, leaf: str, row_group: int) -> list[Any]:
        """The same values as a caller would ask for them."""
        if "." not in leaf:
            return leaf_values(self._part(self.python, row_group), leaf)
        values = self.stored(leaf, row_group)
        return [value.decode() if isinstance(value, bytes) else value for value in values]  # all are strings there

    def _part(self, rows: Sequence[Mapping[str, Any]], row_group: int) -> Sequence[Mapping[str, Any]]:
        return rows[row_group * ROW_GROUP : (row_group + 1) * ROW_GROUP]


def _flat(types: Sequence[Any], table: bool) -> DataSet:
    rows = sample(types, ROWS)
    python = [
        {one.name: None if row[one.name] is None else one.logical(i) for one in types} for i, row in enumerate(rows)
    ]
    leaves = tuple(one.name for one in types)
    return DataSet(message(types), rows, python, leaves, arrow_table(types, ROWS) if table else None)


_NESTED = nested_table(ROWS)

DATA = {
    "types": _flat(TYPES, table=False),
    "arrow types": _flat([one for one in TYPES if one.arrow is not None], table=True),
    "nested": DataSet(NESTED_SCHEMA, nested_physical(ROWS), _NESTED.to_pylist(), NESTED_LEAVES, _NESTED),
}


def key_places(data: DataSet, mode: str, bits: int) -> tuple[bytes, dict[str, bytes]]:
    """A footer key and the column keys: none in mode `uniform`, else one for every second leaf."""
    length = bits // 8
    keyed = data.leaves[1::2] if mode != "uniform" else ()
    return b"F" * length, {leaf: bytes([65 + i]) * length for i, leaf in enumerate(keyed)}


def comparable(value: Any) -> Any:
    """The value in a form that does not depend on how a reader dresses text and UUIDs."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping):
        return {name: comparable(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(member) for member in value]
    return value
