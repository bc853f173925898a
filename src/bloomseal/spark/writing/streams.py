"""Streams into sealed tables, with the checks of `write` before the first batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.errors import UnsupportedError, UsageError
from ...policy import Policy, TablePolicy
from ..listing import list_files, qualified, split_uri
from ..session import chosen_table, settings_for
from ..settings import writer_options
from ..versions import file_sink_keeps_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """A streaming frame's writer, set to seal what it writes: add a checkpoint, a trigger, and ``start()``.

    It is Spark's own file sink, which keeps a log of its files in the folder (``_spark_metadata``): nobody else may
    write there. Each row is in the log once, also where a driver was killed and the query is started again from its
    checkpoint.

    Args:
        df: a streaming frame of a session that `enable` was called for.
        path: the table's folder.
        policy, table, partition_by, options: as `write`.

    Raises:
        UsageError, PolicyError, UnsupportedError: as `write`, before anything is written; rows in the folder that the
            log would hide; and Spark before 4.2, whose file sink gets no options, and so no keys.
    """
    from ..source.files.logs import sink_files

    spark = df.sparkSession
    if not df.isStreaming:
        raise UsageError("the frame is no stream", hint="bloomseal.spark.write")
    chosen, target, extra = chosen_table(spark, policy, table), qualified(spark, path), dict(options or {})
    settings = writer_options(spark, chosen, df.schema, partition_by, extra)
    files = list_files(spark, path, to_write=True)
    files.need_no_log()
    if not file_sink_keeps_options():
        raise UnsupportedError(
            "Spark before 4.2 loses a stream's options on their way to its file sink, and would write plaintext",
            file=target, hint="foreachBatch, with bloomseal.spark.write or write_delta",
        )  # fmt: skip
    settings |= settings_for(spark, chosen, target)
    if sink_files(*split_uri(target)) is None and files.names:
        raise UsageError(
            "there are files already, which no read would see beside the log of a stream's file sink",
            file=target, hint="another folder; or foreachBatch, with bloomseal.spark.write",
        )  # fmt: skip
    return df.writeStream.format("parquet").options(**extra, **settings, path=target).partitionBy(*partition_by)
