"""The rows of a table that hold one of many keys: pruned first, then read, then joined by Spark."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as st

from ...core.errors import BloomsealWarning, PolicyError, UsageError
from ...policy import Policy, TablePolicy
from ..given import MERGE_SCHEMA, PARTITION_INFERENCE
from ..jobs.common import job_table
from ..listing import qualified
from ..session import as_active, counter_of, meanwhile
from ..source.options import SourceOptions
from ..source.reader import infer_schema, plan
from ..source.scan import Scan
from ..source.stats import READ_ID
from ..source.types import arrow_type, position_of
from .indexed import AskedIndexes
from .pruning import Question
from .reading import Reading, RowGroups
from .result import PrunedFile, PruneResult
from .sealed_keyset import key_column, quoted
from .whole import Seen, by_name, seen_by_spark, whole_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..source.files.tree import Tree

__all__ = ["semi_join"]

_MOSTLY: Final = 0.5
"""A file of which at least this share of the row groups is left is read whole, by Spark's own reader."""
_SMALL_FILE: Final = 8 * 1024 * 1024
"""Files of this size on average, and smaller ones, are opened once, asked and read in one go: to open one a second time
costs more than Spark's own reader could save.
"""
_SMALL_FILES_OF_A_TASK: Final = 200
"""Between two tasks Spark takes about 0.1 s of a core, in which so many are read that an index leaves one row group of.
"""
_OPENED_FILES_OF_A_TASK: Final = 5_000
"""The same of files that are only opened under the policy, while Spark's own reader reads them."""
_BROADCAST_KEYS: Final = 200_000
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_WHOLE: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)


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
    files_per_task: int = 20,
    use_index: str = "auto",
    trust: str = "auto",
) -> DataFrame:
    """The rows whose `column` is one of `keys`: exactly those of Spark's own semi-join, without reading what `prune`
    rules out.

    Spark decides every row again. The columns are those of the first file, or of all where the session says so
    (``spark.sql.parquet.mergeSchema``), as in Spark. No key stands in the plan; see `prune` for what travels.

    Files of up to 8 MiB on average are opened once in each run, under the policy, asked and read in one go, by
    Bloomseal's reader. Bigger ones are asked by a job when the frame is made. Those of which most row groups are left
    are then read by Spark's own Parquet reader, of the others only those row groups, by Bloomseal's; each run opens
    them under the policy first, and they must still be the same.

    Where a prediction says that pruning can't pay, the table is read whole, with a warning: by Spark's own reader after
    `enable`, where that finds the same files and types, otherwise by Bloomseal's. Each run opens every file under the
    policy, too. Spark's reader takes sealed files only here.

    Args:
        path: the table's folder.
        column: dotted path; not within a list or a map.
        keys: as `prune`, taken here, once. Of another type than the column's only where no value changes by it:
            integers of another width, float for double, decimals of the same scale.
        columns: top-level columns of the result; None for all.
        where: a condition besides.
        policy, table, files_per_task, use_index, trust: as `prune`. Of small files the table's sealed indexes are asked
            again for each run; files that they rule out are not opened. Keys in a frame, and more than 200,000 in an
            Arrow array, are looked up once, in an index that covers every file, and only those that it knows go on. A
            file that was replaced since then is an error of the run.

    Raises:
        UsageError, KeyAccessError, IntegrityError: as `prune`.
        PolicyError: files that can't be opened under the policy, plaintext ones among them; what they hold is not
            known. Of files that are not asked when the frame is made, each run says so.

    Warns:
        BloomsealWarning: by the prediction pruning can't pay.
    """
    chosen = job_table(spark, path, policy, table)
    native = spark.conf.get("bloomseal.kms", None) is not None and chosen.aad_prefix is None
    typed = str(spark.conf.get(PARTITION_INFERENCE, "true")).lower() == "true"
    merge = str(spark.conf.get(MERGE_SCHEMA, "false")).lower() == "true"
    settings = SourceOptions(
        (qualified(spark, path),), kms=str(chosen.kms), table=chosen, infer_partition_types=typed, merge_schema=merge
    )
    with contextlib.ExitStack() as ending:
        look = functools.partial(seen_by_spark, spark, settings)
        looking = functools.cache(lambda: ending.enter_context(meanwhile(spark, look)))
        question = Question.of(spark, path, column, keys, chosen, use_index, trust, crowded=looking if native else None)
        whole = not question.prediction.pays
        if whole:
            warnings.warn(f"the table is read whole: {question.prediction}", BloomsealWarning, stacklevel=2)
        by_spark = whole and native and (question.alike or merge) and question.tree.rules is None
        seen = looking() if by_spark else None
        # Not by Spark's reader, which would take a stranger's file for the table's.
        schema = infer_schema(settings, question.tree)
        wanted = _keys_frame(
            spark, keys, question.values, column, _type_of(schema, column, case_sensitive=question.case_sensitive)
        )
        if columns is not None:
            _check_columns(schema, columns)
        if columns is not None and where is None:
            needed = {*(name.lower() for name in columns), column.split(".")[0].lower()}
            schema = st.StructType([one for one in schema.fields if one.name.lower() in needed])
        if whole:
            rows = _all_rows(spark, question, settings, schema, seen)
        elif _mean_size(question.tree) <= _SMALL_FILE:
            rows = _by_row_groups(spark, question, settings, schema, dict.fromkeys(question.files.names), prunes=True)
        else:
            found = question.ask(spark, files_per_task)
            for file, failure in found.failures.items():
                raise PolicyError(f"a file could not be asked for keys: {failure}", file=file)
            rows = _rows(spark, question, settings, found, schema, native)
    if where is not None:
        rows = rows.where(where)
    if question.prediction.keys <= _BROADCAST_KEYS:
        wanted = f.broadcast(wanted)
    same = rows[_quoted(column)] == wanted[wanted.columns[0]]
    joined = rows.join(wanted, same, "left_semi")
    return joined if columns is None else joined.select(*map(quoted, columns))


