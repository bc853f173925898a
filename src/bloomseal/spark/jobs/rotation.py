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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import BloomsealError
from ...format.opening import open_footer
from ...policy import Policy, TablePolicy
from ...rotation import FileOutcome, FilePlan, Job, Rekey, Repair, Rewrap, Status
from ...rotation.files import DataFile, find_files
from ...rotation.job import Progress
from ...rotation.journal import Journal, NoJournal, default_journal, job_digest
from ...rotation.orc import identity as orc_identity
from ...rotation.run import OUTSIDE, Run
from ...rotation.settings import opening
from ...storage.places import open_source
from ..listing import TableFiles, list_files, open_filesystem, qualified, split_uri
from ..opening import refuse_links_out, table_of
from .common import as_frame, described, job_table, packs
from .upkeep import keep_indexes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["rekey", "repair", "rewrap"]

Row = tuple[Any, ...]
_DONE: Final = (
    "file string, status string, why string, old_size bigint, new_size bigint, bytes_written bigint, keys bigint, "
    "left array<string>, failure string"
)
_PLANNED: Final = "file string, action string, why string, size bigint, bytes_to_write bigint, bytes_to_copy bigint, left array<string>"
_PATIENCE: Final = 600.0
"""Seconds that an attempt waits for another one at the same file."""
_ANOTHER: Final = "done by an earlier attempt"


def rewrap(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    master_keys: Mapping[str, str] | None = None,
    check_keys: bool = False,
    dry_run: bool = False,
    files_per_task: int = 20,
) -> DataFrame:
    """`bloomseal rewrap` for every file of a table: the same data keys under other master keys, or under their current
    versions.

    A second run finds nothing to do; one that was killed is simply started again.

    Args:
        path: the table's folder.
        policy, table: whose keys, and which master key is to wrap what; default: the policy that `enable` was given.
        master_keys: old name → new name, in place of the policy's.
        check_keys: unwrap every new wrapping and compare, also where the KMS re-wraps by itself.
        dry_run: tell what would be done; write nothing.
        files_per_task: files that one task works on.

    Returns:
        One row a file: its `status` (``rotated``, ``nothing to do``, ``partly rotated``, ``changed by someone else``,
        ``failed``; ``not in the table`` where it is dead, hidden, or left by a killed writer), bytes, how many `keys`
        were wrapped anew, keys that were `left`, and `failure`, null where all went well. With `dry_run`: `action`
        (``rewrap``, ``none``, ``fail``), `why`, and bytes to write and to copy.

    Raises:
        UsageError: as `verify`.
    """
    options = {"master_keys": dict(master_keys) if master_keys else None, "check_keys": check_keys}
    chosen = job_table(spark, path, policy, table)
    work = _Work("rewrap", pickle.dumps(chosen), pickle.dumps(options))
    done = _by_state(spark, path, work, files_per_task, dry_run=dry_run)
    if not dry_run:
        keep_indexes(spark, path, table_of(work.policy), make=False)
    return done


def repair(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    drop_masked: bool = False,
    dry_run: bool = False,
    files_per_task: int = 20,
) -> DataFrame:
    """`bloomseal repair` for every file of a table of ORC files: filters that lie in clear on encrypted columns are
    built anew and sealed. Copies of the old files still tell true values: destroy them.

    A second run finds nothing to do; one that was killed is simply started again.

    Args:
        path, policy, table, files_per_task: as `rewrap`. The policy must say ``allow_ctr``.
        drop_masked: leave out the filters over masked values too.
        dry_run: build the filters and tell; write nothing.

    Returns:
        As `rewrap`; `keys` counts the columns under new local keys, and `why` says what old copies still tell.

    Raises:
        UsageError: as `rewrap`.
    """
    told = pickle.dumps({"drop_masked": drop_masked})
    work = _Work("repair", pickle.dumps(job_table(spark, path, policy, table)), told)
    return _by_state(spark, path, work, files_per_task, dry_run=dry_run)


def _by_state(
    spark: SparkSession, path: str | os.PathLike[str], work: _Work, files_per_task: int, *, dry_run: bool
) -> DataFrame:
    """A job that sees by a file whether it is done."""
    files, outside = _listed(spark, path, work.job)
    with described(spark, f"{'plan of ' if dry_run else ''}{work.operation} {os.fspath(path)}"):
        if dry_run:
            return _planned(spark, work, files, outside, files_per_task)
        task = Attempt(work, files.base, {})
        rows = [row for row, _ in packs(spark, files.names, files_per_task).mapPartitions(task).collect()]
    return as_frame(spark, _in_order(rows, outside), _DONE)


