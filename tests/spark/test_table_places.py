"""Spark's own reader and writer under a policy that binds each file to its place: what one side writes the other opens,
in its own place only. `ways_to_write.py` tries all ways of writing under such a policy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy, TablePolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.BloomsealWarning"),
]
ODD = ["a b", "a/b", "x=1", "100%", "%41", "ü:ß", "_under", ".dot", "c,d;e"]
"""Values that become names of folders."""


def table_of(ring: bs.Keyring, **more: Any) -> dict[str, Any]:
    ssn = {"key": "pii", "sensitivity": "restricted", "filter": {"fpp": 0.001, "ndv": 100}}
    bound = {"aad_prefix": "{table}/{path}/", "store_aad_prefix": False}
    return {
        "footer_key": "footer", "complete": True, "partition_by": ["k"], "columns": {"ssn": ssn}, **bound, **more,
    }  # fmt: skip


def policy_of(ring: bs.Keyring, **tables: dict[str, Any]) -> Policy:
    tables = tables or {"people": table_of(ring)}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


@pytest.fixture(scope="module")
def policy(ring: bs.Keyring) -> Policy:
    return policy_of(ring)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = ", ".join(f"'{one}'" for one in ODD)
    return spark.range(0, 90, 1, 2).selectExpr(
        "id", "concat('ssn-', id) AS ssn", f"array({values})[id % {len(ODD)}] AS k", "named_struct('n', id) AS inner"
    )


@pytest.fixture(scope="module")
def written(spark: SparkSession, policy: Policy, rows: DataFrame, work: Path) -> Path:
    """A table by Spark's own writer, in folders with odd names."""
    bss.enable(spark, policy=policy)
    folder = work / "bound" / "people"
    sealing = bss.options(policy, schema=rows.drop("k").schema)
    rows.write.options(**sealing).partitionBy("k").parquet(str(folder))
    return folder


@pytest.fixture
def bound(spark: SparkSession, policy: Policy, written: Path, tmp_path: Path) -> Iterator[Path]:
    """The table, of this test's own."""
    bss.enable(spark, policy=policy)
    shutil.copytree(written, tmp_path / "people")
    yield tmp_path / "people"
    spark.catalog.clearCache()
    bss.enable(spark, policy=policy)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def ours(folder: Path, table: TablePolicy) -> list[int]:
    return sorted(bs.open_table(folder, decryption=table).read(["id"])["id"].to_pylist())


def refused(what: str, read: Callable[[], Any]) -> None:
    with pytest.raises(Exception, match=what):
        read()


def test_what_spark_writes_is_bound_to_its_place(
    spark: SparkSession, bound: Path, policy: Policy, rows: DataFrame
) -> None:
    table = policy.for_table("people")
    assert ours(bound, table) == list(range(90)) == ids(spark.read.parquet(str(bound)))
    assert bss.check_table(spark, bound).rows == 90
    for file in files(bound):
        told = file.read_bytes()
        assert told[-4:] == b"PARE"
        assert b"ssn-" not in told
        assert b"people/" not in told, "the prefix is not stored"
        with pytest.raises(bs.PolicyError):
            bs.open_file(file, decryption=bs.DecryptionSpec(table.keys))
    back = spark.read.parquet(str(bound)).select(*rows.columns)
    assert back.exceptAll(rows).count() == rows.exceptAll(back).count() == 0


def test_what_bloomseal_writes_spark_reads(
    spark: SparkSession, policy: Policy, rows: DataFrame, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy)
    folder = tmp_path / "people"
    bs.write_dataset(rows.drop("inner").toArrow(), folder, encryption=policy.for_table("people"), partition_by=["k"])
    frame = spark.read.parquet(str(folder))
    assert ids(frame) == list(range(90))
    assert ids(frame.where("ssn = 'ssn-7'")) == [7]


