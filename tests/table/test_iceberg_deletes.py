"""Iceberg tables with delete files, as engines write them for single rows: no read gives back what was deleted, and
rotation and audit take these files too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit import inventory
from bloomseal.rotation import Rekey, rotate
from bloomseal.rotation.outcome import Status

memory = pytest.importorskip("pyiceberg.catalog.memory")
manifests: Any = pytest.importorskip("pyiceberg.manifest")
iceberg: Any = pytest.importorskip("support.iceberg_deletes")


@pytest.mark.parametrize("kind", ["by place", "by value", "of a file that is gone"])
def test_delete_files_are_rotated_and_rows_never_come_back(tmp_path: Path, kind: str) -> None:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("k")
    keys = bs.DecryptionSpec(bs.KeyTools(ring))
    catalog = memory.InMemoryCatalog(f"deletes{kind}", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"id": pa.int64()}))
    table.append(pa.table({"id": [1, 2, 3]}))
    folder = Path(table.location().removeprefix("file://"))
    content, deletes = manifests.DataFileContent, folder / "data" / "deletes.parquet"
    if kind == "by value":
        number = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        rows, of = pa.table([[1]], pa.schema([number])), {"content": content.EQUALITY_DELETES, "equality_ids": [1]}
    else:
        data = next(iter(table.scan().plan_files())).file.file_path
        named = data if kind == "by place" else "file:///elsewhere.parquet"
        rows, bounds = pa.table({"file_path": [named], "pos": [0]}), {iceberg.PATH_ID: named.encode()}
        of = {"content": content.POSITION_DELETES, "lower_bounds": bounds, "upper_bounds": bounds}
    pq.write_table(rows, deletes)
    iceberg.add_deletes(table, (deletes, manifests.FileFormat.PARQUET), **of)
    for path in folder.rglob("*.parquet"):
        bs.seal_file(path, encryption=bs.EncryptionSpec("k", keys=ring))
    left = [1, 2, 3] if kind == "of a file that is gone" else [2, 3]
    assert bs.read_table(folder, decryption=keys)["id"].to_pylist() == left
    report = rotate(folder, Rekey(keys), journal=tmp_path / "j")
    assert len(report.files) == 2
    assert {file.status for file in report.files} == {Status.REKEYED}
    assert str(deletes) in set(inventory(folder)["file"].to_pylist())
