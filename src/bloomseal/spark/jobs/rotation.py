"""Rotations of whole tables: `rewrap`, `rekey` and `repair`, each file in one step, under retries, speculation and lost
executors.

A file tells by itself whether it is done: a rewrapped one by the versions of its master keys, a repaired one by its
filters, a rekeyed one by its identity (aad_file_unique; of ORC files their local keys), which no new sealing keeps. So
a task that is run again finds what an earlier attempt has finished, and two attempts at the same time wait for one
another.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ...policy import TablePolicy
from ...read.open import open_file
from ...rotation import Rekey, Repair, Rewrap
from ...rotation.candidates import need_compacted
from ...rotation.files import DataFile, find_files
from ...rotation.job import Job
from ...rotation.journal import Journal, NoJournal, default_journal, job_digest
from ...rotation.outcome import FileOutcome, FilePlan, Status
from ...rotation.run import Run, planned
from ...storage.places import open_source
from ..listing import list_files, open_filesystem, qualified
from ..opening import refuse_links_out, table_of
from .common import JobOptions, TableJob, as_frame
from .upkeep import keep_indexes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]
_DONE: Final = (
    "file string, status string, why string, old_size bigint, new_size bigint, bytes_written bigint, keys bigint, "
    "left array<string>, failure string"
)
_PLANNED: Final = "file string, action string, why string, size bigint, bytes_to_write bigint, bytes_to_copy bigint, left array<string>"
_PATIENCE: Final = 600.0
"""Seconds that an attempt waits for another one at the same file."""


def rewrap(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    master_keys: Mapping[str, str] | None = None,
    check_keys: bool = False,
    dry_run: bool = False,
    **options: Unpack[JobOptions],
) -> DataFrame:
    """`bloomseal rewrap` for every file of a table: the same data keys under other master keys, or under their current
    versions.

    A second run finds nothing to do; one that was killed is simply started again.

    Args:
        path: the table's folder.
        master_keys: old name → new name, in place of the policy's.
        check_keys: unwrap every new wrapping and compare, also where the KMS re-wraps by itself.
        dry_run: tell what would be done; write nothing.
        options: policy and table, whose keys, and which master key is to wrap what; files_per_task: see `TableJob`.

    Returns:
        One row a file: its `status` (``rewrapped``, ``nothing to do``, ``done in part``, ``changed by someone else``,
        ``failed``; ``not in the table`` where it is dead, hidden, or left by a killed writer), bytes, how many `keys`
        were wrapped anew, keys that were `left`, and `failure`, null where all went well. With `dry_run`: `action`
        (``rewrap``, ``none``, ``fail``), `why`, and bytes to write and to copy.

    Raises:
        UsageError: as `verify`.
        UnsupportedError: the table has signers: executors hold no key to sign with.
    """
    told = {"master_keys": dict(master_keys) if master_keys else None, "check_keys": check_keys}
    return _Cluster(TableJob(spark, path, **options), "rewrap", told).run(dry_run=dry_run, indexed=True)


def repair(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    drop_masked: bool = False,
    dry_run: bool = False,
    **options: Unpack[JobOptions],
) -> DataFrame:
    """`bloomseal repair` for every file of a table of ORC files: filters that lie in clear on encrypted columns are
    built anew and sealed. Copies of the old files still tell true values: destroy them.

    A second run finds nothing to do; one that was killed is simply started again.

    Args:
        path, options: as `rewrap`. The policy must say ``allow_ctr``.
        drop_masked: leave out the filters over masked values too.
        dry_run: build the filters and tell; write nothing.

    Returns:
        As `rewrap`; `keys` counts the columns under new local keys, and `why` says what old copies still tell.

    Raises:
        UsageError: as `rewrap`.
    """
    return _Cluster(TableJob(spark, path, **options), "repair", {"drop_masked": drop_masked}).run(dry_run=dry_run)


def rekey(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    journal: str | os.PathLike[str] | None = None,
    restart: bool = False,
    rebuild_filters: bool = False,
    dry_run: bool = False,
    **options: Unpack[JobOptions],
) -> DataFrame:
    """`bloomseal rekey` for every file of a table: each module sealed again, as the policy has it, under fresh data
    keys.

    The driver keeps a journal of the identities that the files had. The same call again resumes an interrupted run, and
    does nothing after a finished one; files that came since are told and left alone.

    Args:
        path, dry_run, options: as `rewrap`.
        journal: where the driver keeps the journal; default: in the user's state folder, as ``bloomseal rekey`` does.
        restart: begin a new run, whatever an earlier one has done.
        rebuild_filters: build filters anew that deny values of their own column; without it such a file fails.

    Returns:
        As `rewrap`; `status` may be ``rekeyed``, ``done before`` or ``changed since the run``.

    Raises:
        UsageError: as `rewrap`; or the journal is another job's, or in use.
    """
    cluster = _Cluster(TableJob(spark, path, **options), "rekey", {"rebuild_filters": rebuild_filters})
    if dry_run:
        return cluster.run(dry_run=True)
    digest = job_digest("rekey by Spark", cluster.work.job.facts(), [qualified(spark, path)])
    with Journal(journal or default_journal("rekey", digest), "rekey", digest, restart=restart) as log:
        return cluster.run(log, identified=True, indexed=True)


@dataclass(frozen=True)
class _Work:
    """A job as it travels: without keys. Workers live on, and what they know of versions is one job's, by its `id`.

    Attributes:
        base: of the file system that the table is on.
    """

    operation: str
    policy: bytes
    options: bytes
    base: str | None = None
    id: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def job(self) -> Job:
        """The job itself; one per Python worker, so that one re-wrapped KEK serves all its tasks."""
        return _job(self)

    def found(self, name: str) -> DataFile:
        """The file as it is now.

        Raises:
            UsageError: it is gone, or a link out of the table has taken its place since it was listed.
        """
        file = find_files(name, open_filesystem(self.base))[0]
        with open_source(file.ref) as source:
            refuse_links_out(source, table_of(self.policy).root)
        return file

    def identity(self, file: DataFile) -> bytes:
        """What is another with every new sealing, and stays when keys are only wrapped anew; empty for a plaintext
        file.
        """
        with open_file(file.ref, decryption=table_of(self.policy)) as opened:
            return opened.identity if opened.encrypted else b""

    def plans(self, names: Iterable[str]) -> Iterator[tuple[str, FilePlan]]:
        """A task: what would be done."""
        for name in names:
            try:
                yield name, replace(planned(self.job, self.found(name)), calls={})
            except BloomsealError as error:
                yield name, FilePlan(name, "fail", error.what)

    def identities(self, names: Iterable[str]) -> Iterator[tuple[str, tuple[bytes | None, str | None]]]:
        """A task: the identity that each file has now, or why nobody can tell it."""
        for name in names:
            try:
                yield name, (self.identity(self.found(name)), None)
            except BloomsealError as error:
                yield name, (None, error.what)


@functools.lru_cache(maxsize=8)
def _job(work: _Work) -> Job:
    table, options = table_of(work.policy), pickle.loads(work.options)  # noqa: S301 - our own driver's
    others: dict[str, Callable[..., Job]] = {"rewrap": Rewrap, "repair": Repair}
    job = others.get(work.operation, functools.partial(Rekey, encryption=table))(table, **options)
    job.begin()
    return job


class _Cluster:
    """A rotation's run, of which executors do the files."""

    def __init__(self, table: TableJob, operation: str, options: Mapping[str, Any]) -> None:
        self.work = _Work(operation, pickle.dumps(table.policy), pickle.dumps(options), table.base)
        self._table = table
        table.need_unsigned(operation)
        listed = list_files(table.spark, table.path)
        # Those that are only told are among them: dead, hidden, left by killed writers. An audit counts none that is
        # not.
        found = find_files(table.root, open_filesystem(table.base), indexes=self.work.job.indexes, leftovers=True)
        files = {name: DataFile(FileRef(name), name, 0) for name in listed.names}
        self._files = dict(sorted((files | {one.ref.path: one for one in found}).items()))

    def run(
        self,
        log: NoJournal | None = None,
        *,
        dry_run: bool = False,
        identified: bool = False,
        indexed: bool = False,
    ) -> DataFrame:
        """As rows, what was done, or what would be.

        Args:
            log: None: a file tells by itself whether it is done.
            identified: a file is done once it has another identity than it had when the run began.
            indexed: the table's indexes are brought up to date.
        """
        with self._table.described(f"{'plan of ' if dry_run else ''}{self.work.operation}"):
            done = self._planned() if dry_run else self._done(log or NoJournal(), identified=identified)
        if indexed and not dry_run:
            keep_indexes(self._table.spark, self._table.path, table_of(self.work.policy), make=False)
        return done

    def _planned(self) -> DataFrame:
        told = {name: planned(self.work.job, file) for name, file in self._files.items() if file.outside}
        told |= self._each(self.work.plans, [name for name in self._files if name not in told])
        rows = [
            (name, plan.action, plan.why, plan.size, plan.bytes_to_write, plan.bytes_to_copy, _left(plan.left))
            for name, plan in ((name, told[name]) for name in self._files)
        ]
        return as_frame(self._table.spark, rows, _PLANNED)

    def _done(self, log: NoJournal, *, identified: bool) -> DataFrame:
        run = Run(self.work.job, log)
        if not run.job.keeps_identity:
            need_compacted(list(self._files.values()), getattr(run.job, "decryption", None))
        inside = [name for name, file in self._files.items() if not file.outside]
        now = self._each(self.work.identities, inside) if identified else {}
        told: dict[str, FileOutcome] = {}
        due: dict[str, bytes | None] = {}
        for name, file in self._files.items():
            identity, failure = now.get(name, (None, None))
            mark = None if identity is None else tuple(identity)
            if failure is not None:
                told[name] = FileOutcome(name, Status.FAILED, failure)
            elif (outcome := run.decided(replace(file, ref=FileRef(name), unseen=None), mark)) is not None:
                told[name] = outcome
            elif mark is not None and (begun := log.begun.get(name)) is not None and begun != list(mark):
                told[name] = FileOutcome(name, Status.DONE_BEFORE, "done just before the interruption")
                log.settle(name, run.job.done, mark, {})
            else:
                due[name] = identity
                log.begin(name, mark, sync=False)
        log.flush()
        known = {name: identity for name, identity in due.items() if identity is not None}
        for name, (outcome, identity) in self._each(RotationTask(self.work, known), list(due)).items():
            told[name] = outcome
            run.settle(outcome, None if identity is None else tuple(identity))
        run.report.files = [told[name] for name in self._files]
        run.touched = bool(due)
        run.end()
        return as_frame(self._table.spark, list(map(_row, self._files, run.report.files)), _DONE)

    def _each(self, task: Callable[[Iterable[str]], Iterator[tuple[str, Any]]], names: Sequence[str]) -> dict[str, Any]:
        """What a task makes of each file."""
        return dict(self._table.collect(names, task))


