"""Writing through the data source, on a local session."""

from __future__ import annotations

import functools
import operator
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.errors import (
    BloomsealError,
    KeyAccessError,
    MissingFileError,
    PolicyError,
    UnsupportedError,
    UsageError,
)
from bloomseal.policy import Policy, TablePolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
FILTERED = ("s", "i8", "i64", "f32", "d38", "d18", "d9", "bin", "day", "ts", "ntz")
TEMPORARY = "_bloomseal_temporary"


@pytest.fixture(scope="module")
def policies(ring: bs.Keyring) -> Policy:
    """What Spark's own writer can't keep to: prefixes that files do not hold, key material beside the files, names with
    colons.
    """
    ring.create("arn:aws:kms:eu-1:7:key/pii")
    columns = {"ssn": {"key": "arn:aws:kms:eu-1:7:key/pii", "sensitivity": "restricted", "filter": {"fpp": 0.001}}}
    by = ["id", "te xt", "flag", "n", "day", "moment", "k"]
    shared = {"footer_key": "footer", "complete": True, "partition_by": by}
    return Policy.from_dict(
        {
            "version": 1,
            "kms": f"keyring://{ring.path}",
            "tables": {
                "bound": {
                    **shared,
                    "columns": columns,
                    "aad_prefix": "{table}/{file}",
                    "store_aad_prefix": False,
                    "seal_limit": 100_000,
                },
                "beside": {**shared, "columns": columns, "material": "external"},
                "plain names": {**shared, "columns": {"ssn": {"key": "pii", "filter": True}}},
                "all": {"footer_key": "footer", "partition_by": by},
                "filtered": {
                    "footer_key": "footer",
                    "columns": {name: {"filter": True} for name in (*FILTERED, "struct.deep.t", "list.list.element")},
                },
                "unknown key": {**shared, "columns": {"ssn": {"key": "nobody's"}}},
            },
        }
    )


@pytest.fixture(scope="module")
def policy_file(work: Path, ring: bs.Keyring) -> Path:
    path = work / "source.toml"
    path.write_text(
        f'version = 1\nkms = "keyring://{ring.path}"\n[tables.people]\nfooter_key = "footer"\ncomplete = true\npartition_by = ["t", "k"]\n'
        '[tables.people.columns.ssn]\nkey = "pii"\nfilter = true\n'
    )
    return path


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    from pyspark.sql import functions as f

    def make(start: int, end: int, *more: Any) -> DataFrame:
        numbers = spark.range(start, end, 1, 2)
        return numbers.select("id", f.concat(f.lit("ssn-"), f.col("id")).alias("ssn"), *more)

    return make


def write(df: DataFrame, path: Path, table: TablePolicy, mode: str = "error", **more: Any) -> bss.WriteReport:
    return bss.write(df, path, policy=table, mode=mode, through="source", **more)


def ids(path: Path, table: TablePolicy) -> list[int]:
    found: list[int] = bs.read_table(path, decryption=table).column("id").to_pylist()
    return sorted(found)


def files(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file())


def texts(frame: DataFrame) -> list[Any]:
    """Rows as Spark itself spells them; Python's values know neither the year 0 nor two zeros."""
    spelt = [f"hex({name})" if kind == "binary" else f"cast({name} as string)" for name, kind in frame.dtypes]
    return frame.orderBy("id").selectExpr(*spelt).collect()


