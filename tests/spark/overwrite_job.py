"""A driver that overwrites a table by what it reads from it, again and again, to be killed:
`python overwrite_job.py FOLDER static|dynamic`. Each round adds 1,000 to every id; it prints "ready" when the first one
is about to begin.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bloomseal.spark as bss


def main(folder: Path, kind: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.io.encryption.enabled", "true")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.level", "ERROR")
        .config("spark.sql.sources.partitionOverwriteMode", kind)
        .getOrCreate()
    )
    bss.enable(spark, policy=str(folder / "policy.toml"))
    options = bss.options(folder / "policy.toml", "people")
    print("ready", flush=True)
    while True:
        found = spark.read.parquet(str(folder / "t")).selectExpr("id + 1000 AS id", "ssn", "k").coalesce(2)
        found.write.mode("overwrite").partitionBy("k").options(**options).parquet(str(folder / "t"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
