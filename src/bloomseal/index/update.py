"""Making an index cover what its table has: files hashed, runs written, one manifest put in the place of another."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from ..core.errors import BloomsealError, UsageError
from ..core.spelling import nearest
from ..notebook import ShownInNotebooks
from ..policy import IndexPolicy
from ..storage.atomic import fault_point
from .commit import commit
from .facts.hashed import NotCoveredError, SeenFile, hashed_places, seen_file, still_same
from .facts.members import Members
from .facts.sameness import Clock
from .fingerprint import SECRET_BYTES, bits_for
from .folder import IndexFolder
from .manifest import FACTS, FileState, IndexRun, Manifest
from .runs.sorter import Sorter
from .runs.writer import most_places

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


def index_policy(
    false_places: float | None, pad: bool | None, max_keys: int | None, old: Manifest | IndexPolicy | None
) -> IndexPolicy:
    """What an index is to be made with: where one of these is None, as an older index or a policy has it."""
    if old is None:
        old = IndexPolicy()
    return IndexPolicy(
        old.false_places if false_places is None else false_places,
        old.pad if pad is None else pad,
        old.max_keys if max_keys is None else max_keys,
    )


class ColumnSurvey(NamedTuple):
    """What the footers of some files say of a column that is to be indexed.

    Attributes:
        rows: of all that could be opened.
        path: of the leaf; None: none of them has it.
        failure: why the first of the others could not be opened.
        columns: of a file that has not this one.
    """

    rows: int = 0
    path: tuple[str, ...] | None = None
    failure: BloomsealError | None = None
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Members, column: str) -> ColumnSurvey:
        """Of these files."""
        found = cls()
        for number in range(len(files)):
            try:
                with files.open(number) as file:
                    schema = file.walk.footer.schema
                    if schema.has(column):
                        found += cls(file.num_rows, schema.leaf(column).path)
                    else:
                        found += cls(file.num_rows, columns=tuple(leaf.name for leaf in schema.leaves))
            except BloomsealError as error:
                found += cls(failure=error)
        return found

    def __add__(self, other: ColumnSurvey) -> ColumnSurvey:  # type: ignore[override]
        rows, failure = self.rows + other.rows, self.failure or other.failure
        return ColumnSurvey(rows, self.path or other.path, failure, self.columns or other.columns)


def new_manifest(survey: ColumnSurvey, column: str, policy: IndexPolicy) -> Manifest:
    """The manifest of an index that covers nothing yet, under a new secret. The length of fingerprints is made for the
    rows that there are.

    Args:
        column: the leaf's name, as the caller has it.

    Raises:
        UsageError: numbers out of range; no such leaf.
        UnsupportedError: a table of ORC files.
        BloomsealError: the first file that can't be opened says why; where no other has the column.
    """
    rows, path, failure, columns = survey
    if path is None:
        near = ", ".join(nearest(column, columns))
        raise failure or UsageError("no such column", column=column, hint=f"one of {near}" if near else None)
    if ".".join(path) != column:
        raise UsageError("an index is of a leaf column", column=column, hint=".".join(path))
    places, most = policy.false_places, policy.max_keys
    if not 0 < places < 1:
        raise UsageError("false_places is the number of row groups read for nothing, in 0 to 1", hint="0.001")
    if most is not None and most < 1:
        raise UsageError("max_keys is the most values of one query that the index is asked for", hint="100000")
    return Manifest(path, secrets.token_bytes(SECRET_BYTES), bits_for(rows, places), places, policy.pad, most)


Carried = Mapping[str, tuple[bytes, bytes]]
"""Path → `SeenFile.content` of a file, and of the one that a rekey made of it: other pages, with the same values."""


class FoundFacts(NamedTuple):
    """What another process found of some files, and the runs that it wrote, without their keys.

    Attributes:
        facts, docs: as a manifest has them.
        left: path → why the file is not covered.
        hashed: how many facts are about files whose values were hashed; the others were refreshed.
    """

    facts: list[dict[str, Any]]
    docs: list[bytes]
    runs: list[IndexRun]
    left: dict[str, str]
    hashed: int


class IndexUpdate:
    """What was found of an index's files, in this process or in others, on its way into the manifest.

    Args:
        base: the manifest as it was read, or a new one.
        fresh: `base` takes the place of whatever is there.
        carried: what a rekey made of files.
    """

    def __init__(
        self, folder: IndexFolder, base: Manifest, files: Members, *, fresh: bool, carried: Carried | None = None
    ) -> None:
        self.folder, self.base, self.files = folder, base, files
        self.report = UpdateReport(base.column, len(files))
        self.runs: list[IndexRun] = []
        self._fresh = fresh
        self._carried = carried or {}
        self._old: dict[str, dict[str, Any]] = {fact["path"]: fact for fact in base.facts.to_pylist()}
        self._facts: list[dict[str, Any]] = []
        self._docs: dict[bytes, int] = {}

    def known(self, number: int, seen: SeenFile) -> dict[str, Any] | None:
        """The fact about the very pages of this file, or about those that these were made of; None where there is
        none.
        """
        path = self.files.relative[number]
        fact = self._old.get(path)
        was, now = self._carried.get(path, (seen.content, seen.content))
        content = was if now == seen.content else seen.content
        if fact is None or not any(content) or not any(seen.content):
            return None
        return fact if fact["content"] == content and fact["groups"] == seen.groups else None

    def refresh(self, number: int, seen: SeenFile, fact: Mapping[str, Any]) -> None:
        """A known fact becomes one about this file."""
        seen = replace(seen, stride=fact["stride"])
        self._add(self.files.relative[number], seen, fact["run"], fact["base"])
        self.report.refreshed += 1

    def add(self, number: int, seen: SeenFile, run: IndexRun, base: int) -> None:
        """The fact that the file holds what stands in the run from this place on."""
        self._add(self.files.relative[number], seen, run.id, base)
        self.report.hashed += 1

    def leave(self, number: int, why: str) -> None:
        """A file that can't be covered."""
        self.report.left[self.files.relative[number]] = why

    def _add(self, path: str, seen: SeenFile, run: str, base: int) -> None:
        doc = self._docs.setdefault(seen.doc, len(self._docs))
        of_file = {"path": path, **seen.state._asdict(), "content": seen.content, "doc": doc}
        self._facts.append({**of_file, "groups": seen.groups, "stride": seen.stride, "run": run, "base": base})

    def found(self) -> FoundFacts:
        """What was found, for `take` in another process."""
        bare = [replace(run, shards=tuple(shard._replace(keys={}) for shard in run.shards)) for run in self.runs]
        return FoundFacts(self._facts, list(self._docs), bare, self.report.left, self.report.hashed)

    def take(self, found: FoundFacts) -> None:
        """What `found` gave in another process.

        Raises:
            BloomsealError: one of its runs can't be opened.
        """
        self.runs += [replace(run, shards=tuple(map(self.folder.with_keys, run.shards))) for run in found.runs]
        for fact in found.facts:
            doc = found.docs[fact["doc"]]
            self._facts.append({**fact, "doc": self._docs.setdefault(doc, len(self._docs))})
        self.report.left |= found.left
        self.report.hashed += found.hashed
        self.report.refreshed += len(found.facts) - found.hashed

    def commit(self) -> UpdateReport:
        """Put what was found under a new manifest.

        Raises:
            BloomsealError: somebody rebuilt the index meanwhile; the storage failed.
        """
        made = self.base
        if self._fresh or self._facts:
            made = commit(self.folder, self.base, self.to, self.runs, fresh=self._fresh)
        self.report.covered = len(self.files) - len(self.report.left)
        self.report.entries = sum(run.entries for run in self.runs)
        self.report.runs = len(made.runs)
        return self.report

    def to(self, current: Manifest) -> Manifest:
        """The manifest that is there now, with what was found."""
        runs = {run.id for run in (*current.runs, *self.runs)}
        # Somebody may have compacted the run away that a refreshed fact is about: the fact is lost, and nothing else.
        facts = [fact for fact in self._facts if fact["run"] in runs]
        return current.with_facts(pa.Table.from_pylist(facts, schema=FACTS), list(self._docs), self.runs)


