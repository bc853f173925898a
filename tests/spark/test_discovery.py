"""Which files Spark's data source takes for a table, beside everybody else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.audit import inventory
from bloomseal.policy import Policy
from bloomseal.rotation.files import find_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.BloomsealWarning"),
]


def test_rotation_and_audit_see_all_that_spark_and_a_reader_see(
    spark: SparkSession, ring: bs.Keyring, tmp_path: Path
) -> None:
    tables = {"t": {"footer_key": "footer", "complete": True, "columns": {"id": {"filter": True}}}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring:{ring.path}", "tables": tables})
    table = policy.for_table("t")
    names = [
        "_day=1/a.parquet",
        "_day=1/b.parquet.v2",
        "_day=2/d.pq",
        "_day=2/000000_0",
        "_day=2/_hidden.parquet",
        ".x/e.parquet",
    ]
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        bs.write_table(pa.table({"id": [number]}), tmp_path / name, encryption=table)
    bss.enable(spark, policy=policy)
    by_spark = {(row.id, row._day) for row in bss.read(spark, tmp_path).collect()}
    assert by_spark == {(0, 1), (1, 1), (2, 2), (3, 2)}
    found = bs.read_table(tmp_path, decryption=table)
    assert {tuple(row.values()) for row in found.to_pylist()} == by_spark - {(3, 2)}
    visible = {str(tmp_path / name) for name in names[:4]}
    assert {file.ref.path for file in find_files(tmp_path)} == visible
    assert set(inventory(tmp_path)["file"].to_pylist()) == visible
