"""Overwrites by Spark's own writer: whatever goes wrong, the old rows are there; and no plaintext takes their place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
DYNAMIC = {"partitionOverwriteMode": "dynamic"}
COMMITS = "spark.sql.sources.commitProtocolClass"
Rows = Callable[[int, int], Any]


@pytest.fixture(scope="module")
def policy(ring: bs.Keyring) -> Policy:
    tables = {"t": {"footer_key": "footer", "columns": {"ssn": {"key": "pii", "sensitivity": "restricted"}}}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})


@pytest.fixture(scope="module")
def rows(spark: SparkSession, policy: Policy) -> Rows:
    bss.enable(spark, policy=policy)
    return lambda start, end: spark.range(start, end, 1, 2).selectExpr("id", "concat('ssn-', id) AS ssn", "id % 2 AS k")


@pytest.fixture
def given(policy: Policy) -> dict[str, str]:
    return bss.options(policy, "t")


def ids(spark: SparkSession, folder: Path) -> list[int]:
    """As both readers find them."""
    ours = sorted(row.id for row in bss.read(spark, folder, columns=["id"]).collect())
    assert ours == sorted(row.id for row in spark.read.parquet(str(folder)).select("id").collect())
    return ours


def files(folder: Path) -> dict[str, bytes]:
    """All that lies there, but for Hadoop's checksums of other files."""
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file() and one.suffix != ".crc"
    }


def test_a_slip_over_a_sealed_table_changes_nothing(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    """With nothing but `enable`: sealed files lie there, so none in plaintext takes their place."""
    flat, parted, other = tmp_path / "flat", tmp_path / "parted", rows(10, 14)
    bss.write(rows(0, 4), flat)
    bss.write(rows(0, 4), parted, partition_by=["k"])
    misspelt = {"parquet.encryption.footer.keys": "footer"}
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW slipped USING parquet OPTIONS (path '{flat}')")
    before = files(tmp_path)
    for slip in (
        lambda: other.write.mode("overwrite").parquet(str(flat)),
        lambda: other.write.mode("append").parquet(str(flat)),
        lambda: other.write.mode("overwrite").options(**misspelt).partitionBy("k").parquet(str(parted)),
        lambda: other.write.mode("overwrite").options(**DYNAMIC).partitionBy("k").parquet(str(parted)),
        lambda: other.where("k = 1").drop("k").write.mode("overwrite").parquet(str(parted / "k=1")),
        lambda: other.selectExpr("*").write.insertInto("slipped", overwrite=True),
        lambda: spark.sql(f"INSERT OVERWRITE DIRECTORY '{flat}' USING parquet SELECT 1 AS id"),
        lambda: other.write.mode("overwrite").json(str(flat)),
        lambda: other.write.mode("overwrite").orc(str(parted)),
        lambda: spark.newSession().range(3).write.mode("overwrite").parquet(str(flat)),
    ):
        with pytest.raises(Exception, match="no key is named for this write"):
            slip()
        assert files(tmp_path) == before
    assert ids(spark, flat) == ids(spark, parted) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["orc", "json", "csv"])
def test_keys_for_a_format_that_has_none_are_refused(
    spark: SparkSession, rows: Rows, given: dict[str, str], tmp_path: Path, kind: str
) -> None:
    with pytest.raises(Exception, match="only Parquet files are sealed"):
        rows(0, 4).write.format(kind).options(**given).save(str(tmp_path / "t"))
    assert not files(tmp_path)


def test_places_that_are_to_hold_sealed_files_only(
    spark: SparkSession, rows: Rows, policy: Policy, given: dict[str, str], tmp_path: Path
) -> None:
    """From the first file on: an empty folder says nothing of itself."""
    rooted = Policy({"t": policy.for_table("t", root=tmp_path / "by policy")})
    (tmp_path / "link").symlink_to(tmp_path / "by name")
    (tmp_path / "by name").mkdir()
    try:
        bss.enable(
            spark, policy=rooted, refuse_plaintext=[tmp_path / "by name"], allow_plaintext=[tmp_path / "by name/open"]
        )
        for place in ("by policy", "by name", "by name/below", "link/k=1", "by policy/../by name"):
            for kind in ("parquet", "json") if "by name" in str((tmp_path / place).resolve()) else ("json",):
                with pytest.raises(Exception, match="sealed files are wanted here"):
                    rows(0, 4).write.format(kind).mode("append").save(str(tmp_path / place))
        assert not files(tmp_path)
        for place in ("by name/open", "elsewhere", "by names"):
            rows(0, 4).write.mode("overwrite").parquet(str(tmp_path / place))
        rows(0, 4).write.options(**given).parquet(str(tmp_path / "by policy"))
        with pytest.raises(Exception, match="would remove the table"):
            rows(0, 4).write.mode("overwrite").parquet(str(tmp_path))
        rows(4, 8).write.mode("append").parquet(str(tmp_path / "by policy"))  # a table's options are its folder's
        assert spark.read.parquet(str(tmp_path / "by policy")).count() == 8
        assert bss.check_table(spark, tmp_path / "by policy").rows == 8
        with pytest.raises(bs.UsageError, match="a list of paths"):
            bss.enable(spark, policy=policy, refuse_plaintext=str(tmp_path))
    finally:
        bss.enable(spark, policy=policy)


