"""Iceberg tables that change between clear and encrypted, as no vector does: a snapshot written as Iceberg's own
encryption has it, over what pyiceberg has written.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from bench.iceberg import KEY, PREFIX, _Buffer, _gcm, _metadata
from pyiceberg import manifest as manifests
from pyiceberg.io import OutputFile
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

import bloomseal as bs

__all__ = ["add_sealed", "newest"]

STAMP = "1795617800956"


class _Sealed(OutputFile):
    """Collects what the library writes, and puts it down as a stream."""

    def __len__(self) -> int:
        return self.path.stat().st_size

    @property
    def path(self) -> Path:
        return Path(self.location.removeprefix("file://"))

    def exists(self) -> bool:
        return self.path.exists()

    def to_input_file(self) -> Any:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002
        return _Buffer(self.path)


def newest(folder: Path) -> Path:
    return max((folder / "metadata").glob("*.metadata.json"))


def add_sealed(folder: Path, name: str, master: bytes, *, with_clear: bool = False) -> None:
    """A commit of an encrypting engine: the rows of the current snapshot, which is in clear or sealed under `KEY`, in
    one sealed file.

    Args:
        name, master: the table's master key.
        with_clear: the former manifests stay in the new list.
    """
    told = json.loads(newest(folder).read_text())
    files = sorted(folder.glob("data/*.parquet"))
    sealing = bs.EncryptionSpec(footer_key=KEY, aad_prefix=PREFIX, store_aad_prefix=False)
    data = folder / "data" / f"sealed-{len(files):03}.parquet"
    clear = [path for path in files if not path.name.startswith("sealed")]
    bs.write_table(pq.read_table(clear[0]), data, encryption=sealing, bloom_filters=["ssn"])

    number, sequence = 1000 + len(told["snapshots"]), told["last-sequence-number"] + 1
    table = StaticTable.from_metadata(str(newest(folder)))
    inside = f"{told['location']}/metadata"
    place = _Sealed(f"{inside}/sealed-{number}-m0.avro")
    with manifests.write_manifest(2, table.spec(), table.schema(), place, number, "deflate") as writer:
        file = manifests.DataFile.from_args(
            content=manifests.DataFileContent.DATA, file_path=f"{told['location']}/data/{data.name}",
            file_format=manifests.FileFormat.PARQUET, partition=Record(), record_count=pq.read_table(clear[0]).num_rows,
            file_size_in_bytes=data.stat().st_size, key_metadata=_metadata(None), spec_id=0,
        )  # fmt: skip
        added = manifests.ManifestEntryStatus.ADDED
        writer.add_entry(manifests.ManifestEntry.from_args(status=added, snapshot_id=number, data_file=file))
    entry = writer.to_manifest_file()
    entry[14] = _metadata(len(place))
    listed = _Sealed(f"{inside}/snap-{number}.avro")
    former = table.current_snapshot().manifests(table.io) if with_clear else []
    with manifests.write_manifest_list(2, listed, number, None, sequence, "null") as out:
        out.add_manifests([entry, *former])

    kek, key_id = os.urandom(16), f"kek-{number}"
    told["properties"]["encryption.key-id"] = name
    told["encryption-keys"] = [
        *told.get("encryption-keys", []),
        {
            "key-id": key_id, "encrypted-by-id": name, "properties": {"KEY_TIMESTAMP": STAMP},
            "encrypted-key-metadata": base64.b64encode(_gcm(master, kek, None)).decode(),
        },
        {
            "key-id": f"list-{number}", "encrypted-by-id": key_id,
            "encrypted-key-metadata": base64.b64encode(_gcm(kek, _metadata(len(listed)), STAMP.encode())).decode(),
        },
    ]  # fmt: skip
    told["snapshots"].append({
        "snapshot-id": number, "sequence-number": sequence, "timestamp-ms": told["last-updated-ms"] + 1,
        "summary": {"operation": "overwrite"}, "manifest-list": listed.location, "key-id": f"list-{number}",
        "schema-id": told["current-schema-id"], "first-row-id": 0, "added-rows": 0,
    })  # fmt: skip
    told |= {"format-version": 3, "next-row-id": 0, "last-sequence-number": sequence, "current-snapshot-id": number}
    told["refs"] = {"main": {"snapshot-id": number, "type": "branch"}}
    version = int(newest(folder).name.split("-")[0]) + 1
    (folder / "metadata" / f"{version:05}-sealed.metadata.json").write_text(json.dumps(told))