def rekey(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    journal: str | os.PathLike[str] | None = None,
    restart: bool = False,
    rebuild_filters: bool = False,
    dry_run: bool = False,
    files_per_task: int = 20,
) -> DataFrame:
    """`bloomseal rekey` for every file of a table: each module sealed again, as the policy has it, under fresh data
    keys.

    The driver keeps a journal of the identities that the files had. The same call again resumes an interrupted run, and
    does nothing after a finished one; files that came since are told and left alone.

    Args:
        path, policy, table, dry_run, files_per_task: as `rewrap`.
        journal: where the driver keeps the journal; default: in the user's state folder, as ``bloomseal rekey`` does.
        restart: begin a new run, whatever an earlier one has done.
        rebuild_filters: build filters anew that deny values of their own column; without it such a file fails.

    Returns:
        As `rewrap`; `status` may also be ``done before`` or ``changed since the run``.

    Raises:
        UsageError: as `rewrap`; or the journal is another job's, or in use.
    """
    chosen = job_table(spark, path, policy, table)
    work = _Work("rekey", pickle.dumps(chosen), pickle.dumps({"rebuild_filters": rebuild_filters}))
    files, outside = _listed(spark, path, work.job)
    with described(spark, f"{'plan of ' if dry_run else ''}rekey {os.fspath(path)}"):
        if dry_run:
            return _planned(spark, work, files, outside, files_per_task)
        digest = job_digest("rekey by Spark", work.job.facts(), [qualified(spark, path)])
        with Journal(journal or default_journal("rekey", digest), "rekey", digest, restart=restart) as log:
            rows = _rekeyed(spark, work, files, files_per_task, log)
    keep_indexes(spark, path, table_of(work.policy), make=False)
    return as_frame(spark, _in_order(rows, outside), _DONE)


@dataclass(frozen=True)
class _Work:
    """A job as it travels: without keys. Workers live on, and what they know of versions is one job's, by its `id`."""

    operation: str
    policy: bytes
    options: bytes
    id: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def job(self) -> Job:
        """The job itself; one per Python worker, so that one re-wrapped KEK serves all its tasks."""
        return _job(self)


@functools.lru_cache(maxsize=8)
def _job(work: _Work) -> Job:
    table, options = table_of(work.policy), pickle.loads(work.options)  # noqa: S301 - our own driver's
    others: dict[str, Callable[..., Job]] = {"rewrap": Rewrap, "repair": Repair}
    job = others.get(work.operation, functools.partial(Rekey, encryption=table))(table, **options)
    job.begin()
    return job


def _listed(spark: SparkSession, path: str | os.PathLike[str], job: Job) -> tuple[TableFiles, list[DataFile]]:
    """The files to work on, and those that are only told: dead, hidden, left by killed writers. An audit counts none
    that is not among them.
    """
    files = list_files(spark, path)
    _, inside = split_uri(qualified(spark, path))
    found = find_files(inside, open_filesystem(files.base), indexes=job.indexes, leftovers=True)
    outside = [one for one in found if one.outside is not None]
    names = {*files.names, *(one.ref.path for one in found)}.difference(one.ref.path for one in outside)
    return replace(files, names=tuple(sorted(names))), outside


def _in_order(rows: Iterable[Row], outside: Iterable[DataFile]) -> list[Row]:
    """With a row for each file that is only told, by the files' names."""
    told = [
        _row(FileOutcome(one.ref.path, Status.DEAD, OUTSIDE[one.outside], old_size=one.size, new_size=one.size))
        for one in outside
        if one.outside is not None
    ]
    return sorted([*rows, *told], key=lambda row: str(row[0]))


def _planned(
    spark: SparkSession, work: _Work, files: TableFiles, outside: Iterable[DataFile], files_per_task: int
) -> DataFrame:
    task = functools.partial(_plans, work, files.base)
    rows = packs(spark, files.names, files_per_task).mapPartitions(task).collect()
    told: list[Row] = [
        (one.ref.path, "none", OUTSIDE[one.outside], one.size, 0, 0, []) for one in outside if one.outside
    ]
    return as_frame(spark, sorted([*rows, *told], key=lambda row: str(row[0])), _PLANNED)


def _plans(work: _Work, base: str | None, names: Iterable[str]) -> Iterator[Row]:
    for name in names:
        try:
            plan = work.job.plan(_found(name, base, table_of(work.policy)))
        except BloomsealError as error:
            plan = FilePlan(name, "fail", error.what)
        yield name, plan.action, plan.why, plan.size, plan.bytes_to_write, plan.bytes_to_copy, _left(plan.left)


