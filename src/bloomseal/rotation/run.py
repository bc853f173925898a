"""Many files: planned, worked through with a journal, reported. One bad file does not stop the rest."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ..core.errors import BloomsealError, KeyAccessError, UsageError
from ..keytools.kms.calls import patient
from ..keytools.material.store import tidy
from ..storage.baton import Baton
from ..storage.discovery.kinds import Kind
from ..storage.replacement import sync_folder
from .files import ChangedError, DataFile, find_files, in_turn, mark_of
from .job import Job
from .journal import Journal, NoJournal, default_journal, job_digest
from .outcome import FileOutcome, FilePlan, RotationPlan, RotationReport, Status

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["OUTSIDE", "Run", "plan", "rotate"]

Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]
Progress = Callable[[int, int], None]

_UNREACHABLE_IN_A_ROW: Final = 3
_SAMPLE_BYTES: Final = 4 << 20
_DISK_BYTES_PER_SECOND: Final = 200e6
_KMS_SECONDS: Final = 0.02
OUTSIDE: Final = {
    Kind.DEAD: "no live version of the table names it; its keys stay as they are",
    Kind.HIDDEN: "its name, or its folder's, is hidden: no reader takes it; its keys stay as they are",
    Kind.LEFTOVER: "a killed writer has left it: it goes with the next write of its file, or a rotation on one machine",
}


def plan(
    paths: Paths,
    job: Job,
    *,
    filesystem: FileSystem | None = None,
    follow_links: bool = False,
    journal: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> RotationPlan:
    """What `rotate` would do. Reads footers, which may take the footers' keys; writes nothing.

    Args:
        paths: files, folders, or URIs of either.
        follow_links: follow links that lead out of `paths` too. They are not done otherwise, and told.
        progress: called with (bytes of files looked at, bytes of all files).

    Raises:
        UsageError: nothing at one of the paths; or two files would go to the same place.
    """
    files = _files(paths, job, filesystem, follow_links)
    job.begin()
    told = RotationPlan(job.operation, str(journal or _default(paths, job)))
    calls: dict[Hashable, int] = {}
    done, total = 0, sum(file.size for file in files)
    for file in files:
        try:
            file.check()
            one = FilePlan(file.name, "none", OUTSIDE[file.outside], file.size) if file.outside else job.plan(file)
        except BloomsealError as error:
            one = FilePlan(file.name, "fail", error.what, file.size)
        told.files.append(one)
        told.bytes_to_write += one.bytes_to_write
        told.bytes_to_copy += one.bytes_to_copy
        for call, times in one.calls.items():
            calls[call] = max(times, calls.get(call, 0))
        done += file.size
        if progress is not None:
            progress(done, total)
    told.kms_calls = sum(calls.values())
    told.seconds = _estimate(told, job)
    return told


def rotate(
    paths: Paths,
    job: Job,
    *,
    filesystem: FileSystem | None = None,
    follow_links: bool = False,
    journal: str | os.PathLike[str] | None = None,
    restart: bool = False,
    jobs: int = 2,
    patience: float = 300.0,
    progress: Progress | None = None,
) -> RotationReport:
    """Do `job` with every file, each verified before it replaces the old one.

    The same call again resumes an interrupted run, and does nothing after a finished one. A file that can't be done
    stays as it was and is in the report; the rest goes on.

    Args:
        paths: files, folders, or URIs of either.
        follow_links: follow links that lead out of `paths` too. They are not done otherwise, and told.
        journal: where the run keeps its journal; default: `journal.default_journal`.
        restart: begin a new run, whatever an earlier one has done.
        jobs: files at the same time. Each takes the memory of a row group, but for `Rewrap`.
        patience: seconds to wait for a KMS that throttles, counted from its last other answer, before files fail.
        progress: called with (bytes done, bytes of all files), from one thread at a time.

    Raises:
        UsageError: nothing at one of the paths; fewer than one job; two files would go to the same place; or the
            journal is another job's, or in use.
        BloomsealError: the journal can't be written.
    """
    if jobs < 1:
        raise UsageError("at least one file is done at a time")
    files = _files(paths, job, filesystem, follow_links)
    began = time.monotonic()
    place = journal or _default(paths, job)
    with Journal(place, job.operation, _digest(paths, job), restart=restart) as log, contextlib.ExitStack() as waits:
        for tools in job.tools():
            waits.enter_context(patient(tools.all_calls, patience))
        _remove_leftovers(job, files)
        job.begin()
        run = Run(job, log, sum(file.size for file in files), progress)
        run.take_all(files, jobs)
        job.after()
        report = run.report
        if report.ok and (log.finished is None or run.touched):
            log.end()
    report.seconds = round(time.monotonic() - began, 3)
    report.kms = _asked(job)
    return report


class Run:
    """A job on its way through the files.

    Args:
        job: what is to be done with each.
        log: where it is booked.
        total: bytes of all files, for `progress`.

    Attributes:
        report: what became of the files so far.
        touched: a file was begun.
    """

    def __init__(self, job: Job, log: Journal | NoJournal, total: int = 0, progress: Progress | None = None) -> None:
        self.job = job
        self.log = log
        self.touched = False
        self.report = RotationReport(job.operation, str(log.path), log.resumed)
        self._total = total
        self._progress = progress
        self._lock = threading.Lock()
        self._done = 0
        self._under_way: dict[str, int] = {}
        self._unreachable = 0
        # Jobs that book many files ahead do little with each.
        self._small, self._baton = job.ahead > 1, Baton()
        self._booked: set[str] = set()
        self._placed: list[tuple[FileOutcome, tuple[int, ...] | None]] = []

    def take_all(self, files: Sequence[DataFile], jobs: int) -> None:
        """All of them, so many at a time, reported in their order. Whatever ends that early, what is under way is
        finished.
        """
        try:
            if jobs == 1:
                for file in self._ahead(files):
                    self.report.files.append(self._one(file))
            else:
                self._side_by_side(files, jobs)
        finally:
            self._settle()

    def _side_by_side(self, files: Sequence[DataFile], jobs: int) -> None:
        waiting: deque[Future[FileOutcome]] = deque()
        with ThreadPoolExecutor(jobs, thread_name_prefix="bloomseal rotation") as pool:
            try:
                for file in self._ahead(files):
                    waiting.append(pool.submit(self._one, file))
                    if len(waiting) > 4 * jobs:
                        self.report.files.append(waiting.popleft().result())
                while waiting:
                    self.report.files.append(waiting.popleft().result())
            except BaseException:
                # What is under way is finished; waiting for a KMS that throttles is no part of that.
                for calls in (calls for tools in self.job.tools() for calls in tools.all_calls):
                    calls.give_up()
                raise
            finally:
                for later in waiting:
                    later.cancel()

    def take(self, file: DataFile) -> FileOutcome:
        """One file, whatever becomes of it. Raises only where the log can't be written."""
        outcome = self._one(file)
        self._settle()
        self.report.files.append(outcome)
        return outcome

    def _ahead(self, files: Sequence[DataFile]) -> Iterator[DataFile]:
        """The files, so many of them (`Job.ahead`) booked as begun before the first of those is given out."""
        many = self.job.ahead
        for start in range(0, len(files), many):
            group = files[start : start + many]
            if many > 1:
                self._book(group)
            yield from group

    def _book(self, files: Sequence[DataFile]) -> None:
        due = False
        for file in files:
            # Whatever stands in the way is told when it is the file's turn.
            with contextlib.suppress(BloomsealError):
                if self._before(file) is None and self._unreachable < _UNREACHABLE_IN_A_ROW:
                    mark = mark_of(file.ref)
                    self.log.begin(file.name, mark, sync=False)
                    self._booked.add(file.name)
                    due = True
        if due:
            self.log.flush()

    def _one(self, file: DataFile) -> FileOutcome:
        try:
            outcome = self._before(file)
        except BloomsealError as error:
            outcome = self._failed(file, error, None)
        if outcome is None:
            with self._baton.held() if self._small and file.ref.filesystem is None else contextlib.nullcontext():
                outcome = self._rotate(file)
        with self._lock:
            self._done += file.size
        self._tell(file, 0, 0)
        return outcome

    def _before(self, file: DataFile) -> FileOutcome | None:
        """What an earlier run, or the table's log, makes of the file; None: it is to be rotated. Raises UsageError
        for what could not be seen.
        """
        if file.outside is not None:
            why = OUTSIDE[file.outside]
            return FileOutcome(file.name, Status.DEAD, why, old_size=file.size, new_size=file.size)
        file.check()
        same = FileOutcome(file.name, Status.DONE_BEFORE, old_size=file.size, new_size=file.size)
        if file.name in self.log.done:
            mark, stamp = self.log.done[file.name]
            present = mark_of(self.job.target(file))
            if mark is not None and present is not None and list(present) == mark and self.job.still_good(stamp):
                return same
        if self.log.finished is None or self.job.open_ended:
            return None
        same.status = Status.SINCE
        same.why = f"new or changed since the run ended at {self.log.finished}; restart begins a new run"
        return same

    def _rotate(self, file: DataFile) -> FileOutcome:
        ref, name = file.ref, file.name
        if self._unreachable >= _UNREACHABLE_IN_A_ROW:
            return FileOutcome(name, Status.FAILED, "not tried: the KMS could not be reached for the files before it")
        before = None
        try:
            with in_turn(ref) as before:
                self.touched = True
                begun = name in self.log.begun
                if not begun:
                    # Once it is booked as begun, whatever stands in its place is taken for what an interrupted run has
                    # left.
                    self.job.check_free(file)
                if name not in self._booked:
                    self.log.begin(name, before)
                outcome = self.job.run(file, lambda done, total: self._tell(file, done, total), begun=begun)
                mark = mark_of(self.job.target(file)) if outcome.status.settled else None
                if outcome.unsynced is None:
                    self._tell_log(outcome, mark)
            with self._lock:
                self._unreachable = 0
                if outcome.unsynced is not None:
                    self._placed.append((outcome, mark))
                full = len(self._placed) >= self.job.ahead
            if full:
                self._settle()
            return outcome
        except OSError as error:
            failure = BloomsealError(f"the storage failed: {error.strerror or type(error).__name__}", file=ref.path)
        except BloomsealError as error:
            failure = error.at(file=ref.path)
        return self._failed(file, failure, before)

    def _settle(self) -> None:
        """Have the names of new key material on the disk, and book its files: one sync for many. Until then a file
        counts as begun, and a run that goes on looks at it again.
        """
        with self._lock:
            placed, self._placed = self._placed, []
        failed: dict[str, str] = {}
        for folder in sorted({outcome.unsynced or "" for outcome, _ in placed}):
            try:
                sync_folder(folder)
            except OSError as error:
                failed[folder] = f"the storage failed: {error.strerror or type(error).__name__}"
        for outcome, mark in placed:
            if (why := failed.get(outcome.unsynced or "")) is not None:
                outcome.status, outcome.why = Status.FAILED, why
            self._tell_log(outcome, mark)

    def _tell_log(self, outcome: FileOutcome, mark: tuple[int, ...] | None) -> None:
        if outcome.status.settled:
            self.log.settle(outcome.path, outcome.status, mark, outcome.stamp, outcome.keys)
        else:
            self.log.fail(outcome.path, outcome.why or "")

    def _failed(self, file: DataFile, error: BloomsealError, before: tuple[int, ...] | None) -> FileOutcome:
        with self._lock:
            away = isinstance(error, KeyAccessError) and error.retryable
            self._unreachable = self._unreachable + 1 if away else 0
        changed = isinstance(error, ChangedError)
        if before is not None and not changed:
            try:
                changed = mark_of(file.ref) != before
            except BloomsealError:
                changed = False
        self.log.fail(file.name, error.what)
        status = Status.CHANGED if changed else Status.FAILED
        return FileOutcome(file.name, status, error.what, old_size=file.size, new_size=file.size, error=error.to_dict())

    def _tell(self, file: DataFile, done: int, total: int) -> None:
        """So much of a file is done; without a total, all that is going to be."""
        if self._progress is None:
            return
        with self._lock:
            self._under_way.pop(file.name, None)
            if total:
                self._under_way[file.name] = file.size * done // total
            self._progress(self._done + sum(self._under_way.values()), self._total)