def test_every_way_of_reading(spark: SparkSession, bound: Path) -> None:
    read, path = spark.read, str(bound)
    small = "spark.sql.files.maxPartitionBytes"
    everything = list(range(90))

    def under(name: str, value: str, look: Callable[[], Any]) -> Any:
        before = spark.conf.get(name)
        spark.conf.set(name, value)
        try:
            return look()
        finally:
            spark.conf.set(name, before)

    by_rows = "spark.sql.parquet.enableVectorizedReader"
    assert under(by_rows, "false", lambda: ids(read.parquet(path))) == everything
    assert under(small, "600", lambda: ids(read.parquet(path))) == everything
    assert under("spark.sql.sources.useV1SourceList", "", lambda: ids(read.parquet(path))) == everything
    assert under("spark.sql.sources.useV1SourceList", "", lambda: read.parquet(path).count()) == 90
    assert ids(read.option("mergeSchema", "true").parquet(path)) == everything
    assert ids(read.parquet(path).where("ssn IN ('ssn-3', 'ssn-88')")) == [3, 88]
    assert ids(read.parquet(path).where("k = 'x=1'")) == everything[2::9]
    assert [row.n for row in read.parquet(path).select("inner.n").where("n < 3").orderBy("n").collect()] == [0, 1, 2]
    assert read.parquet(path).agg({"id": "max"}).first()[0] == 89
    frame = read.parquet(path)
    assert frame.alias("a").join(frame.alias("b"), "ssn").count() == 90
    assert ids(read.schema("id BIGINT, ssn STRING").parquet(path)) == everything
    assert ids(read.parquet(*map(str, files(bound)))) == everything
    spark.sql(f"CREATE TABLE bound (id BIGINT, ssn STRING, inner STRUCT<n: BIGINT>, k STRING) USING parquet PARTITIONED BY (k) LOCATION '{path}'")  # fmt: skip
    try:
        spark.sql("MSCK REPAIR TABLE bound")
        assert ids(spark.table("bound")) == everything
        spark.sql("ANALYZE TABLE bound COMPUTE STATISTICS")
        assert ids(spark.sql("SELECT id FROM bound WHERE ssn = 'ssn-5'")) == [5]
    finally:
        spark.sql("DROP TABLE bound")
    schema = read.parquet(path).schema
    query = spark.readStream.schema(schema).parquet(path).writeStream.format("memory").queryName("seen")
    query.trigger(availableNow=True).start().awaitTermination()
    assert ids(spark.table("seen")) == everything


def test_appends_and_overwrites(spark: SparkSession, bound: Path, policy: Policy, rows: DataFrame) -> None:
    table, sealing = policy.for_table("people"), bss.options(policy, schema=rows.drop("k").schema)
    writer = rows.where("id < 9").write.options(**sealing).partitionBy("k")
    writer.mode("append").option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(str(bound))
    assert ours(bound, table) == sorted([*range(90), *range(9)])
    writer = rows.where("id < 2").write.options(**sealing).partitionBy("k")
    writer.mode("overwrite").option("partitionOverwriteMode", "dynamic").parquet(str(bound))
    assert ours(bound, table) == sorted([0, 1, *(i for i in range(90) if i % 9 > 1), *range(2, 9)])
    assert bss.write(rows.where("id < 5"), bound, mode="overwrite", partition_by=["k"]).rows == 5
    assert ours(bound, table) == ids(spark.read.parquet(str(bound))) == list(range(5))


def test_spark_s_own_staging_of_dynamic_overwrites(
    spark: SparkSession, bound: Path, policy: Policy, rows: DataFrame
) -> None:
    name = "spark.sql.sources.commitProtocolClass"
    before = spark.conf.get(name)
    spark.conf.set(name, "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol")
    try:
        sealing = bss.options(policy, schema=rows.drop("k").schema)
        writer = rows.where("id < 2").write.options(**sealing).partitionBy("k").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(str(bound))
    finally:
        spark.conf.set(name, before)
    assert ours(bound, policy.for_table("people")) == sorted([0, 1, *(i for i in range(90) if i % 9 > 1)])


def test_a_partition_elsewhere_has_no_place_that_is_known(
    spark: SparkSession, bound: Path, policy: Policy, tmp_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE apart (id BIGINT, ssn STRING, k STRING) USING parquet PARTITIONED BY (k) LOCATION '{bound}'"
    )
    try:
        bss.protect_table(spark, "apart")
        spark.sql(f"ALTER TABLE apart ADD PARTITION (k = 'z') LOCATION '{tmp_path / 'z'}'")
        refused("final place", lambda: spark.sql("INSERT INTO apart PARTITION (k = 'z') VALUES (1, 'ssn-1')"))
        assert not files(tmp_path / "z")
        spark.sql("INSERT INTO apart PARTITION (k = 'y') VALUES (1, 'ssn-1')")
        assert ours(bound / "k=y", policy.for_table("people").at(bound)) == [1]
    finally:
        spark.sql("DROP TABLE apart")