@pytest.mark.parametrize("by", [(), ("k",)])
@pytest.mark.parametrize("more", [{}, DYNAMIC])
def test_a_failed_overwrite_leaves_the_table(
    spark: SparkSession, rows: Rows, tmp_path: Path, by: tuple[str, ...], more: dict[str, str]
) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if batch.column(0)[0].as_py() >= 12:
                raise ValueError("a task that fails when another one has ended")

    path, frame = tmp_path / "t", rows(10, 14)
    bss.write(rows(0, 4), path, partition_by=by)
    before = files(path)
    for version in ("1", "2"):
        algorithm = {"mapreduce.fileoutputcommitter.algorithm.version": version}
        with pytest.raises(Exception, match="a task that fails"):
            bss.write(
                frame.mapInArrow(fails, frame.schema),
                path,
                mode="overwrite",
                partition_by=by,
                options={**more, **algorithm},
            )
        assert files(path) == before
    assert ids(spark, path) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_commit_that_fails_half_way_is_taken_back(spark: SparkSession, rows: Rows, tmp_path: Path, kind: str) -> None:
    """The files of one folder are in their place when those of another can't be moved: a file stands in the way."""
    name, path, away = f"half_{kind}", tmp_path / "t", tmp_path / "away"
    columns = "id BIGINT, ssn STRING, k BIGINT"
    spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet PARTITIONED BY (k) LOCATION '{path}'")
    try:
        bss.protect_table(spark, name)
        spark.sql(f"ALTER TABLE {name} ADD PARTITION (k = 1) LOCATION '{away}/below'")
        rows(0, 4).where("k = 0").write.insertInto(name)
        (away / "below").rmdir()
        away.rmdir()
        away.write_text("somebody's")
        before = {one: text for one, text in files(path).items() if one.endswith(".parquet")}
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", kind)
        with pytest.raises(Exception, match="away"):
            rows(10, 14).write.insertInto(name, overwrite=True)
        assert {one: text for one, text in files(path).items() if one.endswith(".parquet")} == before
        assert ids(spark, path) == [0, 2]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
def test_a_table_is_overwritten_by_a_frame_that_reads_it(
    spark: SparkSession, rows: Rows, given: dict[str, str], tmp_path: Path
) -> None:
    """Whatever its plan says, or does not say, of where the rows come from."""
    path = tmp_path / "t"
    (tmp_path / "link").symlink_to(path)
    native = lambda: spark.read.parquet(str(path))  # noqa: E731
    ways: dict[str, Callable[[], DataFrame]] = {
        "native": native,
        "cached": lambda: native().cache(),
        "by an RDD": lambda: spark.createDataFrame(native().rdd, native().schema),
        "a lazy checkpoint": lambda: native().localCheckpoint(eager=False),
        "the data source": lambda: bss.read(spark, path),
        "a join": lambda: bss.semi_join(spark, path, "id", list(range(4))),
        "a union": lambda: rows(100, 101).union(native()),
    }
    for name, way in ways.items():
        bss.write(rows(0, 4), path, mode="overwrite")
        found = way().where("id != 1")
        for target in (path, tmp_path / "link"):
            bss.write(found, target, mode="overwrite")
            assert [one for one in ids(spark, path) if one != 100] == [0, 2, 3], name
            found = native()
    native().selectExpr("id + 10 AS id", "ssn", "k").write.mode("overwrite").options(**given).parquet(str(path))
    assert min(ids(spark, path)) == 10


def test_what_is_replaced_is_what_was_asked_for(
    spark: SparkSession, rows: Rows, given: dict[str, str], tmp_path: Path
) -> None:
    path, outside = tmp_path / "t", tmp_path / "outside"
    bss.write(rows(0, 6), path, partition_by=["k"])
    bss.write(rows(50, 52), outside)
    old = set(files(path))
    bss.write(rows(10, 12).where("k = 1"), path, mode="overwrite", partition_by=["k"], options=DYNAMIC)
    assert ids(spark, path) == [0, 2, 4, 11]
    assert {name for name in old if name.startswith("k=0")} < set(files(path))
    (path / "k=0" / "_notes").write_text("x")
    (path / "k=9").symlink_to(outside)
    some = rows(20, 22).where("k = 1").write.mode("overwrite").options(**given)
    some.partitionBy("k").parquet(str(path))
    assert sorted(one.name for one in path.iterdir() if one.suffix != ".crc") == ["_SUCCESS", "k=1"]
    assert ids(spark, path) == [21]
    assert ids(spark, outside) == [50, 51]  # a link goes, and not what it leads to


