"""Reading through ``format("bloomseal")`` in a real session: filters, counts, keys, folders and types as Spark has
them.
"""

from __future__ import annotations

import datetime as dt
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.BloomsealWarning"),
]


@pytest.fixture(scope="module")
def sealed(spark: SparkSession, ring: bs.Keyring, work: Path) -> tuple[Path, Policy]:
    """Two files of ten row groups, each file with a prefix of its own that it does not store; a column that nobody may
    open.
    """
    policy = Policy.from_dict(
        {
            "version": 1,
            "kms": f"guarded:{ring.path}",
            "tables": {
                "orders": {
                    "footer_key": "footer",
                    "complete": True,
                    "partition_by": ["day"],
                    "aad_prefix": "{table}/{file}",
                    "store_aad_prefix": False,
                    "columns": {"ssn": {"key": "pii", "filter": {"fpp": 0.0001}}, "diagnosis": {"key": "forbidden"}},
                }
            },
        }
    )
    folder = work / "orders = read"
    for part in range(2):
        ids = list(range(1000 * part, 1000 * part + 1000))
        table = pa.table(
            {
                "id": ids,
                "ssn": [f"{i * 7919 % 100_003:05}" for i in ids],
                "diagnosis": ["x"] * 1000,
                "place": [{"town": "Bern", "zip": i} for i in ids],
            }
        )
        (folder / f"day=2024-01-0{part + 1}").mkdir(parents=True)
        spec = policy.for_table("orders")
        bs.write_table(table, folder / f"day=2024-01-0{part + 1}" / "a b.parquet", encryption=spec, row_group_size=100)
    bss.enable(spark, policy=policy)
    return folder, policy


