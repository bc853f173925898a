"""Checked writes by Spark's own writer, under policies that bind each file to its place."""

from __future__ import annotations

import functools
import operator
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.errors import KeyAccessError, MissingFileError, UsageError
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.writing import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
FILTERED = ("s", "i8", "i64", "f32", "d38", "d18", "d9", "bin", "day", "ts", "ntz")


@pytest.fixture(scope="module")
def policies(spark: SparkSession, ring: bs.Keyring) -> Policy:
    shared = {
        "footer_key": "footer", "partition_by": ["k"], "aad_prefix": "{table}/{path}/", "store_aad_prefix": False,
    }  # fmt: skip
    ssn = {"key": "pii", "sensitivity": "restricted", "filter": {"fpp": 0.001, "ndv": 100}}
    filtered = {name: {"filter": True} for name in (*FILTERED, "struct.deep.t", "list.list.element")}
    tables = {
        "bound": {**shared, "complete": True, "columns": {"ssn": ssn}, "seal_limit": 100_000},
        "all": {**shared, "partition_by": ["k", "id"]},
        "filtered": {**shared, "columns": filtered},
        "unknown key": {**shared, "complete": True, "columns": {"ssn": {"key": "nobody's"}}},
    }
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    bss.enable(spark, policy=policy)
    return policy


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    from pyspark.sql import functions as f

    def make(start: int, end: int, *more: Any) -> DataFrame:
        numbers = spark.range(start, end, 1, 2)
        return numbers.select("id", f.concat(f.lit("ssn-"), f.col("id")).alias("ssn"), *more)

    return make


def ids(path: Path, table: TablePolicy) -> list[int]:
    found: list[int] = bs.read_table(path, decryption=table).column("id").to_pylist()
    return sorted(found)


def files(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file() and one.suffix != ".crc")


def texts(frame: DataFrame) -> list[Any]:
    """Rows as Spark itself spells them; Python's values know neither the year 0 nor two zeros."""
    spelt = [f"hex({name})" if kind == "binary" else f"cast({name} as string)" for name, kind in frame.dtypes]
    return frame.orderBy("id").selectExpr(*spelt).collect()


