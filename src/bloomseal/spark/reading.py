"""Reading through the data source with only the columns opened that a query needs, and what such reads did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from .request import Paths, PolicyChoice, Request, with_indexes
from .session import metrics_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from .source.stats import SourceStats


def read(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    where: str | Column | None = None,
    keys: Mapping[str, Any] | None = None,
    policy: PolicyChoice = None,
    table: str | None = None,
    options: Mapping[str, str] | None = None,
    use_index: str = "auto",
    trust: str = "auto",
    columns_without_key: str = "error",
) -> DataFrame:
    """A table through ``format("bloomseal")``, of which only the columns of `columns` and `where` are ever opened.

    Spark does not tell a data source in Python which columns a query needs; this does. Whoever lacks the keys of other
    columns is not refused.

    Args:
        path: folder or file, or several; also a pattern such as ``table/day=2024-0*``.
        columns: names, in the order wanted, also of fields inside structs; None for all.
        where: SQL text, or a Column made with ``functions.col``; rows for which it does not hold are left out.
        keys: one column and the keys to look for in it, as many as you like; see `semi_join`.
        policy, table: whose keys; default: the policy that `enable` was given.
        options: of the data source, such as ``{"timezone": "UTC"}``.
        use_index: ``auto``: the table's sealed indexes are asked for `where` and `keys`, by the driver, each time that
            the frame is computed; files that they rule out are not opened. ``never``. ``require``: refuse what an index
            does not answer for every file.
        trust: as in `bloomseal.open_table`.
        columns_without_key: ``error``; ``null``: a column to whose key an executor has no access is null; ``drop``: one
            to whose key the driver has none, for its first file, is left out, and else it is null. `where` needs the
            keys of its columns; a condition on the frame that is made here is Spark's, to which nulls are nulls.

    Raises:
        UsageError: no such path or column, an unknown option, several columns in `keys`, ``input_file_name()`` in
            `where`; an index is required, and of `where` no part can be asked of one. That an index does not cover each
            file is told when the frame is computed. And as `semi_join`.
        KeyAccessError: the first file's footer key can't be used here, on the driver.
        PySparkException: what Spark says of a `where` that it does not understand.
    """
    request = Request(spark, path, policy, table, with_indexes(options, use_index, trust, columns_without_key))
    if keys is not None:
        from .semijoin.join import with_keys

        if len(keys) != 1:
            raise UsageError("keys= takes one column", hint="keys={column: values}")
        ((column, wanted),) = keys.items()
        return with_keys(request, column, wanted, columns, where)
    rows = request.rows(request.needed(columns, where), where)
    return rows if columns is None else rows.select(*columns)


def df_stats(what: DataFrame | SparkSession) -> SourceStats:
    """What the reads behind a frame did, over all its runs so far; for a session, all its reads through the data
    source.

    Raises:
        UsageError: `enable` was not called, or the frame reads nothing that `bloomseal.spark.read` made.
    """
    from .source.stats import SourceStats

    frame: Any = what if hasattr(what, "sparkSession") else None
    spark: Any = what if frame is None else frame.sparkSession
    if (metrics := metrics_of(spark)) is None:
        raise UsageError("the session counts no reads", hint="bloomseal.spark.enable(spark, ...) first")
    if frame is None:
        return sum(metrics.values(), SourceStats())
    from .source.stats import READ_ID

    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.size())]
    named = {str(leaf.options().get(READ_ID)) for leaf in found if "DataSourceV2" in str(leaf.getClass().getName())}
    if not (named := named - {"None"}):
        raise UsageError("the frame reads no table that is counted by itself", hint="bloomseal.spark.read(spark, path)")
    return sum((metrics[name] for name in named if name in metrics), SourceStats())
