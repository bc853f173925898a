"""A driver with a stream, to be killed: `python stream_job.py FOLDER run | finish`.

``run`` prints "ready" when the query is under way, and goes on until somebody ends it. ``finish`` lets it do what is
left, and tells in JSON what every reader finds in the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import bloomseal.spark as bss


def main(folder: Path, what: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.io.encryption.enabled", "true")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    bss.enable(spark, policy=str(folder / "policy.toml"))
    stream = spark.readStream.schema("id BIGINT, ssn STRING").option("maxFilesPerTrigger", 10)
    sink = bss.write_stream(stream.parquet(str(folder / "in")), folder / "out")
    sink = sink.option("checkpointLocation", str(folder / "checkpoint"))

    def done() -> int:
        return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))

    query, before = (sink.trigger(availableNow=True) if what == "finish" else sink).start(), -1
    print("ready", flush=True)
    query.awaitTermination()
    while done() != before:
        # After a kill, a run over what is available may only repeat the batch that was under way.
        before = done()
        sink.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(found(spark, folder / "out")), flush=True)


def found(spark: Any, table: Path) -> dict[str, list[int]]:
    """The ids that each reader finds."""
    frames = {"bss.read": bss.read(spark, table, columns=["id"]), "Spark": spark.read.parquet(str(table)).select("id")}
    ids = {name: sorted(row.id for row in frame.collect()) for name, frame in frames.items()}
    for leftover in left_behind(table):
        leftover.unlink()
    return {**ids, "check_table": [bss.check_table(spark, table).rows]}


def left_behind(table: Path) -> list[Path]:
    """Files that a killed task had begun, in whatever state: Spark's file sink writes where they stay, and its log does
    not name them, so that readers don't see them. The check of a table does, and names them to be removed.
    """
    if not (log := table / "_spark_metadata").exists():
        return []
    logged = "".join(one.read_text() for one in log.iterdir() if not one.name.startswith("."))
    return [one for one in table.glob("*.parquet") if one.name not in logged]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
