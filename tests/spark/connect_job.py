"""What works over Spark Connect, as a process of its own: `python connect_job.py POLICY TABLE` prints it as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import bloomseal.spark as bss
from bloomseal import UsageError


def main(policy: str, table: str) -> None:
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.builder.remote("local[2]").getOrCreate()
    source = {"format": "bloomseal", "policy": policy}
    told: dict[str, Any] = {
        "found": [list(row) for row in spark.read.load(table, **source).where("ssn = '1-7'").collect()],
    }
    added = spark.range(5).selectExpr("concat('new-', id) AS ssn", "id")
    told["rows"] = spark.read.load(table, **source).count()
    doors: dict[str, Callable[[], object]] = {
        "enable": lambda: bss.enable(spark, policy=policy),
        "read": lambda: bss.read(spark, table, policy=policy),
        "write": lambda: bss.write(added, table, policy=policy),
        "prune": lambda: bss.prune(spark, table, "ssn", ["a"], policy=policy),
        "explain": lambda: bss.explain(spark, table, "ssn = 'a'", policy=policy),
        "verify": lambda: bss.verify(spark, table, policy=policy),
        "audit": lambda: bss.audit(spark, table, policy=policy),
    }
    try:
        added.write.format("bloomseal").mode("append").save(table)
    except Exception as error:
        told["advice"] = str(error)
    told["refused"] = {}
    for name, door in doors.items():
        try:
            door()
        except UsageError as error:
            told["refused"][name] = error.what
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
