"""Files that Spark's own Parquet reader takes as a whole, at its own speed, and sealed ones only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from ..given import CRYPTO_FACTORY
from ..listing import classic_jvm, split_uri
from ..session import settings_for
from .keys import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from ...policy import TablePolicy
    from ..request import Request
    from ..source.options import SourceOptions

_TASK_BYTES: Final = 128 * 1024 * 1024


def is_bridged(request: Request) -> bool:
    """Whether the session has a key bridge that can do what the policy and options ask of a table without a log."""
    settings, tree = request.settings, request.tree
    bridged = request.spark.conf.get("bloomseal.kms", None) == settings.kms
    if (table := settings.table) is None or not bridged or not _bridge_opens(settings, table):
        return False
    return tree.log is None and len(settings.paths) == 1


def whole_table(request: Request, schema: StructType, where: Column | str | None) -> DataFrame | None:
    """These columns of all rows for which a condition holds; None where the bridge can't read the table, or Spark's
    reader finds other files in the table's folder, or has other types for them: it reads nanoseconds and half floats in
    other ways or not at all. Before it opens a file, the bridge holds the columns that it reads against the policy
    (`java/Pins.java`).
    """
    spark, settings, tree = request.spark, request.settings, request.tree
    if (table := settings.table) is None or not is_bridged(request):
        return None
    # A session that leaves out what can't be read would answer without a word.
    strict = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    if where is None:
        # All pages are read, so that nobody need open what tells of each.
        strict["parquet.filter.columnindex.enabled"] = "false"
    keys = settings_for(spark, table, settings.paths[0], pinned=True)
    reader = spark.read.options(**strict, **keys).option("parquet.crypto.factory.class", CRYPTO_FACTORY)
    try:
        frame = reader.option("mergeSchema", str(settings.merge_schema).lower()).parquet(_literal(settings.paths[0]))
    except (PySparkException, Py4JError):  # the latter where a job of Spark's fails, which merges schemas
        return None  # our own reader will tell the reason, or do without
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    wanted = {field.name: field.dataType.simpleString() for field in schema.fields}
    if not wanted.items() <= types.items() or _files_of(frame) != {file.name for file in tree.files}:
        return None
    # Spark makes a task of some thirty small files, and starting it is a good part of its work.
    cores = spark.sparkContext.defaultParallelism
    tasks = max(4 * cores, sum(file.size for file in tree.files) // _TASK_BYTES)
    rows = frame if where is None else frame.where(where)
    return rows.select(*map(quoted, schema.names)).coalesce(tasks)


def _bridge_opens(settings: SourceOptions, table: TablePolicy) -> bool:
    """Whether the bridge can open files as these settings have it."""
    options = (
        settings.aad_prefix,
        settings.encrypted_columns,
        settings.allow_plaintext,
        settings.allow_unverified_footer,
    )
    # It tries one prefix for each file, takes any writer that the KMS lets wrap, and has the access log of the JVM.
    policy = table.previous_aad_prefixes, table.authentic_writers, table.access_log, table.reading
    return not any((*options, *policy)) and settings.columns_without_key == "error"


def _files_of(frame: DataFrame) -> set[str]:
    """The names of a frame's files, as `..source.files.piece.Piece.name`."""
    # Thousands of names in one message from the JVM, and not in one each.
    mapper: Any = classic_jvm(frame.sparkSession).com.fasterxml.jackson.databind.ObjectMapper()
    folders: dict[str, str] = {}
    found = set()
    for one in json.loads(mapper.writeValueAsString(frame._jdf.inputFiles())):
        folder, _, name = unquote(one).rpartition("/")
        if folder not in folders:
            folders[folder] = split_uri(f"{folder}/")[1].rstrip("/")
        found.add(f"{folders[folder]}/{name}")
    return found


def _literal(path: str) -> str:
    """What Hadoop would take for a pattern, taken literally."""
    return "".join(f"\\{one}" if one in "{}[]*?\\" else one for one in path)
