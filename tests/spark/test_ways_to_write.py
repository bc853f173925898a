"""No way of writing leaves plaintext in a place that is to hold sealed files only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy
from bloomseal.spark.versions import file_sink_keeps_options

from .ways_to_write import try_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


def test_every_way_of_writing_seals_or_is_refused(spark: SparkSession, ring: bs.Keyring, tmp_path: Path) -> None:
    bound = {"aad_prefix": "{table}/{path}/", "store_aad_prefix": False}
    tables = {"t": {"footer_key": "footer", "columns": {"ssn": {"key": "pii", "sensitivity": "restricted"}}, **bound}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    bss.enable(spark, policy=policy, refuse_plaintext=[tmp_path / "known"])
    rows = spark.range(0, 10, 1, 2).selectExpr("id", "concat('ssn-', id) AS ssn", "id % 2 AS k")
    try:
        keeps = file_sink_keeps_options()
        sealing, table = bss.options(policy, "t"), policy.for_table("t")
        _, wrong = try_all(spark, rows, sealing, tmp_path / "known", table, keeps_options=keeps)
        assert not wrong
    finally:
        bss.enable(spark, policy=policy)
