"""Every file opened and authenticated, or given the filters that it lacks."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...core.errors import BloomsealError, UsageError
from ...policy import TablePolicy
from ..listing import SparkTableFiles, list_files, open_filesystem
from ..opening import open_table_file, table_of
from .common import JobOptions, TableJob, as_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...format.verify import VerifyReport
    from ...read.file import SealedFile
    from ...sbbf import FilterSpec

Row = tuple[Any, ...]
_ATTACHED: Final = "file string, attached bigint, present bigint, filter_bytes bigint, failure string"
_VERIFIED: Final = (
    "file string, verdict string, ok boolean, complete boolean, footer_verified boolean, authenticated bigint, unauthenticated bigint, "
    "inaccessible array<string>, failures array<string>, notes array<string>"
)


def verify(
    spark: SparkSession, path: str | os.PathLike[str], *, filters: bool = False, **options: Unpack[JobOptions]
) -> DataFrame:
    """`bloomseal.verify` for every file of a table, on the executors, which find the keys by themselves.

    Args:
        path: the table's folder.
        filters: ask each filter for every value of its own column chunk, too. One that denies a value is a failure.
        options: policy and table, whose keys and expectations; files_per_task: see `TableJob`.

    Returns:
        One row a file: a `verdict` in words, `ok` (no module failed), `complete` (every module authenticated, every
            filter asked where that was wanted), the numbers of modules, columns without a key, what failed and what is
            worth knowing. A file that can't be opened at all is a row too. A signed footer that can't be verified for
            want of its key is `ok` all the same, and not `complete`: row groups could be missing.

    Raises:
        UsageError: no policy, or one whose KMS is an object: executors need its URI; no such folder, a part of
            it that can't be listed, a link that leads out of it.
    """
    job = TableJob(spark, path, **options)
    with job.described("verify"):
        return _rows(job, list_files(spark, path), functools.partial(_verified, filters), _VERIFIED)


def attach(spark: SparkSession, path: str | os.PathLike[str], **options: Unpack[JobOptions]) -> DataFrame:
    """`bloomseal.attach_filters` for every file of a table: the policy's filters, where they are not there yet.

    Each file is replaced in one step, so that a job that was killed is simply started again: files that are done are
    left alone, also under retried and speculative tasks. Data pages are not touched.

    Args:
        path, options: as `verify`. The keys of the columns must be usable on the executors.

    Returns:
        One row a file: how many filters were `attached` to it and were `present` before, their `filter_bytes`, and
            `failure`, null where all went well.

    Raises:
        UsageError: as `verify`; or the policy promises no filters.
        UnsupportedError: a Delta or Iceberg table: its log keeps the size of each file, which would change; or one with
            signers.
    """
    job = TableJob(spark, path, **options)
    job.need_unsigned("attach")
    if not job.policy.bloom_filters():
        raise UsageError(f"the policy promises no filters for {job.policy.name}")
    with job.described("attach filters to"):
        files = list_files(spark, path)
        files.need_no_log()
        return _rows(job, files, _attached, _ATTACHED)


def _rows(
    job: TableJob, files: SparkTableFiles, work: Callable[[str, TablePolicy, str | None], Row], schema: str
) -> DataFrame:
    task = functools.partial(_each, work, pickle.dumps(job.policy), job.base)
    return as_frame(job.spark, job.collect(files.names, task), schema)


def _each(
    work: Callable[[str, TablePolicy, str | None], Row], policy: bytes, base: str | None, names: Iterable[str]
) -> Iterator[Row]:
    table = table_of(policy)
    for name in names:
        yield work(name, table, base)


def _verified(filters: bool, name: str, table: TablePolicy, base: str | None) -> Row:
    try:
        with open_table_file(name, table, base) as file:
            report = file.verify(filters=filters)
    except BloomsealError as error:
        # Raised, it would end the job, and with it the answers about all other files.
        return name, "failed", False, False, False, 0, 0, [], [error.what], []
    return (
        name,
        _verdict(report),
        report.ok,
        report.complete,
        report.footer_verified,
        report.authenticated.total(),
        report.unauthenticated.total(),
        [f"{column}: {why}" for column, why in sorted(report.inaccessible.items())],
        [str(error) for error in report.failures],
        [*report.notes, *(f"filter not asked: {unasked}" for unasked in report.filters_unasked)],
    )


def _verdict(report: VerifyReport) -> str:
    if not report.ok:
        return "failed"
    if report.complete:
        return "complete"
    if not report.footer_verified:
        return "sound as far as it was opened, but the footer was not verified: row groups could be missing"
    return "sound as far as it could be opened"


def _attached(name: str, table: TablePolicy, base: str | None) -> Row:
    from ...write.attach import attach_filters

    try:
        with open_table_file(name, table, base) as file:
            missing, present = _missing(file, table)
        if not missing:
            return name, 0, present, 0, None
        report = attach_filters(name, missing, decryption=table, filesystem=open_filesystem(base))
    except BloomsealError as error:
        with contextlib.suppress(BloomsealError), open_table_file(name, table, base) as file:
            missing, present = _missing(file, table)
            if not missing:
                return name, 0, present, 0, None  # another attempt of this task was first
        return name, 0, 0, 0, error.what
    size = sum(one["num_bytes"] * one.get("row_groups", 1) for one in report.filters)
    return name, len(report.filters), present, size, None


def _missing(file: SealedFile, table: TablePolicy) -> tuple[dict[str, FilterSpec], int]:
    """The promised filters of columns that lack one in some part of the file, or have it in clear; and how many filters
    there are of the other columns. A stripe's filters of a column count as one.
    """
    missing: dict[str, FilterSpec] = {}
    present = 0
    for name, spec in table.bloom_filters().items():
        found = [file.has_filter(leaf, part) for part in range(file.num_parts) for leaf in file.leaves.below(name)]
        if all(found):
            present += len(found)
        else:
            missing[name] = spec
    return missing, present
