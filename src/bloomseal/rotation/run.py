"""Many files, each decided on, booked, done and settled. One bad file does not stop the rest.

A `Run` is the same on one machine and on a cluster: there the driver decides, books and settles, and tasks do the files
with a run of their own, which has no journal.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from ..core.errors import BloomsealError, KeyAccessError
from ..storage.discovery.kinds import FileKind
from .files import ChangedError, DataFile, in_turn, mark_of
from .job import Job, Progress
from .journal import Journal, Mark, NoJournal
from .outcome import FileOutcome, FilePlan, RotationReport, Status

_UNREACHABLE_IN_A_ROW: Final = 3
_OUTSIDE: Final = {
    FileKind.DEAD: "no live version of the table names it; its keys stay as they are",
    FileKind.HIDDEN: "its name, or its folder's, is hidden: no reader takes it; its keys stay as they are",
    FileKind.LEFTOVER: "a killed writer has left it: it goes with the next write of its file, or a rotation on one machine",
}


def planned(job: Job, file: DataFile) -> FilePlan:
    """What a run would do with one file."""
    try:
        file.check()
        if file.outside is not None:
            return FilePlan(file.name, "none", _OUTSIDE[file.outside], file.size)
        return job.plan(file)
    except BloomsealError as error:
        return FilePlan(file.name, "fail", error.what, file.size)


class Run:
    """A job on its way through the files.

    Args:
        job: what is to be done with each.
        log: where it is booked.
        total: bytes of all files, for `progress`.
        done: whether another attempt has done the file, which may have two at the same time; asked while it is locked.
        patience: seconds to wait for another rotation that is at work on a file.

    Attributes:
        report: what became of the files so far.
        touched: a file was begun.
    """

    def __init__(
        self,
        job: Job,
        log: NoJournal,
        total: int = 0,
        progress: Progress | None = None,
        *,
        done: Callable[[DataFile], bool] = lambda _: False,
        patience: float = 0,
    ) -> None:
        self.job = job
        self.log = log
        self.touched = False
        self.report = RotationReport(job.operation, str(log.path), log.resumed)
        self._total = total
        self._progress = progress
        self._done_elsewhere = done
        self._patience = patience
        self._lock = threading.Lock()
        self._done = 0
        self._under_way: dict[str, int] = {}
        self._unreachable = 0

    def take_all(self, files: Sequence[DataFile], jobs: int) -> None:
        """All of them, so many at a time, reported in their order. Whatever ends that early, what is under way is
        finished.
        """
        if jobs == 1:
            for file in files:
                self.report.files.append(self.take(file))
            return
        waiting: deque[Future[FileOutcome]] = deque()
        with ThreadPoolExecutor(jobs, thread_name_prefix="bloomseal rotation") as pool:
            try:
                for file in files:
                    outcome: Future[FileOutcome] = Future()
                    waiting.append(outcome)
                    pool.submit(self._take_for, outcome, file)
                    if len(waiting) > 4 * jobs:
                        self._report_first(waiting)
                while waiting:
                    self._report_first(waiting)
            except BaseException:
                # What is under way is finished; waiting for a KMS that throttles is no part of that.
                for calls in (calls for tools in self.job.tools() for calls in tools.all_calls):
                    calls.give_up()
                # The pool does not wait for a thread that it was starting when the interrupt came.
                wait([later for later in waiting if not later.cancel()])
                raise

    def _take_for(self, outcome: Future[FileOutcome], file: DataFile) -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(self.take(file))
            except BaseException as error:
                outcome.set_exception(error)

    def _report_first(self, waiting: deque[Future[FileOutcome]]) -> None:
        # An interrupt that comes just before a wait without an end is not seen until that ends.
        while not wait([waiting[0]], timeout=1).done:
            pass
        self.report.files.append(waiting[0].result())
        waiting.popleft()

    def take(self, file: DataFile) -> FileOutcome:
        """One file, whatever becomes of it. Raises only where the log can't be written."""
        try:
            outcome = self.decided(file) or self._rotated(file)
        except BloomsealError as error:
            outcome = self._failed(file, error, None)
        with self._lock:
            self._done += file.size
        self._tell(file, 0, 0)
        return outcome

    # What an earlier run has left ------------------------------------------------------------------------------------

    def decided(self, file: DataFile, mark: Mark | None = None) -> FileOutcome | None:
        """What an earlier run, or the table's log, makes of the file; None: it is to be done.

        Args:
            mark: what tells the file that is there from others; None: that of its place, when it is needed.

        Raises:
            UsageError: what could not be seen.
        """
        if file.outside is not None:
            why = _OUTSIDE[file.outside]
            return FileOutcome(file.name, Status.DEAD, why, old_size=file.size, new_size=file.size)
        file.check()
        same = FileOutcome(file.name, Status.DONE_BEFORE, old_size=file.size, new_size=file.size)
        if file.name in self.log.done:
            had, stamp = self.log.done[file.name]
            present = mark_of(self.job.target(file)) if mark is None else mark
            if had is not None and present is not None and list(present) == had and self.job.still_good(stamp):
                return same
        if self.log.finished is None or self.job.open_ended:
            return None
        same.status = Status.SINCE
        same.why = f"new or changed since the run ended at {self.log.finished}; restart begins a new run"
        return same

    def settle(self, outcome: FileOutcome, mark: Mark | None) -> None:
        """Book how a file came out."""
        if outcome.status.settled:
            made = outcome.stamp, outcome.keys, outcome.signed_by
            self.log.settle(outcome.path, outcome.status, mark, *made)
        else:
            self.log.fail(outcome.path, outcome.why or "")

    def end(self) -> None:
        """Book that nothing is left to do, if that is so."""
        if self.report.ok and (self.log.finished is None or self.touched):
            self.log.end()

    # One file --------------------------------------------------------------------------------------------------------

    def _rotated(self, file: DataFile) -> FileOutcome:
        if self._unreachable >= _UNREACHABLE_IN_A_ROW:
            why = "not tried: the KMS could not be reached for the files before it"
            return FileOutcome(file.name, Status.FAILED, why)
        before = None
        try:
            # A run with a journal has seen that no compaction was killed, and has removed what others had left.
            with in_turn(file.ref, self._patience, after_kill=not isinstance(self.log, Journal)) as before:
                self.touched = True
                if self._done_elsewhere(file):
                    return self._another(file)
                begun = file.name in self.log.begun
                if not begun:
                    # Once it is booked as begun, whatever stands in its place is taken for what an interrupted run has
                    # left.
                    self.job.check_free(file)
                if before is None or self.log.begun.get(file.name) != list(before):
                    self.log.begin(file.name, before)
                outcome = self.job.run(file, lambda done, total: self._tell(file, done, total), begun=begun)
                self.settle(outcome, mark_of(self.job.target(file)) if outcome.status.settled else None)
            with self._lock:
                self._unreachable = 0
            return outcome
        except OSError as error:
            failure = BloomsealError(
                f"the storage failed: {error.strerror or type(error).__name__}", file=file.ref.path
            )
        except BloomsealError as error:
            failure = error.at(file=file.ref.path)
        return self._failed(file, failure, before)

    def _failed(self, file: DataFile, error: BloomsealError, before: Mark | None) -> FileOutcome:
        with self._lock:
            away = isinstance(error, KeyAccessError) and error.retryable
            self._unreachable = self._unreachable + 1 if away else 0
        changed = isinstance(error, ChangedError)
        if before is not None and not changed:
            try:
                changed = mark_of(file.ref) != before
            except BloomsealError:
                changed = False
        if changed and self._done_by_another(file):
            return self._another(file)
        self.log.fail(file.name, error.what)
        status = Status.CHANGED if changed else Status.FAILED
        return FileOutcome(file.name, status, error.what, old_size=file.size, new_size=file.size, error=error.to_dict())

    def _done_by_another(self, file: DataFile) -> bool:
        with contextlib.suppress(BloomsealError):
            return self._done_elsewhere(file)
        return False

    def _another(self, file: DataFile) -> FileOutcome:
        why = "done by an earlier attempt"
        return FileOutcome(file.name, self.job.done, why, old_size=file.size, new_size=file.size)

    def _tell(self, file: DataFile, done: int, total: int) -> None:
        """So much of a file is done; without a total, all that is going to be."""
        if self._progress is None:
            return
        with self._lock:
            self._under_way.pop(file.name, None)
            if total:
                self._under_way[file.name] = file.size * done // total
            self._progress(self._done + sum(self._under_way.values()), self._total)
