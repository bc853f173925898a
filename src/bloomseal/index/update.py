"""Making an index cover what its table has: files hashed, runs written, one manifest put in the place of another."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import BloomsealError, MissingFileError, UsageError
from ..notebook import ShownInNotebooks
from ..read.file import SealedFile
from ..storage.atomic import fault_point
from .commit import commit
from .fingerprint import SECRET_BYTES, Fingerprints, bits_for
from .folder import Clock, IndexFolder
from .hashed import HashedFile, hash_file, leaf_in, seen_file
from .manifest import FACTS, Manifest, Run
from .runs import RunWriter, filled_up

if TYPE_CHECKING:
    from .folder import Decryption, Encryption

__all__ = ["Listed", "Progress", "UpdateReport", "new_manifest", "update"]

Progress = Callable[[int, int], None]

_ENTRIES_AT_ONCE: Final = 8_000_000
"""Held in memory until they are written as a run; a single file may have more."""
_NAMED: Final = 5


class Listed(NamedTuple):
    """A file of the table.

    Attributes:
        path: below the table's folder, as facts have it.
        open: opens it; the caller closes it.
    """

    path: str
    open: Callable[[], SealedFile]


@dataclass
class UpdateReport(ShownInNotebooks):
    """What a build or an update did.

    Attributes:
        column: of the index.
        files: of the table.
        covered: by the index, now.
        hashed: files whose values were hashed.
        refreshed: files whose pages are those that were hashed before: filters were attached, or keys wrapped anew.
        left: path → why the file is not covered. Look-ups ask its own filters.
        entries: added.
        runs: the index has now.
    """

    column: str
    files: int = 0
    covered: int = 0
    hashed: int = 0
    refreshed: int = 0
    left: dict[str, str] = field(default_factory=dict)
    entries: int = 0
    runs: int = 0

    @property
    def ok(self) -> bool:
        """Every file is covered."""
        return not self.left

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def new_manifest(files: Sequence[Listed], column: str, false_places: float, pad: bool) -> Manifest:
    """The manifest of an index that covers nothing yet; the length of fingerprints comes from the rows there are.

    Raises:
        UsageError: no file has the column.
        BloomsealError: the first file that can be opened at all says why; where none can.
    """
    if not 0 < false_places < 1:
        raise UsageError("false_places= is the number of row groups read for nothing, in 0 to 1", hint="0.001")
    rows, path, failure = 0, None, None
    for one in files:
        try:
            with one.open() as file:
                rows += file.num_rows
                if path is None and file.walk.footer.schema.has(column):
                    path = file.walk.footer.schema.leaf(column).path
        except BloomsealError as error:
            failure = failure or error
    if path is None:
        raise failure or UsageError("no such column", column=column)
    return Manifest(path, secrets.token_bytes(SECRET_BYTES), bits_for(rows, false_places), false_places, pad)


def update(
    folder: IndexFolder,
    base: Manifest,
    files: Sequence[Listed],
    uncovered: Sequence[int],
    encryption: Encryption,
    decryption: Decryption,
    *,
    fresh: bool,
    progress: Progress | None = None,
) -> UpdateReport:
    """Hash the files that are not covered, and put what came out under a new manifest.

    A file that can't be hashed is left out and reported; the others go on.

    Args:
        base: the manifest as it was read, or a new one.
        uncovered: numbers of `files`.
        fresh: `base` takes the place of whatever is there.

    Raises:
        UsageError: nothing seals the column, or a link lies in the place of the index's folder.
        BloomsealError: the storage failed; somebody rebuilt the index meanwhile.
    """
    folder.need_no_link()
    work = _Update(folder, base, encryption, decryption)
    report = UpdateReport(base.column, len(files))
    try:
        for done, number in enumerate(uncovered):
            if progress is not None:
                progress(done, len(uncovered))
            try:
                work.take(files[number], report)
            except BloomsealError as error:
                report.left[files[number].path] = error.what
        work.flush()
        if progress is not None:
            progress(len(uncovered), len(uncovered))
        report.covered = len(files) - len(report.left)
        report.entries = sum(run.entries for run in work.runs)
        if fresh or work.facts:
            merged = commit(folder, base, encryption, decryption, work.added, fresh=fresh)
            report.runs = len(merged.runs)
        else:
            report.runs = len(base.runs)
    except BaseException:
        work.abort()
        raise
    return report


class _Waiting(NamedTuple):
    path: str
    hashed: HashedFile


class _Update:
    def __init__(self, folder: IndexFolder, base: Manifest, encryption: Encryption, decryption: Decryption) -> None:
        self._folder, self._base = folder, base
        self._encryption, self._decryption = encryption, decryption
        self._fingerprints = Fingerprints(base.secret, base.bits)
        self._clock = Clock(folder.path)
        self._known = _by_path(base.facts)
        self._waiting: list[_Waiting] = []
        self._count = 0
        self._docs: dict[bytes, int] = {}
        self._refreshed: list[dict[str, Any]] = []
        self.facts: list[dict[str, Any]] = []
        self.runs: list[Run] = []

    def take(self, listed: Listed, report: UpdateReport) -> None:
        """One file."""
        try:
            file = listed.open()
        except MissingFileError:
            raise
        with file:
            leaf_in(file, self._base.column)
            seen = seen_file(file, self._base.column, self._clock)
            if self._refresh(listed.path, seen):
                report.refreshed += 1
                return
            self._waiting.append(_Waiting(listed.path, hash_file(file, seen, self._base.column, self._fingerprints)))
        report.hashed += 1
        self._count += sum(map(len, self._waiting[-1].hashed.fingerprints or ()))
        if self._count >= _ENTRIES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a run."""
        if not self._waiting:
            return
        waiting, self._waiting, self._count = self._waiting, [], 0
        places = sum(one.hashed.groups for one in waiting)
        writer = RunWriter(self._folder, self._base, places, self._encryption, self._decryption)
        bits = writer.place_bits
        parts: list[npt.NDArray[np.int64]] = []
        bases: list[int] = []
        place = 0
        for one in waiting:
            bases.append(place)
            for fingerprints in one.hashed.fingerprints or ():
                parts.append((fingerprints.astype(np.int64) << bits) | place)
                place += 1
        entries = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        del parts
        entries.sort()
        if self._base.pad:
            entries = filled_up(entries, 0, 1 << self._base.bits, bits, places)
        try:
            writer.add(entries)
            run = writer.finish()
        except BaseException:
            writer.abort()
            raise
        fault_point("index run")
        self.runs.append(run)
        for one, base in zip(waiting, bases, strict=True):
            self.facts.append(self._fact(one.path, one.hashed, run.id, base))

    def added(self, current: Manifest) -> Manifest:
        """The manifest that is there now, with what this update found."""
        runs = {run.id for run in current.runs}
        # Somebody may have compacted the run away that a refreshed fact is about: the fact is lost, and nothing else.
        facts = [fact for fact in self.facts if fact["run"] in runs or any(fact["run"] == run.id for run in self.runs)]
        table = pa.Table.from_pylist(facts, schema=FACTS)
        return current.with_facts(table, list(self._docs), self.runs)

    def abort(self) -> None:
        for run in self.runs:
            for shard in run.shards:
                self._folder.remove(shard.file)

    def _refresh(self, path: str, seen: HashedFile) -> bool:
        """Are its pages those of a fact that is known already?"""
        fact = self._known.get(path)
        if fact is None or not any(seen.content) or fact["content"] != seen.content or fact["groups"] != seen.groups:
            return False
        self.facts.append(self._fact(path, seen, fact["run"], fact["base"]))
        return True

    def _fact(self, path: str, hashed: HashedFile, run: str, base: int) -> dict[str, Any]:
        doc = self._docs.setdefault(hashed.doc, len(self._docs))
        return {
            "path": path,
            **hashed.state._asdict(),
            "groups": hashed.groups,
            "doc": doc,
            "content": hashed.content,
            "run": run,
            "base": base,
        }


def _by_path(facts: pa.Table) -> Mapping[str, dict[str, Any]]:
    return {fact["path"]: fact for fact in facts.to_pylist()}