def _mean_size(tree: Tree) -> int:
    return sum(file.size for file in tree.files) // max(len(tree.files), 1)


def _check_columns(schema: st.StructType, columns: Sequence[str]) -> None:
    if isinstance(columns, str):
        raise UsageError("columns come as a list, also a single one", hint="columns=None for all")
    for name in columns:
        if position_of(name, schema.names) is None:
            raise UsageError("no such column", column=name, hint=f"the columns are {', '.join(schema.names)}")


def _quoted(column: str) -> str:
    return ".".join(map(quoted, column.split(".")))


def _type_of(schema: st.StructType, column: str, *, case_sensitive: bool) -> st.DataType:
    kind: st.DataType = schema
    for part in column.split("."):
        fields = kind.fields if isinstance(kind, st.StructType) else []
        alike = [one for one in fields if one.name == part or (not case_sensitive and one.name.lower() == part.lower())]
        if not alike:
            raise UsageError("no such column, or one within a list or a map", column=column, hint="prune() asks those")
        kind = alike[0].dataType
    return kind


def _rows(
    spark: SparkSession,
    question: Question,
    settings: SourceOptions,
    found: PruneResult,
    schema: st.StructType,
    native: bool,
) -> DataFrame:
    """What is left of the table: mostly whole files by Spark's own reader, of the others single row groups."""
    whole: list[str] = []
    parts: list[PrunedFile] = []
    for one in found.surviving:
        mostly = native and len(one.row_groups) >= _MOSTLY * one.seen
        if mostly:
            whole.append(one.file)
        # Spark's reader takes whatever lies there when it runs, plaintext too: so each run opens its files as well, and
        # reads no row group.
        parts.append(replace(one, row_groups=()) if mostly else one)
    frames = []
    if parts:
        asked = {one.file: one for one in parts}
        frames.append(_by_row_groups(spark, question, settings, schema, asked, prunes=True))
    if whole:
        frames.append(by_name(spark, settings, whole, schema))
    if not frames:
        return spark.createDataFrame([], schema)
    # In this order: a run that stops at its first rows has looked at the files before.
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


def _all_rows(
    spark: SparkSession,
    question: Question,
    settings: SourceOptions,
    schema: st.StructType,
    seen: Callable[[], Seen | None] | None,
) -> DataFrame:
    """The table, of which nothing can be ruled out: by Spark's own reader where that sees it as Bloomseal's does.

    Args:
        seen: how it does; None where nobody asked.
    """
    names = question.files.names
    if seen is not None:
        # One answer for all, which so travels once. Made while Spark looks at the table.
        opened = dict.fromkeys(names, PrunedFile("", (), 0))
        looks = _by_row_groups(spark, question, settings, schema, opened, prunes=False)
        if (whole := whole_table(seen(), question.tree, schema)) is not None:
            return looks.union(whole)
    return _by_row_groups(spark, question, settings, schema, dict.fromkeys(names), prunes=False)


