"""Old dates, as Spark writes them in the calendar of Spark 2: its own reader shifts them; ours answers nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
MODE = "spark.sql.parquet.datetimeRebaseModeInWrite"


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
def test_dates_of_the_older_calendar_are_shifted_or_refused(
    spark: SparkSession, ring: bs.Keyring, tmp_path: Path
) -> None:
    columns = {"d": {"key": "pii", "filter": {"ndv": 10}, "index": True}}
    tables = {"t": {"footer_key": "footer", "complete": True, "columns": columns}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    bss.enable(spark, policy=policy)
    days = "IF(id < 5, DATE '0001-01-01', DATE '2020-01-01')"
    rows = spark.range(0, 10, 1, 2).selectExpr("id", f"{days} AS d", f"CAST({days} AS TIMESTAMP) AS t")
    old, modern, sealing = tmp_path / "old", tmp_path / "modern", bss.options(policy, "t")
    before = spark.conf.get(MODE)
    spark.conf.set(MODE, "LEGACY")
    try:
        rows.write.options(**sealing).parquet(str(old))
        rows.where("id > 4").coalesce(1).write.options(**sealing).parquet(str(modern))
        for frame in (rows, rows.select("id", "d"), rows.selectExpr("id", "d", "array(t) AS t")):
            with pytest.raises(bs.UsageError, match="older calendar"):
                bss.write(frame, tmp_path / "w", mode="append")
    finally:
        spark.conf.set(MODE, before)
    condition = "d = DATE '0001-01-01'"
    assert spark.read.parquet(str(old)).where(condition).count() == 5
    keys = rows.where("id = 0").select("d")
    for look in (
        lambda: bss.read(spark, old, where=condition).count(),
        lambda: bss.read(spark, old, columns=["t"]).collect(),
        lambda: bss.write(bss.read(spark, old), tmp_path / "copy"),
        lambda: bs.open_table(old, decryption=policy.for_table("t")).read(columns=["d"]),
    ):
        with pytest.raises(Exception, match="older calendar"):
            look()
    try:
        assert bss.semi_join(spark, old, "d", keys).count() == 5  # by Spark's own reader
    except Exception as error:
        told = str(error)
    else:
        told = "older calendar"
    assert "older calendar" in told
    assert not any((tmp_path / "copy").rglob("*.parquet"))
    bss.update_index(spark, old, "d")
    assert bss.read(spark, old, columns=["id"]).count() == 10
    with pytest.raises(Exception, match="older calendar"):  # no index knows the day
        bss.read(spark, old, where=condition).count()
    assert bss.read(spark, modern, where="d = DATE '2020-01-01'").count() == 5
    assert bss.read(spark, modern, where=condition).count() == 0
    assert bss.semi_join(spark, modern, "d", keys).count() == 0