def test_below_a_table_s_folder_whatever_spark_writes_is_sealed(
    spark: SparkSession, policy: Policy, rows: DataFrame, tmp_path: Path
) -> None:
    """No option is named: none can be misspelt, or lost on its way."""
    folder, table = tmp_path / "lake", policy.for_table("people")
    bss.enable(spark, policy=policy, tables={"people": folder})
    rows.where("id < 30").write.partitionBy("k").parquet(str(folder))
    rows.where("id >= 30").write.mode("append").partitionBy("k").parquet(str(folder))
    assert bss.check_table(spark, folder).filters > 0
    assert ours(folder, table) == ids(spark.read.parquet(str(folder))) == list(range(90))
    rows.where("id < 4").write.mode("overwrite").partitionBy("k").parquet(str(folder))
    assert ours(folder, table) == [0, 1, 2, 3]
    ddl = "id BIGINT, ssn STRING, inner STRUCT<n: BIGINT>, k STRING"
    spark.sql(f"CREATE TABLE lake ({ddl}) USING parquet PARTITIONED BY (k) LOCATION '{folder}'")
    try:
        spark.sql("MSCK REPAIR TABLE lake")
        spark.sql("INSERT INTO lake VALUES (4, 'ssn-4', named_struct('n', 4L), 'z')")
        assert ids(spark.table("lake")) == [0, 1, 2, 3, 4] == ours(folder, table)
    finally:
        spark.sql("DROP TABLE lake")
    before = sorted(folder.rglob("*"))
    refused("names of folders", lambda: rows.write.mode("append").partitionBy("id").parquet(str(folder)))
    refused("sealed files are wanted", lambda: rows.write.mode("append").json(str(folder)))
    assert sorted(folder.rglob("*")) == before
    spark_sink = tmp_path / "sink"
    bss.enable(spark, policy=policy, tables={"people": spark_sink})
    rows.where("id < 6").write.json(str(tmp_path / "json"))
    stream = spark.readStream.schema(rows.schema).json(str(tmp_path / "json")).writeStream.format("parquet")
    stream = stream.partitionBy("k").option("checkpointLocation", str(tmp_path / "c"))
    stream.trigger(availableNow=True).start(str(spark_sink)).awaitTermination()
    assert ids(spark.read.parquet(str(spark_sink))) == list(range(6))
    assert all(one.read_bytes()[-4:] == b"PARE" for one in files(spark_sink))


def test_options_leave_nothing_in_clear_below_a_table_s_folder(
    spark: SparkSession, ring: bs.Keyring, policy: Policy, rows: DataFrame, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy, tables={"people": (folder := tmp_path / "lake")})
    sealing, name = bss.options(policy, schema=rows.drop("k").schema), "parquet.encryption."
    keys = f"{name}column.keys"

    def write(**options: str) -> None:
        rows.write.mode("append").options(**options).partitionBy("k").parquet(str(folder))

    write(**{**sealing, "parquet.summary.metadata.level": "ALL", f"{name}algorithm": "AES_GCM_CTR_V1"})
    before = files(folder)
    assert [bss.check_table(spark, folder).rows, *folder.glob("_*metadata")] == [90]
    refused("in clear", lambda: write(**{f"{name}footer.key": "footer", keys: "pii:id"}))
    refused("in clear", lambda: write(**{**sealing, f"{name}complete.columns": "false"}))
    refused("in clear", lambda: write(**{**sealing, f"{name}plaintext.footer": "true"}))
    for less in ({**sealing, keys: "pii:id"}, {**sealing, keys: "footer:ssn"}, {f"{name}uniform.key": "footer"}):
        refused("column 'ssn' would not be sealed", lambda less=less: write(**less))
    assert files(folder) == before
    groups = policy_of(ring, people=table_of(ring, columns={"inner": {"key": "pii"}, "ssn": {"key": "pii"}}))
    bss.enable(spark, policy=groups, tables={"people": tmp_path / "groups"})
    assert bss.write(rows, tmp_path / "groups", partition_by=["k"]).rows == 90


