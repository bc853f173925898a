"""What all jobs share: whose keys, which files to a task, and how a policy gets there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from ...core.errors import UnsupportedError, UsageError
from ...policy import Policy, TablePolicy
from ..given import absolute_kms, kms_uri
from ..listing import classic_jvm, in_folder, qualified, split_uri
from ..session import chosen_table

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession


def packs(spark: SparkSession, names: Sequence[Any], files_per_task: int) -> RDD[Any]:
    """The files, so many to a partition.

    Raises:
        UsageError: fewer than one.
    """
    if files_per_task < 1:
        raise UsageError("a task has at least one file")
    return spark.sparkContext.parallelize(names, max(1, -(-len(names) // files_per_task)))


class JobOptions(TypedDict, total=False):
    """The arguments of a `TableJob`, for functions that make one."""

    policy: Policy | TablePolicy | str | os.PathLike[str] | None
    table: str | None
    files_per_task: int


class TableJob:
    """Work on the files of a table, done on the executors, which find the keys by themselves.

    Args:
        path: a folder of files, or a Delta table.
        policy, table: where keys and AAD prefixes are from; default: the policy that `enable` was given.
        files_per_task: files that one task looks at.

    Attributes:
        spark: the session.
        path: as it was given.
        base, root: the table's file system, as `..listing.SparkTableFiles.base`, and its folder there.
        policy: the table's, in a form that executors can use.

    Raises:
        UsageError: no policy, or one whose KMS is an object: executors need its URI.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
        table: str | None = None,
        files_per_task: int = 20,
    ) -> None:
        self.spark, self.path, self.files_per_task = spark, path, files_per_task
        chosen = policy if isinstance(policy, TablePolicy) else chosen_table(spark, policy, table)
        where = qualified(spark, path)
        self.base, self.root = split_uri(where)
        # A relative keyring is meant from here; executors run in folders of their own.
        self.policy = in_folder(replace(chosen, kms=absolute_kms(kms_uri(chosen))), where)

    def need_unsigned(self, operation: str) -> None:
        """Refuse work after which each executor would have to sign.

        Raises:
            UnsupportedError: the table has signers.
        """
        if self.policy.signers:
            raise UnsupportedError(
                f"the files of table {self.policy.name} are signed, and executors hold no key to sign with",
                file=os.fspath(self.path),
                hint=f"bloomseal {operation}, on one machine",
            )

    def described(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Let Spark's progress bar and UI say that this is done with the table."""
        return described(self.spark, f"{what} {os.fspath(self.path)}")

    def collect(self, names: Sequence[Any], task: Callable[[Iterable[Any]], Iterable[Any]]) -> list[Any]:
        """What tasks answer, in the order of the names. Nothing is left to be computed when somebody looks at it: that
        would do all the work again at every look.
        """
        return packs(self.spark, names, self.files_per_task).mapPartitions(task).collect() if names else []


def as_frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """What a job has to tell, as a frame of this schema. By Arrow: of rows Spark would make another job, each time that
    they are looked at. A file's name that is no UTF-8 stands there with escapes.
    """
    import pyarrow as pa
    from pyspark.sql import types as st

    from ..source.types import arrow_type

    fields: Any = st.StructType.fromDDL(schema)
    columns = [*zip(*([*map(_in_utf8, row)] for row in rows), strict=True)] or [()] * len(fields)
    table = {one.name: pa.array(values, arrow_type(one.dataType)) for one, values in zip(fields, columns, strict=True)}
    made: DataFrame = spark.createDataFrame(pa.table(table), fields)
    return made


def _in_utf8(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_in_utf8, value)]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


@contextlib.contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Let Spark's progress bar and UI say what is going on."""
    classic_jvm(spark)
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(f"bloomseal: {text}")
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]
