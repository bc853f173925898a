"""What is to be read through the data source, understood before Spark is asked for it."""

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
from ..policy import Policy, TablePolicy, table_policy
from .given import MERGE_SCHEMA, PARTITION_INFERENCE, absolute_kms, kms_uri, refuse_secrets
from .listing import above_pattern, classic_jvm, in_folder, matching
from .session import as_active, known_policy, register_source
from .versions import pushes_filters

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from .source.options import SourceOptions
    from .source.search import KeySearch

_MOVING: Final = re.compile(r"(?i)current_|now\(|localtime|\b(now|today|tomorrow|yesterday)\b")
"""What means something else the next time that the frame is computed: nothing is pruned by it."""
_FILE: Final = re.compile(r"(?i)\binput_file_(name|block_start|block_length)\(")
"""What Spark knows of its own file readers only; of other sources it says nothing, and no row would be found."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

PolicyChoice = Policy | TablePolicy | str | os.PathLike[str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def with_indexes(
    options: Mapping[str, str] | None, use_index: str, trust: str, columns_without_key: str = "error"
) -> dict[str, str]:
    """Options of the data source, and what was said of indexes and keys beside them."""
    said = {"use_index": use_index, "trust": trust, "columns_without_key": columns_without_key}
    return {**{name: word for name, word in said.items() if word not in ("auto", "error")}, **(options or {})}


class Request:
    """What is to be read, before Spark is asked for it.

    Attributes:
        spark: the session.
        settings: the options, understood.
        tree: the table's files.
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
        from .source.options import Defaults, SourceOptions, as_options
        from .source.reader import infer_schema

        refuse_secrets(options or {})
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._paths = [found for one in paths for found in matching(spark, one)]
        self.spark = spark
        self._format = "bloomseal"
        self._options = {
            "infer_partition_types": str(spark.conf.get(PARTITION_INFERENCE, "true")).lower(),
            "merge_schema": str(spark.conf.get(MERGE_SCHEMA, "false")).lower(),
            "timezone": str(spark.conf.get("spark.sql.session.timeZone")),
            **as_options(options or {}),
        }
        if table is not None and policy is None:
            self._options["table"] = table
        kms, known = known_policy(spark)
        above = {above_pattern(spark, one) for one in paths}
        if policy is not None:
            chosen = table_policy(policy, table)
            if chosen.root is not None:
                above, chosen = set(), in_folder(chosen, self._paths[0])  # where the table is was said
            # Options hold texts only, so a data source of its own knows this policy. A relative keyring is meant from
            # here; executors run in folders of their own.
            kms = kms or absolute_kms(kms_uri(chosen))
            chosen = replace(chosen, kms=kms)
            known = Policy({chosen.name: chosen})
            self._format = f"bloomseal_{hashlib.sha256(pickle.dumps(chosen)).hexdigest()[:16]}_read"
            register_source(spark, kms, known, self._format)
        self._known = kms, known
        if len(above) == 1 and (root := above.pop()) is not None:
            self._options.setdefault("root", root)
        given = {**self._options, "paths": json.dumps(self._paths)}
        self.settings: SourceOptions = SourceOptions.parse(given, Defaults(kms, known))
        self.tree = self.settings.find_files()
        self.schema: StructType = infer_schema(self.settings, self.tree)

    def needed(self, columns: Sequence[str] | None, where: str | Column | None, *also: str) -> StructType:
        """The columns, and of structs the fields, that a query looks at.

        Args:
            columns: those of its result; None for all.
            also: more columns.

        Raises:
            UsageError: no such column, or none at all.
        """
        if columns is None:
            return self.schema
        if not columns:
            raise UsageError("no columns are asked for", hint="columns=None for all")
        if isinstance(columns, str):
            raise UsageError("columns come as a list, also a single one")
        frame = self.spark.createDataFrame([], self.schema)
        selected = _selected(frame, [*columns, *also])
        return _needed(frame, selected, selected if where is None else frame.where(where))

    def rows(
        self,
        schema: StructType,
        where: str | Column | None,
        search: KeySearch | None = None,
        use_index: str | None = None,
    ) -> DataFrame:
        """The rows for which a condition holds, and, if keys are looked for, more than those that have one.

        Args:
            use_index: another word than the settings'.

        Raises:
            UsageError: an index is required, and of nothing that is asked for.
        """
        more = {} if use_index is None else {"use_index": use_index}
        if where is None:
            return self.frame(schema, more, search=search)
        from .source.pushdown import from_text

        more["conditions"] = pushed = self.pushed(where)
        asked = search is not None or any(one.by_equality for one in from_text(pushed))
        if self.settings.use_index == "require" and not asked:
            raise UsageError("an index is required, and nothing of where= can be asked of one", hint="column = value")
        return self.frame(schema, more, search=search).where(where)

    def pushed(self, where: str | Column) -> str:
        """The filters that Spark makes of a condition, as the option ``conditions``."""
        from pyspark.errors import PySparkException
        from pyspark.serializers import CPickleSerializer

        loads: Any = CPickleSerializer().loads
        # With views, functions and settings of the session, and settings of its own: reads side by side share none.
        beside = type(self.spark)(self.spark.sparkContext, self.spark._jsparkSession.cloneSession())
        beside.conf.set(_PUSHDOWN, "true")
        try:
            frame = self.frame(self.schema, {"catch_filters": "true"}, session=beside).where(where)
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

    def frame(
        self,
        schema: StructType,
        options: Mapping[str, str] | None = None,
        *,
        session: SparkSession | None = None,
        search: KeySearch | None = None,
    ) -> DataFrame:
        """These columns, and fields of columns, of the table, counted by themselves.

        Args:
            options: more of the data source's.
            session: another one than the reader's.
            search: keys of which the rows are to have one.
        """
        from .source.stats import READ_ID

        read_id = uuid.uuid4().hex
        spark, name = session or self.spark, self._format
        if search is not None:
            # Spark looks a source up when the frame runs: two reads of one name would both be the later one.
            register_source(spark, *self._known, name := f"bloomseal_{read_id}_keys", search)
        given = {**self._options, **(options or {}), READ_ID: read_id}
        with as_active(spark):
            return spark.read.format(name).schema(schema).options(**given).load(self._paths)


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