def _by_row_groups(
    spark: SparkSession,
    question: Question,
    settings: SourceOptions,
    schema: st.StructType,
    asked: Mapping[str, PrunedFile | None],
    *,
    prunes: bool,
) -> DataFrame:
    """What Bloomseal's own reader finds in these files."""
    tree = question.tree
    pieces, _ = plan(tree, (), spark.conf.get("spark.sql.session.timeZone"))
    values = {piece.name: piece.values for piece in pieces}
    scan = Scan(settings, schema, partitioned=tuple(tree.columns.names), rules=tree.rules)
    # Spark looks the source up when the frame runs, not when it is made: two reads of one name would both be the later
    # one.
    name = f"bloomseal_row_groups_{uuid.uuid4().hex}"
    policy, base, counts = pickle.dumps(question.table), question.files.base, counter_of(spark)
    indexes = question.indexes if prunes else AskedIndexes("never")
    reads = any(one is None or one.row_groups for one in asked.values())
    sealed = question.sealed if reads else question.sealed.without_keys()
    task = Reading(policy, base, sealed, scan, asked, prunes, values, name, counts, indexes)
    cores = spark.sparkContext.defaultParallelism
    least = _SMALL_FILES_OF_A_TASK if _mean_size(tree) <= _SMALL_FILE else 1
    least = least if reads else _OPENED_FILES_OF_A_TASK
    own = {"task": task, "cores": cores, "files_of_a_task": least, "name": classmethod(lambda _: name)}
    with as_active(spark):
        spark.dataSource.register(type("RowGroupsOfOneRead", (RowGroups,), own))
        # The path is for the plan.
        return spark.read.format(name).schema(schema).option(READ_ID, name).load(settings.paths[0])


def _keys_frame(spark: SparkSession, keys: Any, values: Any, column: str, kind: st.DataType) -> DataFrame:
    """The keys as one column of the probed column's type, each once. Not as literals, which plans and event logs would
    show.

    Args:
        keys: as the caller gave them.
        values: of `values_of`. A frame of Spark's is not computed again: it could have other keys then than those that
            row groups were ruled out by.
    """
    import pyarrow as pa

    if hasattr(keys, "toArrow"):
        have = key_column(keys, column).schema.fields[0].dataType
        if not _unchanged(have, kind):
            raise UsageError(
                f"keys of {have.simpleString()} for a column of {kind.simpleString()}", column=column, hint="cast them"
            )
        if isinstance(values, pa.ChunkedArray):
            # Spark takes a batch without rows for the end of all.
            values = pa.chunked_array([one for one in values.chunks if len(one)], values.type)
        frame = spark.createDataFrame(pa.table({"_key": values}), st.StructType([st.StructField("_key", have)]))
        return frame.select(f.expr(f"try_cast(_key AS {kind.simpleString()})").alias("_key"))
    found = _as_column(values, column, kind).unique()
    return spark.createDataFrame(pa.table({"_key": found}), st.StructType([st.StructField("_key", kind)]))


def _unchanged(have: st.DataType, want: st.DataType) -> bool:
    """Does Spark compare the two as it compares two values of the wanted type?"""
    if isinstance(have, _WHOLE) and isinstance(want, _WHOLE):
        return True
    if isinstance(have, st.DecimalType) and isinstance(want, st.DecimalType):
        return have.scale == want.scale
    return (
        have == want
        or isinstance(have, st.NullType)
        or (isinstance(have, st.FloatType) and isinstance(want, st.DoubleType))
    )


def _as_column(values: Any, column: str, kind: st.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    target = arrow_type(kind)
    listed = isinstance(values, list | tuple)
    try:
        # What the column can't hold equals nothing in it.
        if listed and pa.types.is_decimal(target):
            return pa.array([one for one in values if _holds(target, one)], target)
        limit = 1 << target.bit_width - 1 if pa.types.is_integer(target) else 0
        if listed and limit:
            values = [one for one in values if type(one) is not int or -limit <= one < limit]
        found = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
        if limit and pa.types.is_uint64(found.type):
            found = found.filter(pc.less(found, pa.scalar(limit, pa.uint64())))
        elif limit and pa.types.is_integer(found.type):
            least, greatest = pa.scalar(-limit, pa.int64()), pa.scalar(limit - 1, pa.int64())
            found = found.filter(pc.and_(pc.greater_equal(found, least), pc.less_equal(found, greatest)))
        return found.cast(target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass  # the message may hold a key
    raise UsageError(f"the keys are no values of {kind.simpleString()}", column=column)


def _holds(target: pa.DataType, value: Any) -> bool:
    """Is a whole or a decimal number one of this decimal type? True where it is neither: Arrow will say so."""
    if not isinstance(value, int | Decimal):
        return True
    number = Decimal(value)
    if not number.is_finite():
        return False
    scaled = number.scaleb(target.scale, _EXACT)
    return scaled == scaled.to_integral_value() and abs(scaled) < 10**target.precision
