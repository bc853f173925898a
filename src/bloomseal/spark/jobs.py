"""Jobs over tables too big for one machine: the same code as on one, a pack of files to a task."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ..errors import BloomsealError, UsageError
from ..policy import Policy, TablePolicy
from .listing import list_files, open_filesystem
from .session import chosen_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["verify"]

_VERIFIED: Final = (
    "file string, ok boolean, complete boolean, footer_verified boolean, authenticated bigint, unauthenticated bigint, "
    "inaccessible array<string>, failures array<string>, notes array<string>"
)


def verify(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    files_per_task: int = 20,
) -> DataFrame:
    """`bloomseal.verify` for every file of a table, on the executors, which find the keys by themselves.

    Args:
        path: the table's folder.
        policy, table: whose keys and expectations; default: the policy that `enable` was given.
        files_per_task: files that one task looks at.

    Returns:
        One row a file, computed when it is asked for: `ok` (no module failed), `complete` (every module authenticated), the
        numbers of modules, columns without a key, what failed and what is worth knowing. A file that can't be opened at
        all is a row too.

    Raises:
        UsageError: no policy, or one whose KMS is an object: executors need its URI.
    """
    chosen = chosen_table(spark, policy, table)
    if not isinstance(chosen.kms, str):
        raise UsageError("the policy's KMS is an object, which can't reach the executors", hint="name it by its URI")
    if files_per_task < 1:
        raise UsageError("a task has at least one file")
    files = list_files(spark, path)
    tasks = max(1, -(-len(files.names) // files_per_task))
    rows = spark.sparkContext.parallelize(files.names, tasks).mapPartitions(
        functools.partial(_verify_all, pickle.dumps(chosen), files.base)
    )
    return spark.createDataFrame(rows, _VERIFIED)


def _verify_all(policy: bytes, base: str | None, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """In a task. Anything that it raised would end the job and with it the answers about all other files."""
    table = _table(policy)
    for name in names:
        try:
            yield _verified(name, table, base)
        except BloomsealError as error:
            yield name, False, False, False, 0, 0, [], [error.what], []


def _verified(name: str, table: TablePolicy, base: str | None) -> tuple[Any, ...]:
    from ..parquet.reader import open_file
    from ..parquet.specs import DecryptionSpec

    spec = DecryptionSpec(**table.decryption_arguments(name))
    with open_file(name, decryption=spec, filesystem=open_filesystem(base)) as file:
        report = file.verify()
    return (
        name,
        report.ok,
        report.complete,
        report.footer_verified,
        report.authenticated.total(),
        report.unauthenticated.total(),
        [f"{column}: {why}" for column, why in sorted(report.inaccessible.items())],
        [str(error) for error in report.failures],
        report.notes,
    )


@functools.lru_cache(maxsize=16)
def _table(policy: bytes) -> TablePolicy:
    """One policy object, and so one key cache, for all tasks of a Python worker."""
    loaded: TablePolicy = pickle.loads(policy)  # noqa: S301 - our own driver's
    return loaded
