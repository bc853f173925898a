"""Making an index cover what its table has: files hashed, runs written, one manifest put in the place of another."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import BloomsealError, UnsupportedError, UsageError
from ..notebook import ShownInNotebooks
from ..storage.atomic import fault_point
from ..storage.formats import Format
from .commit import commit
from .facts.clock import Clock
from .facts.hashed import NotCoveredError, SeenFile, hashed_places, seen_file, still_same
from .facts.members import Members
from .fingerprint import SECRET_BYTES, bits_for
from .folder import IndexFolder
from .manifest import FACTS, Manifest, Run
from .runs.sorter import Sorter
from .runs.writer import most_places

if TYPE_CHECKING:
    from .folder import Decryption, Encryption

__all__ = ["Additions", "Carried", "KnownFiles", "Progress", "UpdateReport", "manifest_for", "new_manifest", "update"]

Progress = Callable[[int, int], None]


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


def new_manifest(files: Members, column: str, false_places: float, pad: bool, max_keys: int | None = None) -> Manifest:
    """The manifest of an index that covers nothing yet; the length of fingerprints comes from the rows there are.

    Raises:
        UsageError: no file has the column.
        UnsupportedError: a table of ORC files.
        BloomsealError: the first file that can be opened at all says why; where none can.
    """
    rows, path, failure = 0, None, None
    for number in range(len(files)):
        try:
            with files.open(number) as file:
                rows += file.num_rows
                if file.format is Format.ORC:
                    raise UnsupportedError(
                        "a sealed index is made of authenticated files, and nothing authenticates ORC files",
                        file=file.path, hint="filters in the files: bloomseal attach",
                    )  # fmt: skip
                if path is None and file.walk.footer.schema.has(column):
                    path = file.walk.footer.schema.leaf(column).path
        except BloomsealError as error:
            failure = failure or error
    if path is None:
        raise failure or UsageError("no such column", column=column)
    return manifest_for(path, rows, false_places, pad, max_keys)


def manifest_for(
    path: tuple[str, ...], rows: int, false_places: float, pad: bool, max_keys: int | None = None
) -> Manifest:
    """A manifest that covers nothing yet, under a new secret.

    Args:
        path: of the leaf.
        rows: of the table, which the length of fingerprints is made for.

    Raises:
        UsageError: numbers out of range.
    """
    if not 0 < false_places < 1:
        raise UsageError("false_places is the number of row groups read for nothing, in 0 to 1", hint="0.001")
    if max_keys is not None and max_keys < 1:
        raise UsageError("max_keys is the most values of one query that the index is asked for", hint="100000")
    return Manifest(path, secrets.token_bytes(SECRET_BYTES), bits_for(rows, false_places), false_places, pad, max_keys)


class Additions:
    """What an update found, on its way into a manifest."""

    def __init__(self) -> None:
        self._docs: dict[bytes, int] = {}
        self.facts: list[dict[str, Any]] = []
        self.runs: list[Run] = []

    def add(self, path: str, seen: SeenFile, run: str, base: int, stride: int | None = None) -> None:
        """The fact that the file holds what stands in the run from this place on.

        Args:
            stride: with which the run tells it; None: `seen.stride`.
        """
        doc = self._docs.setdefault(seen.doc, len(self._docs))
        self.facts.append({
            "path": path,
            **seen.state._asdict(),
            "groups": seen.groups,
            "stride": seen.stride if stride is None else stride,
            "doc": doc,
            "content": seen.content,
            "run": run,
            "base": base,
        })  # fmt: skip

    def to(self, current: Manifest) -> Manifest:
        """The manifest that is there now, with what was found."""
        runs = {run.id for run in current.runs}
        # Somebody may have compacted the run away that a refreshed fact is about: the fact is lost, and nothing else.
        facts = [fact for fact in self.facts if fact["run"] in runs or any(fact["run"] == run.id for run in self.runs)]
        table = pa.Table.from_pylist(facts, schema=FACTS)
        return current.with_facts(table, list(self._docs), self.runs)


Carried = Mapping[str, tuple[bytes, bytes]]
"""Path → `SeenFile.content` of a file, and of the one that a rekey made of it: other pages, with the same values."""


class KnownFiles:
    """The facts of an index, by the pages that they are about."""

    def __init__(self, facts: pa.Table, carried: Carried | None = None) -> None:
        self._known: dict[str, dict[str, Any]] = {fact["path"]: fact for fact in facts.to_pylist()}
        self._carried = carried or {}

    def of(self, path: str, seen: SeenFile) -> dict[str, Any] | None:
        """The fact about the very pages of this file, or about those that these were made of; None where there is
        none.
        """
        fact = self._known.get(path)
        was, now = self._carried.get(path, (seen.content, seen.content))
        content = was if now == seen.content else seen.content
        if fact is None or not any(content) or not any(seen.content):
            return None
        return fact if fact["content"] == content and fact["groups"] == seen.groups else None


def update(
    folder: IndexFolder,
    base: Manifest,
    files: Members,
    uncovered: Sequence[int],
    encryption: Encryption,
    decryption: Decryption,
    *,
    fresh: bool,
    progress: Progress | None = None,
    carried: Carried | None = None,
) -> UpdateReport:
    """Hash the files that are not covered, and put what came out under a new manifest.

    A file that can't be hashed is left out and reported; the others go on.

    Args:
        base: the manifest as it was read, or a new one.
        uncovered: numbers of `files`.
        fresh: `base` takes the place of whatever is there.
        carried: what a rekey made of files.

    Raises:
        UsageError: nothing seals the column, or a link lies in the place of the index's folder.
        BloomsealError: the storage failed; somebody rebuilt the index meanwhile.
    """
    folder.place.need_no_link()
    work = _Update(folder, base, files, encryption, decryption, carried)
    report = UpdateReport(base.column, len(files))
    try:
        for done, number in enumerate(uncovered):
            if progress is not None:
                progress(done, len(uncovered))
            try:
                work.take(number, report)
            except BloomsealError as error:
                report.left[files.relative[number]] = error.what
        work.flush()
        if progress is not None:
            progress(len(uncovered), len(uncovered))
        report.covered = len(files) - len(report.left)
        report.entries = sum(run.entries for run in work.found.runs)
        if fresh or work.found.facts:
            work.handed_over = True
            merged = commit(folder, base, encryption, decryption, work.found.to, work.found.runs, fresh=fresh)
            report.runs = len(merged.runs)
        else:
            report.runs = len(base.runs)
    except BaseException as error:
        work.abort()
        if isinstance(error, _NoRoomError):
            raise error.error from None
        raise
    return report


class _NoRoomError(Exception):
    """The index itself can't be written, whatever is the matter with the files that it is about."""

    def __init__(self, error: BloomsealError) -> None:
        super().__init__()
        self.error = error