def test_a_table_that_the_bridge_can_not_write(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    table = policies.for_table("bound")
    report = write(rows(0, 5000), tmp_path / "t", table, options={"row_group_size": "1000", "compression": "zstd"})
    assert (report.rows, len(report.files), report.row_groups, report.filters) == (5000, 2, 6, 6)
    assert ids(tmp_path / "t", table) == list(range(5000))
    assert (tmp_path / "t" / "_SUCCESS").exists()
    assert not (tmp_path / "t" / TEMPORARY).exists()
    found = bs.read_table(tmp_path / "t", filters=[("ssn", "==", "ssn-1234")], decryption=table)
    assert found.column("id").to_pylist() == [1234]
    # Files are bound to their names: one in another one's place does not open.
    first, second = map(Path, report.files)
    shutil.copy(first, second)
    with pytest.raises(BloomsealError):
        bs.read_table(second, decryption=table)


def test_every_type_comes_back(spark: SparkSession, policies: Policy, tmp_path: Path) -> None:
    """Against what Spark itself reads of it, which takes the types from the metadata that its own writer leaves."""
    table = policies.for_table("all")
    bss.enable(spark, policy=policies)
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        frame = spark.sql(
            """
            select * from values
              (1, 'ä', true, 1Y, 2S, 4L, float(-0.0), double('NaN'), 1.5BD, cast(-12345678901234.567 as decimal(38,3)),
               cast(7 as decimal(18,2)), X'00ff', date'1582-10-04', timestamp'0001-01-01 00:00:00.000001',
               timestamp_ntz'2024-02-29 23:59:59.999999', interval '1 02:03:04.5' day to second, time'12:34:56.789012',
               array(timestamp'2024-03-31 02:30:00', null), map('k', named_struct('x', array(1BD), 'y', cast(null as string))),
               named_struct('deep', named_struct('t', timestamp_ntz'1969-12-31 23:59:59.5', 'n', cast(null as int))),
               parse_json('{"a": [1, null]}')),
              (2, '', false, -128Y, -32768S, -9223372036854775808L, float('inf'), 0.0D, 0.0BD, 0.001, 0.01, X'',
               date'9999-12-31', timestamp'9999-12-31 23:59:59.999999', timestamp_ntz'1500-01-01 00:00:00',
               interval '0' second, time'00:00:00', array(), map(), null, parse_json('null')),
              (null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
               null, null, null)
            as t(id, s, b, i8, i16, i64, f32, f64, d, d38, d18, bin, day, ts, ntz, gap, tod, list, map, struct, v)
            """
        )
        write(frame, tmp_path / "t", table)
        sealed = spark.read.format("bloomseal").option("table", "all").load(str(tmp_path / "t"))
        assert sealed.schema.simpleString() == frame.schema.simpleString()
        assert texts(sealed) == texts(frame)
        # Spark's own reader knows no times of day yet.
        frame = frame.drop("tod")
        write(frame, tmp_path / "timeless", table)
        read = spark.read.parquet(str(tmp_path / "timeless"))
        assert read.schema.simpleString() == frame.schema.simpleString()
        assert texts(read) == texts(frame)
        arrow = bs.read_table(tmp_path / "t", decryption=table).select(["ts", "ntz", "d38", "tod", "list"])
        assert [str(field.type) for field in arrow.schema] == [
            "timestamp[us, tz=UTC]",
            "timestamp[us]",
            "decimal128(38, 3)",
            "time64[us]",
            "list<element: timestamp[us, tz=UTC]>",
        ]
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
    report = write(frame, tmp_path / "t", policies.for_table("filtered"), options={"row_group_size": "25"})
    assert (report.row_groups, report.filters) == (4, 4 * (len(FILTERED) + 2))
    bss.enable(spark, policy=policies)
    table, by_spark = policies.for_table("filtered"), spark.read.parquet(str(tmp_path / "t"))
    whole, row = bs.read_table(tmp_path / "t", decryption=table), frame.where("id = 37").first()
    assert row is not None
    for name in FILTERED:
        value = whole.column(name)[whole.column("id").index(37).as_py()].as_py()
        found = bs.read_table(tmp_path / "t", filters=[(name, "==", value)], decryption=table)
        assert found.column("id").to_pylist() == [37], name
    by_all = functools.reduce(operator.and_, (by_spark[name] == row[name] for name in FILTERED))
    assert [one.id for one in by_spark.where(by_all).collect()] == [37]


def test_char_and_varchar_are_remembered(spark: SparkSession, policies: Policy, tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    schema = (
        StructType()
        .add("id", "integer")
        .add("c", "string", metadata={"comment": "who", "__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"})
    )
    frame = spark.createDataFrame([(1, "abc")], schema)
    bss.enable(spark, policy=policies)
    write(frame, tmp_path / "t", policies.for_table("all"))
    field = spark.read.parquet(str(tmp_path / "t")).schema["c"]
    assert field.metadata["comment"] == "who"


def test_modes(rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path) -> None:
    table, path = policies.for_table("bound"), tmp_path / "t"
    write(rows(0, 10), path, table)
    with pytest.raises(UsageError, match="files already"):
        write(rows(0, 10), path, table, "errorifexists")
    assert write(rows(0, 10), path, table, "ignore").files == ()
    assert ids(path, table) == list(range(10))
    report = write(rows(10, 20), path, table, "append")
    assert report.rows == 10
    assert ids(path, table) == list(range(20))
    (path / "_notes").write_text("somebody's")
    report = write(rows(5, 8), path, table, "overwrite")
    assert sorted(report.files) == [str(one) for one in files(path) if one.suffix == ".parquet"]
    assert ids(path, table) == [5, 6, 7]
    assert (path / "_notes").exists()
    with pytest.raises(UsageError, match="mode"):
        write(rows(0, 1), path, table, "upsert")


def test_sparks_own_call(
    spark: SparkSession, rows: Callable[..., DataFrame], policy_file: Path, tmp_path: Path
) -> None:
    bss.enable(spark, policy=policy_file)
    writer = rows(0, 100).write.format("bloomseal")
    writer.mode("append").save(str(tmp_path / "t"))
    writer.mode("overwrite").save((tmp_path / "t").as_uri())
    table = Policy.load(policy_file).for_table("people")
    assert ids(tmp_path / "t", table) == list(range(100))


def test_key_material_beside_the_files_comes_and_goes_with_them(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    table, path = policies.for_table("beside"), tmp_path / "t"
    for _ in range(2):
        write(rows(0, 10), path, table, "overwrite")
        names = {one.name for one in files(path)}
        data = {name for name in names if name.startswith("part-")}
        assert len(data) == 2
        assert names == data | {f"_KEY_MATERIAL_FOR_{name}.json" for name in data} | {"_SUCCESS"}
    assert ids(path, table) == list(range(10))


def test_folders_are_spelt_as_spark_spells_them(spark: SparkSession, policies: Policy, tmp_path: Path) -> None:
    texts = ["plain", "a b", "a/b:c=d%e", "ünï#?[{]}^\\'\"*", "\t\x7f", "", None, "..", "~+,;@!&$().-"]
    values = [(n, text, n % 2 == 0, n - 4) for n, text in enumerate(texts)]
    frame = spark.createDataFrame(values, "id int, `te xt` string, flag boolean, n int").selectExpr(
        "*", "date_add(date'2024-02-27', id) day", "timestamp_micros(id * 500000) moment"
    )
    by = ["te xt", "flag", "n", "day", "moment"]
    frame.write.partitionBy(*by).parquet(str(tmp_path / "native"))
    report = write(frame, tmp_path / "ours", policies.for_table("all"), partition_by=by, rebalance=True)
    assert len(report.files) == len(texts)

    def folders(path: Path) -> set[str]:
        return {str(one.parent.relative_to(path)) for one in path.rglob("part-*.parquet")}

    assert folders(tmp_path / "ours") == folders(tmp_path / "native")
    bss.enable(spark, policy=policies)
    native, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("native", "ours"))
    assert native.schema == ours.schema
    assert native.exceptAll(ours).count() == ours.exceptAll(native).count() == 0


def test_dynamic_overwrite_replaces_what_it_writes_to(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    table, path = policies.for_table("bound"), tmp_path / "t"
    key = (f.col("id") % 3).alias("k")
    write(rows(0, 9, key), path, table, partition_by=["k"])
    some = rows(30, 39, key).where("k <> 0")
    report = write(some, path, table, "overwrite", partition_by=["k"], options={"partition_overwrite_mode": "dynamic"})
    assert {Path(file).parent.name for file in report.files} == {"k=1", "k=2"}
    assert ids(path / "k=0", table) == [0, 3, 6]
    assert ids(path, table) == [0, 3, 6, 31, 32, 34, 35, 37, 38]
    write(some, path, table, "overwrite", partition_by=["k"])
    assert sorted(one.name for one in path.iterdir()) == ["_SUCCESS", "k=1", "k=2"]


def test_rows_in_any_order_with_few_open_files(
    spark: SparkSession, rows: Callable[..., DataFrame], policy_file: Path, tmp_path: Path
) -> None:
    """Spark's own call does not sort: files are closed and begun again, and no row is lost."""
    from pyspark.sql import functions as f

    bss.enable(spark, policy=policy_file)
    frame = rows(0, 3000, f.pmod(f.hash("id"), f.lit(20)).alias("k"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "250")
    try:
        writer = frame.write.format("bloomseal").option("partition_by", "k")
        writer.option("max_open_files", "3").mode("append").save(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    table = Policy.load(policy_file).for_table("people")
    assert ids(tmp_path / "t", table) == list(range(3000))
    written = list((tmp_path / "t").rglob("part-*"))
    assert len(written) > 2 * 20
    assert len(list((tmp_path / "t").iterdir())) == 20 + 1
    report = write(frame, tmp_path / "sorted", table, partition_by=["k"], options={"max_open_files": "1"})
    assert len(report.files) == 2 * 20
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        report = write(frame, tmp_path / "gathered", table, partition_by=["k"], rebalance=True)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert len(report.files) == 20


def test_a_file_that_another_overwrite_has_replaced_is_no_fault_of_a_write(
    spark: SparkSession,
    rows: Callable[..., DataFrame],
    policies: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is gone between the list and the look. Of a table that is only checked nobody knows that."""
    from dataclasses import replace

    from bloomseal.spark.writing import frames

    table, listed, gone = policies.for_table("bound"), frames.list_files, str(tmp_path / "t" / "gone.parquet")

    def list_files(*given: Any, to_write: bool = False) -> Any:
        found = listed(*given, to_write=to_write)
        return found if to_write else replace(found, names=(*found.names, gone))

    monkeypatch.setattr(frames, "list_files", list_files)
    report = write(rows(0, 10), tmp_path / "t", table)
    assert report.rows == 10
    assert gone not in report.files
    bss.enable(spark, policy=policies)
    with pytest.raises(MissingFileError, match=r"gone\.parquet"):
        bss.check_table(spark, tmp_path / "t", policy=table)


def test_files_are_closed_at_the_target_size(rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path) -> None:
    table = policies.for_table("bound")
    options = {"row_group_size": "500", "target_file_bytes": "50000"}
    report = write(rows(0, 20_000).coalesce(1), tmp_path / "t", table, options=options)
    sizes = [Path(file).stat().st_size for file in report.files]
    assert len(sizes) > 3
    assert all(50_000 <= size < 80_000 for size in sizes[:-1])
    assert ids(tmp_path / "t", table) == list(range(20_000))


def test_a_frame_without_rows_leaves_its_schema(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    table = policies.for_table("bound")
    report = write(rows(0, 10).where("id < 0"), tmp_path / "t", table)
    assert (len(report.files), report.rows) == (1, 0)
    assert bs.read_table(tmp_path / "t", decryption=table).schema.names == ["id", "ssn"]
    assert write(rows(0, 10).where("id < 0"), tmp_path / "t", table, "append").files == ()
    assert write(rows(0, 10).where("id = 3"), tmp_path / "t", table, "overwrite").rows == 1
    assert ids(tmp_path / "t", table) == [3]


def test_a_job_that_fails_leaves_the_old_table_whole(
    rows: Callable[..., DataFrame], policies: Policy, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    table, path = policies.for_table("bound"), tmp_path / "t"
    write(rows(0, 10), path, table)
    before = {one: one.read_bytes() for one in files(path)}

    def fail_late(number: int) -> int:
        if number == 900:
            raise ValueError("no more")
        return number

    bad = rows(0, 1000).withColumn("id", f.udf(fail_late, "long", useArrow=False)("id"))
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="no more"):
            write(bad, path, table, mode, options={"row_group_size": "100", "target_file_bytes": "1"})
        assert {one: one.read_bytes() for one in files(path)} == before
    assert not (path / TEMPORARY).exists()


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
    write(watched, path, table, options={"row_group_size": "100", "target_file_bytes": "1", "compression": "none"})
    found = files(seen)
    assert len([one for one in found if one.suffix == ".parquet"]) == 5
    for one in found:
        assert one.is_relative_to(seen / TEMPORARY)
        content = one.read_bytes()
        assert b"ssn-" not in content
        assert content[:4] in (b"PARE", b"")
    # The needle is not in the final files either, and a plaintext file would have it.
    assert not any(b"ssn-" in one.read_bytes() for one in files(path))
    rows(0, 10).write.parquet(str(tmp_path / "clear"), compression="uncompressed")
    assert any(b"ssn-" in one.read_bytes() for one in files(tmp_path / "clear"))


def refusals() -> Iterator[Any]:

    def case(name: str, error: type[BloomsealError], text: str, sql: str = "", **more: Any) -> Any:
        return pytest.param(error, text, sql, more, id=name)

    yield case("protected folder", PolicyError, "name of a folder", partition_by=["ssn"])
    yield case("no such folder", UsageError, "no such column", partition_by=["nobody"])
    yield case("all folders", UsageError, "none is left", "id", table="all", partition_by=["id"])
    yield case("twice a folder", UsageError, "named twice", partition_by=["id", "id"])
    yield case("secret", UsageError, "looks like a secret", options={"kms_token": "s3cret"})
    yield case("unknown option", UsageError, "row_group_size", options={"row_group_sise": "1"})
    yield case("contradiction", UsageError, "contradict", options={"policy": "other.toml"})
    yield case("prefix", UsageError, "AAD prefix", options={"aad_prefix": "x"})
    yield case("no number", UsageError, "whole number", options={"target_file_bytes": "many"})
    yield case("compression", UsageError, "compression", options={"compression": "lzo"})
    yield case("dynamic", UsageError, "without partition_by", options={"partition_overwrite_mode": "dynamic"})
    yield case("policy's column", UsageError, "not in the data", "id")
    yield case("void", UnsupportedError, "void", "id, ssn, null as nothing")
    yield case("no filter type", UsageError, "filter", "id, id > 0 as ssn")
    yield case("unknown key", KeyAccessError, "nobody's", table="unknown key")


@pytest.mark.parametrize(("error", "text", "sql", "more"), list(refusals()))
def test_what_can_not_be_is_refused(
    rows: Callable[..., DataFrame],
    policies: Policy,
    tmp_path: Path,
    error: type[Exception],
    text: str,
    sql: str,
    more: dict[str, Any],
) -> None:
    frame = rows(0, 10)
    if sql:
        frame = frame.selectExpr(*sql.split(", "))
    table = policies.for_table(more.pop("table", "bound"))
    with pytest.raises(error, match=text) as refused:
        write(frame, tmp_path / "t", table, **more)
    assert "s3cret" not in str(refused.value)
    assert files(tmp_path) == []


def test_sparks_own_call_is_refused_what_can_not_be(
    spark: SparkSession, rows: Callable[..., DataFrame], policy_file: Path, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    from bloomseal.spark.source.source import BloomsealSource

    frame = rows(0, 10, f.current_timestamp().alias("t"))
    with pytest.raises(UsageError, match="writing needs a policy"):
        BloomsealSource({"path": str(tmp_path / "t")}).writer(frame.schema, False)
    bss.enable(spark, policy=policy_file)
    with pytest.raises(Exception, match=r"cast\(\"string\"\)"):
        frame.write.format("bloomseal").mode("append").option("partition_by", "t").save(str(tmp_path / "t"))
    with pytest.raises(Exception, match="partition"):
        frame.write.format("bloomseal").mode("append").partitionBy("id").save(str(tmp_path / "t"))
    assert files(tmp_path) == []


@pytest.mark.parametrize("thread", [False, True])
def test_other_sessions_and_other_threads(spark: SparkSession, policies: Policy, tmp_path: Path, thread: bool) -> None:
    """Spark looks sources up in the thread's active session."""
    from concurrent.futures import ThreadPoolExecutor

    table = policies.for_table("all")
    sessions = [spark, spark.newSession()]

    def work() -> int:
        reports = [write(one.range(10), tmp_path / "t", table, "append") for one in (*sessions, *sessions)]
        found = [bss.read(one, tmp_path / "t", policy=table).count() for one in sessions]
        return sum(report.rows for report in reports) + sum(found)

    with ThreadPoolExecutor(1) as pool:
        assert (pool.submit(work).result() if thread else work()) == 40 + 80
