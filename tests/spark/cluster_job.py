"""A driver program for a standalone cluster, in a process of its own: writes and reads through the bridge, loses
helpers and an executor, and stops halfway (a line on standard output, one awaited on standard input) so that its
leftovers can be searched.

Usage: cluster_job.py MASTER FOLDER. Prints JSON lines; the environment has what the driver needs for the keyring.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

LITERAL = hashlib.sha256(b"4321").hexdigest()  # what the look-up asks for

CLUSTER_SECRET = "only-for-this-test"


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def processes() -> tuple[dict[int, int], dict[int, str]]:
    """Parent and command line of each."""
    lines = subprocess.run(["ps", "-axwwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    split = [line.split(None, 2) for line in lines.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, _ in split}
    return parents, {int(pid): command for pid, _, command in split}


def my_jvm() -> int:
    """The executor that this task runs on, an ancestor of the Python worker."""
    parents, commands = processes()
    jvm = os.getpid()
    while "CoarseGrainedExecutorBackend" not in commands[jvm]:
        jvm = parents[jvm]
    return jvm


def helpers_of_my_jvm(kill: bool) -> Iterator[tuple[int, int]]:
    """(executor JVM, key helper) on the machine where this task runs."""
    jvm = my_jvm()
    parents, commands = processes()
    for pid, parent in parents.items():
        if parent == jvm and "bloomseal.keytools.helper" in commands[pid]:
            if kill:
                os.kill(pid, signal.SIGKILL)
            yield jvm, pid


def on_executors(spark: Any, kill: bool = False) -> list[tuple[int, int]]:
    def task(_: Any) -> Iterator[tuple[int, int]]:
        time.sleep(0.4)  # so that each executor gets a task
        yield from helpers_of_my_jvm(kill)

    return sorted(set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(task).collect()))


def main(master: str, folder: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    import bloomseal.spark as bss

    spark = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "600m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", "2")
        .config("spark.driver.memory", "700m")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.speculation", "true")
        .config("spark.speculation.minTaskRuntime", "30s")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.efficiency.enabled", "false")
        .config("spark.ui.port", "0")
        .config("spark.local.dir", str(folder / "driver local"))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .config("spark.authenticate", "true")
        .config("spark.authenticate.secret", CLUSTER_SECRET)
        .config("spark.io.encryption.enabled", "true")
        .config("spark.network.crypto.enabled", "true")
        .getOrCreate()
    )
    say(advice=bss.advice(spark))
    bss.enable(spark, policy=folder / "policy.toml")
    rows = spark.range(0, 40_000, 1, 4).select("id", f.sha2(f.col("id").cast("string"), 256).alias("ssn"))
    report = bss.write(rows, folder / "people", table="people", options={"parquet.block.row.count.limit": "1000"})
    say(written=report.to_dict())
    # The driver signs what executors write, and they check it.
    bss.write(rows.where("id < 3000"), folder / "signed", table="signed")
    say(signed=spark.read.parquet(str(folder / "signed")).agg(f.countDistinct("ssn")).collect()[0][0])

    read = spark.read.parquet(str(folder / "people"))
    query = read.where(f.col("ssn") == LITERAL)
    plan = query._jdf.queryExecution().executedPlan()
    found = [row.id for row in query.collect()]
    query._jdf.collectToPython()
    scan = plan.collectLeaves().apply(0)
    say(found=found, scanned=scan.metrics().apply("numOutputRows").value())
    # A shuffle and a broadcast of decrypted rows, to have something on the local disks.
    joined = read.join(f.broadcast(read.where("id < 100")), "ssn").repartition(4).cache()
    say(same=read.exceptAll(rows).count() == 0, joined=joined.count())

    base = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = [
        "environment",
        "jobs",
        "stages?details=true",
        "sql?details=true&planDescription=true",
        "storage/rdd",
        "allexecutors",
    ]
    for i, page in enumerate(pages):
        with urllib.request.urlopen(f"{base}/{page}", timeout=60) as answer:  # noqa: S310
            (folder / "rest" / f"{i}.json").write_bytes(answer.read())
    assert bss.read(spark, folder / "people", table="people", where=f"ssn = '{LITERAL}'").count() == len(found)
    (folder / "rest" / "plan.txt").write_text(query._jdf.queryExecution().toString())
    say(helpers=on_executors(spark))
    say(ready=True)
    sys.stdin.readline()

    killed = on_executors(spark, kill=True)
    bss.enable(spark, policy=folder / "policy.toml", cache_lifetime=601)  # other settings, so keys are asked for again
    again = spark.read.parquet(str(folder / "people")).agg(f.countDistinct("ssn")).collect()[0][0]
    say(killed=killed, again=again, helpers=on_executors(spark))

    # An executor dies in the middle of a write.
    grave = folder / "grave"

    def die_once(value: str) -> str:
        try:
            os.close(os.open(grave, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value
        os.kill(my_jvm(), signal.SIGKILL)
        return value

    dying = rows.where("id < 2000").withColumn("ssn", f.udf(die_once, "string", useArrow=False)("ssn"))
    rescued = bss.write(dying, folder / "rescued", table="people")
    say(
        rescued=rescued.to_dict(),
        count=spark.read.parquet(str(folder / "rescued")).distinct().count(),
        died=grave.exists(),
    )
    say(helpers=on_executors(spark))
    in_trouble(spark, rows, folder)
    spark.stop()


def in_trouble(spark: Any, rows: Any, folder: Path) -> None:
    """Writes whose tasks have put complete files aside when they fail, lose their executor, or are overtaken by a
    second attempt.
    """
    from pyspark import TaskContext
    from pyspark.sql import functions as f

    import bloomseal as bs
    import bloomseal.spark as bss

    bound = replace(
        bs.Policy.load(folder / "policy.toml").for_table("people"), aad_prefix="{table}/{path}/", store_aad_prefix=False
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")

    def staged(path: Path) -> int:
        return len(list(path.rglob("part-00001-*.parquet")))

    def trouble(name: str, path: Path) -> Any:
        def meet(number: int, value: str) -> str:
            context = TaskContext.get()
            if context.partitionId() != 1 or number % 10_000 != 9_500:
                return value
            if context.attemptNumber() > 0:
                (folder / f"{name} again").touch()
                return value
            end = time.monotonic() + 300
            while staged(path) < 2 and time.monotonic() < end:
                time.sleep(0.1)
            (folder / f"{name} staged").write_text(str(staged(path)))
            if name == "killed":
                os.kill(my_jvm(), signal.SIGKILL)
            while name == "overtaken" and not (folder / f"{name} over").exists() and time.monotonic() < end:
                time.sleep(0.1)
            raise RuntimeError("not this time")

        return meet

    options = {"maxRecordsPerFile": "1000"}
    for name in ("failed", "killed", "overtaken"):
        path = folder / name
        troubled = rows.withColumn("ssn", f.udf(trouble(name, path), "string", useArrow=False)("id", "ssn"))
        report = bss.write(troubled, path, policy=bound, options=options)
        (folder / f"{name} over").touch()
        found = bs.read_table(path, decryption=bound)
        say(
            **{
                f"trouble {name}": {
                    "rows": report.rows,
                    "files": len(report.files),
                    "distinct": len(found.column("ssn").unique()),
                    "staged": int((folder / f"{name} staged").read_text()),
                    "again": (folder / f"{name} again").exists(),
                    "beside": sorted(one.name for one in path.iterdir() if not one.name.startswith((".", "part-"))),
                }
            }
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
