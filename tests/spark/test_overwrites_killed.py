"""Drivers that are killed while they overwrite a table: no row of it is lost, and `bss.read` takes no mixture."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss

from .cluster import DEADLINE, keyring
from .lives import answer, driver, ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
ROWS = 60


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.torture)])
def test_a_killed_overwrite_loses_no_row(spark: SparkSession, tmp_path: Path, kind: str, kills: int) -> None:
    keyring(tmp_path)
    chance, table = random.Random(kills), tmp_path / "t"
    bss.enable(spark, policy=str(tmp_path / "policy.toml"))
    cut_off = 0
    for life in range(kills):
        rows = spark.range(ROWS).selectExpr("id", "concat('ssn-', id) AS ssn", "id AS k").coalesce(1)
        bss.write(rows, table, mode="overwrite", partition_by=["k"])
        with driver(tmp_path, "overwrite_job.py", kind) as process:
            answer(tmp_path, process, "ready")
            end = time.monotonic() + DEADLINE
            # Every other one in the middle of its commit.
            while (table / "_SUCCESS").exists() if life % 2 == 0 else not list(table.glob(".spark-staging-*")):
                if process.poll() is not None:
                    raise ended(tmp_path, process)
                assert time.monotonic() < end
            time.sleep(chance.uniform(0, 0.1))
        found = [row.id for row in spark.read.parquet(str(table)).select("id").collect()]
        rounds = {number // 1000 for number in found}
        for number in range(ROWS):  # of the old round or of the new one, or of both where it was cut off
            assert [one for one in found if one % 1000 == number], f"row {number} is lost"
        try:
            ours = sorted(row.id for row in bss.read(spark, table, columns=["id"]).collect())
        except bs.BloomsealError as error:
            refused = str(error)
            cut_off += 1
        else:
            refused = "cut off: no"
            assert len(rounds) == 1
            assert [one % 1000 for one in ours] == list(range(ROWS))
        assert "cut off" in refused
    assert cut_off or kills < 30
