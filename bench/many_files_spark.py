"""`python -m bench.many_files_spark FOLDER`: the audit job over many small files, on two cores, without keys.

Told are the job's time by the clock after a first one over few files, which starts the Python workers, and the
processor time of all processes, the JVM's included. FOLDER has folders of files, as `bench.many_files --keep` leaves
them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import bloomseal as bs
import bloomseal.spark as bss


def processor() -> float:
    """Seconds of all processes below this one, by /proc."""
    ticks, tree = os.sysconf("SC_CLK_TCK"), {os.getpid()}
    total = 0.0
    stats = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # Fields 4, and 14 to 17, of proc(5), counted behind the name.
        stats.append((int(place.parent.name), int(fields[1]), sum(map(int, fields[11:15])) / ticks))
    while more := {pid for pid, parent, _ in stats if parent in tree} - tree:
        tree |= more
    for pid, _, seconds in stats:
        total += seconds if pid in tree else 0.0
    return total


def main() -> None:
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    tables = {"people": {"footer_key": "footer", "columns": {"ssn": {"key": "pii"}}}}
    policy = bs.Policy.from_dict({"version": 1, "kms": f"keyring://{folder.parent}/keys.json", "tables": tables})
    table = policy.for_table("people")
    first = min(one for one in folder.iterdir() if one.is_dir())
    bss.audit(spark, first, policy=table, with_keys=False, files_per_task=500)
    wall, work = time.perf_counter(), processor()
    found = bss.audit(spark, folder, policy=table, with_keys=False, files_per_task=500).report
    wall, work = time.perf_counter() - wall, processor() - work
    print(
        f"audit on Spark, {found.files:,} files: {wall:.1f} s by the clock, {work:.1f} s of processor; "
        f"{1e5 / found.files * work / 2:.0f} s for 100,000 files on two cores, if it used both all the time"
    )
    spark.stop()


if __name__ == "__main__":
    main()
