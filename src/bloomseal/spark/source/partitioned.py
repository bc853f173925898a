"""Hive's folders: ``a=1/b=x``, spelt as Spark spells them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import PolicyError, UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from ...policy import TablePolicy

__all__ = ["NULL", "check_partitioning", "folder_name", "folders", "has_plain_text"]

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_PLAIN_TEXT: Final = ("string", "boolean", "byte", "short", "integer", "long", "date")


def check_partitioning(schema: StructType, table: TablePolicy, partition_by: Sequence[str]) -> None:
    """Raise if these columns can't become folders.

    Raises:
        UsageError: no such column, one that is named twice, or no column left for the files.
        PolicyError: its values are protected.
    """
    for name in partition_by:
        if name not in schema.names:
            raise UsageError("there is no such column to partition by", column=name)
        if table.sensitivity(name) in ("confidential", "restricted") or (
            (entry := table.columns.get(name)) is not None and (entry.key is not None or entry.filter is not None)
        ):
            raise PolicyError("the values of a column to partition by stand in folder names, in clear", column=name)
    if len(set(partition_by)) < len(partition_by):
        raise UsageError("a column to partition by is named twice", column=partition_by[0])
    if partition_by and len(partition_by) == len(schema.names):
        raise UsageError("all columns would become folders, and none is left for the files")


def has_plain_text(kind: DataType) -> bool:
    """True where Spark's text of a value is the obvious one, so that we spell it alike: texts, whole numbers, booleans, dates."""
    return kind.typeName() in _PLAIN_TEXT


def folder_name(column: str, value: str | None) -> str:
    """One level; nulls and empty texts become the same, as in Spark."""
    return f"{_escaped(column)}={_escaped(value) if value else NULL}"


def folders(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, in their order, without the columns that its name holds."""
    rest = rows.drop_columns(list(partition_by))
    if not rows.num_rows:
        return
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    coded = []
    for name in partition_by:
        texts = pc.cast(rows.column(name), pa.string()).combine_chunks().dictionary_encode(null_encoding="encode")
        indices = texts.indices.to_numpy(zero_copy_only=False)
        coded.append((name, texts.dictionary.to_pylist(), indices))
        codes = np.unique(codes * len(texts.dictionary) + indices, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
    if len(starts) > 1:
        rest = rest.take(pa.array(order))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        row = order[start]
        yield "/".join(folder_name(name, known[at[row]]) for name, known, at in coded), rest.slice(start, end - start)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