def _rekeyed(spark: SparkSession, work: _Work, files: TableFiles, files_per_task: int, log: Journal) -> list[Row]:
    looked = functools.partial(_identities, work.policy, files.base)
    now = dict(packs(spark, files.names, files_per_task).mapPartitions(looked).collect())
    rows: dict[str, Row] = {}
    due: dict[str, bytes] = {}
    for name in files.names:
        identity, failure = now[name]
        if identity is None:
            rows[name] = _row(FileOutcome(name, Status.FAILED, failure))
        elif name in log.done and log.done[name][0] == list(identity):
            rows[name] = _row(FileOutcome(name, Status.DONE_BEFORE))
        elif log.finished is not None:
            why = f"new or changed since the run ended at {log.finished}; restart begins a new run"
            rows[name] = _row(FileOutcome(name, Status.SINCE, why))
        elif (begun := log.begun.get(name)) is not None and begun != list(identity):
            log.settle(name, Status.ROTATED, tuple(identity), {})
            rows[name] = _row(FileOutcome(name, Status.DONE_BEFORE, "done just before the interruption"))
        else:
            due[name] = identity
            if begun is None:
                log.begin(name, tuple(identity))
    if due:
        task = Attempt(work, files.base, due)
        for row, identity in packs(spark, list(due), files_per_task).mapPartitions(task).collect():
            rows[row[0]] = row
            if row[-1] is None:
                log.settle(row[0], row[1], tuple(identity or b""), {})
            else:
                log.fail(row[0], row[-1])
    if log.finished is None and all(row[-1] is None for row in rows.values()):
        log.end()
    return [rows[name] for name in files.names]


def _identities(
    policy: bytes, base: str | None, names: Iterable[str]
) -> Iterator[tuple[str, tuple[bytes | None, str | None]]]:
    table = table_of(policy)
    for name in names:
        try:
            yield name, (_identity(table, _found(name, base, table)), None)
        except BloomsealError as error:
            yield name, (None, error.what)


def _identity(table: TablePolicy, file: DataFile) -> bytes:
    """What is another with every new sealing, and stays when keys are only wrapped anew; empty for a plaintext file."""
    if (local_keys := orc_identity(file.ref)) is not None:
        return local_keys
    with open_source(file.ref) as source:
        crypto = open_footer(source, opening(table, file.ref))[0].crypto
    return b"" if crypto is None else crypto.aad_unique


@dataclass(frozen=True)
class Attempt:
    """A task: the files of one pack, one after the other.

    Attributes:
        identities: those that the files had when the job began, for a rekey. A file that has another one by now is
            done.
    """

    work: _Work
    base: str | None
    identities: Mapping[str, bytes]

    @classmethod
    def of(cls, operation: str, table: TablePolicy, names: Iterable[str], base: str | None = None) -> Attempt:
        """For these files as they are now."""
        work = _Work(operation, pickle.dumps(table), pickle.dumps({}))
        return cls(work, base, {name: _identity(table, _found(name, base, table)) for name in names})

    def __call__(self, names: Iterable[str]) -> Iterator[tuple[Row, bytes | None]]:
        """Per file its row, and its identity afterwards."""
        table = table_of(self.work.policy)
        run = Run(_Once(self.work.job, table, self.identities), NoJournal())
        for name in names:
            identity = None
            try:
                outcome = _in_turn(run, name, self.base, table)
                if name in self.identities and outcome.status.settled:
                    identity = _identity(table, _found(name, self.base, table))
            except BloomsealError as error:
                outcome = FileOutcome(name, Status.FAILED, error.what)
            # As the driver calls it: where a file system is named, a rotation puts its kind in front.
            outcome.path = name
            yield _row(outcome), identity


def _in_turn(run: Run, name: str, base: str | None, table: TablePolicy) -> FileOutcome:
    """Wait for another attempt at the same file: answering "changed" while it is at work would end the job in its
    place.
    """
    deadline, wait = time.monotonic() + _PATIENCE, 0.1
    while (outcome := run.take(_found(name, base, table))).status is Status.CHANGED and time.monotonic() < deadline:
        time.sleep(wait)
        wait = min(2 * wait, 5.0)
    return outcome


class _Once(Job):
    """A job that leaves alone what has another identity than it had when the job began. It looks while the file is
    locked.
    """

    operation = "rotation"

    def __init__(self, job: Job, table: TablePolicy, identities: Mapping[str, bytes]) -> None:
        self._job = job
        self._table = table
        self._identities = identities

    def plan(self, file: DataFile) -> FilePlan:
        return self._job.plan(file)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:
        known = self._identities.get(file.ref.path)
        if known is not None and _identity(self._table, file) != known:
            return FileOutcome(file.name, Status.ROTATED, _ANOTHER, old_size=file.size, new_size=file.size)
        return self._job.run(file, progress, begun=begun)


def _found(name: str, base: str | None, table: TablePolicy) -> DataFile:
    """The file as it is now.

    Raises:
        UsageError: it is gone, or a link out of the table has taken its place since it was listed.
    """
    file = find_files(name, open_filesystem(base))[0]
    with open_source(file.ref) as source:
        refuse_links_out(source, table.root)
    return file


def _row(outcome: FileOutcome) -> Row:
    failure = None if outcome.status.settled else outcome.why or str(outcome.status)
    return (
        outcome.path,
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
