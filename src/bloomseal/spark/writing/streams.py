"""Streams into sealed tables, with the checks of `write` before the first batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...core.errors import UnsupportedError, UsageError
from ...policy import Policy, TablePolicy
from ...table.hive import check_partitioning
from ..given import refuse_secrets
from ..listing import list_files, qualified, split_uri
from ..session import as_active, chosen_table, settings_for
from ..settings import bridge_options, check_lookalikes, promised
from ..versions import file_sink_keeps_options
from .frames import registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["write_stream"]


def write_stream(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    through: Literal["bridge", "source"] = "source",
) -> DataStreamWriter:
    """A streaming frame's writer, set to seal what it writes: add a checkpoint, a trigger, and ``start()``.

    Each row is there once, also where a driver was killed and the query is started again from its checkpoint.

    Args:
        df: a streaming frame of a session that `enable` was called for.
        path: the table's folder.
        policy, table, partition_by, options: as `write`.
        through: ``source``, Bloomseal's writer, whose batches are ordinary commits to an ordinary table; or ``bridge``,
            Spark's own file sink, which keeps a log of its files in the folder (``_spark_metadata``): nobody else may
            write there. From Spark 4.2 on: the sinks of older ones get no options, and so no keys.

    Raises:
        UsageError, PolicyError, UnsupportedError: as `write`, before anything is written; and rows in the folder that
            the log of a file sink would hide. ``start()`` refuses a folder of other partition columns.
    """
    from ..source.files.logs import refuse_logs, sink_files
    from ..source.files.tree import check_folders

    spark = df.sparkSession
    if not df.isStreaming:
        raise UsageError("the frame is no stream", hint="bloomseal.spark.write")
    if through not in ("bridge", "source"):
        raise UsageError(f"no way {through!r} to write", hint="bridge or source")
    chosen, target, extra = chosen_table(spark, policy, table), qualified(spark, path), dict(options or {})
    stored = type(df.schema)([field for field in df.schema.fields if field.name not in partition_by])
    check_partitioning(df.schema.names, chosen, partition_by)
    refuse_secrets(extra)
    promised(chosen, stored)
    check_lookalikes(chosen, stored)
    refuse_logs(target, sink=through == "bridge")
    if through == "source":
        by = {"partition_by": ",".join(partition_by)} if partition_by else {}

        def check(mode: str) -> None:
            if mode.lower() != "complete":  # which replaces all that is there
                check_folders(target, partition_by)

        return _Writer(df, check).format(registered(spark, chosen)).options(**extra, **by, path=target)
    if not file_sink_keeps_options():
        raise UnsupportedError(
            "Spark before 4.2 loses a stream's options on their way to its file sink, and would write plaintext",
            file=target, hint='through="source"; with Spark 4.0, foreachBatch',
        )  # fmt: skip
    settings = bridge_options(df, chosen, stored, extra) | settings_for(spark, chosen, target)
    if sink_files(*split_uri(target)) is None and list_files(spark, path, to_write=True).names:
        raise UsageError(
            "there are files already, which no read would see beside the log of a stream's file sink",
            file=target,
            hint='through="source", or another folder',
        )
    return df.writeStream.format("parquet").options(**extra, **settings, path=target).partitionBy(*partition_by)


class _Writer(DataStreamWriter):
    """Starts its query where the frame's own session knows the data source: Spark looks for it in the thread's active
    one.

    Args:
        check: given the output mode, refuses what must not begin.
    """

    def __init__(self, df: DataFrame, check: Callable[[str], None]) -> None:
        super().__init__(df)
        self._session, self._check, self._mode = df.sparkSession, check, "append"

    def outputMode(self, outputMode: str) -> DataStreamWriter:  # noqa: N802, N803
        self._mode = outputMode
        return super().outputMode(outputMode)

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> StreamingQuery:
        self._check(outputMode or self._mode)
        with as_active(self._session):
            return super().start(path, format, outputMode, partitionBy, queryName, **options)