@pytest.mark.parametrize("more", [{}, DYNAMIC])
def test_a_table_inside_of_another_is_not_replaced_with_it(
    spark: SparkSession, rows: Rows, policy: Policy, tmp_path: Path, more: dict[str, str]
) -> None:
    outer, inner = tmp_path / "t", tmp_path / "t" / "k=1" / "inner"
    both = Policy({name: replace(policy.for_table("t"), name=name) for name in ("outer", "inner")})
    try:
        bss.enable(spark, policy=both, tables={"outer": outer, "inner": inner})
        rows(0, 6).write.partitionBy("k").parquet(str(outer))
        rows(50, 52).write.parquet(str(inner))
        before = files(tmp_path)
        with pytest.raises(Exception, match="would remove the table"):
            rows(6, 9).write.mode("overwrite").options(**more).partitionBy("k").parquet(str(outer))
        assert files(tmp_path) == before
    finally:
        bss.enable(spark, policy=policy)


def test_a_partition_elsewhere_is_replaced_there(
    spark: SparkSession, rows: Rows, policy: Policy, tmp_path: Path
) -> None:
    name, elsewhere = "placed_elsewhere", tmp_path / "elsewhere"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, ssn STRING, k BIGINT) USING parquet PARTITIONED BY (k) LOCATION '{tmp_path}/t'"
    )
    try:
        bss.protect_table(spark, name)
        spark.sql(f"ALTER TABLE {name} ADD PARTITION (k = 1) LOCATION '{elsewhere}'")
        mode = "spark.sql.sources.partitionOverwriteMode"
        for start, kind in ((0, "static"), (10, "static"), (20, "dynamic")):
            spark.conf.set(mode, kind)
            rows(start, start + 4).write.insertInto(name, overwrite=True)
            assert sorted(row.id for row in spark.table(name).collect()) == list(range(start, start + 4))
            assert len([one for one in files(elsewhere) if one.endswith(".parquet")]) == 2
        assert all(text[-4:] == b"PARE" for one, text in files(tmp_path).items() if one.endswith(".parquet"))
    finally:
        spark.conf.unset(mode)
        spark.sql(f"DROP TABLE {name}")


def test_other_formats_are_replaced_late_too(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    for kind in ("json", "csv", "orc"):
        path = tmp_path / kind
        for start in (0, 10):
            rows(start, start + 4).write.mode("overwrite").format(kind).partitionBy("k").save(str(path))
        rows(20, 22).where("k = 1").write.mode("overwrite").options(**DYNAMIC).format(kind).partitionBy("k").save(
            str(path)
        )
        found = spark.read.format(kind).schema("id BIGINT, ssn STRING, k BIGINT").load(str(path))
        assert sorted(row.id for row in found.collect()) == [10, 12, 21]
        with pytest.raises(Exception, match="by zero"):
            spark.range(4).selectExpr("CAST(raise_error('by zero') AS STRING) AS id").write.mode("overwrite").format(
                kind
            ).save(str(path))
        assert found.count() == 3


def test_an_application_with_a_protocol_of_its_own_is_told(
    spark: SparkSession, rows: Rows, policy: Policy, tmp_path: Path
) -> None:
    theirs = "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol"
    bss.write(rows(0, 4), tmp_path / "t")
    other = spark.newSession()
    other.conf.set(COMMITS, theirs)
    with pytest.warns(bs.BloomsealWarning, match="an overwrite that fails leaves no table"):
        bss.enable(other, policy=policy)
    frame = other.range(4).selectExpr("id", "'x' AS ssn", "1L AS k")
    with pytest.raises(bs.UsageError, match="commitProtocolClass"):
        bss.write(frame, tmp_path / "t", mode="overwrite")
    assert ids(spark, tmp_path / "t") == [0, 1, 2, 3]
    bss.write(frame, tmp_path / "u", mode="overwrite")


def test_a_thread_that_was_there_before_writes_too(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    """Spark looks for the protocol by the class loader of the thread."""
    went: list[Any] = []
    thread = threading.Thread(target=lambda: went.append(bss.write(rows(0, 4), tmp_path / "t").rows))
    thread.start()
    thread.join()
    assert went == [4]


def test_an_overwrite_loses_no_table_by_wrong_wrappings(
    rows: Rows, ring: bs.Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The KMS opens what it wraps before the old files go."""
    # Under double wrapping a key encryption key that was proven a moment ago would serve.
    tables = {"t": {"footer_key": "footer", "double_wrapping": False}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    bss.write(rows(0, 20), tmp_path / "t", policy=policy, table="t")
    before = files(tmp_path / "t")
    wrap = bs.Keyring.wrap_key
    monkeypatch.setattr(bs.Keyring, "wrap_key", lambda self, key, name: wrap(self, bytes(len(key)), name))
    with pytest.raises(bs.KeyAccessError, match="it wrapped another key"):
        bss.write(rows(20, 30), tmp_path / "t", policy=policy, table="t", mode="overwrite")
    assert files(tmp_path / "t") == before
