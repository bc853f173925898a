"""Which delete file of an Iceberg snapshot is about which data file.

Iceberg table specification, "Scan Planning", "Row-level Deletes", "Sequence Number Inheritance".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...core.errors import FormatError, UnsupportedError
from .snapshot import DeleteFile, DeleteKind, LiveFile

DATA, _BY_PLACE, _BY_VALUE = 0, 1, 2
"""Contents of files, as manifests number them."""
TO_PARQUET: Final = "rewrite_data_files in the engine that wrote the table, with write.format.default = parquet"
_DELETED: Final = 2
_ADDED: Final = 1
_PATH_ID: Final = 2147483546
"""The column of position deletes that names the data file."""
_REFERENCED, _OFFSET, _SIZE = -3, -2, -1
"""Places of fields behind those that format version 2 has."""


class ManifestRow(NamedTuple):
    """A live file of a manifest.

    Attributes:
        file: as the library has it, of format version 3.
        sequence: its data sequence number.
        partition: equal for files of one spec and one partition.
        everywhere: its spec divides the table into no partitions.
    """

    file: Any
    sequence: int
    partition: tuple[int, str]
    everywhere: bool


def rows_of_manifest(manifest: Any, content: Any) -> tuple[dict[str, str], list[ManifestRow]]:
    """The header of a manifest, and its live files.

    Args:
        manifest: as the list has it.
        content: its bytes, as a file of the library.

    Raises:
        FormatError: a file that was there before, and has no sequence number; or a header without a partition spec.
    """
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType, StructType

    # The library reads manifests as format version 2 has them, in which no file has a part.
    *fields, last = MANIFEST_ENTRY_SCHEMAS[2].fields
    named: Any = last.field_type
    whole_file = StructType(
        *named.fields,
        NestedField(143, "referenced_data_file", StringType(), False),
        NestedField(144, "content_offset", LongType(), False),
        NestedField(145, "content_size_in_bytes", LongType(), False),
    )
    file = NestedField(last.field_id, last.name, whole_file, True)
    with AvroFile[Any](content, Schema(*fields, file), {-1: ManifestEntry, 2: DataFile}) as entries:
        header = dict(entries.header.meta)
        live = [entry for entry in entries if entry.status != _DELETED]
    try:
        everywhere = all(one["transform"] == "void" for one in json.loads(header["partition-spec"]))
    except (ValueError, KeyError, TypeError):
        raise FormatError("a manifest whose header can't be understood", file=manifest.manifest_path) from None
    rows, spec = [], manifest.partition_spec_id
    for entry in live:
        data, sequence = entry.data_file, entry.sequence_number
        if sequence is None and (entry.status == _ADDED or manifest.sequence_number == 0):
            sequence = manifest.sequence_number
        if sequence is None:
            raise FormatError("a manifest that keeps a file without a sequence number", file=manifest.manifest_path)
        partition = repr([data.partition[place] for place in range(len(data.partition))])  # a NaN equals itself
        rows.append(ManifestRow(data, sequence, (spec, partition), everywhere))
    return header, rows


class DeleteIndex:
    """The delete files of a snapshot, each found by the data files that it can be about.

    Args:
        column: the name of a column by its number; None: there is none.
    """

    def __init__(self, column: Callable[[int], str | None]) -> None:
        self._column = column
        self._files: list[DeleteFile] = []
        self._vectors: dict[str, tuple[ManifestRow, DeleteFile]] = {}
        self._of_file: dict[str, list[tuple[ManifestRow, DeleteFile]]] = {}
        self._of_partition: dict[tuple[int, str], list[tuple[ManifestRow, DeleteFile]]] = {}
        self._everywhere: list[tuple[ManifestRow, DeleteFile]] = []

    @property
    def files(self) -> tuple[DeleteFile, ...]:
        """All of them."""
        return tuple(self._files)

    def add(self, row: ManifestRow, live: LiveFile, length: int | None = None) -> None:
        """One more.

        Args:
            live: the file.
            length: of its stream, if it is encrypted and no Parquet file.

        Raises:
            UnsupportedError: it is of another format, or compares what is not compared here.
            FormatError: what the manifest says of it is not lawful.
        """
        file, kind = row.file, format_of(row.file)
        if kind == "PUFFIN" and file.content == _BY_PLACE:
            self._vector(row, live, length)
            return
        if kind != "PARQUET":
            raise UnsupportedError(f"delete files in {kind}", file=live.path, hint=TO_PARQUET)
        if file.content == _BY_PLACE:
            name = file[_REFERENCED] or _only_file(file)
            delete = DeleteFile(live, DeleteKind.POSITIONS, file.record_count, data_file=name)
            found = self._of_partition.setdefault(row.partition, []) if name is None else self._of(name)
        elif file.content == _BY_VALUE:
            names = [self._column(number) for number in file.equality_ids or ()]
            if not names or None in names:
                what = (
                    "equality deletes by a column that no schema of the table has, or whose name is another one's now"
                )
                raise UnsupportedError(
                    what, file=live.path, hint="rewrite_data_files in the engine that wrote the table"
                )
            delete = DeleteFile(live, DeleteKind.VALUES, file.record_count, tuple(sorted({*filter(None, names)})))
            found = self._everywhere if row.everywhere else self._of_partition.setdefault(row.partition, [])
        else:
            raise FormatError(f"a file whose content is {file.content}", file=live.path)
        self._files.append(delete)
        found.append((row, delete))

    def _of(self, name: str) -> list[tuple[ManifestRow, DeleteFile]]:
        return self._of_file.setdefault(name, [])

    def _vector(self, row: ManifestRow, live: LiveFile, length: int | None) -> None:
        name, offset, size = (row.file[place] for place in (_REFERENCED, _OFFSET, _SIZE))
        if name is None or offset is None or size is None or min(offset, size) < 0:
            raise FormatError("a deletion vector that the manifest does not say the place of", file=live.path)
        if name in self._vectors:
            raise FormatError(f"two deletion vectors of one file, {name}", file=live.path)
        count = row.file.record_count
        delete = DeleteFile(live, DeleteKind.VECTOR, count, offset=offset, size=size, length=length)
        self._vectors[name] = row, delete
        self._files.append(delete)

    def of(self, row: ManifestRow) -> tuple[DeleteFile, ...]:
        """Those that can be about a data file.

        Raises:
            FormatError: a deletion vector that names the file, and is of another partition or older than the file.
        """
        name, found = row.file.file_path, []
        if (vector := self._vectors.get(name)) is not None:
            if vector[0].sequence < row.sequence or vector[0].partition != row.partition:
                raise FormatError("its deletion vector is of another partition, or older than the file", file=name)
            found.append(vector[1])
        for deleted, delete in (*self._of_file.get(name, ()), *self._of_partition.get(row.partition, ())):
            if delete.kind is DeleteKind.VALUES:
                applies = row.sequence < deleted.sequence
            else:  # a vector takes the places of all that were deleted before
                applies = vector is None and row.sequence <= deleted.sequence and deleted.partition == row.partition
            if applies:
                found.append(delete)
        found += [delete for deleted, delete in self._everywhere if row.sequence < deleted.sequence]
        return tuple(found)

    def check(self, files: Mapping[str, LiveFile], path_of: Callable[[str], str]) -> None:
        """Refuse a delete file that names a data file in another way than the manifest does: it would delete nothing.

        Args:
            files: the data files by their names in the manifests.

        Raises:
            FormatError: there is one. And as `path_of`.
        """
        paths = {one.path for one in files.values()}
        for name in (*self._vectors, *self._of_file):
            if name not in files and path_of(name) in paths:
                raise FormatError("a delete file names a data file in another way than its manifest", file=name)


def _only_file(file: Any) -> str | None:
    """The one data file that position deletes are about, where their bounds tell."""
    low, high = ((bounds or {}).get(_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or low != high:
        return None
    try:
        return bytes(low).decode()
    except ValueError:
        return None


def format_of(file: Any) -> str:
    """The format of a file that a manifest names, such as ``PARQUET``."""
    return str(getattr(file.file_format, "value", file.file_format)).upper()