def test_links_lead_neither_into_a_table_nor_out_of_it(
    spark: SparkSession, policy: Policy, bound: Path, rows: DataFrame, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy, tables={"people": bound})
    rows.drop("k").write.parquet(str(clear := tmp_path / "clear"))
    for name, to in [("k=q/x.parquet", files(clear)[0]), ("k=p", clear), ("k=q/x.parquet", files(bound)[-1])]:
        (link := bound / name).parent.mkdir(exist_ok=True)
        link.symlink_to(to)
        refused("plaintext|could not|AEADBadTag", lambda: spark.read.parquet(str(bound)).agg({"ssn": "max"}).collect())
        if link.is_dir():
            before = files(clear)
            rows.drop("k").write.mode("append").parquet(str(link))
            assert all(one.read_bytes()[-4:] == b"PARE" for one in files(clear) if one not in before)
        link.unlink()
    (alias := tmp_path / "alias").symlink_to(bound)
    rows.where("id < 9").write.mode("overwrite").partitionBy("k").parquet(str(alias))
    assert ids(spark.read.parquet(str(alias))) == ids(spark.read.parquet(f"file://{bound}/")) == list(range(9))
    assert ours(bound, policy.for_table("people")) == list(range(9))


def test_a_table_without_a_prefix_beside_others_takes_its_own_keys_alone(
    spark: SparkSession, ring: bs.Keyring, rows: DataFrame, tmp_path: Path
) -> None:
    loose = {name: one for name, one in table_of(ring).items() if not name.endswith("aad_prefix")}
    both = policy_of(ring, people=table_of(ring), loose=loose)
    bss.enable(spark, policy=both, tables={"people": tmp_path / "people"})
    assert bss.write(rows.drop("k"), tmp_path / "loose", table="loose").rows == 90 == len(ids(spark.read.parquet(str(tmp_path / "loose"))))  # fmt: skip
    foreign = bs.EncryptionSpec("health", keys=bs.KeyTools(f"keyring://{ring.path}"))
    bs.write_table(rows.select("id").toArrow(), tmp_path / "x.parquet", encryption=foreign)
    refused("'health' is none of table 'loose'", lambda: ids(spark.read.parquet(str(tmp_path / "x.parquet"))))


def test_files_in_the_wrong_place_are_refused(
    spark: SparkSession, bound: Path, ring: bs.Keyring, policy: Policy, rows: DataFrame, tmp_path: Path
) -> None:
    def count() -> int:
        return spark.read.parquet(str(bound)).agg({"id": "sum"}).count()

    first, second = files(bound)[0], files(bound)[-1]
    spare = tmp_path / "spare"
    first.rename(spare)
    count()
    spare.rename(first.parent / f"renamed-{first.name}")
    refused("could not|Exception", count)
    (first.parent / f"renamed-{first.name}").rename(second.parent / first.name)
    refused("could not|Exception", count)
    (second.parent / first.name).unlink()
    count()
    prefixless = bs.EncryptionSpec("footer", {"ssn": "pii"}, policy.for_table("people").keys, complete=True)
    bs.write_table(rows.drop("k").toArrow(), first, encryption=prefixless)
    refused("AAD [Pp]refix", count)
    stored = policy_of(ring, people=table_of(ring, aad_prefix="else/{path}/", store_aad_prefix=True))
    bs.write_table(rows.drop("k").toArrow(), first, encryption=stored.for_table("people", root=bound))
    refused("AAD [Pp]refix", count)
    first.unlink()
    # Where the table's folder is known, plaintext is refused too, both ways.
    bss.enable(spark, policy=policy, tables={"people": bound})
    assert count() == 1
    bs.unseal_file(second, first, decryption=policy.for_table("people", root=bound))
    refused("plaintext", count)
    refused("sealed files are wanted", lambda: rows.write.mode("append").json(str(bound)))
    bss.enable(spark, policy=policy, tables={"people": bound}, allow_plaintext=[bound])
    assert count() == 1


