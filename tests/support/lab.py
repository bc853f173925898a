"""Files to audit: written for real, and spoilt by small edits of their bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

import bloomseal as bs
from bloomseal import KeyTools
from bloomseal.audit import audit, may_destroy
from bloomseal.audit.destruction.answer import Destruction
from bloomseal.audit.report import Report
from bloomseal.audit.rules.findings import Finding
from bloomseal.core.thrift import Struct
from bloomseal.policy import ColumnPolicy, TablePolicy

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ROWS, ROW_GROUP = 400, 200


def people(rows: int = ROWS) -> pa.Table:
    """Rows of equal length, with a column of nulls."""
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "ssn": [f"{i:03d}-{i % 100:02d}-{i:04d}" for i in range(rows)],
            "name": [f"name-{i:06d}" for i in range(rows)],
            "city": [f"city-{i % 7}" for i in range(rows)],
            "nothing": pa.nulls(rows, pa.string()),
        }
    )


@dataclass
class Case:
    """What to audit, and how."""

    paths: Any
    options: Mapping[str, Any]

    def report(self) -> Report:
        """Without keys where none are named, whatever KMS the policy has."""
        return audit(self.paths, **{"now": NOW, "with_keys": "keys" in self.options, **self.options})

    def ids(self) -> set[str]:
        return {finding.rule.id for finding in self.report().findings}


class Lab:
    """A folder, a keyring with the master keys ``footer``, ``pii`` and ``other``, and what is needed to write and to
    spoil.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keyring = bs.Keyring(folder / "keys.json", create=True)
        for name in ("footer", "pii", "other"):
            self.keyring.create(name)

    def write(self, name: str = "people.parquet", table: pa.Table | None = None, **options: Any) -> Path:
        """A file whose columns ``ssn`` and ``name`` are under ``pii``, unless told otherwise."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        spec = {
            "footer_key": "footer",
            "column_keys": {"ssn": "pii", "name": "pii"},
            "keys": KeyTools(self.keyring),
            **options.pop("encryption", {}),
        }
        bs.write_table(
            people() if table is None else table, path, encryption=bs.EncryptionSpec(**spec),
            **{"row_group_size": ROW_GROUP, "compression": "none", "use_dictionary": False, **options},
        )  # fmt: skip
        return path

    def signed(self, name: str = "people.parquet", **options: Any) -> Path:
        """As `write`, with a plaintext footer."""
        more = options.pop("encryption", {})
        return self.write(name, encryption={"plaintext_footer": True, **more}, **options)

    def plain(self, name: str = "plain.parquet", table: pa.Table | None = None, **options: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        bs.write_table(people() if table is None else table, path, **{"row_group_size": ROW_GROUP, **options})
        return path

    def ask(self, master_key: str, version: str | None, paths: Any, **options: Any) -> Destruction:
        """May it be destroyed? Asked with all keys, and with no writer that could still hold any."""
        return may_destroy(master_key, version, paths, **{"keys": KeyTools(self.keyring), "after": 0, **options})

    def policy(self, columns: Mapping[str, ColumnPolicy] | None = None, **settings: Any) -> TablePolicy:
        own = {"ssn": ColumnPolicy(key="pii"), "name": ColumnPolicy(key="pii"), **(columns or {})}
        return TablePolicy("people", self.keyring, "footer", columns=own, **settings)

    def case(self, *paths: Path, **options: Any) -> Case:
        return Case(list(paths), options)

    def keyed(self, *paths: Path, **options: Any) -> Case:
        return self.case(*paths, keys=KeyTools(self.keyring), **options)


def edit_footer(path: Path, edit: Callable[[Struct], None]) -> Path:
    """Change the FileMetaData of a plaintext footer; a signature stays as it was, and no longer fits."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    body = data[-8 - length : -8]
    meta = Struct.parse(body)
    signature = body[-28:] if 8 in meta else b""
    edit(meta)
    new = meta.to_bytes() + signature
    path.write_bytes(data[: -8 - length] + new + len(new).to_bytes(4, "little") + data[-4:])
    return path


def edit_chunks(path: Path, column: int, edit: Callable[[Struct, list[Struct]], None]) -> Path:
    """Change one column's ColumnChunk in every row group; `edit` also gets all chunks of its row group."""

    def change(meta: Struct) -> None:
        groups = []
        for raw in meta.elements(4):
            group = Struct.parse(raw)
            chunks = [Struct.parse(one) for one in group.elements(1)]
            edit(chunks[column], chunks)
            group.set_list(1, [chunk.to_bytes() for chunk in chunks])
            groups.append(group.to_bytes())
        meta.set_list(4, groups)

    return edit_footer(path, change)


def edit_meta(path: Path, column: int, edit: Callable[[Struct], None]) -> Path:
    """Change one column's clear ColumnMetaData in every row group."""

    def change(chunk: Struct, _: list[Struct]) -> None:
        meta = chunk.struct(3)
        assert meta is not None
        edit(meta)
        chunk.set_struct(3, meta)

    return edit_chunks(path, column, change)


def flip(path: Path, offset: int) -> Path:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    return path


def glued(path: Path, hidden: bytes) -> Path:
    """Hide bytes in front of a file's footer."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:start] + hidden + data[start:])
    return path


def chunks(path: Path, keys: Any = None) -> list[Any]:
    """The walk's chunks with their metadata opened, row group by row group, column by column."""
    decryption = None if keys is None else bs.DecryptionSpec(keys)
    with bs.open_file(path, decryption=decryption) as file:
        found = [chunk for group in range(file.num_row_groups) for chunk in file.walk.chunks(group)]
        for chunk in found:
            file.walk.meta(chunk)
        return found


class ArrowKms(pe.KmsClient):  # type: ignore[misc]
    """A KMS for pyarrow's own key tools that guards nothing."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(master_key_identifier.encode() + b":" + key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:  # noqa: ARG002
        return base64.b64decode(wrapped_key).split(b":", 1)[1]


def arrow_file(path: Path, **settings: Any) -> Path:
    """A file of pyarrow's own encryption."""
    factory = pe.CryptoFactory(lambda _: ArrowKms())
    config = pe.EncryptionConfiguration(**{"footer_key": "kf", "column_keys": {"kc": ["ssn", "name"]}, **settings})
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    table = people()
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties, write_page_index=True) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
    return path


def told(findings: list[Finding]) -> list[str]:
    return [f"{one.severity.label} {one.rule.id} {one.column}: {one.message}" for one in findings]
