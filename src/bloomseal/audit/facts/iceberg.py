"""What everybody sees of an encrypted Iceberg table as a table: what is wrong with it, and its KEKs."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from ...core.errors import BloomsealError
from ...core.keys.wrapping import unb64
from ...core.limits import MAX_KEY_METADATA_BYTES
from ...core.storage.ref import FileRef
from ...core.text import counted
from ...storage.formats import METADATA_ENDINGS
from ...storage.logs.ags1 import is_sealed
from ...storage.logs.iceberg import IcebergLog
from ...storage.logs.iceberg_keys import KEK_TIMESTAMP, MASTER_KEY
from ...storage.logs.iceberg_metadata import read_metadata
from ...storage.logs.snapshot import below
from ...storage.places import is_file, names_in

SEALED_ENDINGS: Final = (".avro", ".puffin", ".stats")
"""Of files that are AGS1 streams in an encrypted table; Parquet files are looked at one by one, as everywhere."""
_NAMES: Final = ("key-id", "encrypted-by-id")
_MOST_KEKS: Final = 1_000
"""Of a table. Iceberg makes one in two years."""
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


@dataclass(frozen=True, slots=True)
class TableKek:
    """A key encryption key of an encrypted Iceberg table.

    Attributes:
        metadata: a metadata file that has it, wrapped as it is; the current one, if that does.
        id, master_key: its own, and what wraps it.
        wrapped: what the KMS made of it; empty where that can't be told.
        made: None where it has no timestamp.
    """

    metadata: str
    id: str
    master_key: str
    wrapped: bytes
    made: datetime | None


@dataclass(frozen=True)
class EncryptedTable:
    """An Iceberg table whose metadata say that it is encrypted.

    Attributes:
        folder: the table's.
        flaws: seen without a key.
        nominal: nothing in it is encrypted but in name.
        keks: of all metadata files in the folder. One that was wrapped anew keeps its id, and is there twice.
        metadata: the metadata files, the current one first: the master key that each names, and the snapshots with the
            places of their manifest lists.
        streams: sealed files that are no Parquet.
        lists: how many snapshots there are whose lists of files are sealed.
        elsewhere: metadata files that may be in other folders, in words.
        unseen: what could not be looked at, in words.
    """

    folder: FileRef
    flaws: tuple[TableFlaw, ...]
    nominal: bool
    keks: tuple[TableKek, ...]
    metadata: Mapping[str, tuple[str, tuple[tuple[int, str], ...]]]
    streams: tuple[str, ...]
    lists: int
    elsewhere: tuple[str, ...]
    unseen: tuple[str, ...]

    def sealed(self, opened: int = 0) -> list[str]:
        """That nobody knows the files of some snapshots but whoever has their keys; `opened`: how many somebody has."""
        left = self.lists - opened
        return [f"{self.folder.path}: {counted(left, 'snapshot')} whose lists of files are sealed"] if left > 0 else []


def look_at_table(log: IcebergLog, others: Iterable[str]) -> EncryptedTable | None:
    """Look at a table without keys; None where none of its metadata claim encryption.

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
        self._inside = inside = posixpath.dirname(log.metadata_path)
        self._names = [posixpath.join(inside, name) for name in names_in(FileRef(inside, log.folder.filesystem))]
        self._documents: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._flaws: dict[tuple[str, str], TableFlaw] = {}
        self._keks: dict[tuple[str, str, bytes], TableKek] = {}
        self._unseen: list[str] = []
        self._clear: dict[str, bool] = {}
        metadata = {log.metadata_path, *(one for one in self._names if one.endswith(METADATA_ENDINGS))}
        for path in sorted(metadata, key=lambda one: (one == log.metadata_path, one), reverse=True):
            try:
                data = read_metadata(self._ref(path))
                document = json.loads(data)
            except (BloomsealError, ValueError, RecursionError) as error:
                # One that nobody can read hides nothing of the others.
                self._unseen.append(f"{path}: metadata that can't be read ({type(error).__name__})")
                document, data = {}, path.encode()
            self._documents[path] = document if isinstance(document, dict) else {}
            self._digests[path] = hashlib.sha256(data).hexdigest()
            for kek in _keks(path, self._documents[path]):
                self._keks.setdefault((kek.id, kek.master_key, kek.wrapped), kek)
        if len(self._keks) > _MOST_KEKS:  # the KMS is asked about each
            self._unseen.append(f"{self._folder.path}: {counted(len(self._keks), 'KEK')}; the limit is {_MOST_KEKS}")
            self._keks = dict(islice(self._keks.items(), _MOST_KEKS))

    @property
    def claimed(self) -> bool:
        return any(map(_claims, self._documents.values()))

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
        streams = [path for path in (*self._names, *others) if path.endswith(SEALED_ENDINGS)]
        nominal = newest is not None and newest.get("key-id") is None and self._lies_open(newest.get("manifest-list"))
        if nominal or not _claims(current):
            nominal = True
            what = (
                "encryption.key-id is set, and the current snapshot's manifest list, and so its files' keys, are in clear"
                if _claims(current)
                else "older metadata are of an encrypted table, and encryption.key-id is gone: files are written in clear"
            )
            self._add("encrypted-in-name-only", self._log.metadata_path, what)
        else:
            for path, document in sorted(self._documents.items()):
                self._document(path, document)
            for path in filter(self._is_clear, streams):
                self._add("clear-in-encrypted-table", path, "in clear, in a table that is encrypted")
        self._repeated()
        metadata = {path: (_master_key(one), tuple(_snapshots(one))) for path, one in self._documents.items()}
        every = [one for document in self._documents.values() for one in _dicts(document, "snapshots")]
        lists = {(one.get("snapshot-id"), one["key-id"]) for one in every if one.get("key-id") is not None}
        logged = (one.get("metadata-file") for doc in self._documents.values() for one in _dicts(doc, "metadata-log"))
        elsewhere = {path for path in map(self._at, logged) if posixpath.dirname(path) != self._inside}
        return EncryptedTable(
            self._folder,
            tuple(self._flaws.values()),
            nominal,
            tuple(self._keks.values()),
            metadata,
            tuple(path for path in streams if not self._clear.get(path)),
            len(lists),
            tuple(f"{_text(path)}: metadata of the table in another folder" for path in sorted(elsewhere)),
            tuple(self._unseen),
        )

    def _document(self, path: str, document: Mapping[str, Any]) -> None:
        keys = {one.get("key-id"): one for one in _dicts(document, "encryption-keys")}
        if any(kek.made is None for kek in _keks(path, document)):
            self._add("unopenable-table", path, "a KEK without a timestamp")
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


