"""Iceberg tables: the live files of a snapshot, by the library ``pyiceberg``, from the metadata that lie in the
table's folder.

Which metadata file is the current one, a catalog knows. Without one the newest in the folder is taken, and an older
one that was named is refused: it would bring back rows that were deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from ...core.errors import BloomsealError, FormatError, UnsupportedError, UsageError
from ...core.storage.local import identity
from ...core.storage.ref import FileRef
from ..formats import METADATA_ENDINGS
from .ags1 import is_sealed
from .iceberg_deletes import DATA, TO_PARQUET, DeleteIndex, ManifestRow, format_of, rows_of_manifest
from .iceberg_held import Names, look_for_values
from .iceberg_keys import MASTER_KEY, IcebergFileKey
from .iceberg_metadata import NUMBER, in_its_folder, load, names_of, newest_metadata, read_metadata
from .snapshot import History, LiveFile, LogPlaces, Naming, Snapshot, fields_in, opened, told_apart

_PLACES: Final = (
    "write.data.path", "write.object-storage.path", "write.folder-storage.path", "write.metadata.path",
)  # fmt: skip
"""Properties by which files of the table go elsewhere."""


class IcebergLog:
    """The metadata of an Iceberg table.

    Attributes:
        sealed: the manifest list is encrypted, and nothing was said about keys.

    Args:
        ref: the table's folder, or one of its metadata files.
        version: the id of a snapshot; None: the current one.

    Raises:
        MissingDependencyError: `pyiceberg` is not installed.
        UsageError: not a table that it understands, no such snapshot, or metadata older than others beside them.
    """

    def __init__(self, ref: FileRef, version: int | None = None) -> None:
        self.folder, self._metadata, self._newest = newest_metadata(ref)
        self._ref = self.folder
        data = read_metadata(self._metadata)
        self._table: Any = load(self._metadata, data, self.folder)
        self._version = version
        if version is not None and self._table.snapshot_by_id(version) is None:
            raise UsageError(f"the table has no snapshot {version}", file=ref.path)
        wanted = version if version is not None else self._table.metadata.current_snapshot_id
        self._sealed = _sealed(data)
        self.sealed = wanted in self._sealed or (MASTER_KEY in self._table.metadata.properties and self._lists_sealed())

    def _lists_sealed(self) -> bool:
        """Whether the manifest list is sealed, though its snapshot does not say by which key."""
        snapshot = self._snapshot
        return snapshot is not None and is_sealed(FileRef(self._at(snapshot.manifest_list), self._ref.filesystem))

    @property
    def _snapshot(self) -> Any:
        table = self._table
        return table.current_snapshot() if self._version is None else table.snapshot_by_id(self._version)

    @property
    def metadata_path(self) -> str:
        """The metadata file that counts."""
        return self._metadata.path

    def need_clear(self) -> None:
        """The list of files can be read.

        Raises:
            UsageError: it is encrypted.
        """
        if self.sealed:
            raise UsageError(
                "an encrypted Iceberg table: the list of its files is sealed",
                file=self._metadata.path,
                hint="DecryptionSpec(kms, iceberg=IcebergSpec(master key)), or iceberg in the policy",
            )

    def snapshot(self) -> Snapshot:
        """The snapshot that was asked for, its rows readable file by file.

        Raises:
            UnsupportedError: data or deletes in formats that are not read, or columns with defaults.
            UsageError: as `need_clear`.
        """
        self.need_clear()
        return opened(self._ref, self._read)

    def history(self) -> History:
        """The files of all snapshots that any metadata in the folder still name, expired ones too, and the columns
        whose values the metadata hold. What sealed lists name is left out.
        """
        found = History()
        if not self._newest:
            found.problems.append(f"{self._ref.path}: nobody can tell whether these metadata are the table's latest")
        inside = FileRef(posixpath.dirname(self._metadata.path), self.folder.filesystem)
        files = names_of(inside)
        tables = {self._metadata.path: self._table} | dict(self._others(inside, files, found))
        names, seen = Names(), set[int](self._sealed)
        for path, table in tables.items():
            names.add(table.metadata)
            found.elsewhere |= set(self._elsewhere(table.metadata))
            for snapshot in table.metadata.snapshots:
                if snapshot.snapshot_id in seen:
                    continue
                seen.add(snapshot.snapshot_id)
                try:
                    found.paths |= self._paths(snapshot, table)
                    found.versions += 1
                except FileNotFoundError:
                    # Of an expired snapshot the engine has removed the manifests, and the files that only it named.
                    if path == self._metadata.path:
                        found.problems.append(f"{self._ref.path}: snapshot {snapshot.snapshot_id} lacks a manifest")
                except Exception as error:
                    found.problems.append(
                        f"{self._ref.path}: snapshot {snapshot.snapshot_id} can't be read ({type(error).__name__})"
                    )
        look_for_values(inside, files, names, tables, found)
        return found

    def _others(self, inside: FileRef, files: list[str], found: History) -> Iterator[tuple[str, Any]]:
        """The other metadata in the folder, each with its path."""
        for name in files:
            ref = FileRef(posixpath.join(inside.path, name), inside.filesystem)
            if not name.endswith(METADATA_ENDINGS) or ref.path == self._metadata.path:
                continue
            if NUMBER.fullmatch(name) is None:
                found.problems.append(f"{ref.path}: its name has no number, so that it may be the table's latest")
            try:
                data = read_metadata(ref)
                table = load(ref, data, self.folder)
                self._sealed |= _sealed(data)
                yield ref.path, table
            except BloomsealError as error:
                found.problems.append(f"{ref.path}: {error.what}")

    def _elsewhere(self, metadata: Any) -> Iterator[str]:
        for name in _PLACES:
            if (place := metadata.properties.get(name)) is not None:
                path = self._at(place).rstrip("/")
                if not f"{path}/".startswith(f"{self._ref.path.rstrip('/')}/"):
                    yield path

    def paths(self) -> set[str]:
        """The files of the snapshot that was asked for, with those that tell which rows were deleted.

        Raises:
            UsageError: as `need_clear`.
        """
        self.need_clear()
        return opened(self._ref, lambda: self._paths(self._snapshot, self._table))

    def _read(self) -> Snapshot:
        schema, manifests = self._schema(), [*self._manifest_rows()]
        compared = {one for _, rows in manifests for row in rows for one in row.file.equality_ids or ()}
        every = _with_dropped(schema, self._table.metadata.schemas, compared)
        self._need_no_defaults(every)
        deletes, data = DeleteIndex(every.find_column_name), list[tuple[ManifestRow, LiveFile]]()
        stored = dict[str, None]()
        for header, rows in manifests:
            partitioned = self._partitioned_by(header, rows, every)
            stored |= dict.fromkeys(partitioned.values())
            for row in rows:
                live = self._live(row.file, {name: row.file.partition[place] for place, name in partitioned.items()})
                kind = format_of(row.file)
                if row.file.content != DATA:
                    deletes.add(row, live, None if kind == "PARQUET" else self._length(live))
                elif kind != "PARQUET":
                    raise UnsupportedError(f"an Iceberg table with data in {kind}", file=live.path, hint=TO_PARQUET)
                else:
                    data.append((row, live))
        deletes.check({live.name: live for _, live in data}, self._places)
        files = (replace(live, deletes=found) if (found := deletes.of(row)) else live for row, live in data)
        return Snapshot(
            self._snapshot_id,
            schema.as_arrow(),
            tuple(sorted(files, key=lambda one: one.path)),
            deletes.files,
            self._naming(every),
            stored=tuple(stored),
            path_of=self._places,
            compared=None if every is schema else every.as_arrow(),
        )

    def _need_no_defaults(self, schema: Any) -> None:
        if any(getattr(schema.find_field(one), "initial_default", None) is not None for one in schema.field_ids):
            raise UnsupportedError("an Iceberg table whose columns have defaults", file=self._ref.path)

    @property
    def _snapshot_id(self) -> Any:
        return self._version if self._version is not None else self._table.metadata.current_snapshot_id

    def _schema(self) -> Any:
        return self._table.scan(snapshot_id=self._version).projection()

    def _manifest_rows(self) -> Iterator[tuple[dict[str, str], list[ManifestRow]]]:
        """Header and live files of each manifest."""
        with ThreadPoolExecutor() as pool:
            yield from pool.map(self._rows_of, self._listed())

    def _listed(self) -> list[Any]:
        return _manifests(self._snapshot, self._table)

    def _rows_of(self, manifest: Any) -> tuple[dict[str, str], list[ManifestRow]]:
        return rows_of_manifest(manifest, self._table.io.new_input(manifest.manifest_path))

    def _live(self, file: Any, partition: Mapping[str, Any]) -> LiveFile:
        return LiveFile(self._path(file), partition, self._told(file), self._key(file), file.file_path)

    def _key(self, file: Any) -> IcebergFileKey | None:  # noqa: ARG002
        return None

    def _length(self, live: LiveFile) -> int | None:  # noqa: ARG002
        """Of the stream that a file is."""
        return None

    def _naming(self, schema: Any) -> Naming:
        ids = {schema.find_column_name(number): number for number in schema.field_ids}
        if not ids:  # of rows without columns nobody could tell how many there are
            raise FormatError("a table without columns", file=self._metadata.path)
        if {path for path, _ in fields_in(schema.as_arrow())} != ids.keys():  # the library keeps one of each
            raise FormatError("columns that have one id, or one name", file=self._metadata.path)
        return Naming(tuple(ids), ids, self._mapped())

    def _told(self, file: Any) -> str:
        sizes, *bounds = (
            sorted((getattr(file, name, None) or {}).items())
            for name in ("column_sizes", "lower_bounds", "upper_bounds")
        )
        table, offsets = self._table.metadata.table_uuid, file.split_offsets
        return told_apart(table, file.file_size_in_bytes, file.record_count, sizes, bounds, offsets)

    def _mapped(self) -> dict[str, int] | None:
        """The ids of columns in files that bear none: what was written before it was an Iceberg table's."""
        if (mapping := self._table.name_mapping()) is None:
            return None
        return dict(_mappednames_of(mapping))

    def _partitioned_by(
        self,
        header: Mapping[str, str],  # noqa: ARG002
        rows: Sequence[ManifestRow],
        schema: Any,
    ) -> dict[int, str]:
        """Place in a partition → column, for columns that stand there as they are: all rows of a file share them."""
        fields = self._table.specs()[rows[0].partition[0]].fields if rows else ()
        return {
            place: name
            for place, field in enumerate(fields)
            if str(field.transform) == "identity" and (name := schema.find_column_name(field.source_id)) is not None
        }

    def _paths(self, snapshot: Any, table: Any) -> set[str]:
        # Whoever reads the rows needs the files that tell which of them were deleted, too.
        return {
            self._path(file) for file in _files(snapshot, table) if file.content == DATA or format_of(file) == "PARQUET"
        }

    def _path(self, file: Any) -> str:
        return self._at(file.file_path)

    @property
    def _places(self) -> LogPlaces:
        location = self._table.metadata.location if in_its_folder(self._metadata) else None
        return LogPlaces(location, self._ref.path, self._ref.filesystem is None)

    def _at(self, place: str) -> str:
        return self._places(place)


