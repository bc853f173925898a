"""Tables whose files differ: columns that came later, types that were widened. Both doors give the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
MERGE = "spark.sql.parquet.mergeSchema"


@pytest.fixture(scope="module")
def policy(spark: SparkSession, ring: bs.Keyring) -> Policy:
    table = {"footer_key": "footer", "complete": True, "columns": {"ssn": {"key": "pii", "filter": {"ndv": 100}}}}
    found = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"t": table}})
    bss.enable(spark, policy=found)
    return found


@pytest.fixture
def merging(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(MERGE, "true")
    yield
    spark.conf.unset(MERGE)


@pytest.fixture(scope="module")
def grown(spark: SparkSession, policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that got a column, a field of a struct, and another filter column's values in each of three writes."""
    path = tmp_path_factory.mktemp("grown") / "t"
    for number, extra in enumerate(("struct(id AS a) AS s", "struct(id AS a, 'b' AS b) AS s", "'new' AS late")):
        start = 10 * number
        rows = spark.range(start, start + 10, 1, 1).selectExpr("id", "concat('ssn-', id) AS ssn", extra)
        bss.write(rows, path, mode="append" if number else "error")
    return path


def test_columns_that_came_later_are_the_same_through_both_doors(
    spark: SparkSession, grown: Path, merging: None
) -> None:
    native = spark.read.parquet(str(grown))
    ours = bss.read(spark, grown)
    assert sorted(ours.columns) == sorted(native.columns) == ["id", "late", "s", "ssn"]
    order = ["id", "ssn", "s.a", "s.b", "late"]
    assert sorted(map(repr, ours.select(*order).collect())) == sorted(map(repr, native.select(*order).collect()))
    load = spark.read.format("bloomseal").option("mergeSchema", "true").load(str(grown))
    assert load.schema == ours.schema
    for where, count in (("late = 'new'", 10), ("late IS NULL", 20), ("s.b = 'b'", 10), ("ssn = 'ssn-15'", 1)):
        assert bss.read(spark, grown, columns=["id"], where=where).count() == native.where(where).count() == count
    found = bss.semi_join(spark, grown, "ssn", ["ssn-3", "ssn-13", "ssn-23"], columns=["id", "late"])
    assert sorted((row.id, row.late) for row in found.collect()) == [(3, None), (13, None), (23, "new")]
    late = bss.semi_join(spark, grown, "late", ["new", "old"], columns=["id"])
    assert late.count() == 10


def test_without_it_the_first_files_columns_are_read(spark: SparkSession, grown: Path) -> None:
    assert set(bss.read(spark, grown).columns) <= {"id", "ssn", "s", "late"}
    assert (
        bss.read(spark, grown, options={"mergeSchema": "true"}).columns
        == bss.read(spark, grown, options={"merge_schema": "true"}).columns
    )
    assert len(bss.read(spark, grown).columns) == 3


@pytest.mark.parametrize(
    ("small", "large", "merged"),
    [("int", "bigint", "bigint"), ("decimal(5,2)", "decimal(9,2)", "decimal(9,2)")],
)  # fmt: skip
@pytest.mark.usefixtures("merging")
def test_widened_types(
    spark: SparkSession,
    policy: Policy,
    tmp_path: Path,
    small: str,
    large: str,
    merged: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, kind in enumerate((small, large)):
        rows = spark.range(5 * number, 5 * number + 5, 1, 1).selectExpr(f"CAST(id AS {kind}) AS ssn", "id")
        bss.write(rows, tmp_path / "t", mode="append" if number else "error")
    ours = bss.read(spark, tmp_path / "t")
    assert dict(ours.dtypes)["ssn"] == merged
    native = spark.read.schema(ours.schema).parquet(str(tmp_path / "t"))
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, native.collect()))
    assert [row.id for row in bss.read(spark, tmp_path / "t", where="ssn = 3").collect()] == [3]
    keys = spark.range(2, 100, 5).selectExpr(f"CAST(id AS {merged}) AS ssn").where("ssn IN (2, 7, 97)")
    assert sorted(row.id for row in bss.semi_join(spark, tmp_path / "t", "ssn", keys).collect()) == [2, 7]
    # So many that the table is read whole, where Spark's own reader may not merge these.
    monkeypatch.setattr("bloomseal.spark.semijoin.question._LEAST_SAMPLE", 2)
    with pytest.warns(bs.BloomsealWarning, match="read whole"):
        every = bss.semi_join(spark, tmp_path / "t", "id", list(range(100)))
    assert sorted(row.id for row in every.collect()) == list(range(10))


def test_types_without_a_common_one_are_refused(
    spark: SparkSession, policy: Policy, merging: None, tmp_path: Path
) -> None:
    bss.write(spark.range(5).selectExpr("id AS ssn"), tmp_path / "t")
    bss.write(spark.range(5).selectExpr("'a' AS ssn"), tmp_path / "t", mode="append")
    with pytest.raises(bs.UnsupportedError, match="no common type"):
        bss.read(spark, tmp_path / "t")
