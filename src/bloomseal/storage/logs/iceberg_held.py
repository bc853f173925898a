"""Which columns' values stand in the metadata files of an Iceberg table, whatever their age, and whether or not a
snapshot still names them.

Iceberg specification, "Manifests", "Manifest Lists"; Puffin specification.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from ...core.errors import FormatError
from ...core.storage.ref import FileRef
from ...core.storage.source import Source
from ..places import open_source
from .ags1 import is_sealed
from .decoded import most_decoded, need_readable
from .snapshot import BOUNDS, PARTITIONS, History, location

_IN_SUMMARY: Final = "partitions."
_PUFFIN: Final = b"PFA1"
_ENDING: Final = 12
"""Of a Puffin file: the payload's size, flags, magic."""
_LZ4: Final = 1
_OF_ROWS: Final = "deletion-vector-v1"
"""A blob of places of rows, which tells no values."""


class Names:
    """The names that columns have, or had, and the columns that each partition spec is made of."""

    def __init__(self) -> None:
        self._of: dict[int, set[str]] = {}
        self._specs: dict[int, list[tuple[int, str]]] = {}

    def add(self, metadata: Any) -> None:
        """Those of one metadata file."""
        for schema in metadata.schemas:
            for number in schema.field_ids:
                self._of.setdefault(number, set()).add(schema.find_column_name(number))
        for spec in metadata.partition_specs:
            self._specs[spec.spec_id] = [(field.source_id, str(field.transform)) for field in spec.fields]

    def of(self, number: int) -> set[str]:
        """The names of a column; the number, where no schema is left that has it."""
        return self._of.get(number) or {f"column {number}"}

    def partition(self, spec: int) -> Iterator[str]:
        """Names of the columns whose values, or something made of them, a partition of this spec tells."""
        for number, transform in self._specs.get(spec, ()):
            if transform != "void":
                yield from self.of(number)


def look_for_values(
    folder: FileRef, files: Iterable[str], names: Names, tables: Mapping[str, Any], found: History
) -> None:
    """Note what each metadata file holds. What can't be read is a problem.

    Args:
        folder: the metadata's.
        files: their names.
        tables: path of a metadata file → the table, as the library has it.
    """
    for path, table in tables.items():
        for snapshot in table.metadata.snapshots:
            said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            for part in (part for name in said if name.startswith(_IN_SUMMARY) for part in name.split("/")):
                found.hold(path, part.removeprefix(_IN_SUMMARY).partition("=")[0], PARTITIONS)
    io = next(iter(tables.values())).io if tables else None
    for name in files:
        ref = FileRef(posixpath.join(folder.path, name), folder.filesystem)
        try:
            if name.endswith(".avro") and io is not None:
                if is_sealed(ref):
                    continue
                held: Iterable[tuple[str, str]] = _in_avro(io.new_input(location(ref)), names)
            elif name.endswith((".puffin", ".stats")) and not is_sealed(ref):
                with open_source(ref) as source:
                    held = list(_in_puffin(source, names))
            else:
                continue
            for column, what in held:
                found.hold(ref.path, column, what)
        except Exception as error:
            found.problems.append(f"{ref.path}: the metadata can't be read there ({type(error).__name__})")


def _in_avro(file: Any, names: Names) -> Iterator[tuple[str, str]]:
    """A manifest, or a list of manifests."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntry, read_manifest_list

    with AvroFile[Any](file) as reader:
        is_list = reader.schema.find_field(500, case_sensitive=True) if 500 in reader.schema.field_ids else None
        spec = int(reader.header.meta.get("partition-spec-id", "0"))
    if is_list is not None:
        for manifest in read_manifest_list(file):
            if manifest.partitions:
                yield from ((name, PARTITIONS) for name in names.partition(manifest.partition_spec_id))
        return
    with AvroFile[Any](file, MANIFEST_ENTRY_SCHEMAS[2], {-1: ManifestEntry, 2: DataFile}) as entries:
        for entry in entries:
            data = entry.data_file
            for number in {*(data.lower_bounds or {}), *(data.upper_bounds or {})}:
                yield from ((name, BOUNDS) for name in names.of(number))
            yield from ((name, PARTITIONS) for name in names.partition(spec))


def _in_puffin(source: Source, names: Names) -> Iterator[tuple[str, str]]:
    need_readable(source.size, source.name)
    data = bytes(source.read(0, source.size))
    size = int.from_bytes(data[-_ENDING : -_ENDING + 4], "little")
    if data[-4:] != _PUFFIN or not 0 < size <= len(data) - _ENDING:
        raise FormatError("not a Puffin file")
    payload = data[-_ENDING - size : -_ENDING]
    if data[-8] & _LZ4:
        payload = _inflated(payload)
    for blob in json.loads(payload)["blobs"]:
        if blob["type"] != _OF_ROWS:
            for number in blob["fields"]:
                yield from ((name, f"a summary of its values ({blob['type']})") for name in names.of(number))


def _inflated(payload: bytes) -> bytes:
    try:
        with pa.input_stream(pa.BufferReader(payload), compression="lz4") as stream:
            text = bytes(stream.read(most_decoded(len(payload)) + 1))
    except (pa.ArrowException, OSError):
        raise FormatError("a Puffin footer that can't be unpacked") from None
    need_readable(len(text), "a Puffin footer", len(payload))
    return text
