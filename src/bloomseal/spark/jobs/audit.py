"""The audit of a whole table: files are looked at on the executors, the rules, which compare files, run on the
driver.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from ...audit.facts.auditor import Auditor, ToldKey
from ...audit.facts.files.file import FileFacts, FilterCheck
from ...audit.facts.keys import SidecarView
from ...audit.facts.places import Places
from ...audit.report import Report, judged
from ...core.storage.ref import FileRef
from ..listing import open_filesystem
from ..opening import table_of
from .common import JobOptions, TableJob

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_Stripped = tuple[FileFacts, set[str] | None]


@dataclass(frozen=True, slots=True)
class TableAudit:
    """An audit, as frames and as the report that `bloomseal.audit.audit` gives.

    Attributes:
        inventory: one row per column chunk, columns as `bloomseal.audit.facts.inventory.SCHEMA`.
        findings: one row per finding, worst first.
        report: the same, with what could not be seen, on the driver; SARIF, HTML and CBOM are made of it.
    """

    inventory: DataFrame
    findings: DataFrame
    report: Report

    @property
    def ok(self) -> bool:
        """As `Report.ok`: nothing at *error* or above was found, and nothing stayed unseen. For a job that is a
        gate.
        """
        return bool(self.report.ok)


def audit(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    with_keys: bool = True,
    filters: bool = False,
    now: datetime | None = None,
    **job: Unpack[JobOptions],
) -> TableAudit:
    """`bloomseal.audit.audit` of a table, on the executors, which find the keys by themselves. The nonce check
    (``deep``) is left to one machine: it compares all modules of all files.

    Args:
        path: a folder of files, or a Delta table.
        with_keys: open what the keys can open; else look at what everybody sees.
        filters: ask each filter for every value of its own column chunk, too (as ``deep`` does).
        now: the moment that ages of keys are counted to.
        job: policy and table, what the files are held against; files_per_task: see `TableJob`.

    Raises:
        UsageError: no policy, or one whose KMS is an object: executors need its URI.
        MissingDependencyError: a Delta table without its library.
    """
    report, _, _ = looked(TableJob(spark, path, **job), now, with_keys=with_keys, filters=filters)
    return TableAudit(_frame(spark, report.inventory), _frame(spark, report.findings_table()), report)


def looked(
    job: TableJob, now: datetime | None, *, with_keys: bool, filters: bool = False
) -> tuple[Report, Places, Auditor]:
    """The report, the files, and who has looked at them; arguments as of `audit`."""
    keys = job.policy.keys if with_keys else None
    auditor = Auditor(keys, job.policy, filesystem=open_filesystem(job.base), with_keys=with_keys)
    places = auditor.find(job.root)
    task = functools.partial(_scanned, pickle.dumps(job.policy), job.base, with_keys, filters)
    with job.described("audit"):
        seen = job.collect([(ref.path, auditor.told(ref.path)) for ref in places.files], task)
    files = [_whole(told, ref) for told, ref in zip(seen, places.files, strict=True)]
    return judged(auditor, places, files, now=now), places, auditor


def _scanned(
    policy: bytes, base: str | None, with_keys: bool, filters: bool, names: Iterable[tuple[str, ToldKey | None]]
) -> Iterator[_Stripped]:
    table, filesystem = table_of(policy), open_filesystem(base)
    auditor = Auditor(table.keys if with_keys else None, table, with_keys=with_keys)
    scanner = auditor.scanner(FilterCheck.VALUES if filters else None)
    for name, told in names:
        auditor.take(name, told)
        yield _stripped(scanner.scan(FileRef(name, filesystem)))


def _stripped(facts: FileFacts) -> _Stripped:
    """What may leave the process: entries beside a file are wrapped keys, and a file system may hold credentials."""
    used = None if facts.sidecar is None else facts.sidecar.used
    facts.ref, facts.sidecar = FileRef(facts.path), None
    return facts, used


def _whole(told: _Stripped, ref: FileRef) -> FileFacts:
    """The facts again, about the file as it is called here."""
    facts, used = told
    facts.ref = ref
    if used is not None:
        facts.sidecar = SidecarView(ref)
        facts.sidecar.used.update(used)
    return facts


def _frame(spark: SparkSession, found: pa.Table) -> DataFrame:
    """Spark takes no dictionaries, and no columns without a chunk."""
    import pyarrow as pa

    def plain(kind: Any) -> Any:
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    schema = pa.schema([field.with_type(plain(field.type)) for field in found.schema])
    return spark.createDataFrame(found.cast(schema) if found.num_rows else schema.empty_table())
