"""What is wrong with an encrypted Iceberg table as a table: seen without keys, and, with the policy's master key, by
opening it.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ...core.decryption import IcebergSpec
from ...core.errors import BloomsealError, KeyAccessError, MissingDependencyError, UnsupportedError
from ...core.storage.ref import FileRef
from ...policy import TablePolicy
from ...storage.formats import METADATA_ENDINGS
from ...storage.logs.ags1 import is_sealed
from ...storage.logs.iceberg import IcebergLog
from ...storage.logs.iceberg_encrypted import EncryptedIcebergLog, IcebergOpening
from ...storage.logs.iceberg_keys import KEK_TIMESTAMP, MASTER_KEY, IcebergFileKey, UnwrapBytes
from ...storage.logs.iceberg_metadata import below, read_metadata
from ...storage.places import is_file, names_in

__all__ = ["EncryptedTable", "TableFlaw", "look_at_table", "open_by_policy"]

_SEALED_ENDINGS: Final = (".avro", ".puffin", ".stats")
"""Of files that are AGS1 streams in an encrypted table; Parquet files are looked at one by one, as everywhere."""
_NAMES: Final = ("key-id", "encrypted-by-id")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TableFlaw:
    """What is wrong, and where.

    Attributes:
        rule: the rule's name.
        file: of the table.
    """

    rule: str
    file: str
    what: str


@dataclass(frozen=True)
class EncryptedTable:
    """An Iceberg table whose metadata say that it is encrypted.

    Attributes:
        folder: the table's.
        flaws: seen without a key.
        nominal: nothing in it is encrypted but in name.
        made: when each KEK was made, by its id.
        masters: the id of each key and of the one that wraps it, as any metadata file in the folder has it. A KEK may
            be wrapped anew, and keep its id.
        unseen: what could not be looked at, in words.
    """

    folder: FileRef
    flaws: tuple[TableFlaw, ...]
    nominal: bool
    made: Mapping[str, datetime]
    masters: Set[tuple[str, str]]
    unseen: tuple[str, ...]


def look_at_table(log: IcebergLog, others: Iterable[str]) -> EncryptedTable | None:
    """Look at a table without keys; None where its metadata claim no encryption.

    Args:
        others: paths of files below the folder that are no Parquet or ORC files, and no metadata.

    Raises:
        FormatError, UsageError: its metadata can't be read.
    """
    look = _TableLook(log)
    return look.table(others) if look.claimed else None


class _TableLook:
    def __init__(self, log: IcebergLog) -> None:
        self._log = log
        self._folder = log.folder
        inside = posixpath.dirname(log.metadata_path)
        self._names = [posixpath.join(inside, name) for name in names_in(FileRef(inside, log.folder.filesystem))]
        self._documents: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._flaws: dict[tuple[str, str], TableFlaw] = {}
        self._made: dict[str, datetime] = {}
        self._unseen: list[str] = []
        self._clear: dict[str, bool] = {}
        for path in sorted({log.metadata_path, *(one for one in self._names if one.endswith(METADATA_ENDINGS))}):
            try:
                data = read_metadata(self._ref(path))
                document = json.loads(data)
            except (BloomsealError, ValueError, RecursionError) as error:
                # One that nobody can read hides nothing of the others.
                self._unseen.append(f"{path}: metadata that can't be read ({type(error).__name__})")
                document, data = {}, path.encode()
            self._documents[path] = document if isinstance(document, dict) else {}
            self._digests[path] = hashlib.sha256(data).hexdigest()
        self._masters = {
            (str(one.get("key-id")), str(one.get("encrypted-by-id")))
            for document in self._documents.values()
            for one in _dicts(document, "encryption-keys")
        }

    @property
    def claimed(self) -> bool:
        current = self._documents[self._log.metadata_path]
        return MASTER_KEY in (current.get("properties") or {}) or bool(current.get("encryption-keys"))

    def table(self, others: Iterable[str]) -> EncryptedTable:
        current = self._documents[self._log.metadata_path]
        newest = next(
            (
                one
                for one in _dicts(current, "snapshots")
                if one.get("snapshot-id") == current.get("current-snapshot-id")
            ),
            None,
        )
        nominal = newest is not None and newest.get("key-id") is None and self._lies_open(newest.get("manifest-list"))
        if nominal:
            self._add(
                "encrypted-in-name-only",
                self._log.metadata_path,
                "encryption.key-id is set, and the current snapshot's manifest list, and so its files' keys, are in clear",
            )
        else:
            for path, document in sorted(self._documents.items()):
                self._document(path, document)
            for path in (*self._names, *others):
                if path.endswith(_SEALED_ENDINGS) and self._is_clear(path):
                    self._add("clear-in-encrypted-table", path, "in clear, in a table that is encrypted")
        self._repeated()
        flaws, unseen = tuple(self._flaws.values()), tuple(self._unseen)
        return EncryptedTable(self._folder, flaws, nominal, self._made, self._masters, unseen)

    def _document(self, path: str, document: Mapping[str, Any]) -> None:
        keys = {one.get("key-id"): one for one in _dicts(document, "encryption-keys")}
        for name, one in keys.items():
            if one.get("encrypted-by-id") not in keys:
                self._kek(path, str(name), one)
        for one in _dicts(document, "snapshots"):
            name, listed = one.get("snapshot-id"), one.get("manifest-list")
            if clear := self._lies_open(listed):
                self._add("clear-in-encrypted-table", self._at(listed), "a manifest list in clear")
            if (key_id := one.get("key-id")) is None:
                if not clear:
                    what = f"snapshot {name} has no key-id, and its manifest list is sealed"
                    self._add("unopenable-table", path, what)
            elif (entry := keys.get(key_id)) is None or entry.get("encrypted-by-id") not in keys:
                self._add("unopenable-table", path, f"the key of snapshot {name} is not among the table's")
        for statistics in _dicts(document, "statistics"):
            if statistics.get("key-metadata") is not None:
                self._add("data-key-in-clear", path, "the raw data key of statistics, in statistics[].key-metadata")
        for statistics in (*_dicts(document, "statistics"), *_dicts(document, "partition-statistics")):
            if self._lies_open(place := statistics.get("statistics-path")):
                self._add("clear-in-encrypted-table", self._at(place), "statistics in clear")

    def _kek(self, path: str, name: str, kek: Mapping[str, Any]) -> None:
        try:
            self._made[name] = _EPOCH + timedelta(milliseconds=int(kek["properties"][KEK_TIMESTAMP]))
        except (KeyError, TypeError, ValueError, OverflowError):
            self._add("unopenable-table", path, "a KEK without a timestamp")

    def _repeated(self) -> None:
        first: dict[str, str] = {}
        for path, digest in sorted(self._digests.items()):
            if (earlier := first.setdefault(digest, path)) != path:
                what = (
                    f"the same metadata as {posixpath.basename(earlier)}, under another number: an older state put back"
                )
                self._add("repeated-metadata", path, what)

    def _add(self, rule: str, file: str, what: str) -> None:
        self._flaws.setdefault((rule, file), TableFlaw(rule, _text(file), _text(what)))

    def _lies_open(self, place: object) -> bool:
        return isinstance(place, str) and self._is_clear(self._at(place))

    def _is_clear(self, path: str) -> bool:
        """Whether a file of the table is there, and no stream. Each is looked at once: all metadata name the older
        ones.
        """
        if path not in self._clear:
            ref = self._ref(path)
            try:
                self._clear[path] = is_file(ref) and not is_sealed(ref)
            except (BloomsealError, OSError, ValueError) as error:
                self._unseen.append(f"{path}: it can't be looked at ({type(error).__name__})")
                self._clear[path] = False
        return self._clear[path]

    def _at(self, place: object) -> str:
        inside = below(str(place), str(self._documents[self._log.metadata_path].get("location")))
        return str(place) if inside is None else posixpath.join(self._folder.path, inside)

    def _ref(self, path: str) -> FileRef:
        return FileRef(path, self._folder.filesystem)


def _dicts(document: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """The entries of a list in the metadata that are objects, their names texts: whoever wrote them may have written
    anything.
    """
    found = document.get(name)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict):
            yield one | {name: _text(str(one[name])) for name in _NAMES if one.get(name) is not None}


def _text(name: str) -> str:
    """As reports can hold it: JSON and file systems have names that are no text."""
    return name.encode(errors="backslashreplace").decode()


def open_by_policy(
    table: EncryptedTable, policy: TablePolicy, unwrap: UnwrapBytes
) -> tuple[TableFlaw | None, dict[str, IcebergFileKey]]:
    """Open a table by the policy's master key, down to its data files' keys, by the files' paths.

    Args:
        unwrap: the KMS of whoever looks; that of the policy may be another one.

    Raises:
        KeyAccessError, UnsupportedError: the KMS does not answer, or opens no such keys.
    """
    if policy.iceberg is None:
        return None, {}
    opened = _opened(table.folder, policy.iceberg, unwrap)
    if isinstance(opened, dict):
        return None, opened
    trusting = _opened(table.folder, replace(policy.iceberg, allow_unknown_length=True), unwrap)
    rule, found = ("unknown-length", trusting) if isinstance(trusting, dict) else ("unopenable-table", {})
    return TableFlaw(rule, opened.file or table.folder.path, opened.what), found


def _opened(folder: FileRef, spec: IcebergSpec, unwrap: UnwrapBytes) -> dict[str, IcebergFileKey] | BloomsealError:
    try:
        return EncryptedIcebergLog(folder, IcebergOpening(spec, unwrap)).keys()
    except (KeyAccessError, UnsupportedError, MissingDependencyError) as error:
        if not isinstance(error, KeyAccessError) or error.retryable:
            raise  # that nobody could look is no flaw of the table
        return error
    except BloomsealError as error:
        return error