@dataclass(frozen=True)
class RotationTask:
    """A task that does the files of one pack, one after the other.

    Attributes:
        identities: those that the files had when the job began, for a rekey. A file that has another one by now is
            done.
    """

    work: _Work
    identities: Mapping[str, bytes]

    @classmethod
    def of(cls, operation: str, table: TablePolicy, names: Iterable[str], base: str | None = None) -> RotationTask:
        """For these files as they are now."""
        work = _Work(operation, pickle.dumps(table), pickle.dumps({}), base)
        return cls(work, {name: work.identity(work.found(name)) for name in names})

    def __call__(self, names: Iterable[str]) -> Iterator[tuple[str, tuple[FileOutcome, bytes | None]]]:
        """Per file how it came out, and its identity afterwards."""
        run = Run(self.work.job, NoJournal(), done=self._is_done, patience=_PATIENCE)
        for name in names:
            identity = None
            try:
                outcome = run.take(self.work.found(name))
                if name in self.identities and outcome.status.settled:
                    identity = self.work.identity(self.work.found(name))
            except BloomsealError as error:
                outcome = FileOutcome(name, Status.FAILED, error.what)
            # As the driver calls it: where a file system is named, a rotation puts its kind in front.
            outcome.path = name
            yield name, (outcome, identity)

    def _is_done(self, file: DataFile) -> bool:
        known = self.identities.get(file.ref.path)
        return known is not None and self.work.identity(file) != known


def _row(name: str, outcome: FileOutcome) -> Row:
    failure = None if outcome.status.settled else outcome.why or str(outcome.status)
    return (
        name,
        str(outcome.status),
        outcome.why or outcome.old_copies,
        outcome.old_size,
        outcome.new_size,
        outcome.bytes_written,
        len(outcome.keys),
        _left(outcome.left),
        failure,
    )


def _left(left: Iterable[Mapping[str, Any]]) -> list[str]:
    return [f"{one['column'] or 'footer'}: {one['why']}" for one in left]
