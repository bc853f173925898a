"""What became of each master key's files between two inventories: rotated, current already, or missed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

__all__ = ["KeyChanges", "by_key"]

_PREFIXES: Final = ("footer_", "")


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

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return dict(self.__dict__)


def by_key(old: pa.Table, new: pa.Table) -> list[KeyChanges]:
    """The changes of the files that both inventories have, key by key, in order of the names.

    Without the KMS's word, and with one version alone in sight, nobody knows whether a rotation was due: files that are
    as they were are then *current* only as far as was seen (`KeyChanges.known` is false).
    """
    before, _ = _versions(old)
    after, said = _versions(new)
    files = {path for held in before.values() for path in held} & {path for held in after.values() for path in held}
    found = []
    for key in sorted(before.keys() | after.keys()):
        seen = {version for held in (before[key], after[key]) for one in held.values() for version in one}
        newest = said.get(key) or _newest(seen)
        changes = KeyChanges(key, newest, key in said)
        for path in sorted((before[key].keys() | after[key].keys()) & files):
            was, now = before[key].get(path, set()), after[key].get(path, set())
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


def _versions(table: pa.Table) -> tuple[dict[str, dict[str, set[str | None]]], dict[str, str]]:
    """Master key → file → versions; and master key → the version that the KMS called current."""
    held: dict[str, dict[str, set[str | None]]] = defaultdict(lambda: defaultdict(set))
    said: dict[str, str] = {}
    for prefix in _PREFIXES:
        names = {"file": "file", "key": f"{prefix}master_key", "version": f"{prefix}key_version"}
        if (current := f"{prefix}current_version") in table.column_names:
            names["current"] = current
        plain = pa.table({to: table[name].cast(pa.string()) for to, name in names.items()})
        for row in plain.group_by(list(names)).aggregate([]).to_pylist():
            if row["key"] is None:
                continue
            held[row["key"]][row["file"]].add(row["version"])
            if row.get("current") is not None:
                said[row["key"]] = row["current"]
    return held, said
