"""A rotation of many files on this machine: planned, or done with a journal, and reported."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ..core.errors import UsageError
from ..keytools.kms.calls import patient
from ..keytools.kms.counters import Counters
from ..keytools.material.store import tidy
from .candidates import need_compacted
from .files import DataFile, find_files
from .iceberg import files_of
from .job import Job, Progress
from .journal import Journal, default_journal, job_digest
from .outcome import RotationPlan, RotationReport
from .run import Run, planned

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]

_BYTES_PER_SECOND: Final = 200e6
"""Of a disk. Opening, sealing and verifying take less."""
_KMS_SECONDS: Final = 0.02


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
    files = _files(paths, job, filesystem, follow_links, shown=True)
    job.begin()
    told = RotationPlan(job.operation, str(journal or default_journal(job.operation, digest_of(paths, job))))
    calls: dict[Hashable, int] = {}
    done, total = 0, sum(file.size for file in files)
    for file in files:
        one = planned(job, file)
        told.files.append(one)
        told.bytes_to_write += one.bytes_to_write
        told.bytes_to_copy += one.bytes_to_copy
        for call, times in one.calls.items():
            calls[call] = max(times, calls.get(call, 0))
        done += file.size
        if progress is not None:
            progress(done, total)
    told.kms_calls = sum(calls.values())
    told_by_kms = asked(job)
    answers = told_by_kms.wraps + told_by_kms.unwraps
    latency = told_by_kms.seconds / answers if answers else _KMS_SECONDS
    moved = told.bytes_to_write + told.bytes_to_copy
    told.seconds = round(moved / _BYTES_PER_SECOND + told.kms_calls * latency, 3)
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
        UsageError: nothing at one of the paths; fewer than one job; two files would go to the same place; a compaction
            was killed there before it had removed its old files; or the journal is another job's, or in use.
        BloomsealError: the journal can't be written.
    """
    if jobs < 1:
        raise UsageError("at least one file is done at a time")
    files = _files(paths, job, filesystem, follow_links)
    if not job.keeps_identity:
        need_compacted(files, getattr(job, "decryption", None))
    began = time.monotonic()
    digest = digest_of(paths, job)
    place = journal or default_journal(job.operation, digest)
    with Journal(place, job.operation, digest, restart=restart) as log, ready(job, files, patience):
        run = Run(job, log, sum(file.size for file in files), progress)
        run.take_all(files, jobs)
        job.after()
        run.end()
    report = run.report
    report.seconds = round(time.monotonic() - began, 3)
    report.kms = asked(job).to_dict() if job.tools() else {}
    return report


@contextlib.contextmanager
def ready(job: Job, files: Sequence[DataFile], patience: float) -> Iterator[None]:
    """A job that is about to begin: key tools wait for a KMS that throttles, and what killed runs have left beside the
    files is gone.
    """
    job.check_signer()
    with contextlib.ExitStack() as waits:
        for tools in job.tools():
            waits.enter_context(patient(tools.all_calls, patience))
        _remove_leftovers(job, files)
        job.begin()
        yield


def _files(
    paths: Paths, job: Job, filesystem: FileSystem | None, follow_links: bool, *, shown: bool = False
) -> list[DataFile]:
    opening = getattr(job, "decryption", None) if shown else None
    show = None if opening is None or opening.iceberg is None else partial(files_of, decryption=opening)
    files = find_files(paths, filesystem, follow_links=follow_links, indexes=job.indexes, shown=show)
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


def digest_of(paths: Paths, job: Job) -> str:
    """What tells the job at these places from others, see `job_digest`."""
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    places = [os.fspath(path) for path in given]
    return job_digest(
        job.operation,
        job.facts(),
        (place if "://" in place else os.path.abspath(place) for place in places),  # noqa: PTH100
    )


def asked(job: Job) -> Counters:
    """What the KMS was asked so far."""
    return sum((tools.counters for tools in job.tools()), Counters())
