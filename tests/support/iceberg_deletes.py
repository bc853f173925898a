"""Delete files in Iceberg tables, as other engines commit them: pyiceberg applies them and writes none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg import manifest as manifests

__all__ = ["PATH_ID", "add_deletes"]

PATH_ID = 2147483546
"""The field of a position delete that names the data file."""


class _Deletes(manifests.ManifestWriterV2):
    def content(self) -> Any:
        return manifests.ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def add_deletes(table: Any, *files: tuple[Path, Any], **of: Any) -> str:
    """A commit that adds delete files. Returns its metadata.

    Args:
        files: path and ``FileFormat`` of each.
        of: for ``DataFile.from_args``, of each.
    """
    before, io = table.current_snapshot(), table.io
    folder = Path(table.location().removeprefix("file://"))
    number, sequence = before.snapshot_id + 1, table.metadata.last_sequence_number + 1
    output = io.new_output(f"file://{folder}/metadata/deletes-m0.avro")
    with _Deletes(table.spec(), table.schema(), output, number, "null") as writer:
        added = manifests.ManifestEntryStatus.ADDED
        entry = {"status": added, "snapshot_id": number, "sequence_number": None, "file_sequence_number": None}
        for path, kind in files:
            file = manifests.DataFile.from_args(
                file_path=f"file://{path}", file_format=kind, partition=manifests.Record(), record_count=1,
                file_size_in_bytes=path.stat().st_size, **of,
            )  # fmt: skip
            file.spec_id = 0
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
    new = old.with_name(f"{int(old.name[:5]) + 1:05d}-deletes.metadata.json")
    new.write_text(json.dumps(told))
    return str(new)