def test_a_lookup(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    folder, _ = sealed
    frame = bss.read(spark, folder, columns=["place.zip", "day"], where=f"ssn = '{7 * 7919:05}'")
    assert frame.collect() == [(7, dt.date(2024, 1, 1))]
    stats = bss.df_stats(frame)
    assert (stats.files, stats.row_groups, stats.decoded, stats.rows) == (2, 20, 1, 1)
    assert stats.pruned_by_filter >= 9
    assert bss.df_stats(spark).row_groups >= 20
    with pytest.raises(bs.UsageError, match="counted by itself"):
        bss.df_stats(spark.range(1))


def _metrics_system(spark: SparkSession) -> Any:
    """By a handle: py4j looks at all methods of SparkEnv, one of which has a type that Spark doesn't bring."""
    context: Any = spark.sparkContext
    loader, invoke = (
        context._jvm.java.lang.Thread.currentThread().getContextClassLoader(),
        context._jvm.java.lang.invoke,
    )
    names = ("org.apache.spark.SparkEnv", "org.apache.spark.metrics.MetricsSystem")
    owner, kind = (loader.loadClass(name) for name in names)
    found = invoke.MethodHandles.publicLookup().findVirtual(owner, "metricsSystem", invoke.MethodType.methodType(kind))
    arguments = context._gateway.new_array(context._jvm.Object, 1)
    arguments[0] = context._jsc.sc().env()
    return found.invokeWithArguments(arguments)


def test_a_frame_may_be_asked_twice(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    """Spark keeps what a data source planned for one query's filters, and uses it for all others over the same
    frame.
    """
    folder, _ = sealed
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        whole = spark.read.format("bloomseal").schema("id bigint, ssn string").load(str(folder))
        for frame, count in ((whole, 2000), (bss.read(spark, folder, columns=["id"], where="id >= 1000"), 1000)):
            assert frame.where("id = 1005").count() == 1
            assert frame.count() == count
            assert frame.where("id = 1005").unionAll(frame.where("id <= 1500")).count() == count - 498
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)
    today = bss.read(spark, folder, columns=["id"], where="day <= current_date()")
    assert today.count() == 2000
    assert bss.df_stats(today).files_pruned_by_partition == 0


def test_folders_are_pruned_and_filters_explained(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    folder, policy = sealed
    where = "day > '2024-01-01' and ssn in ('00000', 'nobody')"
    told = bss.explain(spark, folder, where, columns=["id"])
    assert "files:       2, 1 ruled out by their folders" in told
    assert "10 ruled out by statistics" in told or " 0 to read" in told
    assert "own key, at hand, filter" in told
    assert "not to be had (denied" in told
    assert "nobody" not in told
    found = bss.read(spark, folder, columns=["id"], where=where, policy=policy.for_table("orders"))
    assert found.collect() == []
    assert bss.df_stats(found).files_pruned_by_partition == 1


def test_columns_without_a_key(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    folder, _ = sealed
    whole = spark.read.format("bloomseal").load(str(folder))
    assert whole.schema.simpleString().endswith("place:struct<town:string,zip:bigint>,day:date>")
    with pytest.raises(Exception, match=r"KmsAccessError.*forbidden.*a b.parquet, .*column diagnosis"):
        whole.collect()
    masked = spark.read.format("bloomseal").option("columns_without_key", "null").load(str(folder))
    assert masked.where("diagnosis is null").count() == 2000
    assert masked.where("diagnosis = 'x'").count() == 0
    assert bss.read(spark, folder, columns=["id", "ssn"]).count() == 2000


def test_found_without_being_registered(spark: SparkSession, sealed: tuple[Path, Policy], ring: bs.Keyring) -> None:
    """In a session that knows nothing of Bloomseal."""
    path = sealed[0].parent / "by itself.parquet"
    spec = bs.EncryptionSpec("footer", keys=ring)
    bs.write_table(pa.table({"id": [1, 2], "x": ["a", "b"]}), path, encryption=spec)
    session = spark.newSession()
    frame = session.read.format("bloomseal").option("kms", f"keyring://{ring.path}").load(str(path))
    assert frame.where("x = 'b'").collect() == [(2, "b")]


def _answers(frame: DataFrame) -> tuple[str, list[Any]]:
    text = frame.selectExpr("to_json(struct(*))").collect()
    return frame.schema.simpleString(), sorted(row[0] for row in text)


def test_types_are_those_of_sparks_own_reader(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    folder = sealed[0].parent / "types"
    folder.mkdir()
    moments = [0, -1, None]
    unsigned = {f"u{bits}": pa.array([0, 2**bits - 1, None], f"uint{bits}") for bits in (8, 16, 32, 64)}
    nested = pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.map_(pa.string(), pa.uint16())))])
    columns = {
        **unsigned,
        **{f"ms{tz}": pa.array(moments, pa.timestamp("ms", tz)) for tz in (None, "UTC", "Europe/Berlin")},
        **{f"us{tz}": pa.array(moments, pa.timestamp("us", tz)) for tz in (None, "UTC")},
        "date": pa.array([0, -140_000, None], pa.date32()),
        "float": pa.array([-0.0, float("nan"), None], pa.float32()),
        "duration": pa.array([1, 2, None], pa.duration("us")),
        "words": pa.array(["a", "b", None]).dictionary_encode(),
        "json": pa.array(["{}", "[]", None], pa.json_()),
        "fixed": pa.array([b"ab", b"\xff\x00", None], pa.binary(2)),
        "decimal": pa.array([1, -2, None]).cast(pa.decimal128(38, 10)),
        "nested": pa.array([{"a": 255, "b": [[("k", 65535), ("l", None)], None]}, None, {"a": None, "b": []}], nested),
        "nothing": pa.nulls(3),
    }
    pq.write_table(pa.table(columns), folder / "new.parquet")
    old = {"moment": pa.array([-1, 10**17, None], pa.timestamp("us")), "id": pa.array([1, 2, 3])}
    pq.write_table(pa.table(old), folder / "int96.parquet", use_deprecated_int96_timestamps=True)
    for name in ("new", "int96"):
        path = str(folder / f"{name}.parquet")
        ours = spark.read.format("bloomseal").option("allow_plaintext", "true").load(path)
        assert _answers(ours) == _answers(spark.read.parquet(path))