def _keks(path: str, document: Mapping[str, Any]) -> Iterator[TableKek]:
    """The entries that are KEKs.

    Attack: whoever writes the metadata gives an entry the master key's name, so that the KEK seems to hang from that.
    What others hang from is a KEK, and so is what has a KEK's timestamp.
    """
    entries = [*_dicts(document, "encryption-keys")]
    names, above = ({one.get(name) for one in entries} for name in _NAMES)
    for one in entries:
        try:
            made = _EPOCH + timedelta(milliseconds=int(one["properties"][KEK_TIMESTAMP]))
        except (KeyError, TypeError, ValueError, OverflowError):
            made = None
        master, wrapped = one.get("encrypted-by-id"), unb64(one.get("encrypted-key-metadata"))
        if made is not None or master not in names or one.get("key-id") in above:
            wrapped = wrapped if len(wrapped) <= MAX_KEY_METADATA_BYTES else b""
            yield TableKek(path, str(one.get("key-id")), str(master), wrapped, made)


def _master_key(document: Mapping[str, Any]) -> str:
    """What the metadata name as the table's master key; empty: none."""
    properties = document.get("properties")
    return str(properties.get(MASTER_KEY) or "") if isinstance(properties, dict) else ""


def _claims(document: Mapping[str, Any]) -> bool:
    """Whether metadata are of an encrypted table."""
    return bool(document.get("encryption-keys")) or _master_key(document) != ""


def _snapshots(document: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for one in _dicts(document, "snapshots"):
        if isinstance(number := one.get("snapshot-id"), int):
            yield number, str(one.get("manifest-list"))


def _text(name: str) -> str:
    """As reports can hold it: JSON and file systems have names that are no text."""
    return name.encode(errors="backslashreplace").decode()
