"""Reading through the data source with only the columns opened that a query needs, and what such reads did."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from ..core.errors import BloomsealWarning, UsageError
from ..policy import Policy, TablePolicy
from .given import MERGE_SCHEMA, PARTITION_INFERENCE, kms_uri, refuse_secrets, table_policy
from .listing import above_pattern, classic_jvm, matching
from .session import as_active, known_policy, metrics_of, register_source, show_figures
from .versions import pushes_filters

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from .source.options import SourceOptions
    from .source.stats import SourceStats

__all__ = ["Request", "counted", "df_stats", "metrics", "read", "with_indexes"]

_MOVING: Final = re.compile(r"(?i)current_|now\(|localtime|\b(now|today|tomorrow|yesterday)\b")
"""What means something else the next time that the frame is computed: nothing is pruned by it."""
_FILE: Final = re.compile(r"(?i)\binput_file_(name|block_start|block_length)\(")
"""What Spark knows of its own file readers only; of other sources it says nothing, and no row would be found."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

PolicyChoice = Policy | TablePolicy | str | os.PathLike[str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


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
) -> DataFrame:
    """A table through ``format("bloomseal")``, of which only the columns of `columns` and `where` are ever opened.

    Spark does not tell a data source in Python which columns a query needs; this does. Whoever lacks the keys of other
    columns is not refused.

    Args:
        path: folder or file, or several; also a pattern such as ``table/day=2024-0*``.
        columns: names, in the order wanted, also of fields inside structs; None for all.
        where: SQL text, or a Column made with ``functions.col``; rows for which it does not hold are left out.
        keys: one column and the keys to look for in it, as many as you like; see `semi_join`, which then does the work.
        policy, table: whose keys; default: the policy that `enable` was given.
        options: of the data source, such as ``{"missing_keys": "null"}``.
        use_index: ``auto``: the table's sealed indexes are asked for `where` and `keys`, by the driver, each time that
            the frame is computed; files that they rule out are not opened. ``never``. ``require``: refuse what an index
            does not answer for every file.
        trust: as in `bloomseal.open_table`.

    Raises:
        UsageError: no such path or column, an unknown option, several columns in `keys`, ``input_file_name()`` in
            `where`; an index is required, and of `where` no part can be asked of one. That an index does not cover each
            file is told when the frame is computed.
        KeyAccessError: the first file's footer key can't be used here, on the driver.
        PySparkException: what Spark says of a `where` that it does not understand.
    """
    if keys is not None:
        from .semijoin.join import semi_join

        if len(keys) != 1 or options or not isinstance(path, str | os.PathLike):
            raise UsageError("keys= takes one path and one column, and no options", hint="keys={column: values}")
        ((column, wanted),) = keys.items()
        return semi_join(
            spark, path, column, wanted,
            columns=columns, where=where, policy=policy, table=table, use_index=use_index, trust=trust,
        )  # fmt: skip
    from .source.pushdown import from_text

    request = Request(spark, path, policy, table, with_indexes(options, use_index, trust))
    schema = request.schema
    if columns is not None:
        if not columns:
            raise UsageError("no columns are asked for", hint="columns=None for all")
        if isinstance(columns, str):
            raise UsageError("columns come as a list, also a single one")
        frame = spark.createDataFrame([], schema)
        selected = _selected(frame, columns)
        schema = _needed(frame, selected, selected if where is None else frame.where(where))
    if where is None:
        rows = request.frame(schema)
    else:
        pushed = request.pushed(where)
        if request.settings.use_index == "require" and not any(one.by_equality for one in from_text(pushed)):
            raise UsageError("an index is required, and nothing of where= can be asked of one", hint="column = value")
        rows = request.frame(schema, conditions=pushed).where(where)
    return rows if columns is None else rows.select(*columns)


def with_indexes(options: Mapping[str, str] | None, use_index: str, trust: str) -> dict[str, str]:
    """Options of the data source, and what was said of indexes beside them."""
    said = {"use_index": use_index, "trust": trust}
    return {**{name: word for name, word in said.items() if word != "auto"}, **(options or {})}


def df_stats(what: DataFrame | SparkSession) -> SourceStats:
    """What the reads behind a frame did, over all its runs so far; for a session, all its reads through the data
    source.

    Spark's UI shows it from then on: a stage "bloomseal: what reads did", with an accumulator for each figure.

    Raises:
        UsageError: `enable` was not called, or the frame reads nothing that `bloomseal.spark.read` made.
    """
    stats = counted(what)
    spark: Any = getattr(what, "sparkSession", what)
    show_figures(spark, "bloomseal: what reads did", stats.to_dict())
    return stats


def metrics(spark: SparkSession, **labels: str) -> str:
    """All that the session's reads through the data source did, in the text format that Prometheus reads.

    Write it where its node exporter looks for text files, push it to a gateway, or answer a request with it.

    Args:
        labels: of each sample, such as ``application="billing"``.

    Raises:
        UsageError: `enable` was not called.
    """
    return counted(spark).to_prometheus(**labels)


def counted(what: DataFrame | SparkSession) -> SourceStats:
    """As `df_stats`, but the UI shows nothing of it."""
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


