"""A driver that writes to a table, or builds its index anew, again and again, to be killed:
`python write_job.py FOLDER append|static|dynamic|index FIRST`. It overwrites the table, in one of two ways, by what it
reads from it: each round adds 1,000 to every id. What it appends in round *n*, from FIRST on, has the ids from 1,000
*n* on. It prints "ready" when the first round is about to begin, and behind each one how that ended: "done", or
"failed" and the error's class; and its number. Of those that are done the file "done" has the numbers.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import bloomseal.spark as bss


def main(folder: Path, kind: str, first: int) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.io.encryption.enabled", "true")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.level", "ERROR")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic" if kind == "dynamic" else "static")
        .getOrCreate()
    )
    bss.enable(spark, policy=str(folder / "policy.toml"))
    table, columns = folder / "t", ("id", "concat('ssn-', id) AS ssn", "id % 1000 AS k")
    print("ready", flush=True)
    for number in itertools.count(first):
        end = "done"
        try:
            if kind == "index":
                bss.update_index(spark, table, "ssn", rebuild=True)
            elif kind == "append":
                rows = spark.range(1000 * number, 1000 * number + 6).selectExpr(*columns).coalesce(1)
                bss.write(rows, table, mode="append", partition_by=["k"])
            else:
                rows = spark.read.parquet(str(table)).selectExpr("id + 1000 AS id", "ssn", "k").coalesce(2)
                bss.write(rows, table, mode="overwrite", partition_by=["k"])
        except Exception as error:
            end = f"failed {type(error).__name__}"
        else:
            with (folder / "done").open("a") as noted:
                noted.write(f"{number}\n")
        print(end, number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
