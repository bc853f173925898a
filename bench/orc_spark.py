"""`python -m bench.orc_spark FOLDER [ROWS]`: one row of an encrypted ORC table, by Bloomseal and by Spark's ORC reader
with the same keys.

Spark writes the table into FOLDER, with the column `ssn` under a master key and filters for it; Bloomseal seals these
filters, and both then ask for the same values, present and absent, on two cores. Told are the least time by the clock
and the mean processor time, of Spark with the JVM's, after runs to warm up.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bloomseal as bs
from bloomseal import orc
from bloomseal.keytools import MasterKeys
from bloomseal.spark.runtime import java_home

from .many_files_spark import processor

_KEY = bytes(range(16))
_FILES, _RUNS, _WARM = 8, 12, 6


def _spark() -> Any:
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"] = str(java_home()), sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.log.level", "ERROR")
        .config("spark.hadoop.orc.key.provider", "memory")
        .getOrCreate()
    )


def make(spark: Any, folder: Path, rows: int) -> None:
    """The table, with its filters under the column's key."""
    frame = spark.range(0, rows, 1, _FILES).selectExpr(
        "id",
        "lpad(cast(id * 7919 % 1000000007 as string), 11, '0') as ssn",
        "concat('street ', cast(id * 31 % 99991 as string)) as street",
        "concat('city ', cast(id % 977 as string)) as city",
    )
    options = {"orc.encrypt": "pii:ssn", "orc.mask": "nullify:ssn", "orc.bloom.filter.columns": "ssn"}
    frame.write.options(**options, compression="zstd").orc(str(folder))
    for path in sorted(folder.glob("*.orc")):
        orc.repair_filters(path, decryption=_spec())


def _spec() -> bs.DecryptionSpec:
    return bs.DecryptionSpec(keys=MasterKeys({"pii": _KEY}), allow_ctr=True)


def main() -> None:
    folder, rows = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if sys.argv[2:] else 2_000_000
    spark = _spark()
    jvm: Any = spark._jvm
    settings = jvm.org.apache.hadoop.conf.Configuration()
    settings.set("orc.key.provider", "memory")
    # One per JVM: readers and writers get the same.
    keys = jvm.org.apache.orc.impl.CryptoUtils.getKeyProvider(settings, jvm.java.security.SecureRandom())
    keys.addKey("pii", jvm.org.apache.orc.EncryptionAlgorithm.AES_CTR_128, _KEY)
    if not folder.exists():
        make(spark, folder, rows)
    # Both lie between the least and the greatest value of each file, so that filters are asked, not only statistics.
    present, absent = f"{(rows // 3) * 7919 % 1_000_000_007:011d}", "00500000001"
    for what, value, count in (("present", present, 1), ("absent", absent, 0)):
        condition = f"ssn = '{value}'"
        jobs: dict[str, Callable[[], int]] = {
            "Bloomseal": lambda value=value: (
                bs.read_table(folder, columns=["city"], where=[("ssn", "==", value)], decryption=_spec()).num_rows
            ),
            "Spark": lambda condition=condition: len(
                spark.read.orc(str(folder)).where(condition).select("city").collect()
            ),
        }
        clocks: dict[str, list[float]] = {name: [] for name in jobs}
        spent = dict.fromkeys(jobs, 0.0)
        for run in range(_WARM + _RUNS):
            for name, job in jobs.items():
                # The JVM goes on compiling and collecting meanwhile: that is Spark's.
                worked = time.process_time if name == "Bloomseal" else processor
                clock, cpu = time.perf_counter(), worked()
                assert job() == count, (name, what)
                if run >= _WARM:
                    clocks[name].append(1000 * (time.perf_counter() - clock))
                    spent[name] += 1000 * (worked() - cpu) / _RUNS
        for name, took in clocks.items():
            print(f"{what:8} {name:10} {min(took):8.1f} ms by the clock, {spent[name]:8.1f} ms of processors")
        ours, theirs = min(clocks["Bloomseal"]), min(clocks["Spark"])
        print(f"{what:8} {theirs / ours:.1f} times as fast, {spent['Spark'] / spent['Bloomseal']:.1f} of processors")
    spark.stop()


if __name__ == "__main__":
    main()