class Request:
    """What is to be read, before Spark is asked for it.

    Attributes:
        settings: the options, understood.
        schema: the table's.

    Raises:
        As `read`.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: Paths,
        policy: PolicyChoice,
        table: str | None,
        options: Mapping[str, str] | None,
    ) -> None:
        from .source.options import Defaults, SourceOptions
        from .source.reader import infer_schema

        refuse_secrets(options or {})
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._paths = [found for one in paths for found in matching(spark, one)]
        self._spark = spark
        self._zone = str(spark.conf.get("spark.sql.session.timeZone"))
        self._format = "bloomseal"
        self._options = dict(options or {})
        if table is not None and policy is None:
            self._options["table"] = table
        if "infer_partition_types" not in map(str.lower, self._options):
            self._options["infer_partition_types"] = str(spark.conf.get(PARTITION_INFERENCE, "true")).lower()
        if not {"merge_schema", "mergeschema"} & {*map(str.lower, self._options)}:
            self._options["merge_schema"] = str(spark.conf.get(MERGE_SCHEMA, "false")).lower()
        kms, known = known_policy(spark)
        above = {above_pattern(spark, one) for one in paths}
        if policy is not None:
            chosen = table_policy(policy, table)
            chosen = replace(chosen, kms=kms or chosen.kms)
            if chosen.root is not None:
                above = set()  # where the table is was said
            # Options hold texts only, so a data source of its own knows this policy.
            kms, known = kms_uri(chosen), Policy({chosen.name: chosen})
            self._format = f"bloomseal_{hashlib.sha256(pickle.dumps(chosen)).hexdigest()[:16]}_read"
            register_source(spark, kms, known, self._format)
        if len(above) == 1 and (root := above.pop()) is not None and "root" not in map(str.lower, self._options):
            self._options["root"] = root
        given = {**self._options, "paths": json.dumps(self._paths)}
        self.settings: SourceOptions = SourceOptions.parse(given, Defaults(kms, known))
        self.schema: StructType = infer_schema(self.settings)

    def pushed(self, where: str | Column) -> str:
        """The filters that Spark makes of a condition, as the option ``conditions``."""
        from pyspark.errors import PySparkException
        from pyspark.serializers import CPickleSerializer

        loads: Any = CPickleSerializer().loads
        # With views, functions and settings of the session, and settings of its own: reads side by side share none.
        beside = type(self._spark)(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        beside.conf.set(_PUSHDOWN, "true")
        try:
            frame = self.frame(self.schema, beside, catch_filters="true").where(where)
            plans = frame._jdf.queryExecution()
            said = str(plans.analyzed())
            if found := _FILE.search(said):
                raise UsageError(f"data sources in Python have no {found[0]})", hint="spark.read.parquet")
            if _MOVING.search(said):
                return "[]"
            if not pushes_filters():
                warnings.warn(
                    "this Spark tells data sources in Python no filter, so that where= prunes nothing: Spark 4.1 does, and "
                    "spark.read.parquet prunes with any",
                    BloomsealWarning,
                    stacklevel=3,
                )
                return "[]"
            leaves = plans.optimizedPlan().collectLeaves()
            scans = [leaf for leaf in map(leaves.apply, range(leaves.size())) if "ScanRelation" in leaf.nodeName()]
            # One at most: none of a condition that never holds, and tables in its subqueries are not ours.
            parts = [one for scan in scans[:1] for one in scan.scan().toBatch().planInputPartitions()]
            caught: list[Any] = [loads(bytes(part.pickedPartition())) for part in parts]
        except PySparkException as error:
            # Dates that Python has not, before the year 1 and after 9999, don't even reach `FilterCatcher`.
            if error.getCondition() != "PYTHON_DATA_SOURCE_ERROR":
                raise
            return "[]"
        return str(caught[0].value) if caught else "[]"

    def frame(self, schema: StructType, session: SparkSession | None = None, **more: str) -> DataFrame:
        """These columns, and fields of columns, of the table, counted by themselves.

        Args:
            session: another one than the reader's.
        """
        from .source.stats import READ_ID

        zone = {} if "timezone" in map(str.lower, self._options) else {"timezone": self._zone}
        options = {**self._options, **zone, **more, READ_ID: uuid.uuid4().hex}
        spark = session or self._spark
        with as_active(spark):
            return spark.read.format(self._format).schema(schema).options(**options).load(self._paths)


def _selected(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        return frame.select(*columns)
    except PySparkException as error:
        if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            raise
        name = (error.getMessageParameters() or {}).get("objectName", "").strip("`")
    raise UsageError("no such column", column=name or None, hint=f"the columns are {', '.join(frame.columns)}")


def _needed(frame: DataFrame, selected: DataFrame, chosen: DataFrame) -> StructType:
    """The columns of a frame, and of structs the fields, that the last steps of two frames made of it look at."""
    from .source.types import position_of

    schema: Any = frame.schema
    pruning = classic_jvm(frame.sparkSession).org.apache.spark.sql.catalyst.expressions.SchemaPruning
    plans = [one._jdf.queryExecution().analyzed() for one in (selected, chosen)]
    places = set()
    for plan in plans:
        found = plan.references().iterator()
        while found.hasNext():  # a query may spell them in another case
            places.add(position_of(str(found.next().name()), schema.names))
    roots = pruning.identifyRootFields(*(plan.expressions() for plan in plans))
    pruned = type(schema).fromJson(json.loads(pruning.pruneSchema(frame._jdf.schema(), roots).json()))
    return cast("StructType", type(schema)([field for place, field in enumerate(pruned.fields) if place in places]))