def _files(paths: Paths, job: Job, filesystem: FileSystem | None, follow_links: bool) -> list[DataFile]:
    files = find_files(paths, filesystem, follow_links=follow_links, indexes=job.indexes)
    places: dict[str, DataFile] = {}
    for file in (file for file in files if file.outside is None and file.unseen is None):
        place = job.target(file).path
        if (other := places.setdefault(place, file)) is not file:
            raise UsageError(
                f"{other.name} would go to the same place, {place}", file=file.name, hint="an output for each folder"
            )
    return files


def _remove_leftovers(job: Job, files: Sequence[DataFile]) -> None:
    """Temporary files that killed runs have left: those of the files themselves go with the next replacement, but some
    files are gone, or are not due any more.
    """
    paths = {ref.path for file in files for ref in (file.ref, job.target(file)) if ref.filesystem is None}
    # Where a link leads, its own folder does not tell.
    folders = {os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path) for path in paths}  # noqa: PTH114, PTH120
    for folder in {os.path.realpath(folder) for folder in folders}:
        tidy(folder)


def _digest(paths: Paths, job: Job) -> str:
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    places = [os.fspath(path) for path in given]
    return job_digest(
        job.operation,
        job.facts(),
        (place if "://" in place else os.path.abspath(place) for place in places),  # noqa: PTH100
    )