class _Update:
    def __init__(
        self,
        folder: IndexFolder,
        base: Manifest,
        files: Members,
        encryption: Encryption,
        decryption: Decryption,
        carried: Carried | None,
    ) -> None:
        self._folder, self._base, self._files = folder, base, files
        self._encryption, self._decryption = encryption, decryption
        self._clock = Clock(folder.place)
        self._known = KnownFiles(base.facts, carried)
        self._sorter: Sorter | None = None
        self._places = 0
        self._waiting: list[tuple[str, SeenFile, int]] = []
        self.found = Additions()
        self.handed_over = False

    def take(self, number: int, report: UpdateReport) -> None:
        """One file."""
        path, state = self._files.relative[number], self._files.state(number)
        if path.encode(errors="replace").decode() != path:
            raise NotCoveredError("its name is no UTF-8", file=path)
        # Before it is opened: of what is read afterwards a later change would bear another time.
        if state is None or not self._clock.settled(state):
            raise NotCoveredError("it is gone, or its time lies ahead of the storage's clock", file=path)
        with self._files.open(number) as file:
            seen = seen_file(file, self._base.column, state)
            if (fact := self._known.of(path, seen)) is not None:
                still_same(file, seen, self._files.state(number))
                self.found.add(path, seen, fact["run"], fact["base"], fact["stride"])
                report.refreshed += 1
                return
            most = most_places(self._base.bits)
            seen = seen.within(most)
            if self._places + seen.groups * seen.stride > most:
                self.flush()
            base, self._places = self._places, self._places + seen.groups * seen.stride
            # Where it breaks off, what was sorted in already is about places that no fact names.
            for place, found in hashed_places(file, self._base.column, self._base.fingerprints, seen.stride):
                self._add(found, base + place)
            still_same(file, seen, self._files.state(number))
        self._waiting.append((path, seen, base))
        report.hashed += 1

    def _add(self, fingerprints: npt.NDArray[np.uint64], place: int) -> None:
        if self._sorter is None:
            self._sorter = Sorter(self._folder, self._base, self._encryption, self._decryption)
        try:
            self._sorter.add(fingerprints, place)
        except BloomsealError as error:
            raise _NoRoomError(error) from None

    def flush(self) -> None:
        """Write what waits as a run."""
        waiting, self._waiting = self._waiting, []
        places, self._places = self._places, 0
        if not waiting:
            self._drop()
            return
        try:
            sorter = self._sorter or Sorter(self._folder, self._base, self._encryption, self._decryption)
            run = sorter.finish(places)
        except BloomsealError as error:
            raise _NoRoomError(error) from None
        self._sorter = None
        fault_point("index run")
        self.found.runs.append(run)
        for path, seen, base in waiting:
            self.found.add(path, seen, run.id, base)

    def abort(self) -> None:
        """Remove what was written, and not handed over to `commit`."""
        self._drop()
        for run in () if self.handed_over else self.found.runs:
            for shard in run.shards:
                self._folder.remove(shard.file)

    def _drop(self) -> None:
        sorter, self._sorter = self._sorter, None
        if sorter is not None:
            sorter.abort()
