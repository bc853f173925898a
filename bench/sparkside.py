"""A process with a warm Spark session of two threads, which does jobs on request: `python -m bench.sparkside FOLDER`.

A JSON object on each line of standard input, ``{"job": name, …}``; the answer on standard output,
``{"seconds": s, "answer": a}`` or ``{"cant": why}``. It is a process of its own since the rows on one core have a Spark
of theirs, and a process has one JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.audit import inventory

__all__ = ["KEYRING", "POLICY"]

KEYRING = "spark-keyring.json"
POLICY = "policy.toml"


class Jobs:
    """The jobs by name. Each returns its answer, or seconds that it took itself and its answer."""

    def __init__(self, folder: Path) -> None:
        from pyspark.sql import SparkSession

        bss.use_java()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self._scratch = Path(tempfile.mkdtemp(prefix="bloomseal-bench-sparkside-", dir=folder))
        self._policy = bs.Policy.load(folder / POLICY)
        self._spark: Any = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "4g")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.warehouse.dir", str(self._scratch))
            .config("spark.local.dir", str(self._scratch))
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bss.enable(self._spark, policy=self._policy)
        self._cached: Any = None

    def _frame(self, path: str) -> Any:
        if self._cached is None:
            self._cached = self._spark.read.parquet(path).repartition(4).cache()
            self._cached.count()
        return self._cached

    def write(self, source: str, how: str) -> int:
        """The cached table through Spark's own writer: in plaintext, encrypted, or encrypted and checked. Filters each
        time.
        """
        frame, target = self._frame(source), str(self._scratch / f"written-{how}")
        shutil.rmtree(target, ignore_errors=True)
        if how == "checked":
            return bss.write(frame, target, table="people").rows
        options = bss.options(self._policy, "people", schema=frame.schema)
        if how == "plaintext":
            options = {
                name: value for name, value in options.items() if "encryption" not in name and "crypto" not in name
            }
        frame.write.options(**options).parquet(target)
        return int(frame.count())

    def scan(self, path: str, through: str) -> None:
        """All columns of all rows, dropped."""
        self._read(path, through).write.format("noop").mode("overwrite").save()

    def lookup(self, path: str, through: str, value: str, filters: bool = True) -> int:
        """Rows with this SSN."""
        self._spark.conf.set("parquet.filter.bloom.enabled", str(filters).lower())
        try:
            return len(self._found(path, through, value).collect())
        finally:
            self._spark.conf.unset("parquet.filter.bloom.enabled")

    def semi_join(self, path: str, through: str, keys: str) -> int:
        """Rows whose e-mail address is in a file of keys."""
        wanted = self._spark.read.parquet(keys)
        if through == "native":
            return int(
                self._spark.read.parquet(path).join(wanted, "email", "left_semi").selectExpr("count(ssn)").first()[0]
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = bss.read(self._spark, path, keys={"email": wanted}, table="people")
        return int(frame.selectExpr("count(ssn)").first()[0])

    def plan(self, path: str, through: str, value: str) -> bool:
        """Planning alone, to the tasks that a look-up would have."""
        plan = self._found(path, through, value)._jdf.queryExecution()
        return int(plan.toRdd().getNumPartitions()) > 0

    def audit(self, path: str, through: str) -> int:
        """The inventory of a table: its rows."""
        if through == "one process":
            table = self._policy.for_table("people")
            return int(inventory(path, keys=table.keys, policy=table).num_rows)
        return int(bss.audit(self._spark, path, table="people").inventory.count())

    def nothing(self) -> int:
        """A job of two tasks without work: what starting one costs."""
        return int(self._spark.sparkContext.parallelize(range(2), 2).count())

    def _found(self, path: str, through: str, value: str) -> Any:
        if through == "source":
            return bss.read(self._spark, path, where=f"ssn = '{value}'", table="people")
        frame = self._spark.read.parquet(path)
        return frame.where(frame["ssn"] == value)

    def _read(self, path: str, through: str) -> Any:
        if through == "source":
            return self._spark.read.format("bloomseal").option("table", "people").load(path)
        return self._spark.read.parquet(path)


def main(folder: str) -> None:
    """Serve until standard input ends."""
    pa.set_cpu_count(1)
    jobs = Jobs(Path(folder))
    # What Spark or a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"answer": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        job: Callable[..., Any] = getattr(jobs, request.pop("job"))
        start = time.perf_counter()
        try:
            answer = job(**request)
            told = {"seconds": time.perf_counter() - start, "answer": answer}
        except Exception as error:
            told = {"cant": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
