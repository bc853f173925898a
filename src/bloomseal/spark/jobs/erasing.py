"""`erase`: rows taken out of a table, on the driver: few files hold a person, and the log or the index tells which."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...rotation.erase import erase as erase_rows
from ..listing import open_filesystem
from .common import JobOptions, TableJob, as_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOLD: Final = "file string, status string, why string, rows bigint, old_size bigint, new_size bigint, failure string"


def erase(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: Any,
    *,
    also: Sequence[str | os.PathLike[str]] = (),
    dry_run: bool = False,
    journal: str | os.PathLike[str] | None = None,
    restart: bool = False,
    **options: Unpack[JobOptions],
) -> DataFrame:
    """`bloomseal erase`: take the rows that a condition keeps out of a table, on the driver. One that was killed is
    started again, with the same condition; the journal is on the driver's machine.

    Args:
        path: the table's folder.
        where, also, dry_run, journal, restart: as for `bloomseal.SealedTable.erase`.
        options: policy and table; see `TableJob`.

    Returns:
        One row for each file that holds such rows: its `status` (``erased``, ``removed``, ``to be erased``, ...), the
        number of `rows`, and `failure`, null where all went well. Behind them one row for whatever still holds some, of
        status ``still held``, whose `why` says what takes them out there.

    Raises:
        BloomsealError: as `bloomseal.SealedTable.erase`.
    """
    table = TableJob(spark, path, **options)
    with table.described("erase rows of"):
        report = erase_rows(
            table.root, where, decryption=table.policy, filesystem=open_filesystem(table.base),
            also=also, dry_run=dry_run, journal=journal, restart=restart,
        )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for one in report.files:
        failure = None if one.status.settled else one.why or str(one.status)
        rows.append((one.path, str(one.status), one.why, one.rows, one.old_size, one.new_size, failure))
    rows += [(None, "still held", told, None, None, None, None) for told in report.remaining]
    return as_frame(spark, rows, _TOLD)
