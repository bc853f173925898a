"""The evidence about a whole table: files are looked at on the executors, the bundle is made and signed on the
driver.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...evidence.bundle.signing import Signer
from ...evidence.collect import Beside, Evidence, finished, gather, ready
from ...policy import Policy, TablePolicy
from ..listing import qualified, split_uri
from .audit import looked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["evidence"]


def evidence(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    with_keys: bool = True,
    signers: Sequence[Signer] = (),
    overwrite: bool = False,
    now: datetime | None = None,
    files_per_task: int = 20,
    **more: Any,
) -> Evidence:
    """`bloomseal.evidence.make` about a table, looked at as `audit` does.

    Args:
        path: a folder of files, or a Delta table.
        out: the bundle, on the driver's own disk.
        policy, table: what the files are held against; default: the policy that `enable` was given.
        with_keys: open what the keys can open; else tell what everybody sees.
        signers, overwrite, now, more: as for `bloomseal.evidence.make`.
        files_per_task: files that one task looks at.

    Raises:
        UsageError: no policy, or one whose KMS is an object; a file at `out`.
        MissingDependencyError: the extra ``report``, or a Delta table without its library.
    """
    ready(out, signers, overwrite=overwrite)
    moment = (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
    report, places, auditor = looked(spark, path, policy, table, with_keys, moment, files_per_task)
    _, inside = split_uri(qualified(spark, path))
    found = gather(auditor, report, places, Beside(**more), paths=[inside], now=moment)
    return finished(found, out, signers, moment, overwrite=overwrite)