def test_a_session_s_keys_serve_the_policy_s_tables_alone(
    spark: SparkSession, ring: bs.Keyring, bound: Path, rows: DataFrame, tmp_path: Path
) -> None:
    """The confused deputy: whoever writes to a catalog names a file that the application may open and he may not."""
    both = policy_of(ring, people=table_of(ring), orders=table_of(ring))
    bss.enable(spark, policy=both, tables={"people": bound, "orders": tmp_path / "sales"})
    assert ids(spark.read.parquet(str(bound))) == list(range(90))
    shutil.copytree(bound, tmp_path / "sales", dirs_exist_ok=True)
    refused(
        "Exception", lambda: ids(spark.read.parquet(str(tmp_path / "sales")))
    )  # another table's, in this one's place
    shutil.copytree(bound, tmp_path / "copy")
    refused("Exception", lambda: ids(spark.read.parquet(str(tmp_path / "copy"))))
    # Nor a file that has no prefix, under the same keys; nor, in the table, one under a key that is none of its.
    keys = both.for_table("people").keys
    bs.write_table(
        rows.select("id").toArrow(), tmp_path / "x.parquet", encryption=bs.EncryptionSpec("footer", keys=keys)
    )
    refused("no table of the policy", lambda: ids(spark.read.parquet(str(tmp_path / "x.parquet"))))
    foreign = table_of(ring, footer_key="health", columns={})
    bs.write_table(
        rows.select("id").toArrow(), bound / "k=a b" / "y.parquet",
        encryption=policy_of(ring, people=foreign).for_table("people", root=bound),
    )  # fmt: skip
    refused("'health' is none of table 'people'", lambda: ids(spark.read.parquet(str(bound))))
    # Options choose keys of the policy only in its own table's folder.
    sealing = bss.options(both, "orders", schema=rows.drop("k").schema)
    for place in (bound, tmp_path / "nowhere"):
        before = files(place)
        refused("PolicyError", lambda place=place: rows.drop("k").write.mode("append").options(**sealing).parquet(str(place)))  # fmt: skip
        assert files(place) == before


def test_a_table_is_known_by_its_folder_s_name(
    spark: SparkSession, ring: bs.Keyring, bound: Path, rows: DataFrame, tmp_path: Path
) -> None:
    both = policy_of(ring, people=table_of(ring), orders=table_of(ring))
    bss.enable(spark, policy=both)
    assert ids(spark.read.parquet(str(bound))) == list(range(90))
    rows.drop("k").write.options(**bss.options(both, "orders", schema=rows.drop("k").schema)).parquet(
        str(tmp_path / "orders")
    )
    assert ids(spark.read.parquet(str(tmp_path / "orders"))) == ours(tmp_path / "orders", both.for_table("orders"))
    # A checked write says where its table is; who reads it by another session's words is refused.
    report = bss.write(rows.drop("k"), tmp_path / "elsewhere", table="people")
    assert report.rows == 90
    refused("no table of the policy|AAD", lambda: ids(spark.read.parquet(str(tmp_path / "elsewhere"))))
    bss.enable(spark, policy=both, tables={"people": tmp_path / "elsewhere"})
    assert ids(spark.read.parquet(str(tmp_path / "elsewhere"))) == list(range(90))


def test_names_of_keys_and_columns_hold_any_mark(spark: SparkSession, ring: bs.Keyring, tmp_path: Path) -> None:
    key = "arn:aws:kms:eu-1;x,y"
    ring.create(key)
    odd = policy_of(ring, people=table_of(ring, footer_key=key, columns={"a:b,c;d": {"key": key}}))
    bss.enable(spark, policy=odd)
    frame = spark.range(3).selectExpr("id", "concat('ssn-', id) AS `a:b,c;d`")
    (file, *_) = bss.write(frame, tmp_path / "t").files
    assert spark.read.parquet(str(tmp_path / "t")).where("`a:b,c;d` = 'ssn-2'").count() == 1
    assert key in str(bs.inspect(file).to_dict())


def test_key_material_beside_the_files(spark: SparkSession, ring: bs.Keyring, rows: DataFrame, tmp_path: Path) -> None:
    external = policy_of(ring, people=table_of(ring, material="external"))
    bss.enable(spark, policy=external)
    folder, table = tmp_path / "people", external.for_table("people")
    report = bss.write(rows, folder, partition_by=["k"])
    assert len(list(folder.rglob("_KEY_MATERIAL_FOR_*.json"))) == len(report.files)
    assert ours(folder, table) == ids(spark.read.parquet(str(folder))) == list(range(90))
    bss.write(rows.where("id < 3"), folder, partition_by=["k"], mode="overwrite")
    assert ours(folder, table) == [0, 1, 2]
    assert len(list(folder.rglob("_KEY_MATERIAL_FOR_*.json"))) == len(files(folder))