def test_every_type_comes_back(spark: SparkSession, policies: Policy, tmp_path: Path) -> None:
    table = policies.for_table("all")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        frame = spark.sql(
            """
            select * from values
              (1, 'ä', true, 1Y, 2S, 4L, float(-0.0), double('NaN'), 1.5BD, cast(-12345678901234.567 as decimal(38,3)),
               cast(7 as decimal(18,2)), X'00ff', date'1582-10-16', timestamp'1900-01-01 00:00:00.000001',
               timestamp_ntz'2024-02-29 23:59:59.999999', interval '1 02:03:04.5' day to second,
               array(timestamp'2024-03-31 02:30:00', null), map('k', named_struct('x', array(1BD), 'y', cast(null as string))),
               named_struct('deep', named_struct('t', timestamp_ntz'1969-12-31 23:59:59.5', 'n', cast(null as int))),
               parse_json('{"a": [1, null]}')),
              (2, '', false, -128Y, -32768S, -9223372036854775808L, float('inf'), 0.0D, 0.0BD, 0.001, 0.01, X'',
               date'9999-12-31', timestamp'9999-12-31 23:59:59.999999', timestamp_ntz'1500-01-01 00:00:00',
               interval '0' second, array(), map(), null, parse_json('null')),
              (null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
               null, null)
            as t(id, s, b, i8, i16, i64, f32, f64, d, d38, d18, bin, day, ts, ntz, gap, list, map, struct, v)
            """
        )
        bss.write(frame, tmp_path / "all", policy=table)
        read = spark.read.parquet(str(tmp_path / "all"))
        assert read.schema.simpleString() == frame.schema.simpleString()
        assert texts(read) == texts(frame)
        # Spark 4.3 stores fields of variants in columns of their own.
        few = frame.drop("v")
        sealed = bss.read(spark, tmp_path / "all", policy=table, columns=few.columns)
        assert sealed.schema.simpleString() == few.schema.simpleString()
        assert texts(sealed) == texts(few)
        with pytest.raises(Exception, match="in columns of its own"):
            bss.read(spark, tmp_path / "all", policy=table, columns=["id", "v"]).collect()
        arrow = bs.read_table(tmp_path / "all", decryption=table).select(["ts", "ntz", "d38", "list"])
        assert [str(field.type) for field in arrow.schema] == [
            "timestamp[us, tz=UTC]", "timestamp[us]", "decimal128(38, 3)", "list<element: timestamp[us, tz=UTC]>",
        ]  # fmt: skip
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_filters_of_every_type_find_their_values(spark: SparkSession, policies: Policy, tmp_path: Path) -> None:
    frame = spark.sql(
        """
        select id, concat('s', id) s, cast(id as tinyint) i8, id * 5000000000 i64, cast(id - 0.5 as float) f32,
               cast(id as decimal(38,3)) d38, cast(id as decimal(18,2)) d18, cast(-id as decimal(9,2)) d9,
               cast(concat('b', id) as binary) bin, date_add(date'1969-12-30', cast(id as int)) day,
               timestamp_micros(id - 3) ts, timestamp_ntz'1969-12-31 23:59:59' + make_dt_interval(0, 0, 0, id) ntz,
               named_struct('deep', named_struct('t', timestamp_micros(id))) struct, array(id, null) list
        from range(0, 100, 1, 1)
        """
    )
    table, path = policies.for_table("filtered"), tmp_path / "filtered"
    report = bss.write(frame, path, policy=table, options={"parquet.block.row.count.limit": "25"})
    assert (report.row_groups, report.filters) == (4, 4 * (len(FILTERED) + 2))
    whole, row = bs.read_table(path, decryption=table), frame.where("id = 37").first()
    assert row is not None
    for name in FILTERED:
        value = whole.column(name)[whole.column("id").index(37).as_py()].as_py()
        found = bs.read_table(path, where=[(name, "==", value)], decryption=table)
        assert found.column("id").to_pylist() == [37], name
    by_spark = spark.read.parquet(str(path))
    by_all = functools.reduce(operator.and_, (by_spark[name] == row[name] for name in FILTERED))
    assert [one.id for one in by_spark.where(by_all).collect()] == [37]


