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

from .groups import Files, groups, text

FOOTER: Final = "(footer)"
KEK: Final = "(KEK)"
"""Of an encrypted Iceberg table, in its metadata file."""
_PLACE: Final = (
    "table",
    "column",
    "master_key",
    "version",
    "state",
    "since",
    "algorithm",
    "bits",
)
_COUNTED: Final = (
    ("data_key", "count_distinct"),
    ("kek_id", "count_distinct"),
    ("modules", "sum"),
    ("file_modified", "min"),
    ("file_modified", "max"),
)


@dataclass(frozen=True)
class Use:
    """One master key version over one column, or over the footers, of one table.

    Attributes:
        table: by the policy; None where it names none.
        column: dotted path, `FOOTER` or `KEK`.
        master_key, version: None where the files don't tell.
        state: of the master key, where the KMS was asked.
        since: when the version was made, as far as the KMS tells.
        algorithm, bits: of the data keys under it.
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
    files: int
    modules: int
    data_keys: int
    keks: int
    oldest: datetime | None
    newest: datetime | None
    file_ids: Files = field(repr=False, compare=False)


def uses_of(inventory: pa.Table) -> list[Use]:
    """All uses, by table, key, version and column. What is in plaintext has none."""
    whole = inventory.filter(pc.is_valid(inventory["algorithm"]))
    footers = _rows(whole, FOOTER, "footer_")
    under_footer = _rows(whole.filter(pc.equal(text(whole["protection"]), "footer key")), None, "footer_")
    own = _rows(whole.filter(pc.equal(text(whole["protection"]), "column key")), None, "")
    found = [
        Use(
            **{name: row[name] for name in _PLACE},
            files=len(row["files"]),
            modules=row["modules_sum"] or 0,
            data_keys=row["data_key_count_distinct"],
            keks=row["kek_id_count_distinct"],
            oldest=row["file_modified_min"],
            newest=row["file_modified_max"],
            file_ids=row["files"],
        )
        for row in groups(pa.concat_tables([footers, under_footer, own]), _PLACE, _COUNTED)
    ]
    return sorted(found, key=lambda use: tuple(str(getattr(use, name) or "") for name in _PLACE))


def columns_of(inventory: pa.Table) -> list[dict[str, Any]]:
    """Table and column → how many files protect it how: `plaintext`, `footer key`, `column key`."""
    seen = inventory.filter(pc.is_valid(inventory["row_group"]))
    told: dict[tuple[str | None, str], dict[str, Any]] = {}
    for row in groups(seen, ("table", "column", "protection")):
        name = row["table"], row["column"]
        one = told.setdefault(name, {"table": name[0], "column": name[1], "files": {}})
        one["files"][row["protection"]] = len(row["files"])
    return [told[name] for name in sorted(told, key=lambda name: (name[0] or "", name[1]))]


def signatures_of(inventory: pa.Table) -> list[dict[str, Any]]:
    """Who signed how many files of each table that has signers. Without a signer there is a fault, see
    `SignatureFault`. No algorithm that signers may have is post-quantum.
    """
    seen = inventory.filter(pc.is_valid(inventory["signature"]))
    found = [
        {
            **{name: row[name] for name in ("table", "signature", "signer")},
            "algorithms": _listed(row["signer_algorithms"]),
            "keys": _listed(row["signer_keys"]),
            "post_quantum": None if row["signer_algorithms"] is None else False,
            "files": len(row["files"]),
        }
        for row in groups(seen, ("table", "signature", "signer", "signer_algorithms", "signer_keys"))
    ]
    return sorted(found, key=lambda one: [str(value) for value in one.values()])


def _listed(text: str | None) -> list[str]:
    return [] if text is None else text.split(", ")


def looked_into(inventory: pa.Table) -> pa.ChunkedArray:
    """Row by row: was the file's footer read? One without column chunks has to vouch for that."""
    whole = pc.or_(pc.is_valid(inventory["row_group"]), pc.fill_null(inventory["footer_verified"], False))
    return pc.and_(pc.is_null(inventory["error"]), whole)


def unreadable(inventory: pa.Table) -> int:
    """How many files have an error."""
    return len(inventory.filter(pc.is_valid(inventory["error"]))["file"].unique())


def _rows(found: pa.Table, column: str | None, prefix: str) -> pa.Table:
    """The rows under a key, by the names that uses have; `prefix` says whose key it is."""
    count = found.num_rows
    own = {"state": "key_state", "version": "key_version", "since": "version_since", "bits": "key_bits"}
    own |= {name: name for name in ("master_key", "data_key", "kek_id")}
    named = {name: f"{prefix}{of}" for name, of in own.items()}
    whole = {"table": "table", "algorithm": "algorithm", "file": "file", "file_modified": "file_modified"}
    columns = {name: found[of] for name, of in (named | whole).items()}
    kek = pc.fill_null(pc.equal(text(found["footer_material"]), "kek"), False)
    columns["column"] = text(found["column"]) if column is None else pc.if_else(kek, KEK, column)
    columns["modules"] = found["modules"] if column is None else pa.array([0] * count, pa.int64())
    return pa.table(columns)


def total(uses: Sequence[Use]) -> int:
    """Files, each counted once."""
    return len(np.unique(np.concatenate([use.file_ids for use in uses]))) if uses else 0