def test_folders_are_those_of_sparks_own_reader(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    folder = sealed[0].parent / "hive"
    moments = ["2024-01-01 10%3A00%3A00", "2024-01-01 10%3A00%3A00.5", "2024-01-02"]
    for n, (number, text) in enumerate([("1", "a%2Fb"), ("2.5", "__HIVE_DEFAULT_PARTITION__"), ("-3", "%25")]):
        place = folder / f"n={number}" / f"t={text}" / f"z=0{n}" / f"m={moments[n]}" / f"e=1e{n}"
        place = place / "nothing=__HIVE_DEFAULT_PARTITION__" / f"many={'9' * 20}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [n], "z": ["in the file"]}), place / "f.parquet")
    ours = spark.read.format("bloomseal").option("allow_plaintext", "true").load(str(folder))
    assert _answers(ours) == _answers(spark.read.parquet(str(folder)))
    for where in (
        "n > 1",
        "t is null",
        "m >= '2024-01-01 12:00:00'",
        "z = 2 and n < 0",
        "e = 10",
        "many > 5",
        "nothing is null",
    ):
        theirs = _answers(spark.read.parquet(str(folder)).where(where))
        assert _answers(ours.where(where)) == theirs, where
        assert _answers(bss.read(spark, folder, where=where, options={"allow_plaintext": "true"})) == theirs, where
    before = spark.conf.get("spark.sql.sources.partitionColumnTypeInference.enabled")
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        ours = bss.read(spark, folder, where="e = '1e1'", options={"allow_plaintext": "true"})
        assert _answers(ours) == _answers(spark.read.parquet(str(folder)).where("e = '1e1'"))
        assert ours.schema["many"].dataType.simpleString() == "string"
    finally:
        spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", str(before))


def test_a_pattern_of_paths(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    folder = sealed[0].parent / "many [days]"
    for day in range(3):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [day]}), folder / f"day={day}" / "f.parquet")
    clear = {"allow_plaintext": "true"}
    pattern = str(folder.parent / "many \\[days\\]" / "day=[01]")
    assert _answers(bss.read(spark, pattern, options=clear)) == _answers(spark.read.parquet(pattern))
    # A name that looks like a pattern is a name, where there is such a folder.
    assert bss.read(spark, folder, where="day = 2", options=clear).collect() == [(2, 2)]
    with pytest.raises(bs.UsageError, match="nothing matches"):
        bss.read(spark, str(folder.parent / "no*thing"), options=clear)


def test_folders_name_moments_in_the_sessions_time_zone(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    """The zone of the moment when the frame is made, also if it is another one than in `enable`; clocks that are put
    back or forward, and zones that are offsets.
    """
    folder = sealed[0].parent / "moments"
    for n, moment in enumerate(["2021-10-31 02%3A30%3A00", "2021-03-28 02%3A30%3A00", "2021-11-07 01%3A30%3A00"]):
        place = folder / f"m={moment}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [n]}), place / "f.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("Europe/Berlin", "America/New_York", "+02:00", "GMT-3", "Z"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            theirs = spark.read.parquet(str(folder))
            for row in theirs.selectExpr("id", "cast(m as string) AS m").collect():
                where = f"m = '{row.m}'"
                ours = bss.read(spark, folder, where=where, options={"allow_plaintext": "true"})
                assert [one.id for one in ours.collect()] == [row.id], (zone, where)
            ours = bss.read(spark, folder, options={"allow_plaintext": "true"})
            assert _answers(ours) == _answers(theirs), zone
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_conditions_that_lose_something_on_their_way_prune_nothing(
    spark: SparkSession, sealed: tuple[Path, Policy], ring: bs.Keyring
) -> None:
    """Bytes that are not UTF-8 come to Python as other ones, dates outside of 1 to 9999 not at all, and names in any
    case.
    """
    folder = sealed[0].parent / "lossy"
    table = {"footer_key": "footer", "complete": True, "columns": {"text": {"filter": {"fpp": 0.001}}}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"lossy": table}})
    rows = spark.range(100).selectExpr(
        "id",
        "cast(if(id % 2 = 0, X'6BFF', X'6B') as string) AS text",
        "date_add(date'1500-01-01', cast(id as int)) AS day",
    )
    bss.write(rows, folder, policy=policy)
    for where, count in {
        "text = cast(X'6BFF' as string)": 50,
        "text in ('k', cast(X'6BFF' as string))": 100,
        "text <=> cast(X'6BFF' as string)": 50,
        "text >= cast(X'6BFF' as string)": 50,
        "day < date'10000-01-01'": 100,
        "day > date'0000-01-01' and text = 'k'": 50,
        "DAY < '1500-01-11' AND day >= '1500-01-01'": 10,
    }.items():
        found = bss.read(spark, folder, columns=["ID"], where=where, policy=policy)
        assert found.columns == ["ID"]
        assert found.count() == count == rows.where(where).count(), where


