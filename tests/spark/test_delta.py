"""Tables with a log, through Spark: live files of Delta and Iceberg read, sealed files written to Delta."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.audit import audit
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

deltalake = pytest.importorskip("deltalake")
memory = pytest.importorskip("pyiceberg.catalog.memory")
pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

DATA = pa.table(
    {
        "country": ["DE", "FR", None, "a b/é%"],
        "day": pa.array([1, 2, 3, None], pa.int32()),
        "ssn": ["000", "111", "222", "333"],
        "n": pa.array([1, 2, 3, 4], pa.int32()),
    }
)


@pytest.fixture(scope="module")
def policy(spark: SparkSession, ring: bs.Keyring) -> Policy:
    columns = {"ssn": {"key": "pii", "filter": {"ndv": 100}}}
    tables = {"t": {"footer_key": "footer", "columns": columns}}
    found = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    bss.enable(spark, policy=found)
    return found


def sealed(folder: Path, policy: Policy) -> None:
    """All live and dead files of a folder, sealed in place."""
    table = policy.for_table("t")
    for path in folder.rglob("*.parquet"):
        if path.read_bytes()[-4:] == b"PAR1" and "_delta_log" not in path.parts:
            bs.seal_file(path, encryption=table, bloom_filters=table.bloom_filters())


def rows(frame: Any) -> list[str]:
    found = frame.to_pylist() if isinstance(frame, pa.Table) else [row.asDict() for row in frame.collect()]
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in found)


def test_the_live_files_of_a_delta_table(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    deltalake.write_deltalake(str(folder), DATA.slice(2), partition_by=["country", "day"])
    deltalake.write_deltalake(str(folder), DATA, partition_by=["country", "day"], mode="overwrite")
    sealed(folder, policy)
    assert bss.read(spark, folder).columns == DATA.column_names
    assert rows(bss.read(spark, folder)) == rows(DATA)
    found = bss.read(spark, folder, columns=["n"], where="country = 'a b/é%' AND ssn = '333'")
    assert found.collect() == [(4,)]
    assert bss.df_stats(found).files_pruned_by_partition == 3
    assert rows(bss.semi_join(spark, folder, "ssn", ["111", "333", "no"], columns=["n"])) == ['{"n": 2}', '{"n": 4}']
    # A column that came later, in the log alone so far for the older files.
    more = DATA.slice(0, 1).append_column("later", pa.array(["x"]))
    deltalake.write_deltalake(str(folder), more, partition_by=["country", "day"], mode="append", schema_mode="merge")
    sealed(folder, policy)
    assert sorted(str(row.later) for row in bss.read(spark, folder).collect()) == ["None"] * 4 + ["x"]
    with pytest.raises(bs.UsageError, match="read alone"):
        bss.read(spark, [folder, tmp_path])
    with pytest.raises(bs.UnsupportedError, match="which files are live"):
        bss.read(spark, tmp_path)


def test_the_live_files_of_an_iceberg_table(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import IntegerType, NestedField, StringType

    catalog = memory.InMemoryCatalog("test", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    kinds = {"country": StringType(), "day": IntegerType(), "ssn": StringType(), "n": IntegerType()}
    schema = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), 1)))
    partition = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "country"))
    table = catalog.create_table("n.t", schema=schema, partition_spec=partition)
    table.append(DATA)
    table.overwrite(DATA.slice(0, 3))
    folder = tmp_path / "ice" / "n" / "t"
    sealed(folder, policy)
    assert rows(bss.read(spark, folder)) == rows(DATA.slice(0, 3))
    assert bss.read(spark, folder, columns=["n"], where="ssn = '111'").collect() == [(2,)]
    with table.update_schema() as update:
        update.rename_column("n", "number")
    with pytest.raises(Exception, match="renamed"):
        bss.read(spark, folder).collect()


def test_names_and_widths_are_the_logs(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    """Two columns change names: what filters and an index know by a name is about the other one's values."""
    from pyiceberg.types import DoubleType

    catalog = memory.InMemoryCatalog("names", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    rows = pa.table({"ssn": ["a", "b"], "t": ["x", "y"], "f": pa.array([0.1, 0.5], pa.float32())})
    table, folder = catalog.create_table("n.t", schema=rows.schema), tmp_path / "ice" / "n" / "t"
    table.append(rows)
    with table.update_schema() as update:
        update.update_column("f", DoubleType())
    sealed(folder, policy)
    for where, found in (
        ("f = 0.1D", []),
        ("f > 0.1D", ["a", "b"]),
        ("f <= 0.1D", []),
        ("f = cast(0.1 as float)", ["a"]),
    ):
        assert sorted(row.ssn for row in bss.read(spark, folder, where=where).collect()) == found, where
    of = policy.for_table("t", root=folder)
    assert bs.open_table(folder, decryption=of).index("ssn").build().ok
    assert bss.read(spark, folder, where="ssn = 'x'").collect() == []
    for old, new in (("ssn", "_"), ("t", "ssn"), ("_", "t")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    keys = pa.array(["x", "y", "z"])
    for ask in (
        lambda: bss.read(spark, folder, where="ssn = 'x'").collect(),
        lambda: bss.semi_join(spark, folder, "ssn", keys).collect(),
        lambda: bss.read(spark, folder).where("ssn = 'x'").collect(),
    ):
        with pytest.raises(Exception, match="renamed"):
            ask()
    failures = {row.failure for row in bss.prune(spark, folder, "ssn", keys).collect()} - {None}
    assert failures == {"a column that was renamed, or dropped and added again"}


def test_sealed_files_into_a_delta_table(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    frame = spark.createDataFrame(DATA)

    def read() -> list[str]:
        through = [
            bs.read_table(folder, decryption=policy.for_table("t")),
            bss.read(spark, folder),
        ]
        told = [rows(one) for one in through]
        assert told[0] == told[1]
        return told[0]

    report = bss.write_delta(frame, folder, partition_by=["country"])
    assert report.rows == 4
    assert report.filters == len(report.files)
    assert read() == rows(DATA)
    bss.write_delta(frame.where("n = 4"), folder, mode="append", partition_by=["country"])
    assert read() == rows(pa.concat_tables([DATA, DATA.slice(3)]))
    bss.write_delta(frame.where("n < 3"), folder, mode="overwrite", partition_by=["country"])
    assert read() == rows(DATA.slice(0, 2))
    assert rows(bs.open_table(folder, decryption=policy.for_table("t"), version=0).read()) == rows(DATA)
    # The log is in clear: of no column a value, and no count of nulls.
    log = "\n".join(path.read_text() for path in (folder / "_delta_log").glob("*.json"))
    added = [json.loads(line)["add"] for line in log.splitlines() if '"add"' in line[:10]]
    assert added
    assert all(set(json.loads(one["stats"])) == {"numRecords"} for one in added)
    assert all(f'"{value}"' not in log.replace("\\", "") for value in DATA["ssn"].to_pylist())
    report_of = audit(folder, keys=policy.for_table("t").keys, policy=policy.for_table("t"))
    assert "BS113" not in {one.rule.id for one in report_of.findings}
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (frame, {"mode": "error", "partition_by": ["country"]}, "a table already"),
        (frame, {"mode": "append"}, "other partition columns"),
        (frame.drop("n"), {"mode": "append", "partition_by": ["country"]}, "not the table's"),
        (frame.withColumnRenamed("ssn", "x"), {"mode": "append", "partition_by": ["country"]}, "not the table's"),
    ]
    before = sorted(folder.rglob("*"))
    for one, arguments, match in refused:
        with pytest.raises(bs.UsageError, match=match):
            bss.write_delta(one, folder, **arguments)
    with pytest.raises(bs.BloomsealError, match="ssn"):
        bss.write_delta(frame, tmp_path / "by ssn", partition_by=["ssn"])
    deltalake.write_deltalake(str(tmp_path / "checked"), DATA)
    deltalake.DeltaTable(str(tmp_path / "checked")).alter.add_constraint({"few": "n < 100"})
    with pytest.raises(bs.UnsupportedError, match="asks more of its writers"):
        bss.write_delta(frame, tmp_path / "checked", mode="append")
    assert [one for one in sorted(folder.rglob("*")) if "_delta_log" not in one.parts] == [
        one for one in before if "_delta_log" not in one.parts
    ]


def test_a_log_that_does_not_take_the_files(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    frame = spark.createDataFrame(DATA)
    deltalake.DeltaTable.create(
        str(tmp_path / "t"), deltalake.Schema.from_arrow(DATA.schema), configuration={"delta.appendOnly": "true"}
    )
    bss.write_delta(frame, tmp_path / "t", mode="append")
    with pytest.raises(bs.BloomsealError, match="did not take"):
        bss.write_delta(frame, tmp_path / "t", mode="overwrite")
    assert rows(bss.read(spark, tmp_path / "t")) == rows(DATA)


def test_batches_of_a_stream_are_there_once(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    """Spark repeats a batch whose note is missing; the log knows which ones it has."""
    frame, folder, killed = spark.createDataFrame(DATA), tmp_path / "t", []
    frame.write.json(str(tmp_path / "in"))

    def put(batch: DataFrame, number: int) -> None:
        once = {"txnAppId": "the query", "txnVersion": str(number)}
        told = bss.write_delta(batch, folder, mode="append", options=once)
        assert told.rows == (0 if killed else 4)
        if not killed:
            killed.append(number)
            raise RuntimeError("killed between the commit and Spark's note")

    stream = spark.readStream.schema(frame.schema).json(str(tmp_path / "in")).writeStream.foreachBatch(put)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(Exception, match="killed"):
        stream.start().awaitTermination()
    stream.start().awaitTermination()
    assert rows(bss.read(spark, folder)) == rows(DATA)
    with pytest.raises(bs.UsageError, match="belong together"):
        bss.write_delta(frame, folder, mode="append", options={"txnAppId": "x"})


def test_a_delta_table_keeps_its_index(spark: SparkSession, policy: Policy, tmp_path: Path) -> None:
    """It is the table's, not that of the folder into which one version's files go."""
    columns = {"ssn": {"key": "pii", "index": True}}
    tables = {"t": {"footer_key": "footer", "columns": columns}}
    chosen = Policy.from_dict({"version": 1, "kms": policy.for_table("t").kms, "tables": tables}).for_table("t")
    folder, frame = tmp_path / "t", spark.createDataFrame(DATA)
    first = bss.write_delta(frame, folder, policy=chosen, partition_by=["country"])
    more = bss.write_delta(frame.where("n = 2"), folder, policy=chosen, mode="append", partition_by=["country"])
    assert [one.indexes["ssn"].covered for one in (first, more)] == [4, 5]
    assert [one.parent for one in folder.rglob("_bloomseal_index")] == [folder]
    table = bs.open_table(folder, decryption=chosen, use_index="require")
    assert table.read(where=[("ssn", "==", "111")]).num_rows == 2
    assert table.stats.files_unopened == 3
    assert bss.read(spark, folder, policy=chosen, where="ssn = '111'", use_index="require").count() == 2
