"""What an encrypted Iceberg table holds, seen by opening it with the policy's master key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...core.decryption import IcebergSpec
from ...core.errors import BloomsealError, KeyAccessError, MissingDependencyError, UnsupportedError
from ...core.storage.ref import FileRef
from ...storage.logs.iceberg_encrypted import EncryptedIcebergLog, IcebergOpening
from ...storage.logs.iceberg_keys import IcebergFileKey, UnwrapBytes
from ...storage.places import is_file
from .iceberg import EncryptedTable, TableFlaw


@dataclass
class OpenedTable:
    """What opening a table has shown.

    Attributes:
        flaw: why its current snapshot does not open as the policy has it.
        keys: path of a file → its key: manifest lists, manifests, data and deletes.
        under: path → wrapped form of the KEK that the key hangs from.
        missing: files that an older snapshot names, and that are gone.
        problems: what could not be opened of older snapshots, in words.
        versions: how many snapshots were opened.
    """

    flaw: TableFlaw | None = None
    keys: dict[str, IcebergFileKey] = field(default_factory=dict)
    under: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    versions: int = 0


def open_by_policy(table: EncryptedTable, spec: IcebergSpec, unwrap: UnwrapBytes, *, history: bool) -> OpenedTable:
    """Open a table by the policy's master key, down to its data files' keys.

    Args:
        unwrap: the KMS of whoever looks; that of the policy may be another one.
        history: open each snapshot that any metadata file in the folder still names, and not only the current one.

    Raises:
        KeyAccessError, UnsupportedError: the KMS does not answer, or opens no such keys.
    """
    return _Opening(table, spec, unwrap).opened(history)


class _Opening:
    def __init__(self, table: EncryptedTable, spec: IcebergSpec, unwrap: UnwrapBytes) -> None:
        self._table, self._spec, self._unwrap = table, spec, unwrap
        self._found = OpenedTable()
        self._known: set[tuple[Any, ...]] = set()
        self._closed: dict[str, str] = {}

    def opened(self, history: bool) -> OpenedTable:
        error = self._open(self._spec)
        if error is not None:
            trusting = replace(self._spec, allow_unknown_length=True)
            rule = "unknown-length" if self._open(trusting) is None else "unopenable-table"
            self._found.flaw = TableFlaw(rule, error.file or self._table.folder.path, error.what)
        lists = set[str]()
        for number, (path, (master, snapshots)) in enumerate(self._table.metadata.items() if history else ()):
            # What pins the current state says nothing of those before, which may hang from another master key.
            spec = replace(self._spec, encryption_key=master or "?", min_sequence_number=None, metadata_hash=None)
            ref = FileRef(path, self._table.folder.filesystem)
            for snapshot, place in snapshots:
                if place not in lists and self._older(ref, spec, snapshot, place, current=not number):
                    lists.add(place)
        self._found.versions = len(lists)
        self._found.problems += [what for place, what in self._closed.items() if place not in lists]
        return self._found

    def _older(self, metadata: FileRef, spec: IcebergSpec, snapshot: int, place: str, *, current: bool) -> bool:
        """Whether a snapshot opens by one of the metadata files that name it."""
        error = self._open(spec, snapshot, metadata)
        if error is not None and not current and error.file and not is_file(FileRef(error.file, metadata.filesystem)):
            self._found.missing.append(error.file)  # the engine has expired the snapshot
        elif error is not None:
            what = f"snapshot {snapshot} of the encrypted table does not open: {error.what}"
            self._closed.setdefault(place, f"{metadata.path}: {what}")
        return error is None

    def _open(
        self, spec: IcebergSpec, snapshot: int | None = None, metadata: FileRef | None = None
    ) -> BloomsealError | None:
        """Take in one snapshot; the error with which it does not open."""
        try:
            opening = IcebergOpening(spec, self._unwrap)
            log = EncryptedIcebergLog(self._table.folder, opening, snapshot, metadata)
            if (kek := log.kek) is None:
                return None
            # Snapshots share most of their manifests.
            fresh = {_name(one, kek.wrapped): one for one in log.manifests}
            log.manifests = [one for name, one in fresh.items() if name not in self._known]
            keys = log.keys() | log.stream_keys()
        except (KeyAccessError, UnsupportedError, MissingDependencyError) as error:
            if not isinstance(error, KeyAccessError) or error.retryable:
                raise  # that nobody could look is no flaw of the table
            return error
        except BloomsealError as error:
            return error
        self._known |= fresh.keys()
        self._found.keys = keys | self._found.keys  # the current snapshot's word comes first
        for path in keys:
            self._found.under.setdefault(path, kek.wrapped)
        return None


def _name(manifest: Any, wrapped: bytes) -> tuple[Any, ...]:
    return manifest.manifest_path, manifest.key_metadata, manifest.manifest_length, wrapped
