"""Files that Spark's own Parquet reader takes as a whole, at its own speed, and sealed ones only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from ..jar import SEALED_READS
from ..listing import classic_jvm, split_uri
from .sealed_keyset import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql import types as st

    from ..source.files.tree import Tree
    from ..source.options import SourceOptions

__all__ = ["Seen", "by_name", "seen_by_spark", "whole_table"]

_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_TASK_BYTES: Final = 128 * 1024 * 1024


def by_name(spark: SparkSession, settings: SourceOptions, names: Sequence[str], schema: st.StructType) -> DataFrame:
    """These files of a table, by their names on its file system."""
    path = settings.paths[0]
    at = _Spelling.of(path)
    reader = _reader(spark).schema(schema).option("basePath", path)
    with _few_listing_tasks(spark):
        # Spark adds the partition columns, asked for or not.
        return reader.parquet(*map(at.uri, names)).select(*map(quoted, schema.names))


@dataclass(frozen=True)
class Seen:
    """A folder as Spark's own reader sees it.

    Attributes:
        files: their names, as `..source.files.tree.DataFile.name`.
    """

    frame: DataFrame
    files: frozenset[str]


def seen_by_spark(spark: SparkSession, settings: SourceOptions) -> Seen | None:
    """A table's folder as Spark's own reader sees it; None where that can't read it."""
    path = settings.paths[0]
    try:
        reader = _reader(spark).option("mergeSchema", str(settings.merge_schema).lower())
        frame = reader.parquet(_literal(path))
    except (PySparkException, Py4JError):  # the latter where a job of Spark's fails, which merges schemas
        return None  # our own reader will tell the reason, or do without
    # Thousands of names in one message from the JVM, and not in one each.
    mapper: Any = classic_jvm(spark).com.fasterxml.jackson.databind.ObjectMapper()
    named = json.loads(mapper.writeValueAsString(frame._jdf.inputFiles()))
    folders: dict[str, str] = {}
    found = set()
    for one in named:
        folder, _, name = unquote(one).rpartition("/")
        if folder not in folders:
            folders[folder] = split_uri(f"{folder}/")[1].rstrip("/")
        found.add(f"{folders[folder]}/{name}")
    return Seen(frame, frozenset(found))


def whole_table(seen: Seen | None, tree: Tree, schema: st.StructType) -> DataFrame | None:
    """These columns of all of a table without a log; None where Spark's reader finds other files in its folder, or has
    other types for them: it reads nanoseconds and half floats in other ways or not at all.
    """
    if seen is None or seen.files != {file.name for file in tree.files}:
        return None
    frame = seen.frame
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    wanted = {field.name: field.dataType.simpleString() for field in schema.fields}
    if not wanted.items() <= types.items():
        return None
    # Spark makes a task of some thirty small files, and starting it is a good part of its work.
    cores = frame.sparkSession.sparkContext.defaultParallelism
    tasks = max(4 * cores, sum(file.size for file in tree.files) // _TASK_BYTES)
    return frame.select(*map(quoted, schema.names)).coalesce(tasks)


def _reader(spark: SparkSession) -> DataFrameReader:
    # A session that leaves out what can't be read would answer without a word.
    strict = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    return spark.read.options(**strict).option("parquet.crypto.factory.class", SEALED_READS)


@contextlib.contextmanager
def _few_listing_tasks(spark: SparkSession) -> Iterator[None]:
    """Spark lists the files that it is given in tasks of one path each, which takes longer than to read them."""
    before = spark.conf.get(_LISTING_TASKS, None)
    spark.conf.set(_LISTING_TASKS, str(spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LISTING_TASKS)
        else:
            spark.conf.set(_LISTING_TASKS, before)


@dataclass(frozen=True)
class _Spelling:
    """How Spark calls the files: `TableFiles.names` are paths on another library's file systems."""

    start: str
    root: str

    @classmethod
    def of(cls, path: str) -> _Spelling:
        # The same path in both spellings ends alike.
        inside = split_uri(path)[1].rstrip("/")
        return cls(path.rstrip("/"), inside)

    def uri(self, name: str) -> str:
        """For Spark's reader."""
        below = name[len(self.root) :]
        return _literal(self.start + below)


def _literal(path: str) -> str:
    """What Hadoop would take for a pattern, taken literally."""
    return "".join(f"\\{one}" if one in "{}[]*?\\" else one for one in path)
