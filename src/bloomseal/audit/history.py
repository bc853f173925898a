"""The rotation audit: what has changed between two inventories."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import FormatError, UsageError
from ..core.storage.source import refusal

Version = tuple[str, str | None]
"""A master key and its version."""


@dataclass
class KeyChanges:
    """The files under one master key.

    Attributes:
        master_key: its name.
        newest: its newest version; None where versions can't be ordered, as without the KMS where they are no numbers.
        known: the KMS itself said which version is the current one; else `newest` is the newest that some file is
            under.
        rotated: files that were under an older version, and are under none of these now.
        current: files that were under no older version, and are under none.
        missed: files under an older version, as before.
        unknown: files whose version can't be told, or of two the newer one.
    """

    master_key: str
    newest: str | None = None
    known: bool = False
    rotated: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Changes:
    """The changes from an older inventory to a newer one.

    Attributes:
        rotated: files none of whose keys is wrapped by a version that the older inventory had for it.
        rekeyed: files whose data keys are all fresh; seen only where both inventories were made with keys.
        partly: files with rotated keys and with others.
        missed: encrypted files that are as they were, but for those below.
        current: encrypted files that are as they were, each of whose keys was under the newest version already: the one
            that the KMS calls current, or one that other files were brought under meanwhile.
        added, removed: files in one inventory only.
        unknown: files whose key versions can't be seen in one of the two.
        needed: master key and version → number of files that still need it.
        retired: versions that the older inventory has and no file seen in the newer one needs.
        keys: the same, apart for each master key.
    """

    rotated: list[str] = field(default_factory=list)
    rekeyed: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    needed: dict[Version, int] = field(default_factory=dict)
    retired: list[Version] = field(default_factory=list)
    keys: list[KeyChanges] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {
            "needed": [
                {"master_key": key, "version": version, "files": count} for (key, version), count in self.needed.items()
            ],
            "retired": [{"master_key": key, "version": version} for key, version in self.retired],
        }


@dataclass
class _InventoryFile:
    """What an inventory has of one file."""

    versions: set[Version] = field(default_factory=set)
    data_keys: set[str] = field(default_factory=set)
    encrypted: bool = False
    doubt: str | None = None


def load_inventory(path: str | os.PathLike[str]) -> pa.Table:
    """An inventory that was written to Parquet.

    Raises:
        MissingFileError: there is no such file. UsageError: it can't be opened.
        FormatError: not an inventory.
    """
    try:
        table = pq.read_table(path)
    except OSError as error:
        raise refusal("can't open the inventory", os.fspath(path), error) from error
    except pa.ArrowException:
        table = None
    if table is None or not {"file", "footer_master_key", "master_key", "key_version"} <= set(table.column_names):
        raise FormatError("not an inventory of bloomseal audit", file=os.fspath(path))
    return table


def compare(old: pa.Table, new: pa.Table) -> Changes:
    """The files that were rotated or missed between two inventories, and the versions that are still needed."""
    before, _ = _read(old)
    after, current = _read(new)
    keys = _by_key(before, after, current)
    # As they were, and rightly so: only where a newer version could have shown.
    proven = [key for key in keys if key.known or key.rotated or key.missed]
    kept = {path for key in proven for path in key.current} - {
        path for key in keys for path in (*key.missed, *key.unknown, *([] if key in proven else key.current))
    }
    needed = Counter(version for file in after.values() for version in file.versions)
    known = {version for file in before.values() for version in file.versions}
    changes = Changes(
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        needed={version: needed[version] for version in sorted(needed, key=_by_name)},
        retired=sorted(known - needed.keys(), key=_by_name),
        keys=keys,
    )
    for path in sorted(before.keys() & after.keys()):
        was, now = before[path], after[path]
        if was.doubt is not None or now.doubt is not None:
            changes.unknown.append(path)
        elif was.encrypted or now.encrypted:
            same = was.versions & now.versions
            fresh = _fresh(was, now)
            if fresh:
                changes.rekeyed.append(path)
            if not same:
                changes.rotated.append(path)
            elif same < was.versions:
                changes.partly.append(path)
            elif not fresh:
                (changes.current if path in kept else changes.missed).append(path)
    return changes


def _by_key(
    before: Mapping[str, _InventoryFile], after: Mapping[str, _InventoryFile], current: Mapping[str, str]
) -> list[KeyChanges]:
    """The changes of the files that both inventories have, key by key, in order of the names.

    Without the KMS's word, and with one version alone in sight, nobody knows whether a rotation was due: files that are
    as they were are then *current* only as far as was seen (`KeyChanges.known` is false).
    """
    both = {path for path, file in before.items() if file.versions and path in after and after[path].versions}
    under: dict[str, dict[str, tuple[set[str | None], set[str | None]]]] = defaultdict(dict)
    seen: dict[str, set[str | None]] = defaultdict(set)
    for which, files in enumerate((before, after)):
        for path, file in files.items():
            for key, version in file.versions:
                seen[key].add(version)
                if path in both:
                    under[key].setdefault(path, (set(), set()))[which].add(version)
    found = []
    for key in sorted(seen):
        changes = KeyChanges(key, current.get(key) or _newest(seen[key]), key in current)
        for path, (was, now) in sorted(under[key].items()):
            _put(changes, path, was, now)
        found.append(changes)
    return found


def _put(changes: KeyChanges, path: str, was: set[str | None], now: set[str | None]) -> None:
    if changes.newest is None or None in was | now:
        changes.unknown.append(path)
    elif now - {changes.newest}:
        changes.missed.append(path)
    elif was - {changes.newest}:
        changes.rotated.append(path)
    else:
        changes.current.append(path)


def _newest(versions: set[str | None]) -> str | None:
    """The greatest of numbers; of other names, the only one."""
    numbers = [one for one in versions if one is not None and one.isascii() and one.isdigit()]
    if len(numbers) == len(versions):
        return max(numbers, key=int, default=None)
    return next(iter(versions)) if len(versions) == 1 else None


def _read(table: pa.Table) -> tuple[dict[str, _InventoryFile], dict[str, str]]:
    """The files of an inventory; and master key → the version that the KMS called current."""
    names = [
        "file", "footer", "footer_verified", "algorithm", "error", "column", "protection", "material", "master_key", "key_version", "data_key",
        "footer_material", "footer_master_key", "footer_key_version", "footer_data_key", "chunk_error",
    ]  # fmt: skip
    if missing := [name for name in names if name not in table.column_names]:
        raise UsageError(f"the inventory lacks {', '.join(missing)}", hint="make it again with bloomseal audit")
    # An older version's does not tell what was current.
    names += [name for name in ("current_version", "footer_current_version") if name in table.column_names]
    plain = table.select(names).cast(pa.schema([(name, pa.string()) for name in names])).unify_dictionaries()
    files: dict[str, _InventoryFile] = {}
    current: dict[str, str] = {}
    for row in plain.group_by(names).aggregate([]).to_pylist():
        file = files.setdefault(row["file"], _InventoryFile())
        if row["error"] is not None or row["chunk_error"] is not None:
            file.doubt = row["error"] or row["chunk_error"]
        if row["algorithm"] is None:
            continue
        file.encrypted = True
        _key(file, row, current, "footer_", "footer")
        if row["column"] is None and row["footer"] == "encrypted" and row["footer_verified"] != "true":
            file.doubt = file.doubt or "its columns' keys are inside the encrypted footer"
        if row["protection"] == "column key":
            _key(file, row, current, "", f"column {row['column']}")
    return files, current


def _fresh(was: _InventoryFile, now: _InventoryFile) -> bool:
    """Whether all data keys are others than before. Told by fingerprints only: a data key wrapped again looks like
    another one.
    """
    before, after = ({key for key in file.data_keys if key.startswith("key ")} for file in (was, now))
    return bool(before and after) and before.isdisjoint(after)


def _key(file: _InventoryFile, row: dict[str, Any], current: dict[str, str], prefix: str, what: str) -> None:
    if row[f"{prefix}data_key"] is not None:
        file.data_keys.add(row[f"{prefix}data_key"])
    master = row[f"{prefix}master_key"]
    if master is not None:
        file.versions.add((master, row[f"{prefix}key_version"]))
        if row.get(f"{prefix}current_version") is not None:
            current[master] = row[f"{prefix}current_version"]
    elif row[f"{prefix}material"] == "external":
        file.doubt = file.doubt or f"the key material of the {what} is missing"
    elif row[f"{prefix}material"] in ("opaque", "none"):
        file.doubt = file.doubt or f"the {what}'s key goes by an id of its writer's own"


def _by_name(version: Version) -> tuple[Any, ...]:
    key, number = version
    return key, number is None, int(number) if number is not None and number.isdigit() else 0, number or ""
