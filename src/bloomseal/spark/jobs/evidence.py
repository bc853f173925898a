"""The evidence about a whole table: files are looked at on the executors, the bundle is made and signed on the
driver.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...evidence.collect import Beside, Evidence, finished, gather, ready
from ...keytools.signatures.keys import Signer
from .audit import looked
from .common import TableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def evidence(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    with_keys: bool = True,
    signers: Sequence[Signer] = (),
    overwrite: bool = False,
    now: datetime | None = None,
    **more: Any,
) -> Evidence:
    """`bloomseal.evidence.make` about a table, looked at as `audit` does.

    Args:
        path: a folder of files, or a Delta table.
        out: the bundle, on the driver's own disk.
        with_keys: open what the keys can open; else tell what everybody sees.
        signers, overwrite, now: as for `bloomseal.evidence.make`.
        more: policy and table, what the files are held against, and files_per_task, as of `TableJob`; and what stands
            beside the audit, as for `bloomseal.evidence.make`.

    Raises:
        UsageError: no policy, or one whose KMS is an object; a file at `out`.
        MissingDependencyError: the extra ``report``, or a Delta table without its library.
    """
    ready(out, signers, overwrite=overwrite)
    moment = (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
    beside = Beside.of(more)
    job = TableJob(spark, path, **more)
    report, places, auditor = looked(job, moment, with_keys=with_keys)
    found = gather(auditor, report, places, beside, paths=[job.root], now=moment)
    return finished(found, out, signers, moment, overwrite=overwrite)
