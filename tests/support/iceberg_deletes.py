"""Delete files in Iceberg tables, as other engines commit them: pyiceberg applies them and writes none. Vectors are
written by CRoaring's own serializer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import manifest as manifests
from pyiceberg.avro.file import AvroOutputFile
from pyroaring import BitMap64

__all__ = ["PATH_ID", "add_deletes", "blob_of", "with_ids", "write_positions", "write_puffin"]

PATH_ID = 2147483546
"""The field of a position delete that names the data file."""


class _Deletes(manifests.ManifestWriterV2):
    def content(self) -> Any:
        return manifests.ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> Any:
        schema = self._with_partition(3)  # with the places of deletion vectors
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)


def blob_of(rows: Iterable[int], *, runs: bool = True) -> bytes:
    """A deletion vector."""
    bitmap = BitMap64(rows)
    if runs:
        bitmap.run_optimize()
    content = b"\xd1\xd3\x39\x64" + bitmap.serialize()
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def write_puffin(path: Path, vectors: Mapping[str, Iterable[int]]) -> list[tuple[Path, Any, dict[str, Any]]]:
    """A Puffin file of deletion vectors. Returns what `add_deletes` takes."""
    data, blobs, files = b"PFA1", [], []
    for name, rows in vectors.items():
        blob, told = blob_of(rows), {"referenced-data-file": name, "cardinality": str(len(set(rows)))}
        blobs.append({"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1,
                      "offset": len(data), "length": len(blob), "properties": told})  # fmt: skip
        place = {"referenced_data_file": name, "content_offset": len(data), "content_size_in_bytes": len(blob)}
        files.append((path, manifests.FileFormat.PUFFIN, {"record_count": len(set(rows)), **place}))
        data += blob
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(data + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1")
    return files


def with_ids(table: pa.Table, *ids: int) -> pa.Table:
    """The columns with the field ids that a table's files have."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)}) for field, number in zip(table.schema, ids, strict=True)
    ]
    return table.cast(pa.schema(fields))


def write_positions(path: Path, rows: Iterable[tuple[str | None, int | None]]) -> tuple[Path, Any, dict[str, Any]]:
    """A file of position deletes. Returns what `add_deletes` takes."""
    names, positions = zip(*rows, strict=True)
    table = pa.table({"file_path": pa.array(names, pa.string()), "pos": pa.array(positions, pa.int64())})
    pq.write_table(with_ids(table, PATH_ID, PATH_ID - 1), path, row_group_size=7)
    return path, manifests.FileFormat.PARQUET, {"record_count": len(names)}


def add_deletes(table: Any, *files: tuple[Any, ...], sequence_of: int | None = None, **of: Any) -> str:
    """A commit that adds delete files. Returns its metadata.

    Args:
        files: path and ``FileFormat`` of each, and what differs of it for ``DataFile.from_args``.
        sequence_of: the files' data sequence number; None: the commit's.
        of: for ``DataFile.from_args``, of each.
    """
    before, io = table.current_snapshot(), table.io
    folder = Path(table.location().removeprefix("file://"))
    number, sequence = before.snapshot_id + 1, table.metadata.last_sequence_number + 1
    output = io.new_output(f"file://{folder}/metadata/deletes-{number}-m0.avro")
    with _Deletes(table.spec(), table.schema(), output, number, "null") as writer:
        added = manifests.ManifestEntryStatus.ADDED
        entry = {"status": added, "snapshot_id": number, "file_sequence_number": None}
        entry["sequence_number"] = sequence_of
        for path, kind, *own in files:
            told = {"partition": manifests.Record(), "record_count": 1, "content": 1} | of | dict(*own)
            file = manifests.DataFile.from_args(
                3, file_path=f"file://{path}", file_format=kind, file_size_in_bytes=path.stat().st_size, **told
            )
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
