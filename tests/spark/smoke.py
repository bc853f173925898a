"""The most important ways through one Spark version, in one short session: run by `matrix.py` with each version's own
Python.

Usage: python smoke.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from ways_to_write import REFUSED, SEALED, found, opened, try_all

import bloomseal.spark as bss
from bloomseal import Keyring, Policy
from bloomseal.core.errors import PolicyError
from bloomseal.spark.versions import file_sink_keeps_options, pushes_filters


def main(folder: Path) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    bss.use_java()
    warnings.simplefilter("ignore")
    ring = Keyring(folder / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    ssn = {"key": "pii", "filter": {"fpp": 0.001, "ndv": 1000}}
    table = {"footer_key": "footer", "complete": True, "partition_by": ["day", "k"], "columns": {"ssn": ssn}}
    table |= {"aad_prefix": "{table}/{path}/", "store_aad_prefix": False}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"people": table}})
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    java = str(spark._jvm.java.lang.System.getProperty("java.version"))
    bss.enable(spark, policy=policy)
    bss.enable(spark, policy=policy)  # a second time, as notebooks do
    rows = spark.range(2000).select(
        "id",
        f.md5(f.col("id").cast("string")).alias("ssn"),
        (f.col("id") % 3).alias("day"),
        f.timestamp_millis(f.col("id")).alias("at"),
        (f.col("id") / 4).cast("decimal(9,2)").alias("sum"),
        f.struct("id", f.array("id").alias("list")).alias("nested"),
    )
    key = rows.where("id = 1234").first()
    assert key is not None
    wanted = f.col("ssn") == key.ssn
    done = []
    path = str(folder / "people")
    assert bss.write(rows, path, partition_by=["day"]).rows == 2000
    for table_read in (spark.read.parquet(path), bss.read(spark, path), spark.read.format("bloomseal").load(path)):
        assert [one.asDict() for one in table_read.where(wanted).select(*rows.columns).collect()] == [key.asDict()], (
            path
        )
        assert table_read.count() == 2000
    pruned = bss.read(spark, path, columns=["id"], where=wanted)
    assert [one.id for one in pruned.collect()] == [1234]
    stats = bss.df_stats(pruned)
    assert not pushes_filters() or stats.pruned_by_filter + stats.pruned_by_statistics
    keys = rows.where("id % 500 = 0").select("ssn")
    assert bss.semi_join(spark, path, "ssn", keys, columns=["id"]).count() == 4
    assert bss.check_table(spark, path).rows == 2000
    assert bss.verify(spark, path).where("not ok").count() == 0
    assert bss.rewrap(spark, path).where("status = 'failed'").count() == 0
    assert bss.audit(spark, path).ok
    done += ["write, read, look up, join, check, verify, rewrap, audit"]
    pq = folder / "in clear"
    rows.drop("ssn").write.parquet(str(pq))
    try:
        bss.read(spark, str(pq)).count()
    except PolicyError:
        done += ["plaintext refused"]
    if file_sink_keeps_options():
        stream = spark.readStream.schema(rows.schema).parquet(path).drop("nested")
        query = bss.write_stream(stream, folder / "streamed").option("checkpointLocation", str(folder / "c"))
        query.trigger(availableNow=True).start().awaitTermination()
        assert bss.check_table(spark, folder / "streamed").rows == 2000
        done += ["streams"]
    bss.enable(spark, policy=policy, refuse_plaintext=[folder / "known"])
    three = rows.select("id", "ssn", f.col("day").alias("k"))
    keeps = file_sink_keeps_options()
    people = policy.for_table("people")
    ways, wrong = try_all(spark, three, bss.options(policy), folder / "known", people, keeps_options=keeps)
    assert not wrong, wrong
    ways |= overwrites(spark, policy, three, folder / "overwritten")
    spark.stop()
    return {"pyspark": pyspark.__version__, "java": java, "python": sys.version.split()[0], "done": done, "ways": ways}


def overwrites(spark: SparkSession, policy: Policy, rows: DataFrame, path: Path) -> dict[str, str]:
    """Into the table's own folder, without an option: sealed, or refused with the old rows there."""
    bss.enable(spark, policy=policy, tables={"people": path})
    spark.sql(
        f"CREATE TABLE people (id BIGINT, ssn STRING, k BIGINT) USING parquet PARTITIONED BY (k) LOCATION '{path}'"
    )
    dynamic = {"partitionOverwriteMode": "dynamic"}

    def itself(**options: str) -> None:
        old = spark.read.parquet(str(path)).selectExpr("id + 1 AS id", "ssn", "k")
        old.write.mode("overwrite").options(**options).partitionBy("k").parquet(str(path))

    ways = {
        "append": lambda: rows.write.mode("append").partitionBy("k").parquet(str(path)),
        "overwrite": lambda: rows.write.mode("overwrite").partitionBy("k").parquet(str(path)),
        "overwrite, dynamic": lambda: (
            rows.write.mode("overwrite").options(**dynamic).partitionBy("k").parquet(str(path))
        ),
        "overwrite of itself": itself,
        "overwrite of itself, dynamic": lambda: itself(**dynamic),
        "INSERT OVERWRITE": lambda: spark.sql("INSERT OVERWRITE people VALUES (1, 'x', 0)"),
        "overwrite by JSON": lambda: rows.write.mode("overwrite").json(str(path)),
        "overwrite by saveAsTable": lambda: rows.write.mode("overwrite").saveAsTable("people"),
        "ANALYZE FOR COLUMNS": lambda: spark.sql("ANALYZE TABLE people COMPUTE STATISTICS FOR COLUMNS ssn"),
        "a plaintext file put there": lambda: plain(spark, rows, path),
    }
    told = {}
    for name, way in ways.items():
        before = {one: one.read_bytes() for one in path.rglob("*.parquet")}
        try:
            way()
        except Exception:
            (path / "k=0" / "plain.parquet").unlink(missing_ok=True)
            assert before == {one: one.read_bytes() for one in path.rglob("*.parquet")}, name
            told[f"table's folder: {name}"] = REFUSED
        else:
            assert opened(spark, path, policy.for_table("people")) == found(path) == SEALED, name
            told[f"table's folder: {name}"] = SEALED
    refused = [name for name, came in told.items() if came == REFUSED]
    assert len(refused) == 4, refused
    # The table's options reach a sink that loses those of the stream.
    sink = path.with_name("streamed into")
    bss.enable(spark, policy=policy, tables={"people": sink})
    stream = spark.readStream.schema(rows.schema).json(str(path.with_name("in known")))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(path.with_name("c streamed into")))
    writer.trigger(availableNow=True).start(str(sink)).awaitTermination()
    assert opened(spark, sink, policy.for_table("people")) == found(sink) == SEALED
    return {**told, "table's folder: a stream": SEALED}


def plain(spark: SparkSession, rows: DataFrame, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1], "ssn": ["x"]}), path / "k=0" / "plain.parquet")
    spark.read.schema(rows.schema).parquet(str(path)).collect()


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
