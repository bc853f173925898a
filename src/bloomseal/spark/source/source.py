"""``format("bloomseal")`` as Spark finds it. Nothing heavy is loaded to look it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from ...core.errors import UsageError
from .workers import keep_loaded

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from .options import Defaults, SourceOptions


class BloomsealSource(DataSource):
    """Read encrypted tables with Bloomseal's own reader.

    Attributes:
        defaults: set in the subclass that `bloomseal.spark.enable` registers, since the Python processes that plan and
            run a query see no session.
    """

    defaults: ClassVar[Defaults | None] = None
    _inferred = False

    @classmethod
    def name(cls) -> str:
        return "bloomseal"

    def schema(self) -> StructType:
        from .reader import infer_schema

        self._inferred = True
        return infer_schema(self._settings)

    def reader(self, schema: StructType) -> DataSourceReader:
        from .reader import FilterCatcher, TableReader, warn_of_all_columns

        if self._settings.catch_filters:
            return FilterCatcher()
        if self._inferred:
            warn_of_all_columns(self._settings, schema)
        return TableReader(self._settings, schema, self.defaults)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        raise UsageError(
            "this data source reads only",
            hint="a classic session with bloomseal.spark.write; for a table of the catalog USING parquet, and protect_table",
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        raise UsageError(
            "this data source reads tables only", hint="spark.readStream.schema(...).parquet(path), after enable"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        raise UsageError(
            "this data source reads only", hint="a classic session with bloomseal.spark.write_stream, or foreachBatch"
        )

    @property
    def _settings(self) -> SourceOptions:
        from .options import SourceOptions

        settings = SourceOptions.parse(self.options, self.defaults)
        keep_loaded()
        return settings
