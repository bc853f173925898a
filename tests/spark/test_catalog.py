"""Tables of the session's catalog: what is inserted into them is sealed, or refused, and nothing is silently in
clear.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy
from bloomseal.spark.versions import pushes_filters

from .pruned import counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def policy(ring: bs.Keyring) -> Policy:
    tables = {"t": {"footer_key": "footer", "columns": {"ssn": {"key": "pii", "filter": {"ndv": 100}}}}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


@pytest.fixture(scope="module")
def rows(spark: SparkSession, policy: Policy) -> DataFrame:
    bss.enable(spark, policy=policy)
    return spark.range(4).selectExpr("id", "concat('ssn-', id) AS ssn")


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex[:8]}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_inserts_into_a_protected_table_are_sealed(
    spark: SparkSession, rows: DataFrame, name: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING parquet LOCATION '{tmp_path}/t'")
    lacking = bss.protect_table(spark, name, dry_run=True)
    assert lacking["parquet.encryption.footer.key"] == "footer"
    assert bss.protect_table(spark, name) == lacking
    assert bss.protect_table(spark, name) == bss.protect_table(spark, f"spark_catalog.default.{name}") == {}
    spark.sql(f"INSERT INTO {name} VALUES (77, 'x')")  # noqa: S608
    rows.write.insertInto(name)
    rows.write.mode("append").saveAsTable(name)
    assert bss.check_table(spark, tmp_path / "t").rows == 9
    assert [row.id for row in spark.table(name).where("ssn = 'ssn-3'").collect()] == [3, 3]
    spark.sql(f"INSERT OVERWRITE {name} VALUES (1, 'y')")  # noqa: S608
    assert bss.check_table(spark, tmp_path / "t").rows == 1


def test_options_at_a_tables_making_do_the_same(
    spark: SparkSession, rows: DataFrame, policy: Policy, name: str, tmp_path: Path
) -> None:
    options = bss.options(policy, schema=rows.schema)
    rows.write.format("parquet").options(**options).option("path", str(tmp_path / "t")).saveAsTable(name)
    rows.write.insertInto(name)
    assert bss.protect_table(spark, name) == {}
    assert bss.check_table(spark, tmp_path / "t").rows == 8


def test_what_lies_in_clear_is_found_and_nothing_is_changed(
    spark: SparkSession, rows: DataFrame, name: str, tmp_path: Path
) -> None:
    rows.write.option("path", str(tmp_path / "t")).saveAsTable(name)
    with pytest.raises(bs.PolicyError, match="not what the policy"):
        bss.protect_table(spark, name)
    with pytest.raises(bs.UsageError, match="no table"):
        bss.protect_table(spark, "no_such_table")


def test_other_tables_are_refused(spark: SparkSession, rows: DataFrame, name: str, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING parquet OPTIONS ('parquet.encryption.uniform.key' 'k')"
    )
    with pytest.raises(bs.PolicyError, match=r"uniform\.key"):
        bss.protect_table(spark, name)
    spark.sql(f"DROP TABLE {name}")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING parquet PARTITIONED BY (ssn)")
    with pytest.raises(bs.PolicyError, match="ssn"):
        bss.protect_table(spark, name)
    spark.sql(f"DROP TABLE {name}")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING orc")
    with pytest.raises(bs.UsageError, match="no Parquet table"):
        bss.protect_table(spark, name)


def test_tables_using_bloomseal_are_refused_with_what_to_use(
    spark: SparkSession, rows: DataFrame, name: str, tmp_path: Path
) -> None:
    bss.write(rows, tmp_path / "t")
    with pytest.raises(Exception, match="protect_table"):
        spark.sql(f"CREATE TABLE {name} USING bloomseal LOCATION '{tmp_path}/t'")
    with pytest.raises(Exception, match="protect_table"):
        spark.sql(f"CREATE TABLE {name} USING bloomseal AS SELECT 1L AS id, 'x' AS ssn")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING bloomseal LOCATION '{tmp_path}/t'")
    with pytest.raises(Exception, match="protect_table"):
        spark.sql(f"SELECT * FROM {name}").collect()  # noqa: S608
    spark.sql(f"DROP TABLE {name}")
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING bloomseal OPTIONS (path '{tmp_path}/t')")
    with pytest.raises(Exception, match="reads only"):
        spark.sql(f"INSERT INTO {name} VALUES (9, 'x')")  # noqa: S608
    assert spark.table(name).count() == 4
    spark.catalog.dropTempView(name)


def test_each_batch_of_a_stream_knows_the_policy(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    rows.write.json(str(tmp_path / "in"))

    def seal(batch: DataFrame, number: int) -> None:
        bss.write(batch, tmp_path / "out", mode="append")
        assert bss.semi_join(batch.sparkSession, tmp_path / "out", "ssn", ["ssn-1"]).count() == 1
        assert bss.df_stats(bss.read(batch.sparkSession, tmp_path / "out")) is not None

    stream = spark.readStream.schema(rows.schema).json(str(tmp_path / "in")).writeStream.foreachBatch(seal)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert bss.check_table(spark, tmp_path / "out").rows == 4


def test_keys_may_be_a_pandas_frame(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    bss.write(rows, tmp_path / "t")
    texts = ["ssn-1", None, "no", "ssn-1"]
    columns = (pd.Series(texts), pd.Series(texts, dtype="category"), pd.Series(texts, dtype=object), pd.Index(texts))
    for keys in (pd.DataFrame({"ssn": texts}), *columns, pd.array(texts)):
        assert counts(bss.prune(spark, tmp_path / "t", "ssn", keys))["row_groups_left"] == 1
        assert [row.id for row in bss.semi_join(spark, tmp_path / "t", "ssn", keys).collect()] == [1]


def test_a_session_that_refuses_plaintext_begins_no_file(
    spark: SparkSession, rows: DataFrame, policy: Policy, name: str, tmp_path: Path
) -> None:
    """Not found afterwards, by `check_table`, but before it lands."""
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING parquet LOCATION '{tmp_path}/t'")
    rows.write.parquet(str(tmp_path / "clear"))
    try:
        bss.enable(spark, policy=policy, refuse_plaintext=True)
        for landed in (
            lambda: spark.sql(f"INSERT INTO {name} VALUES (77, 'x')"),  # noqa: S608
            lambda: rows.write.insertInto(name),
            lambda: rows.write.option("parquet.encryption.footer.keys", "footer").parquet(str(tmp_path / "u")),
            lambda: rows.write.mode("append").parquet(str(tmp_path / "clear")),
        ):
            with pytest.raises(Exception, match="no key is named for this write"):
                landed()
        assert not [one for place in ("t", "u") for one in (tmp_path / place).rglob("*") if one.suffix == ".parquet"]
        bss.protect_table(spark, name)
        spark.sql(f"INSERT INTO {name} VALUES (77, 'x')")  # noqa: S608
        assert bss.check_table(spark, tmp_path / "t").rows == 1
        assert bss.write(rows, tmp_path / "w").rows == 4
        assert spark.read.parquet(str(tmp_path / "clear")).count() == 4
    finally:
        bss.enable(spark, policy=policy)
    rows.write.mode("append").parquet(str(tmp_path / "clear"))


def test_an_overwrite_that_makes_the_table_anew_is_refused_before_it_is_dropped(
    spark: SparkSession, rows: DataFrame, policy: Policy, name: str
) -> None:
    """Spark drops the table first, its files and its options with it."""
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING parquet")
    bss.protect_table(spark, name)
    rows.write.insertInto(name)
    for options in ({}, bss.options(policy, schema=rows.schema)):
        with pytest.raises(Exception, match="saveAsTable drops the sealed table"):
            rows.write.mode("overwrite").options(**options).saveAsTable(name)
    assert bss.protect_table(spark, name) == {}
    assert sorted(row.id for row in spark.table(name).collect()) == [0, 1, 2, 3]
    rows.where("id > 1").write.insertInto(name, overwrite=True)
    assert sorted(row.id for row in spark.table(name).collect()) == [2, 3]
    spark.sql(f"DROP TABLE {name}")
    rows.write.saveAsTable(name)
    rows.write.mode("overwrite").saveAsTable(name)  # in plaintext, as it was


def test_no_minimum_of_a_sealed_column_comes_to_the_catalog(spark: SparkSession, rows: DataFrame, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) USING parquet")
    bss.protect_table(spark, name)
    rows.write.insertInto(name)
    spark.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS")
    for columns in ("FOR COLUMNS ssn", "FOR ALL COLUMNS"):
        with pytest.raises(Exception, match="stores minima and maxima"):
            spark.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS {columns}")
    told = {row.info_name: row.info_value for row in spark.sql(f"DESCRIBE EXTENDED {name} id").collect()}
    assert told["min"] == told["max"] == "NULL"
    assert "4 rows" in str(spark.sql(f"DESCRIBE EXTENDED {name}").where("col_name = 'Statistics'").collect())


def test_a_view_shows_what_was_there_when_it_was_first_asked(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    bss.write(rows, tmp_path / "t")
    make = f"CREATE OR REPLACE TEMPORARY VIEW seen USING bloomseal OPTIONS (path '{tmp_path}/t')"
    spark.sql(make)
    assert spark.table("seen").count() == 4
    bss.write(rows.limit(1), tmp_path / "t", mode="append")
    assert spark.table("seen").count() == (4 if pushes_filters() else 5)  # Spark 4.0 plans each query anew
    spark.sql(make)
    assert spark.table("seen").count() == 5
    spark.catalog.dropTempView("seen")


def test_folders_that_a_write_adds_are_told_to_the_catalog(spark: SparkSession, rows: DataFrame, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING, k BIGINT) USING parquet PARTITIONED BY (k)")
    bss.protect_table(spark, name)
    place = spark.conf.get("spark.sql.warehouse.dir")
    bss.write(rows.selectExpr("*", "id % 2 AS k"), f"{place}/{name}", mode="append", partition_by=["k"])
    spark.sql(f"MSCK REPAIR TABLE {name}")
    assert spark.table(name).count() == 4
