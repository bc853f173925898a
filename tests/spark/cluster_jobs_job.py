"""The driver of test_cluster_jobs.py: a rekey and the compaction of an index that lose an executor each, and a look-up
by keys, on a cluster that writes down all it can.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

WANTED = [f"wanted-{i:06}" for i in range(0, 24_000, 500)]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def executors(application: str) -> list[int]:
    lines = subprocess.run(["ps", "-axwwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    split = [line.split(None, 1) for line in lines.splitlines()]
    return [
        int(pid)
        for pid, command in split
        if "CoarseGrainedExecutorBackend" in command and f"--app-id {application}" in command
    ]


class Killer(threading.Thread):
    """Kills one executor of an application when a job is so far.

    Attributes:
        killed: its process, and what `done` said then.
    """

    def __init__(self, application: str, done: Callable[[], int]) -> None:
        super().__init__()
        self._application, self._done = application, done
        self.killed: list[tuple[int, int]] = []

    def run(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if (done := self._done()) >= 3:
                process = executors(self._application)[0]
                os.kill(process, signal.SIGKILL)
                self.killed.append((process, done))
                return
            time.sleep(0.002)


def both_there(spark: Any) -> None:
    """Both executors are there before the first file is touched."""
    spark.sparkContext.parallelize(range(2), 2).map(lambda _: time.sleep(2)).collect()


def main(master: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    import bloomseal.spark as bss
    from bloomseal.spark.jobs import compaction

    spark = (
        SparkSession.builder.master(master)
        .config("spark.authenticate", "true")
        .config("spark.authenticate.secret", sys.argv[3])
        .config("spark.io.encryption.enabled", "true")
        .config("spark.network.crypto.enabled", "true")
        .config("spark.driver.memory", "700m")
        .config("spark.executor.memory", "700m")
        .config("spark.speculation", "true")
        .config("spark.local.dir", str(folder / "driver local"))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", str(folder / "events"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bss.enable(spark, policy=str(folder / "policy.toml"))
    table = folder / "people"
    before = {path: path.stat().st_ino for path in table.glob("*.parquet")}
    application = str(spark.sparkContext.applicationId)
    both_there(spark)
    killer = Killer(application, lambda: sum(path.stat().st_ino != inode for path, inode in before.items()))
    killer.start()
    rows = bss.rekey(spark, table, journal=folder / "journal.jsonl", files_per_task=2).collect()
    killer.join()
    say(rekeyed=[row.asDict() for row in rows], killed=killer.killed, left=len(before))
    again = bss.rekey(spark, table, journal=folder / "journal.jsonl").collect()
    say(again=[row.status for row in again])
    pruned = bss.prune(spark, table, "ssn", WANTED)
    say(pruned=pruned.selectExpr("sum(seen) AS row_groups", "sum(size(row_groups)) AS left").first().asDict())
    found = bss.semi_join(spark, table, "ssn", spark.createDataFrame([(one,) for one in WANTED], "ssn string"))
    say(found=sorted(row.id for row in found.select("id").collect()))
    index = folder / "indexed" / "_bloomseal_index" / "ssn"
    shards = {path.name for path in index.glob("run-*")}
    compaction._PART_ENTRIES = 250  # type: ignore[misc]  # many tasks
    both_there(spark)
    killer = Killer(application, lambda: len({path.name for path in index.glob("run-*")} - shards))
    killer.start()
    told = bss.compact_index(spark, folder / "indexed", "ssn", everything=True)
    killer.join()
    say(compacted=told.to_dict(), killed_then=killer.killed)
    say(ready=True)
    sys.stdin.readline()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
