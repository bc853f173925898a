"""No plaintext page reaches a disk while Spark writes, attaches to, seals again and reads a table: driver, JVM, workers
and helpers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal.spark as bss
from bloomseal.policy import Policy
from support.watch import PlaintextWatch, Secrets

from .conftest import PASSPHRASE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bloomseal import Keyring

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(sys.platform != "linux", reason="the watch looks into /proc"),
]

MARKER = b"PLAINTEXT-OF-THE-TEST-"


@pytest.fixture(scope="module")
def rows(spark: SparkSession, policy: Policy) -> DataFrame:
    from pyspark.sql import functions as f

    bss.enable(spark, policy=policy)
    # Made of halves, so that only values hold it, not plans.
    half = f.concat(f.lit(MARKER[:11].decode()), f.lit(MARKER[11:].decode()), f.col("id").cast("string"))
    frame = spark.range(0, 2_000, 1, 2).select("id", half.alias("SSN"), half.alias("name"))
    assert frame.first()["SSN"] == f"{MARKER.decode()}0"
    return frame


def test_no_plaintext_of_a_spark_job_reaches_a_disk(
    spark: SparkSession, rows: DataFrame, ring: Keyring, work: Path, tmp_path: Path
) -> None:
    path = tmp_path / "people"
    with PlaintextWatch([work, tmp_path], [MARKER], pause=0.02) as watch:
        bss.write(rows, path, options={"compression": "uncompressed"})
        # Through a shuffle, so that something is spilled to Spark's own folders.
        assert spark.read.parquet(str(path)).repartition(2, "name").distinct().count() == 2_000
        assert bss.attach(spark, path).collect()
        assert bss.rekey(spark, path).collect()
        assert bss.read(spark, path).where(f"SSN = '{MARKER.decode()}77'").count() == 1
    watch.clean()
    assert watch.files > 4
    secrets = Secrets(PASSPHRASE, *(v.key.reveal() for key in ring.list() for v in key.versions if v.key is not None))
    kept = [ring.path]
    assert secrets.clean_tree(work, tmp_path, but=kept) > 10
