"""A driver with two streams, to be killed: `python stream_job.py FOLDER run | finish`.

``run`` prints "ready" when both queries are under way, and goes on until somebody ends it. ``finish`` lets both do what
is left, and tells in JSON what every reader finds in either table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import bloomseal.spark as bss

SOURCES = ("source", "bridge")
"""By whom the files that come are read: our data source, or Spark's own."""
LATE = "Python worker failed to connect back"
"""Spark gives a stream's Python process ten seconds to start, and no setting changes that: on a machine with much else
to do a query ends by itself. It is started again from its checkpoint, which is what its user would do.
"""


def to_its_end(stream: Any) -> None:
    """A query over what is available, started again from its checkpoint where the machine was too busy."""
    from pyspark.errors import StreamingQueryException

    for attempt in range(5):
        try:
            stream.trigger(availableNow=True).start().awaitTermination()
            return
        except StreamingQueryException as error:
            if LATE not in str(error) or attempt == 4:
                raise


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
    source = str(folder / "in")
    frames = {
        "source": spark.readStream.format("bloomseal").schema("id BIGINT, ssn STRING").load(source),
        "bridge": spark.readStream.schema("id BIGINT, ssn STRING").option("maxFilesPerTrigger", 10).parquet(source),
    }

    def begun(door: str) -> Any:
        sink = bss.write_stream(frames[door], folder / door)
        sink = sink.option("checkpointLocation", str(folder / f"{door}-checkpoint"))
        return (sink.trigger(availableNow=True) if what == "finish" else sink).start()

    def done(door: str) -> int:
        return len(list((folder / f"{door}-checkpoint" / "commits").glob("[0-9]*")))

    queries, before = {door: begun(door) for door in SOURCES}, dict.fromkeys(SOURCES, -1)
    print("ready", flush=True)
    while queries:
        for door, query in list(queries.items()):
            if query.isActive:
                continue
            if (error := query.exception()) is None:
                # After a kill, a run over what is available only repeats the batch that was under way.
                if done(door) == before[door]:
                    del queries[door]
                else:
                    before[door] = done(door)
                    queries[door] = begun(door)
            elif LATE in str(error):
                queries[door] = begun(door)
            else:
                raise error
        time.sleep(0.2)
    print(json.dumps({door: found(spark, folder / door) for door in SOURCES}), flush=True)


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