def test_the_files_name_is_refused_in_conditions(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    """Spark takes it for empty, and would find no row."""
    path, policy = sealed
    with pytest.raises(bs.UsageError, match=r"input_file_name\(\)"):
        bss.read(spark, path, where="input_file_name() LIKE '%part%'", policy=policy)


def test_workers_do_not_look_through_what_they_have_loaded(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"count": [gc.get_freeze_count()]})

    own = gc.get_freeze_count()
    bss.read(spark, sealed[0], columns=["id"]).count()
    counts = spark.range(8, numPartitions=8).mapInArrow(frozen, "count bigint").collect()
    assert max(row["count"] for row in counts) > 0  # that of a worker which has read
    assert gc.get_freeze_count() == own


def test_reads_side_by_side_share_no_setting(spark: SparkSession, sealed: tuple[Path, Policy]) -> None:
    """A setting that the session lends to a read, and that two take back in another order, would stay: every other
    source in Python would then be asked for filters that it may not understand.
    """
    name = "spark.sql.python.filterPushdown.enabled"
    folder, policy = sealed
    spark.conf.unset(name)
    ask = lambda i: bss.read(spark, folder, columns=["id"], where=f"id = {i}", policy=policy, table="orders")  # noqa: E731
    seen = []
    looking = threading.Event()

    def watch() -> None:
        while not looking.is_set():
            seen.append(spark.conf.get(name, "false"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: ask(i).count(), range(8)))
    looking.set()
    watcher.join()
    assert found == [1] * 8
    assert set(seen) == {"false"}


def test_a_field_is_read_without_the_keys_of_those_beside_it(
    spark: SparkSession, ring: bs.Keyring, tmp_path: Path
) -> None:
    columns = {"nest.pa": {"key": "forbidden"}, "nest.pc": {"key": "pii"}}
    tables = {"t": {"footer_key": "footer", "columns": columns}}
    policy = Policy.from_dict({"version": 1, "kms": f"guarded:{ring.path}", "tables": tables})
    bss.enable(spark, policy=policy)
    fields = "named_struct('pa', id, 'pc', id + 1, 'deep', array(named_struct('e', id, 'f', 'x')))"
    rows = spark.range(0, 10, 1, 1).selectExpr("id AS Key", f"{fields} AS nest")
    (tmp_path / "t").mkdir()
    bs.write_table(rows.toArrow(), tmp_path / "t" / "0.parquet", encryption=policy.for_table("t"))
    for wanted, where in (
        (["nest.pc"], None),
        (["NEST.PC", "key"], "KEY > 3"),
        (["nest.pc"], "nest.pc = 3"),
        (["key"], "nest.pc IN (3, 4) AND nest.deep IS NOT NULL"),
        (["nest.deep.e"], "exists(nest.deep, one -> one.f = 'x')"),
    ):
        expected = (rows if where is None else rows.where(where)).select(*wanted)
        found = bss.read(spark, tmp_path / "t", columns=wanted, where=where)
        assert found.collect() == expected.collect(), (wanted, where)
    for wanted, where in ((["nest.pa"], None), (["key"], "nest.pa = 3"), (["nest"], None)):
        with pytest.raises(Exception, match="denies the use"):
            bss.read(spark, tmp_path / "t", columns=wanted, where=where).collect()