def _default(paths: Paths, job: Job) -> os.PathLike[str]:
    return default_journal(job.operation, _digest(paths, job))


def _asked(job: Job) -> dict[str, float]:
    total: dict[str, float] = {}
    for tools in job.tools():
        for name, value in tools.counters.to_dict().items():
            total[name] = max(total.get(name, 0), value) if name == "slowest" else total.get(name, 0) + value
    return total


def _estimate(told: RotationPlan, job: Job) -> float:
    asked = _asked(job)
    calls = asked.get("wraps", 0) + asked.get("unwraps", 0)
    latency = asked["seconds"] / calls if calls else _KMS_SECONDS
    moved = (told.bytes_to_write + told.bytes_to_copy) / _DISK_BYTES_PER_SECOND
    sealed = told.bytes_to_write * job.passes / _aes_bytes_per_second() if job.passes and told.bytes_to_write else 0.0
    return round(moved + sealed + told.kms_calls * latency, 3)


def _aes_bytes_per_second() -> float:
    """One AES-GCM pass over a sample, on this machine, now."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher, sample = AESGCM(os.urandom(16)), bytes(_SAMPLE_BYTES)
    began = time.perf_counter()
    cipher.encrypt(os.urandom(12), sample, None)
    return _SAMPLE_BYTES / max(time.perf_counter() - began, 1e-6)
