"""The rows of a table that hold one of many keys: pruned first, then read, then joined by Spark."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from ...core.errors import BloomsealWarning
from ...policy import Policy, TablePolicy
from ..request import Request, with_indexes
from .keys import keys_frame, path_in_sql, quoted, type_of
from .question import KeyQuestion
from .whole import is_bridged, whole_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BROADCAST_KEYS: Final = 200_000


def semi_join(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    keys: Any,
    *,
    columns: Sequence[str] | None = None,
    where: Column | str | None = None,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    use_index: str = "auto",
    trust: str = "auto",
) -> DataFrame:
    """The rows whose `column` is one of `keys`: exactly those of Spark's own semi-join, without reading what `prune`
    rules out. As `bloomseal.spark.read` with ``keys={column: keys}``, but that `columns` are plain names.

    Spark decides every row again. No key stands in the plan; see `prune` for what travels. Each run opens the files
    that sealed indexes leave once, under the policy, asks them and reads them in one go.

    Where a prediction says that pruning can't pay, the table is read whole, with a warning: by Spark's own reader after
    `enable`, where that finds the same files and types, otherwise by Bloomseal's. Spark's reader takes sealed files
    only here, whose columns are under the policy's master keys.

    Args:
        path: the table's folder.
        column: dotted path; not within a list or a map.
        keys: as `prune`, taken here, once. Of another type than the column's only where no value changes by it:
            integers of another width, float for double, decimals of the same scale.
        columns: top-level columns of the result; None for all.
        where: a condition besides.
        policy, table, use_index, trust: as `prune`. The table's sealed indexes are asked again for each run. More than
            10,000 keys in a frame or an Arrow array are looked up once, in an index that covers every file, and only
            those that it knows go on. A file that was replaced since then, or has come, is an error of the run.

    Raises:
        UsageError, KeyAccessError, IntegrityError: as `prune`.
        PolicyError: files that can't be opened under the policy, plaintext ones among them; of files that are not
            looked at when the frame is made, each run says so.

    Warns:
        BloomsealWarning: by the prediction pruning can't pay.
    """
    request = Request(spark, path, policy, table, with_indexes(None, use_index, trust))
    named = columns if columns is None or isinstance(columns, str) else [*map(quoted, columns)]
    return with_keys(request, column, keys, named, where)


def with_keys(
    request: Request, column: str, keys: Any, columns: Sequence[str] | None, where: Column | str | None
) -> DataFrame:
    """The rows of a read whose `column` is one of `keys`.

    Args:
        columns: in SQL.

    Raises:
        As `semi_join`.
    """
    question = KeyQuestion.of(request, column, keys, beside_spark=is_bridged(request))
    kind = type_of(request.schema, column)
    wanted = keys_frame(request.spark, keys, question.values, column, kind)
    schema = request.needed(columns, where, path_in_sql(column))
    whole, everywhere = None, question.prediction.everywhere
    if not question.prediction.pays and (question.alike or request.settings.merge_schema):
        whole = whole_table(request, schema, where)
    if whole is not None or everywhere:
        warnings.warn(f"the table is read whole: {question.prediction}", BloomsealWarning, stacklevel=3)
    if whole is None:
        search = question.search.of_all() if everywhere else question.search
        rows = request.rows(schema, where, search, question.use_index)
    else:
        rows = whole
    if question.prediction.keys <= _BROADCAST_KEYS:
        wanted = f.broadcast(wanted)
    joined = rows.join(wanted, rows[path_in_sql(column)] == wanted[wanted.columns[0]], "left_semi")
    return joined if columns is None else joined.select(*columns)