def _settled_state(files: Members, number: int, clock: Clock) -> FileState:
    """The state of a file that is to be opened: of what is read afterwards a later change would bear another one.

    Raises:
        NotCoveredError: it is gone, or its time proves nothing.
    """
    state = files.state(number)
    if state is None or not clock.settled(state):
        path = files.relative[number]
        raise NotCoveredError("it is gone, or its time lies ahead of the storage's clock", file=path)
    return state


def update(
    folder: IndexFolder,
    base: Manifest,
    files: Members,
    uncovered: Sequence[int],
    *,
    fresh: bool,
    progress: Progress | None = None,
    carried: Carried | None = None,
) -> UpdateReport:
    """Hash the files that are not covered, and put what came out under a new manifest.

    A file that can't be hashed is left out and reported; the others go on.

    Args:
        uncovered: numbers of `files`.
        base, fresh, carried: as for `IndexUpdate`.

    Raises:
        UsageError: nothing seals the column, or a link lies in the place of the index's folder.
        BloomsealError: the storage failed; somebody rebuilt the index meanwhile.
    """
    folder.need_no_link()
    found = IndexUpdate(folder, base, files, fresh=fresh, carried=carried)
    hash_files(found, uncovered, progress)
    return found.commit()


def hash_files(found: IndexUpdate, numbers: Sequence[int], progress: Progress | None = None) -> None:
    """Hash these of the files of an update, and write runs of what came out.

    Raises:
        As `update`, with nothing of it left behind.
    """
    work = _Hashing(found)
    try:
        for done, number in enumerate(numbers):
            if progress is not None:
                progress(done, len(numbers))
            try:
                work.take(number)
            except BloomsealError as error:
                found.leave(number, error.what)
        work.flush()
        if progress is not None:
            progress(len(numbers), len(numbers))
    except BaseException as error:
        work.abort()
        if isinstance(error, _NoRoomError):
            raise error.error from None
        raise


