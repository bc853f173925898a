"""The sealed indexes of tables, and what they are about that is gone (docs/sealed-index.md)."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ...core.errors import BloomsealError
from ...index.folder import IndexFolder
from ...policy import TablePolicy
from ...storage.discovery.kinds import is_of_index
from .files.file import FileFacts
from .places import Places
from .policies import Policies


@dataclass(frozen=True, slots=True)
class IndexSeen:
    """An index.

    Attributes:
        root, column: the table's folder, and the column as the policy has it.
        policy: the table's.
        manifest: the path of its manifest; None where there is no index.
        gone: files that it has fingerprints of, and that the table has no more; None where nobody could look.
        uncovered: files of the table that it knows nothing of: written since its last update.
        since: when the oldest run about such files was written; None where there is none, or its file tells no time.
        retired: the paths of its files that no run has any more, which its next change removes.
        problem: why nobody could look.
    """

    root: str
    column: str
    policy: TablePolicy
    manifest: str | None = None
    gone: int | None = None
    uncovered: int = 0
    since: datetime | None = None
    retired: frozenset[str] = frozenset()
    problem: str | None = None


def look_at_indexes(
    files: Sequence[FileFacts], places: Places, policies: Policies, *, with_keys: bool
) -> list[IndexSeen]:
    """The indexes that policies want. Their manifests are opened where there are keys. Never raises for what is in
    one.
    """
    tables: dict[str, list[FileFacts]] = {}
    for file in files:
        root = places.roots.get(file.path)
        if root is not None:
            tables.setdefault(root, []).append(file)
    seen: list[IndexSeen] = []
    for root, mine in sorted(tables.items()):
        policy = next((found for file in mine if (found := policies.of(file.path)) is not None), None)
        for column in () if policy is None else policy.indexes():
            assert policy is not None  # noqa: S101
            seen.append(_look(root, column, mine, policy, with_keys))
    return seen


def _look(root: str, column: str, files: Sequence[FileFacts], policy: TablePolicy, with_keys: bool) -> IndexSeen:
    filesystem = files[0].ref.filesystem
    folder = IndexFolder(root, column, policy, filesystem=filesystem)
    inside = {posixpath.basename(file.path): file for file in files if posixpath.dirname(file.path) == folder.path}
    if not inside:
        return IndexSeen(root, column, policy)
    manifest = folder.path + "/manifest.parquet"
    if not with_keys:
        return IndexSeen(root, column, policy, manifest)
    try:
        found = folder.load()
    except BloomsealError as error:
        return IndexSeen(root, column, policy, manifest, problem=error.what)
    if found is None:
        return IndexSeen(root, column, policy)
    there = {posixpath.relpath(file.path, root) for file in files if not is_of_index(file.path)}
    retired = frozenset(inside[name].path for name in found.retired if name in inside)
    known = found.facts.to_pylist()
    uncovered = len(there - {fact["path"] for fact in known})
    facts = [fact for fact in known if fact["path"] not in there]
    runs = {fact["run"] for fact in facts}
    parts = [inside.get(shard.file) for run in found.runs if run.id in runs for shard in run.shards]
    times = [file.modified for file in parts if file is not None and file.modified is not None]
    return IndexSeen(root, column, policy, manifest, len(facts), uncovered, min(times, default=None), retired)
