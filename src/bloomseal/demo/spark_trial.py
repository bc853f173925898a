"""The demonstration's Spark part: the same people written through the key bridge, and looked up by both readers."""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ..core.errors import BloomsealError
from ..keytools.keyring.keyring import Keyring
from ..policy import Policy
from .people import COLUMN_KEYS, FILTERED, FPP

_FILES: Final = 4


def why_not() -> str | None:
    """Why there can be no Spark part here; None where there can."""
    from ..spark.runtime import java_home

    if find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'bloomseal[spark]')"
    if java_home() is None:
        return "there is no Java of version 17 or later (pip install 'bloomseal[jvm]')"
    return None


class SparkTrial:
    """Write, look up, count what was pruned.

    Args:
        folder: where the table goes.
        clear: a plaintext Parquet file with the people.
        keyring: with the master keys ``footer``, ``pii`` and ``health``.
        rows: of the table.
        row_group_size: rows per row group.
        say: called with what is about to be done.
    """

    def __init__(
        self, folder: Path, clear: Path, keyring: Keyring, rows: int, row_group_size: int, say: Callable[[str], None]
    ) -> None:
        self.folder, self.clear, self.rows, self.say = folder, clear, rows, say
        self.row_group_size = row_group_size
        columns = {name: {"key": key} for name, key in COLUMN_KEYS.items()}
        for name in FILTERED:
            columns[name]["filter"] = {"fpp": FPP, "ndv": row_group_size}  # type: ignore[assignment]
        people = {"footer_key": "footer", "complete": True, "columns": columns}
        self.policy = Policy.from_dict({"version": 1, "kms": f"keyring://{keyring.path}", "tables": {"people": people}})

    def run(self, present: list[str], absent: list[str]) -> dict[str, Any]:
        """The results by name, times in seconds. `present` and `absent` are values of ssn."""
        import bloomseal.spark as bss

        self.say("starting Spark")
        spark = self._session()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                bss.enable(spark, policy=self.policy)
            table = str(self.folder / "people-spark")
            self.say("writing the people through Spark's own writer, sealed")
            frame = spark.read.parquet(str(self.clear)).repartition(_FILES)
            options = {"parquet.block.row.count.limit": str(self.row_group_size)}
            began = time.perf_counter()
            report = bss.write(frame, table, mode="overwrite", options=options)
            results: dict[str, Any] = {
                "write": {
                    "rows": report.rows,
                    "files": len(report.files),
                    "row_groups": report.row_groups,
                    "filters": report.filters,
                    "seconds": time.perf_counter() - began,
                }
            }
            readers: dict[str, Callable[[str], Any]] = {
                "spark_without_filters": lambda value: self._native(spark, table, value, filters=False),
                "bridge": lambda value: self._native(spark, table, value),
                "data_source": lambda value: bss.read(spark, table, where=f"ssn = '{value}'"),
            }
            for name, reader in readers.items():
                self.say(f"looking up {len(present) + len(absent)} people: {name.replace('_', ' ')}")
                reader(present[0]).collect()
                reader(absent[0]).collect()
                results[name] = {
                    "present_seconds": self._timed(reader, present, 1),
                    "absent_seconds": self._timed(reader, absent, 0),
                }
            found = bss.read(spark, table, where=f"ssn = '{present[0]}'")
            found.collect()
            stats = bss.df_stats(found)
            results["data_source"]["row_groups"] = stats.row_groups
            results["data_source"]["pruned_by_filter"] = stats.pruned_by_filter
            results["data_source"]["decoded"] = stats.decoded
            return results
        finally:
            spark.stop()

    def _native(self, spark: Any, table: str, value: str, *, filters: bool = True) -> Any:
        frame = spark.read.option("parquet.filter.bloom.enabled", str(filters).lower()).parquet(table)
        return frame.where(frame["ssn"] == value)

    def _timed(self, reader: Callable[[str], Any], values: list[str], rows: int) -> float:
        seconds = []
        for value in values:
            began = time.perf_counter()
            found = reader(value).collect()
            seconds.append(time.perf_counter() - began)
            if len(found) != rows:
                raise BloomsealError(f"Spark found {len(found)} people where there should be {rows}")
        return statistics.median(seconds)

    def _session(self) -> Any:
        from pyspark.sql import SparkSession

        from ..spark import use_java

        use_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        scratch = self.folder / "spark"
        return (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "OFF")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.io.encryption.enabled", "true")
            .config("spark.local.dir", str(scratch))
            .config("spark.sql.warehouse.dir", str(scratch))
            .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            .getOrCreate()
        )
