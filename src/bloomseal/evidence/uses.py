"""The inventory seen from its keys: which master key version covers which column of which table, in how many files and
modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["FOOTER", "Use", "columns_of", "file_numbers", "looked_into", "total", "unreadable", "uses_of"]

FOOTER: Final = "(footer)"
_PLACE: Final = (
    "table",
    "column",
    "master_key",
    "version",
    "state",
    "since",
    "algorithm",
    "bits",
    "kms_url",
    "material",
)
_COUNTED: Final = [
    ("file", "distinct"),
    ("data_key", "count_distinct"),
    ("kek", "count_distinct"),
    ("modules", "sum"),
    ("modified", "min"),
    ("modified", "max"),
]


@dataclass(frozen=True)
class Use:
    """One master key version over one column, or over the footers, of one table.

    Attributes:
        table: by the policy; None where it names none.
        column: dotted path, or `FOOTER`.
        master_key, version: None where the files don't tell.
        state: of the master key, where the KMS was asked.
        since: when the version was made, as far as the KMS tells.
        algorithm, bits: of the data keys under it.
        kms_url, material: as in the inventory.
        files, modules, data_keys, keks: how many; modules at the least (`bloomseal.audit.inventory`).
        oldest, newest: when the files were last written.
    """

    table: str | None
    column: str
    master_key: str | None
    version: str | None
    state: str | None
    since: datetime | None
    algorithm: str | None
    bits: int | None
    kms_url: str | None
    material: str | None
    files: int
    modules: int
    data_keys: int
    keks: int
    oldest: datetime | None
    newest: datetime | None
    file_ids: np.ndarray[Any, Any] = field(repr=False, compare=False)


def uses_of(inventory: pa.Table) -> list[Use]:
    """All uses, by table, key, version and column. What is in plaintext has none."""
    whole = inventory.filter(pc.is_valid(inventory["algorithm"]))
    footers = _rows(whole, FOOTER, "footer_")
    under_footer = _rows(whole.filter(pc.equal(_text(whole["protection"]), "footer key")), None, "footer_")
    own = _rows(whole.filter(pc.equal(_text(whole["protection"]), "column key")), None, "")
    grouped = pa.concat_tables([footers, under_footer, own]).group_by(list(_PLACE)).aggregate(_COUNTED)
    ids = grouped["file_distinct"].combine_chunks()
    found = [
        Use(
            **{name: row[name] for name in _PLACE},
            files=len(ids[index]),
            modules=row["modules_sum"] or 0,
            data_keys=row["data_key_count_distinct"],
            keks=row["kek_count_distinct"],
            oldest=row["modified_min"],
            newest=row["modified_max"],
            file_ids=ids[index].values.to_numpy(),
        )
        for index, row in enumerate(grouped.drop_columns("file_distinct").to_pylist())
    ]
    return sorted(found, key=lambda use: tuple(str(getattr(use, name) or "") for name in _PLACE))


def columns_of(inventory: pa.Table) -> list[dict[str, Any]]:
    """Table and column → how many files protect it how: `plaintext`, `footer key`, `column key`."""
    seen = inventory.filter(pc.is_valid(inventory["row_group"]))
    plain = pa.table(
        {
            "table": _text(seen["table"]),
            "column": _text(seen["column"]),
            "protection": _text(seen["protection"]),
            "file": file_numbers(seen["file"]),
        }
    )
    grouped = plain.group_by(["table", "column", "protection"]).aggregate([("file", "count_distinct")])
    told: dict[tuple[str | None, str], dict[str, Any]] = {}
    for row in grouped.to_pylist():
        name = row["table"], row["column"]
        one = told.setdefault(name, {"table": name[0], "column": name[1], "files": {}})
        one["files"][row["protection"]] = row["file_count_distinct"]
    return [told[name] for name in sorted(told, key=lambda name: (name[0] or "", name[1]))]


def looked_into(inventory: pa.Table) -> pa.ChunkedArray:
    """Row by row: was the file's footer read? One without column chunks has to vouch for that."""
    whole = pc.or_(pc.is_valid(inventory["row_group"]), pc.fill_null(inventory["footer_verified"], False))
    return pc.and_(pc.is_null(inventory["error"]), whole)


def unreadable(inventory: pa.Table) -> int:
    """How many files have an error."""
    return len(inventory.filter(pc.is_valid(inventory["error"]))["file"].unique())


def _rows(found: pa.Table, column: str | None, prefix: str) -> pa.Table:
    count = found.num_rows
    modules = found["modules"] if column is None else pa.array([0] * count, pa.int64())
    return pa.table(
        {
            "table": _text(found["table"]),
            "column": _text(found["column"]) if column is None else pa.array([column] * count, pa.string()),
            "master_key": _text(found[f"{prefix}master_key"]),
            "version": _text(found[f"{prefix}key_version"]),
            "state": _text(found[f"{prefix}key_state"]),
            "since": found[f"{prefix}version_since"],
            "algorithm": _text(found["algorithm"]),
            "bits": found[f"{prefix}key_bits"],
            "kms_url": _text(found["footer_kms_url"]),
            "material": _text(found[f"{prefix}material"]),
            "file": file_numbers(found["file"]),
            # Numbers stand for texts: there are as many of those as files, and more.
            "data_key": file_numbers(found[f"{prefix}data_key"]),
            "kek": file_numbers(found[f"{prefix}kek_id"]),
            "modules": modules,
            "modified": found["file_modified"],
        }
    )


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def file_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The index of each text in its dictionary: numbers stand for names, of which there may be a hundred thousand."""
    whole: Any = pa.chunked_array(column).unify_dictionaries() if column.num_chunks > 1 else column
    return pa.chunked_array([chunk.indices for chunk in whole.chunks], pa.int32())


def total(uses: Sequence[Use]) -> int:
    """Files, each counted once."""
    return len(np.unique(np.concatenate([use.file_ids for use in uses]))) if uses else 0
