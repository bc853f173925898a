"""Run by `test_spark`, in a process of its own: Spark writes a partitioned table with encrypted columns under a Hadoop
KMS, its filters in clear, and Bloomseal's jobs find, mend and rekey it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal import DecryptionSpec
from bloomseal.policy import Policy
from bloomseal.spark.runtime import java_home
from support.hadoop_kms import hadoop_kms


def main(folder: str) -> None:
    os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"] = str(java_home()), sys.executable
    from pyspark.sql import DataFrame, SparkSession

    told: dict[str, Any] = {}
    with hadoop_kms({"pii": [bytes(16)], "wide": [bytes(range(32))]}) as kms:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.hadoop.hadoop.security.key.provider.path", kms.java_uri)
        session = builder.config("spark.hadoop.orc.key.provider", "hadoop").getOrCreate()
        rows = session.range(0, 60_000, 1, 2).selectExpr(
            "id", "concat('n', cast(id * 7919 % 1000003 as string)) as name", "cast(id % 500 as int) as num",
            "cast(id % 2 as int) as part",
        )  # fmt: skip
        options = {
            "orc.encrypt": "pii:name;wide:num",
            "orc.mask": "nullify:name,num",
            "orc.bloom.filter.columns": "name",
            "orc.stripe.size": "65536",
            "orc.row.index.stride": "1000",
        }
        rows.write.partitionBy("part").options(**options, compression="zstd").orc(folder)
        columns = {"name": {"key": "pii", "filter": {"fpp": 0.01}}, "num": {"key": "wide", "filter": {"fpp": 0.01}}}
        tables = {"t": {"footer_key": "pii", "allow_ctr": True, "columns": columns}}
        policy = Policy.from_dict({"version": 1, "kms": kms.uri, "tables": tables}).for_table("t")
        paths = sorted(Path(folder).rglob("*.orc"))
        with bs.open_file(paths[0]) as file:
            assert file.encryption is not None
            told["algorithms"] = [one.key.algorithm for one in file.encryption.variants]
            told["stripes"] = len(file.stripes)

        def same(frame: DataFrame) -> bool:
            frame = frame.select(rows.columns)
            return frame.exceptAll(rows).count() == 0 == rows.exceptAll(frame).count()

        def findings() -> list[list[str]]:
            seen = bss.audit(session, folder, policy=policy)
            return sorted({(one.rule.id, one.column or "") for one in seen.report.findings})

        def statuses(frame: DataFrame) -> list[str]:
            return sorted({row["failure"] or row["status"] for row in frame.collect()})

        def verified() -> bool:
            every = bss.verify(session, folder, policy=policy, filters=True).collect()
            return len(every) == len(paths) and all(row["ok"] and not row["complete"] for row in every)

        def may_destroy() -> str:
            return str(bss.may_destroy(session, "pii", "0", folder, policy=policy).answer)

        told["leaks"], told["read"] = findings(), same(bss.read(session, folder, policy=policy))
        told["verified"], told["destroy"] = verified(), may_destroy()
        told["repaired"], told["mended"] = statuses(bss.repair(session, folder, policy=policy)), findings()
        attached = bss.attach(session, folder, policy=policy).collect()
        told["attached"] = sorted({(row["attached"] > 0, row["present"] > 0, row["failure"]) for row in attached})
        kms.keys["pii"].append(bytes(range(16)))
        told["rekeyed"] = statuses(bss.rekey(session, folder, policy=policy))
        told["rewrapped"] = statuses(bss.rewrap(session, folder, policy=policy))
        versions = set()
        for path in paths:
            with bs.open_file(path) as file:
                assert file.encryption is not None
                versions.add(tuple((one.root.name, one.key.version) for one in file.encryption.variants))
        told["versions"] = sorted(versions)
        told["verified again"], told["destroy the old one"] = verified(), may_destroy()
        told["Spark reads"] = same(session.read.orc(folder))
        told["read again"] = same(bss.read(session, folder, policy=policy))
        asked = bss.read(session, folder, columns=["id"], where="name = 'n7919' and num = 1", policy=policy)
        told["found"] = [row["id"] for row in asked.collect()]
        told["pruned"] = bss.df_stats(asked).pruned_by_filter > 20
        keys = DecryptionSpec(kms.uri, allow_ctr=True)
        found = bs.read_table(folder, where=[("name", "in", ["n7919", "nobody"])], decryption=keys)
        told["table"] = found["id"].to_pylist()
        session.stop()
    print("TOLD", json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
