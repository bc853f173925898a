"""AAD prefixes with ``{path}``: Spark's writer, readers and jobs know the table's folder, and a file opens in its own
place only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.audit.rules.findings import Severity
from bloomseal.core.errors import IntegrityError, PolicyError
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.writing.frames import WriteReport

from .pruned import counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.BloomsealWarning"),
]


def policy_of(ring: bs.Keyring, **more: Any) -> Policy:
    column = {"key": "pii", "sensitivity": "restricted", "filter": {"fpp": 0.001, "ndv": 100}}
    bound = {"aad_prefix": "{table}/{path}/", "store_aad_prefix": False}
    table = {
        "footer_key": "footer",
        "complete": True,
        "partition_by": ["k"],
        "columns": {"ssn": column},
        **bound,
        **more,
    }
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"people": table}})


@pytest.fixture(scope="module")
def policy(ring: bs.Keyring) -> Policy:
    return policy_of(ring)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Callable[[int, int], DataFrame]:
    def make(start: int, end: int) -> DataFrame:
        return spark.range(start, end, 1, 2).selectExpr("id", "concat('ssn-', id) AS ssn", "concat('a b', id % 2) AS k")

    return make


def ids(folder: Path, table: TablePolicy, **more: Any) -> list[int]:
    return sorted(bs.open_table(folder, decryption=table).read(["id"], **more)["id"].to_pylist())


def write(df: DataFrame, folder: Path, policy: Policy, **more: Any) -> WriteReport:
    return bss.write(df, folder, policy=policy, partition_by=["k"], **more)


def test_written_read_looked_after_and_bound_to_its_place(
    spark: SparkSession, policy: Policy, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy)
    folder, table = tmp_path / "people", policy.for_table("people")
    report = write(rows(0, 40), folder, policy)
    assert {Path(file).parent.name for file in report.files} == {"k=a b0", "k=a b1"}
    write(rows(40, 60), folder, policy, mode="append")
    dynamic = {"partitionOverwriteMode": "dynamic"}
    write(rows(100, 120).where("id % 2 = 0"), folder, policy, mode="overwrite", options=dynamic)
    wanted = sorted([*range(100, 120, 2), *range(1, 60, 2)])
    assert ids(folder, table) == wanted

    # Both readers, and all jobs, by the folder's name alone.
    read = bss.read(spark, folder, columns=["id"], where="k = 'a b1' AND ssn IN ('ssn-7', 'ssn-104')")
    assert [row.id for row in read.collect()] == [7]
    loaded = spark.read.format("bloomseal").load(str(folder))
    assert sorted(row.id for row in loaded.collect()) == wanted
    assert [row.id for row in bss.read(spark, folder / "k=a*", columns=["id"], where="id = 7").collect()] == [7]
    assert counts(bss.prune(spark, folder, "ssn", ["ssn-7"]))["failed"] == 0
    assert [row.id for row in bss.semi_join(spark, folder, "ssn", ["ssn-7", "ssn-8"]).collect()] == [7]
    assert "ruled out" in bss.explain(spark, folder, "ssn = 'none'")
    assert bss.check_table(spark, folder).rows == len(wanted)
    assert all(row.complete for row in bss.verify(spark, folder).collect())
    assert {row.failure for row in bss.attach(spark, folder).collect()} == {None}
    assert {row.status for row in bss.rekey(spark, folder, journal=tmp_path / "journal").collect()} == {"rekeyed"}
    assert {row.failure for row in bss.rewrap(spark, folder).collect()} == {None}
    seen = bss.audit(spark, folder).report
    assert not seen.at_least(Severity.ERROR)
    assert not seen.unseen
    assert ids(folder, table) == wanted

    # A file in another partition: the same bytes, the same name, another path.
    moved = next((folder / "k=a b0").glob("*.parquet"))
    moved.rename(folder / "k=a b1" / moved.name)
    with pytest.raises(IntegrityError):
        ids(folder, table)
    for failing in (bss.read(spark, folder), spark.read.format("bloomseal").schema(loaded.schema).load(str(folder))):
        with pytest.raises(Exception, match="IntegrityError"):
            failing.collect()
    told = {Path(row.file).name: row.ok for row in bss.verify(spark, folder).collect()}
    assert [name for name, ok in told.items() if not ok] == [moved.name]
    with pytest.raises(PolicyError, match=moved.name):
        bss.check_table(spark, folder)


def test_keys_that_are_everywhere_are_joined_by_spark_s_reader(
    spark: SparkSession, policy: Policy, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy)
    folder = tmp_path / "people"
    write(spark.range(0, 40, 1, 5).selectExpr("id", "concat('ssn-', id) AS ssn", "id % 2 AS k"), folder, policy)
    found = bss.semi_join(spark, folder, "ssn", [f"ssn-{i}" for i in range(40)], columns=["id"])
    assert "FileScan parquet" in str(found._jdf.queryExecution().executedPlan().toString())
    assert sorted(row.id for row in found.collect()) == [*range(40)]
    moved = next((folder / "k=0").glob("*.parquet"))
    moved.rename(folder / "k=1" / moved.name)
    with pytest.raises(Exception, match=f"{moved.name}|Tag mismatch"):
        bss.semi_join(spark, folder, "ssn", [f"ssn-{i}" for i in range(40)], columns=["id"]).collect()


def test_a_part_of_a_table_is_named_with_the_tables_folder(
    spark: SparkSession, policy: Policy, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy)
    folder = tmp_path / "people"
    write(rows(0, 10), folder, policy)
    part = folder / "k=a b1"
    whole = spark.read.format("bloomseal").option("root", str(folder)).load(str(part))
    assert sorted(row.id for row in whole.collect()) == [1, 3, 5, 7, 9]
    said = policy.for_table("people", root=folder)
    assert sorted(row.id for row in bss.read(spark, part, policy=said).collect()) == [1, 3, 5, 7, 9]
    assert all(row.complete for row in bss.verify(spark, part, policy=said).collect())
    # Written there, it is a file of the whole table.
    bss.write(rows(11, 12).drop("k"), part, policy=said, mode="append")
    assert ids(folder, said) == [*range(10), 11]
    with pytest.raises(PolicyError, match="not in that of table people"):
        bss.write(rows(0, 1), tmp_path / "elsewhere", policy=said)
    assert not (tmp_path / "elsewhere").exists()


def test_rekey_brings_files_of_an_older_template_to_their_places(
    spark: SparkSession, ring: bs.Keyring, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    folder = tmp_path / "people"
    bss.enable(spark, policy=policy_of(ring, aad_prefix="{table}/{file}"))
    write(rows(0, 10), folder, policy_of(ring, aad_prefix="{table}/{file}"))
    new = policy_of(ring, previous_aad_prefixes=["{table}/{file}"]).for_table("people")
    done = bss.rekey(spark, folder, policy=new, journal=tmp_path / "journal").collect()
    assert {row.status for row in done} == {"rekeyed"}
    assert ids(folder, policy_of(ring).for_table("people")) == list(range(10))