def _with_dropped(schema: Any, schemas: Sequence[Any], compared: set[int]) -> Any:
    """The schema, with columns that it no longer has and that deletes compare, as the newest schema has them that does.
    One whose name is another column's by now stays out.
    """
    fields = [*schema.fields]
    for older in sorted(schemas, key=lambda one: one.schema_id, reverse=True) if compared - schema.field_ids else ():
        for field in older.fields:
            fits = all(field.field_id != one.field_id and field.name != one.name for one in fields)
            if fits and compared & type(schema)(field).field_ids:
                fields.append(field)
    return schema if len(fields) == len(schema.fields) else type(schema)(*fields)


def _files(snapshot: Any, table: Any) -> Iterator[Any]:
    """All files that a snapshot names, by whatever rows they are about: asked for a plan, the library leaves out the
    ones that it can't match, and refuses others.
    """
    with ThreadPoolExecutor() as pool:
        for entries in pool.map(lambda one: one.fetch_manifest_entry(table.io), _manifests(snapshot, table)):
            yield from (entry.data_file for entry in entries)


def _manifests(snapshot: Any, table: Any) -> list[Any]:
    """The manifests of a snapshot.

    Raises:
        FormatError: one of them comes twice. A list of some kilobytes could name one ten thousand times, each of which
            would be decoded.
    """
    found = [] if snapshot is None else snapshot.manifests(table.io)
    if len({_same_file(one.manifest_path, table.io) for one in found}) < len(found):
        raise FormatError("a list that names a manifest twice", file=snapshot.manifest_list)
    return list(found)


def _same_file(place: str, io: Any) -> Hashable:
    """Equal for names of one file."""
    scheme, host, path = io.parse_location(io.mapped(place))
    if scheme == "file":
        with contextlib.suppress(OSError, ValueError):
            return identity(os.stat(path))[:2]  # noqa: PTH116
    return scheme, host, posixpath.normpath(path)


def _sealed(data: bytes) -> set[int]:
    """The snapshots whose manifest lists are encrypted."""
    return {one["snapshot-id"] for one in json.loads(data).get("snapshots") or () if one.get("key-id") is not None}


def _mappednames_of(fields: Any, above: str = "") -> Iterator[tuple[str, int]]:
    for field in fields:
        for name in field.names:
            if field.field_id is not None:
                yield above + name, field.field_id
            yield from _mappednames_of(field.fields, f"{above}{name}.")
