"""Encrypted Iceberg tables: the live files of a snapshot and the key of each, from what a key holder has sealed.

The metadata file is never encrypted. What it says of keys, places, columns and partitions is compared with the manifest
list and the manifests, which authenticate; docs/iceberg.md lists what is left.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.decryption import IcebergSpec
from ...core.errors import BloomsealError, FormatError, IntegrityError, PolicyError
from ...core.storage.ref import FileRef
from ..places import open_source
from .ags1 import Ags1Stream
from .decoded import avro_header, need_avro, need_readable
from .iceberg import IcebergLog
from .iceberg_deletes import DATA, ManifestRow, rows_of_manifest
from .iceberg_keys import IcebergFileKey, IcebergKek, IcebergTableKeys, UnwrapBytes
from .iceberg_metadata import load, newest_metadata, read_metadata
from .snapshot import LiveFile, LogPlaces, Naming, opened


@dataclass(frozen=True)
class IcebergOpening:
    """The caller's word about an encrypted table, and the KMS that has its master key."""

    spec: IcebergSpec
    unwrap: UnwrapBytes


class EncryptedIcebergLog(IcebergLog):
    """The metadata of an encrypted table, opened.

    Args:
        ref: the table's folder, or one of its metadata files.
        opening: what is expected.
        version: the id of a snapshot; None: the current one.
        metadata: a metadata file of this table, however old; None: the newest.

    Raises:
        PolicyError: not what is expected.
        FormatError, IntegrityError, KeyAccessError, UsageError.

    Attributes:
        kek: what the snapshot's keys hang from; None of a table without rows.
        manifests: those of the snapshot.
    """

    def __init__(
        self, ref: FileRef, opening: IcebergOpening, version: int | None = None, metadata: FileRef | None = None
    ) -> None:
        self.sealed, self._sealed = False, set()
        self.folder, self._metadata, self._newest = (ref, metadata, True) if metadata else newest_metadata(ref)
        self.kek: IcebergKek | None = None
        self._of_list: dict[str, IcebergFileKey] = {}
        self._schemas: set[str] = set()
        self.manifests: list[Any] = []
        self._ref, self._version, self._opening = self.folder, version, opening
        try:
            self._open(read_metadata(self._metadata))
        except BloomsealError as error:
            raise error.at(file=self._metadata.path) from error.__cause__

    def _open(self, data: bytes) -> None:
        spec = self._opening.spec
        spec.check_metadata(data)
        self._table = load(self._metadata, data, self.folder)
        try:
            document = json.loads(data)
            self._location = str(document["location"])
            wanted = self._version if self._version is not None else document.get("current-snapshot-id")
            snapshots = {one["snapshot-id"]: one for one in document.get("snapshots") or ()}
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FormatError("table metadata that can't be understood") from None
        keys = IcebergTableKeys(document, spec, self._opening.unwrap)
        self._id = None if self._version is None and wanted in (None, -1) else wanted
        if self._id is None:  # a table without rows; whoever pins a state has one
            if spec.min_sequence_number:
                raise PolicyError("the table has no snapshot, and min_sequence_number is given")
            return
        if not isinstance(snapshot := snapshots.get(self._id), Mapping):
            raise FormatError(f"the table has no snapshot {self._id}")
        self.kek, key = keys.manifest_list(snapshot)
        self.manifests = opened(self._ref, lambda: self._list(snapshot, key))

    def _list(self, snapshot: Mapping[str, Any], key: IcebergFileKey) -> list[Any]:
        """The manifests that the snapshot's list names."""
        from pyiceberg.manifest import read_manifest_list

        place = str(snapshot.get("manifest-list"))
        self._of_list[place] = key
        data = self._opened(place, key, None)
        if avro_header(data, place).get("snapshot-id") != str(snapshot["snapshot-id"]):
            raise IntegrityError("the manifest list is of another snapshot than the metadata say", file=place)
        # Not by `Snapshot.manifests`: that takes manifests from a cache by their paths, which any other table may name.
        found = list(read_manifest_list(_in_memory(place, data)))
        if len({one.manifest_path for one in found}) < len(found):
            raise FormatError("a list that names a manifest twice", file=place)
        newest = max((one.sequence_number for one in found), default=0)
        least = self._opening.spec.min_sequence_number
        if least is not None and newest < least:
            raise PolicyError(
                f"the newest manifest has the sequence number {newest}, and min_sequence_number is {least}: an older "
                "state of the table was put back"
            )
        return found

    def paths(self) -> set[str]:
        """The files of the snapshot, with those that tell which rows were deleted."""
        return {self._path(row.file) for _, rows in self._manifest_rows() for row in rows}

    def stream_keys(self) -> dict[str, IcebergFileKey]:
        """The key of the manifest list and of each manifest, by its path."""
        every = self._of_list | {one.manifest_path: _key(one.key_metadata, one.manifest_path) for one in self.manifests}
        return {self.place(place).path: key for place, key in every.items()}

    def keys(self) -> dict[str, IcebergFileKey]:
        """The key of each file of the snapshot, deletes among them, by its path.

        Raises:
            PolicyError: a file of the table has no key.
        """
        every = opened(self._ref, lambda: [*self._manifest_rows()])
        return {self._path(row.file): self._key(row.file) for _, rows in every for row in rows}

    def _key(self, file: Any) -> IcebergFileKey:
        path = self._path(file)
        if file.key_metadata is None:
            what = "a data file in clear" if file.content == DATA else "deletes without a key, which nobody can apply,"
            raise PolicyError(f"{what} in an encrypted table", file=path)
        return replace(_key(file.key_metadata, path), path=path, kek=self.kek)

    @property
    def _snapshot_id(self) -> Any:
        return self._id

    def _mapped(self) -> None:
        """Nothing: that mapping stands in the metadata file alone, and the files of an encrypted table bear numbers."""

    def _length(self, live: LiveFile) -> int | None:
        return self._told_length(live.path, live.key, None) if isinstance(live.key, IcebergFileKey) else None

    def _listed(self) -> list[Any]:
        return self.manifests

    def _rows_of(self, manifest: Any) -> tuple[dict[str, str], list[ManifestRow]]:
        place = manifest.manifest_path
        if manifest.key_metadata is None:
            raise PolicyError("a manifest in clear in an encrypted table", file=self.place(place).path)
        # The list authenticates, and so does the length that it names.
        data = self._opened(place, _key(manifest.key_metadata, place), manifest.manifest_length)
        return rows_of_manifest(manifest, _in_memory(place, data))

    def _told_length(self, path: str, key: IcebergFileKey, length: int | None) -> int | None:
        """The length of a stream, as somebody with a key has written it; None: it may be that of the storage.

        Raises:
            PolicyError: nobody has, and it may not.
        """
        told = key.length if key.length is not None else length
        if told is None and not self._opening.spec.allow_unknown_length:
            raise PolicyError(
                "its key metadata name no length, so that a cut would go unseen",
                file=path,
                hint="allow_unknown_length, where the storage is trusted not to cut files",
            )
        return told

    def _opened(self, place: str, key: IcebergFileKey, length: int | None) -> bytes:
        """A sealed file of the metadata as a whole."""
        ref = self.place(place)
        with open_source(ref) as source:
            told = self._told_length(ref.path, key, length)
            told = source.size if told is None else told
            need_readable(told, ref.path)
            stream = Ags1Stream(source, key.key, key.prefix, told)
            data = stream.read(0, stream.size)
        need_avro(data, ref.path)
        return data

    def place(self, place: str) -> FileRef:
        """Where a file lies that the metadata name: below the table's folder.

        Raises:
            PolicyError: it is not below the location that the metadata say.
        """
        return FileRef(self._at(place), self._ref.filesystem)

    @property
    def _places(self) -> LogPlaces:
        return LogPlaces(self._location, self._ref.path, self._ref.filesystem is None, strict=True)

    def _partitioned_by(
        self,
        header: Mapping[str, str],
        rows: Sequence[ManifestRow],
        schema: Any,
    ) -> dict[int, str]:
        """Place in a partition → column, for columns that stand there as they are.

        Attack: whoever writes the metadata gives a column another one's name, another type, or a partition another
        column's number, and files are ruled out by values that are not the column's. So what the manifest's own header
        says counts, and has to agree.
        """
        if any(row.file.content == DATA for row in rows):
            self._schemas.add(str(header.get("schema")))
        try:
            fields = json.loads(header["partition-spec"])
            told = {one["id"]: (one["name"], one["type"]) for one in json.loads(header["schema"])["fields"]}
            return {
                place: told[number][0]
                for place, one in enumerate(fields)
                if one["transform"] == "identity"
                and (number := one["source-id"]) in told
                and schema.find_column_name(number) is not None
                and (schema.find_column_name(number), str(schema.find_type(number))) == told[number]
            }
        except (ValueError, KeyError, TypeError):
            raise FormatError("a manifest whose header can't be understood", file=self._ref.path) from None

    def _naming(self, schema: Any) -> Naming:
        """Attack: whoever writes the metadata gives a column that was renamed another number, and files lack it; or he
        takes a default away. The manifests' own headers know of both.
        """
        naming = super()._naming(schema)
        names = {number: name for name, number in naming.ids.items()}
        for told in map(type(schema).model_validate_json, sorted(self._schemas)):
            self._need_no_defaults(told)
            for number in told.field_ids:
                name = told.find_column_name(number)
                if naming.ids.get(name, number) != number or names.get(number, name) != name:
                    return replace(naming, doubted=name)
        return naming


def _key(metadata: bytes, place: str) -> IcebergFileKey:
    try:
        return IcebergFileKey.parse(metadata)
    except BloomsealError as error:
        raise error.at(file=place) from None


def _in_memory(location: str, data: bytes) -> Any:
    """Opened bytes as a file of the library."""
    from pyiceberg.io import InputFile

    class _Opened(InputFile):
        def __len__(self) -> int:
            return len(data)

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:  # noqa: ARG002
            return io.BytesIO(data)

    return _Opened(location)
