"""Run by `test_spark`, in a process of its own: Spark writes an encrypted ORC file, we repair it, Spark reads it."""

from __future__ import annotations

import getpass
import json
import os
import sys
from pathlib import Path
from typing import Any

from bloomseal import DecryptionSpec, orc
from bloomseal.spark.runtime import java_home
from support.hadoop_kms import hadoop_kms


def main(folder: str) -> None:
    os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"] = str(java_home()), sys.executable
    from pyspark.sql import SparkSession

    told: dict[str, Any] = {}
    with hadoop_kms({"pii": [bytes(16)]}) as kms:
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.hadoop.hadoop.security.key.provider.path", kms.java_uri)
        session = builder.config("spark.hadoop.orc.key.provider", "hadoop").getOrCreate()
        rows = session.range(0, 30_000, 1, 1).selectExpr(
            "id", "concat('n', cast(id * 7919 % 100003 as string)) as name"
        )
        options = {"orc.encrypt": "pii:name", "orc.mask": "nullify:name", "orc.bloom.filter.columns": "name"}
        rows.write.options(**options).orc(folder)
        (path,) = Path(folder).glob("*.orc")

        def scanned(condition: str) -> tuple[int, int]:
            """Rows that match, and rows that the scan gave."""
            frame = session.read.orc(folder).where(condition)
            matched = len(frame.collect())
            leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
            return matched, int(leaf.metrics().get("numOutputRows").get().value())

        told["before"] = scanned("name = 'n5x'")
        told["clear"] = orc.repair_filters(path, decryption=DecryptionSpec(keys=kms.uri, allow_ctr=True)).clear_filters
        told["present"], told["absent"] = scanned("name = 'n7919'"), scanned("name = 'n5x'")
        told["same"] = rows.exceptAll(session.read.orc(folder)).count() == 0
        kms.denied.add(getpass.getuser())
        told["masked"] = session.read.orc(folder).where("name is null").count()
        told["masked present"] = scanned("name = 'n7919'")
        session.stop()
    print("TOLD", json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