def test_a_file_that_another_overwrite_has_replaced_is_no_fault_of_a_write(
    spark: SparkSession,
    rows: Callable[..., DataFrame],
    policies: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is gone between the list and the look. Of a table that is only checked nobody knows that."""
    table, listed, gone = policies.for_table("bound"), frames.list_files, str(tmp_path / "t" / "gone.parquet")

    def list_files(*given: Any, to_write: bool = False) -> Any:
        found = listed(*given, to_write=to_write)
        return found if to_write else replace(found, names=(*found.names, gone))

    monkeypatch.setattr(frames, "list_files", list_files)
    report = bss.write(rows(0, 10), tmp_path / "t", policy=table)
    assert report.rows == 10
    assert gone not in report.files
    with pytest.raises(MissingFileError, match=r"gone\.parquet"):
        bss.check_table(spark, tmp_path / "t", policy=table)


def test_a_frame_without_rows_leaves_its_schema(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    table = policies.for_table("bound")
    report = bss.write(rows(0, 10).where("id < 0"), tmp_path / "t", policy=table)
    assert (len(report.files), report.rows) == (1, 0)
    assert bs.read_table(tmp_path / "t", decryption=table).schema.names == ["id", "ssn"]
    assert bss.write(rows(0, 10).where("id = 3"), tmp_path / "t", policy=table, mode="overwrite").rows == 1
    assert ids(tmp_path / "t", table) == [3]


def test_a_job_that_fails_leaves_the_old_table_whole(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    table, path = policies.for_table("bound"), tmp_path / "t"
    bss.write(rows(0, 10), path, policy=table)
    before = {one: one.read_bytes() for one in files(path)}

    def fail_late(number: int) -> int:
        if number == 900:
            raise ValueError("no more")
        return number

    bad = rows(0, 1000).withColumn("id", f.udf(fail_late, "long", useArrow=False)("id"))
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="no more"):
            bss.write(bad, path, policy=table, mode=mode, options={"maxRecordsPerFile": "100"})
        assert {one: one.read_bytes() for one in files(path)} == before
    assert ids(path, table) == list(range(10))


def test_no_plaintext_lies_about_while_tasks_write(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    """One task looks at what the other one has written so far, while that one writes on."""
    from pyspark.sql import functions as f

    table, path, seen = policies.for_table("bound"), tmp_path / "t", tmp_path / "seen"

    def look(number: int, value: str) -> str:
        if number == 999:
            end = time.monotonic() + 180
            while len(list(path.rglob("*.parquet"))) < 5 and time.monotonic() < end:
                time.sleep(0.05)
            shutil.copytree(path, seen, dirs_exist_ok=True)
        return value

    watched = rows(0, 1000).withColumn("ssn", f.udf(look, "string", useArrow=False)("id", "ssn"))
    bss.write(watched, path, policy=table, options={"maxRecordsPerFile": "100", "compression": "none"})
    found = [one for one in files(seen) if one.suffix == ".parquet"]
    assert len(found) >= 5
    for one in found:
        content = one.read_bytes()
        assert b"ssn-" not in content
        assert content[:4] in (b"PARE", b"")
    # The needle is not in the final files either, and a plaintext file would have it.
    assert not any(b"ssn-" in one.read_bytes() for one in files(path))
    rows(0, 10).write.parquet(str(tmp_path / "clear"), compression="uncompressed")
    assert any(b"ssn-" in one.read_bytes() for one in files(tmp_path / "clear"))


def test_what_can_not_be_is_refused(rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path) -> None:
    def refused(kind: type[Exception], what: str, table: str = "bound", **more: Any) -> None:
        with pytest.raises(kind, match=what) as told:
            bss.write(rows(0, 10), tmp_path / "t", policy=policies.for_table(table), **more)
        assert "s3cret" not in str(told.value)
        assert files(tmp_path) == []

    refused(UsageError, "named twice", "all", partition_by=["id", "id"])
    refused(UsageError, "looks like a secret", options={"kms_token": "s3cret"})
    refused(UsageError, "contradict", options={"bloomseal.table": "other"})
    refused(KeyAccessError, "nobody's", "unknown key")


def test_the_data_source_only_reads(rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"reads only.*bloomseal\.spark\.write"):
        rows(0, 10).write.format("bloomseal").mode("append").option("table", "bound").save(str(tmp_path / "t"))
    assert files(tmp_path) == []


def test_rows_are_gathered_on_request(
    spark: SparkSession, rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    frame = rows(0, 3000, f.pmod(f.hash("id"), f.lit(20)).alias("k"))
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        table = policies.for_table("bound")
        report = bss.write(frame, tmp_path / "t", policy=table, partition_by=["k"], rebalance=True)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert len(report.files) == 20


@pytest.mark.parametrize("thread", [False, True])
def test_other_sessions_and_other_threads(spark: SparkSession, policies: Policy, tmp_path: Path, thread: bool) -> None:
    sessions, table = [spark, spark.newSession()], policies.for_table("all")
    bss.enable(sessions[1], policy=policies)

    def work() -> int:
        reports = [
            bss.write(one.range(10), tmp_path / "t", policy=table, mode="append") for one in (*sessions, *sessions)
        ]
        found = [bss.read(one, tmp_path / "t", policy=table).count() for one in sessions]
        return sum(report.rows for report in reports) + sum(found)

    with ThreadPoolExecutor(1) as pool:
        assert (pool.submit(work).result() if thread else work()) == 40 + 80
