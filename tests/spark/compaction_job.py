"""A driver that merges the runs of an index, to be killed: `python compaction_job.py FOLDER`. Tells its report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import bloomseal.spark as bss
from bloomseal.spark.jobs import compaction


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    compaction._PART_ENTRIES = 500  # type: ignore[misc]  # many tasks
    bss.enable(spark, policy=str(folder / "policy.toml"))
    told = bss.compact_index(spark, folder / "people", "ssn", everything=True)
    print(json.dumps(told.to_dict()), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
