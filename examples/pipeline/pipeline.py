"""From raw CSV to a sealed, searchable, audited table, and on to its rotation: one step each, any of them again.

    python pipeline.py all --to /data/people
    python pipeline.py seal audit --to /data/people --policy policy.toml --master spark://host:7077

Each step reads only what the one before it left, so that a scheduler may run them as tasks of their own. A step that
finds something wrong ends with an exit status of 1, and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bloomseal.spark as bss
from bloomseal.audit import Severity
from bloomseal.core.errors import BloomsealError

HERE = Path(__file__).parent
STEPS = ("seal", "check", "look-up", "audit", "rotate")


def cleaned(spark: SparkSession, raw: str) -> DataFrame:
    """The landed rows: trimmed, each person once, without those that have no usable number."""
    rows = spark.read.csv(raw, header=True, schema="ssn STRING, email STRING, country STRING, born STRING")
    return (
        rows.select(
            f.trim("ssn").alias("ssn"),
            f.lower(f.trim("email")).alias("email"),
            f.upper(f.trim("country")).alias("country"),
            f.expr("try_cast(born AS DATE)").alias("born"),
        )
        .where(f.col("ssn").rlike(r"^\d{3}-\d{2}-\d{4}$"))
        .dropDuplicates(["ssn"])
    )


def seal(spark: SparkSession, arguments: argparse.Namespace) -> str:
    """Write the table anew, a folder for each country, and check every file of it."""
    report = bss.write(cleaned(spark, arguments.raw), arguments.to, mode="overwrite", partition_by=["country"])
    return f"{report.rows} rows in {len(report.files)} files, {report.filters} sealed filters"


def check(spark: SparkSession, arguments: argparse.Namespace) -> str:
    """Hold all files against the policy, and open all that is in them."""
    report = bss.check_table(spark, arguments.to)
    if failed := bss.verify(spark, arguments.to).where("not ok").count():
        raise SystemExit(f"verify: {failed} files fail")
    return f"{report.rows} rows, all as the policy says"


def look_up(spark: SparkSession, arguments: argparse.Namespace) -> str:
    """Find one person. Row groups whose filter does not know the number are not opened."""
    found = bss.read(spark, arguments.to, columns=["email"], where=f.col("ssn") == arguments.ssn)
    return f"{found.count()} found, {bss.df_stats(found).bytes_pruned:,} bytes not read"


def audit(spark: SparkSession, arguments: argparse.Namespace) -> str:
    """A gate: findings of this severity or above end the pipeline. The evidence is written in any case."""
    report = bss.audit(spark, arguments.to).report
    if arguments.evidence:
        Path(arguments.evidence).write_text(report.to_json(inventory=True), encoding="utf-8")
    if bad := report.at_least(Severity[arguments.fail_on.upper()]):
        raise SystemExit(f"audit: {len(bad)} findings, first {bad[0].rule.id}: {bad[0].message}")
    return f"{len(report.findings)} findings, none of severity {arguments.fail_on} or above"


def rotate(spark: SparkSession, arguments: argparse.Namespace) -> str:
    """Bring all files under the current versions of their master keys. Files that are done are left alone."""
    counts = {row.status: row["count"] for row in bss.rewrap(spark, arguments.to).groupBy("status").count().collect()}
    if counts.get("failed"):
        raise SystemExit(f"rotate: {counts}")
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="+", choices=[*STEPS, "all"])
    parser.add_argument("--raw", default=str(HERE / "raw"), help="folder of the landed CSV files")
    parser.add_argument("--to", required=True, help="folder of the table")
    parser.add_argument("--policy", default=str(HERE / "policy.toml"))
    parser.add_argument("--kms", help="its URI; default: the policy's")
    parser.add_argument("--ssn", default="078-05-1120", help="the number to look up")
    parser.add_argument("--fail-on", default="error", choices=[one.label for one in Severity], help="of the audit")
    parser.add_argument("--evidence", help="file for the audit's report")
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args(words)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    bss.use_java()
    builder = SparkSession.builder.master(arguments.master).appName("people")
    for name in ("spark.io.encryption.enabled", "spark.sql.session.timeZone=UTC", "spark.ui.enabled=false"):
        key, _, value = name.partition("=")
        builder = builder.config(key, value or "true")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    doing = {"seal": seal, "check": check, "look-up": look_up, "audit": audit, "rotate": rotate}
    try:
        bss.enable(spark, kms=arguments.kms, policy=arguments.policy)
        for step in STEPS if "all" in arguments.steps else arguments.steps:
            print(json.dumps({"step": step, "result": doing[step](spark, arguments)}), flush=True)
    except BloomsealError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