class _NoRoomError(Exception):
    """The index itself can't be written, whatever is the matter with the files that it is about."""

    def __init__(self, error: BloomsealError) -> None:
        super().__init__()
        self.error = error


class _Hashing:
    """Files hashed in this process, one after the other, into as few runs as they fit in."""

    def __init__(self, found: IndexUpdate) -> None:
        self._found = found
        self._clock = Clock(found.folder.now)
        self._sorter = Sorter(found.folder, found.base)
        self._places = 0
        self._waiting: list[tuple[int, SeenFile, int]] = []

    def take(self, number: int) -> None:
        """One file."""
        files, base = self._found.files, self._found.base
        path = files.relative[number]
        if path.encode(errors="replace").decode() != path:
            raise NotCoveredError("its name is no UTF-8", file=path)
        state = _settled_state(files, number, self._clock)
        with files.open(number) as file:
            seen = seen_file(file, base.column, state)
            if (fact := self._found.known(number, seen)) is not None:
                still_same(file, seen, files.state(number))
                self._found.refresh(number, seen, fact)
                return
            most = most_places(base.bits)
            seen = seen.within(most)
            if self._places + seen.groups * seen.stride > most:
                self.flush()
            begin, self._places = self._places, self._places + seen.groups * seen.stride
            # Where it breaks off, what was sorted in already is about places that no fact names.
            for place, hashed in hashed_places(file, base.column, base.fingerprints, seen.stride):
                with _room():
                    self._sorter.add(hashed, begin + place)
            still_same(file, seen, files.state(number))
        self._waiting.append((number, seen, begin))

    def flush(self) -> None:
        """Write what waits as a run."""
        waiting, self._waiting = self._waiting, []
        places, self._places = self._places, 0
        if not waiting:
            self._sorter.abort()
            return
        with _room():
            run = self._sorter.finish(places)
        fault_point("index run")
        self._found.runs.append(run)
        for number, seen, begin in waiting:
            self._found.add(number, seen, run, begin)

    def abort(self) -> None:
        """Remove what was written."""
        self._sorter.abort()
        self._found.folder.remove_runs(self._found.runs)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except BloomsealError as error:
        raise _NoRoomError(error) from None
