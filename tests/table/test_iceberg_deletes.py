"""Iceberg tables with delete files, as engines write them for single rows: no read gives back what was deleted, and
rotation and audit take these files too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit import inventory
from bloomseal.rotation import Rekey, Status, rotate

memory = pytest.importorskip("pyiceberg.catalog.memory")
manifests: Any = pytest.importorskip("pyiceberg.manifest")

_PATH_ID = 2147483546
"""The field of a position delete that names the data file."""


class _Deletes(manifests.ManifestWriterV2):  # type: ignore[misc]
    """pyiceberg writes no delete files, but for this."""

    def content(self) -> Any:
        return manifests.ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _delete(table: Any, folder: Path, rows: pa.Table, **of: Any) -> Path:
    """A commit that adds one delete file, as another engine would leave it."""
    path, io = folder / "data" / "deletes.parquet", table.io
    pq.write_table(rows, path)
    before = table.current_snapshot()
    number, sequence = before.snapshot_id + 1, table.metadata.last_sequence_number + 1
    file = manifests.DataFile.from_args(
        file_path=f"file://{path}", file_format=manifests.FileFormat.PARQUET, partition=manifests.Record(),
        record_count=rows.num_rows, file_size_in_bytes=path.stat().st_size, **of,
    )  # fmt: skip
    file.spec_id = 0
    output = io.new_output(f"file://{folder}/metadata/deletes-m0.avro")
    with _Deletes(table.spec(), table.schema(), output, number, "null") as writer:
        added = manifests.ManifestEntryStatus.ADDED
        entry = {"status": added, "snapshot_id": number, "sequence_number": None, "file_sequence_number": None}
        writer.add_entry(manifests.ManifestEntry.from_args(data_file=file, **entry))
    added_manifest = writer.to_manifest_file()
    listed = f"file://{folder}/metadata/snap-{number}.avro"
    with manifests.write_manifest_list(
        2, io.new_output(listed), number, before.snapshot_id, sequence, "null"
    ) as writer:
        writer.add_manifests([*before.manifests(io), added_manifest])
    old = Path(table.metadata_location.removeprefix("file://"))
    told = json.loads(old.read_text())
    told |= {"last-sequence-number": sequence, "current-snapshot-id": number}
    told["snapshots"].append({
        "snapshot-id": number, "parent-snapshot-id": before.snapshot_id, "sequence-number": sequence,
        "timestamp-ms": told["last-updated-ms"] + 1, "manifest-list": listed, "summary": {"operation": "delete"},
        "schema-id": told["current-schema-id"],
    })  # fmt: skip
    told["refs"]["main"]["snapshot-id"] = number
    old.with_name(f"{int(old.name[:5]) + 1:05d}-deletes.metadata.json").write_text(json.dumps(told))
    return path


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
    content = manifests.DataFileContent
    if kind == "by value":
        rows = pa.table({"id": [1]})
        deletes = _delete(table, folder, rows, content=content.EQUALITY_DELETES, equality_ids=[1])
    else:
        data = next(iter(table.scan().plan_files())).file.file_path
        named = data if kind == "by place" else "file:///elsewhere.parquet"
        rows, bounds = pa.table({"file_path": [named], "pos": [0]}), {_PATH_ID: named.encode()}
        deletes = _delete(
            table, folder, rows, content=content.POSITION_DELETES, lower_bounds=bounds, upper_bounds=bounds
        )
    for path in folder.rglob("*.parquet"):
        bs.seal_file(path, encryption=bs.EncryptionSpec("k", keys=ring))
    if kind == "of a file that is gone":
        assert bs.read_table(folder, decryption=keys)["id"].to_pylist() == [1, 2, 3]
    else:
        with pytest.raises(bs.UnsupportedError, match="delete files"):
            bs.open_table(folder, decryption=keys)
    report = rotate(folder, Rekey(keys), journal=tmp_path / "j")
    assert len(report.files) == 2
    assert {file.status for file in report.files} == {Status.ROTATED}
    assert str(deletes) in set(inventory(folder)["file"].to_pylist())
