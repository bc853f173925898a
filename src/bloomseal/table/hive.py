"""Columns as folders, ``country=DE/day=2024-02-29``, spelt as Hive and Spark spell them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from .._lazy import deferred
from ..core.errors import Hint, PolicyError, UsageError
from ..core.parquet.expectation import Expectation
from ..core.text import articled
from ..specs import EncryptionSpec

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from ..policy import TablePolicy
else:
    pc = deferred("pyarrow.compute")

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def check_partitioning(
    names: Sequence[str], encryption: EncryptionSpec | TablePolicy | None, partition_by: Sequence[str]
) -> None:
    """Raise if these columns can't become folders.

    Args:
        names: of all columns.
        encryption: what protects columns. Of an EncryptionSpec those with a key: that all others are sealed under the
            footer key does not protect them here, since who names one says that its values may be read.

    Raises:
        UsageError: no such column, one that is named twice, or no column left for the files.
        PolicyError: its values are protected, see `Expectation.outside`.
    """
    if isinstance(partition_by, str):
        raise UsageError("columns to partition by come as a list, also a single one")
    if isinstance(encryption, EncryptionSpec):  # beside keys, whoever writes the table says what becomes a folder
        expected = Expectation(encrypted_columns=frozenset(encryption.column_keys or ()))
    else:
        expected = Expectation.of_table(encryption)
    for name in partition_by:
        if name not in names:
            raise UsageError("there is no such column to partition by", column=name)
        if name[:1] in ("", "."):
            raise UsageError("a folder of this name would be hidden from readers", column=name)
        try:
            expected.outside(name)
        except PolicyError as error:
            if error.hint == Hint.NO_PARTITIONS:  # what helps readers
                error.hint = "other columns to partition by"
            raise
    if len(set(partition_by)) < len(partition_by):
        raise UsageError("a column to partition by is named twice", column=partition_by[0])
    if partition_by and len(partition_by) == len(names):
        raise UsageError("all columns would become folders, and none is left for the files")


def check_values(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise unless the text of each value is the one that every reader takes for it.

    Raises:
        UsageError: a type with several spellings: numbers that are not whole, moments, bytes, nested values.
    """
    for name in partition_by:
        kind = schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (texts or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)):
            raise UsageError(
                f"{articled(kind)} can't become a folder's name",
                column=name,
                hint="a text of it, a date or a whole number",
            )


def folder_name(column: str, value: str | None) -> str:
    """One level; nulls and empty texts become the same, as in Spark."""
    return f"{_escaped(column)}={_escaped(value) if value else NULL}"


def folders(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, in their order, without the columns that its name holds.

    Each piece has memory of its own: one that waits for more does not hold on to the others.

    Raises:
        UsageError: a text that comes back as null: the empty one, or Hive's word for null.
    """
    if not rows.num_rows:
        return
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    coded = []
    for name in partition_by:
        texts = pc.cast(rows.column(name), pa.string()).combine_chunks().dictionary_encode(null_encoding="encode")
        known = texts.dictionary.to_pylist()
        if "" in known or NULL in known:
            raise UsageError(
                "an empty text can't be told from null in a folder's name",
                column=name,
                hint="null, or a word, in its place",
            )
        indices = texts.indices.to_numpy(zero_copy_only=False)
        coded.append((name, known, indices))
        codes = np.unique(codes * len(known) + indices, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
    rest = rows.drop_columns(list(partition_by))
    if len(starts) > 1:
        rest = rest.combine_chunks()
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        row = order[start]
        folder = "/".join(folder_name(name, known[at[row]]) for name, known, at in coded)
        yield folder, rest.take(pa.array(order[start:end])) if len(starts) > 1 else rest


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
