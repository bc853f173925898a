"""Reading through the data source as Spark drives it, without a JVM: schema, filters in, tasks out by pickle, record
batches back.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.surgery import change_chunk, statistics, written

import bloomseal as bs
from bloomseal.policy import Policy, TablePolicy

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import datasource as ds
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from bloomseal.spark.source.options import Defaults, SourceOptions
from bloomseal.spark.source.reader import infer_schema
from bloomseal.spark.source.source import BloomsealSource
from bloomseal.spark.source.stats import SourceStats

NAMES = [f"name-{i}" for i in range(400)]


class _Counted:
    """What an accumulator is to the reader."""

    def __init__(self) -> None:
        self.total = SourceStats()

    def add(self, counted: dict[str, SourceStats]) -> None:
        self.total += counted[""]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bs.Keyring:
    monkeypatch.delenv("BLOOMSEAL_KEYRING_PASSPHRASE", raising=False)
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return ring


@pytest.fixture
def policy(keys: bs.Keyring) -> TablePolicy:
    return Policy.from_dict(
        {
            "version": 1,
            "kms": f"keyring://{keys.path}",
            "tables": {
                "people": {
                    "footer_key": "footer",
                    "complete": True,
                    "aad_prefix": "{table}/",
                    "store_aad_prefix": False,
                    "columns": {"name": {"key": "pii", "filter": {"fpp": 0.0001}}},
                }
            },
        }
    ).for_table("people")


@pytest.fixture
def people(tmp_path: Path, policy: TablePolicy) -> Path:
    """Four files of ten row groups of ten rows; the AAD prefix, of which the files say nothing, is the policy's."""
    folder = tmp_path / "people of = today"
    folder.mkdir()
    for part in range(4):
        some = list(range(100 * part, 100 * part + 100))
        table = pa.table({"id": some, "name": [NAMES[(7 * i) % 400] for i in some], "real": [i / 2 for i in some]})
        bs.write_table(table, folder / f"part {part}.parquet", encryption=policy, row_group_size=10)
    return folder


def read(
    path: Path | Sequence[Path],
    *filters: ds.Filter,
    policy: TablePolicy | None = None,
    schema: str | st.StructType | None = None,
    counted: _Counted | None = None,
    tasks: Callable[[int], None] = lambda _: None,
    **options: str,
) -> pa.Table:
    """As Spark: what is planned in one process goes to others by pickle."""

    class Source(BloomsealSource):
        defaults = Defaults(
            policy.kms if policy else None, Policy({policy.name: policy}) if policy else None, parallelism=2
        )

    where = {"path": str(path)} if isinstance(path, Path) else {"paths": json.dumps([str(one) for one in path])}
    if filters:
        # As `bloomseal.spark.read`: what Spark would push is caught first, and is then the frame's for good.
        catcher = Source({**where, "catch_filters": "true"}).reader(st.StructType())
        assert list(catcher.pushFilters(list(filters))) == list(filters)
        options["conditions"] = catcher.partitions()[0].value
    source = Source({**where, **options})
    if schema is None:
        schema = source.schema()
    elif isinstance(schema, str):
        schema = st.StructType([st.StructField(*one) for one in _ddl(schema)])
    source._inferred = False
    reader = source.reader(schema)
    assert type(reader).pushFilters is ds.DataSourceReader.pushFilters
    # In this order: what the planning makes of the reader after it was sent off reaches no task.
    sent = cloudpickle.dumps(reader)
    partitions = reader.partitions()
    tasks(len(partitions))
    reader = cloudpickle.loads(sent)
    if counted is not None:
        reader._defaults = Defaults(metrics=counted)  # type: ignore[arg-type]
    expected = to_arrow_schema(schema, timezone="UTC")
    batches = [batch for task in cloudpickle.loads(cloudpickle.dumps(partitions)) for batch in reader.read(task)]
    assert all(batch.schema.equals(expected) for batch in batches)
    return pa.Table.from_batches(batches, schema=expected)


def _ddl(schema: str) -> Iterator[tuple[str, st.DataType]]:
    kinds: dict[str, st.DataType] = {
        "bigint": st.LongType(),
        "int": st.IntegerType(),
        "string": st.StringType(),
        "double": st.DoubleType(),
        "float": st.FloatType(),
        "date": st.DateType(),
        "timestamp": st.TimestampType(),
        "timestamp_ntz": st.TimestampNTZType(),
        "decimal": st.DecimalType(20, 4),
    }
    for one in schema.split(", "):
        name, kind = one.rsplit(" ", 1)
        yield name, kinds[kind]


def plain(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


# Pruning ----------------------------------------------------------------------------------------------------------


def test_a_lookup_opens_one_row_group(people: Path, policy: TablePolicy) -> None:
    counted = _Counted()
    found = read(people, ds.EqualTo(("name",), NAMES[7]), policy=policy, counted=counted)
    assert found.to_pylist() == [{"id": 1, "name": NAMES[7], "real": 0.5}]
    stats = counted.total
    assert (stats.files, stats.row_groups, stats.decoded, stats.rows) == (4, 40, 1, 1)
    assert stats.pruned_by_statistics + stats.pruned_by_filter == 39
    assert stats.pruned_by_filter >= 9
    assert stats.kms_calls == 2
    assert stats.bytes_pruned > 30 * stats.bytes_decoded


@pytest.mark.parametrize(
    ("pushed", "ids"),
    [
        (ds.In(("name",), [NAMES[0], None, "nobody"]), {0}),  # type: ignore[arg-type]
        (ds.GreaterThanOrEqual(("id",), 395), set(range(395, 400))),
        (ds.LessThan(("id",), 3), {0, 1, 2}),
        (ds.EqualNullSafe(("id",), 7), {7}),
        (ds.LessThanOrEqual(("real",), 0.5), {0, 1}),
        (ds.StringStartsWith(("name",), "name-399"), {57}),
        (ds.EqualNullSafe(("id",), None), set()),
        (ds.IsNull(("name",)), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_filters_leave(people: Path, policy: TablePolicy, pushed: ds.Filter, ids: set[int]) -> None:
    assert set(read(people, pushed, policy=policy).column("id").to_pylist()) == ids


@pytest.mark.parametrize(
    "pushed",
    [
        ds.Not(ds.EqualTo(("id",), 5)),
        ds.StringContains(("name",), "9"),
        ds.EqualTo(("id",), "5"),
        ds.EqualTo(("real",), float("nan")),
        ds.GreaterThan(("real",), 1e9),
        ds.IsNotNull(("name",)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_understood_prunes_nothing(people: Path, policy: TablePolicy, pushed: ds.Filter) -> None:
    assert read(people, pushed, policy=policy).num_rows == 400


def test_floats_as_spark_compares_them(tmp_path: Path) -> None:
    nan = float("nan")
    path = plain(
        tmp_path / "f.parquet", {"x": pa.array([nan, -0.0, 0.0, 1.5, None]), "f": pa.array([0.7] * 5, pa.float32())}
    )
    assert read(path, ds.EqualTo(("x",), 0.0)).num_rows == 2
    assert read(path, ds.GreaterThan(("x",), 1.0)).num_rows >= 2  # NaN is the greatest
    assert read(path, ds.EqualTo(("x",), nan)).num_rows >= 1
    # float32(0.7) is less than the double 0.7, and would not be less than what that is rounded to.
    assert read(path, ds.LessThan(("f",), 0.7), schema="f double").num_rows == 5


def test_a_number_of_nulls_that_nobody_counted_hides_none(tmp_path: Path) -> None:
    """None are counted, and no bounds are given: some writers leave the number as it was at the start."""
    data = written(pa.table({"x": pa.array([None, None, 3], pa.int64())}))
    (tmp_path / "n.parquet").write_bytes(change_chunk(data, statistics(null_count=0)))
    assert read(tmp_path / "n.parquet", ds.IsNull(("x",))).column("x").null_count == 2


def test_nanoseconds_are_floored_and_still_found(tmp_path: Path) -> None:
    path = plain(tmp_path / "n.parquet", {"t": pa.array([-1, 1_500, 2_000], pa.timestamp("ns", "UTC"))})
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    micros = [-1, 1, 2]
    moments = [epoch + dt.timedelta(microseconds=one) for one in micros]
    assert [moment.replace(tzinfo=dt.UTC) for moment in read(path).column("t").to_pylist()] == moments
    for moment in moments:
        assert read(path, ds.EqualTo(("t",), moment)).column("t").to_pylist() == [moment]
        assert moment in read(path, ds.In(("t",), [moment])).column("t").to_pylist()  # type: ignore[arg-type]


# Schemas ----------------------------------------------------------------------------------------------------------


def test_drift_between_files(tmp_path: Path) -> None:
    day = dt.date(2024, 2, 29)
    plain(
        tmp_path / "t" / "1.parquet", {"a": pa.array([1], pa.int32()), "r": pa.array([0.5], pa.float32()), "d": [day]}
    )
    plain(tmp_path / "t" / "2.parquet", {"A": [2**40], "r": [0.1], "d": [day], "new": ["x"]})
    plain(tmp_path / "t" / "3.parquet", {"d": pa.array([day]), "m": pa.array([Decimal("1.25")], pa.decimal128(5, 2))})
    schema = "a bigint, r double, d timestamp_ntz, new string, m decimal"
    moment = dt.datetime(2024, 2, 29)
    assert [tuple(row.values()) for row in read(tmp_path / "t", schema=schema).to_pylist()] == [
        (1, 0.5, moment, None, None),
        (2**40, 0.1, moment, "x", None),
        (None, None, moment, None, Decimal("1.2500")),
    ]
    for pushed, count in [
        (ds.EqualTo(("a",), 2**40), 1),
        (ds.EqualTo(("a",), 1), 1),
        (ds.IsNull(("a",)), 1),
        (ds.EqualTo(("new",), "x"), 1),
        (ds.EqualTo(("m",), Decimal("1.2500")), 1),
        (ds.EqualTo(("m",), Decimal("1.2501")), 0),
        (ds.EqualTo(("d",), moment), 3),
    ]:
        assert read(tmp_path / "t", pushed, schema=schema).num_rows == count, pushed


@pytest.mark.parametrize(
    ("column", "schema", "told"),
    [
        (pa.array(["x"]), "a bigint", "string where bigint"),
        (pa.array([2**40]), "a int", "does not fit int"),
        (pa.array([1.5]), "a float", "double where float"),
        (pa.array([0], pa.timestamp("us")), "a timestamp", "timestamp"),
        (pa.array([[1]]), "a string", "where string"),
    ],
    ids=str,
)
def test_unsafe_changes_name_the_file(tmp_path: Path, column: pa.Array, schema: str, told: str) -> None:
    path = plain(tmp_path / "odd one.parquet", {"a": column})
    with pytest.raises(bs.UnsupportedError, match=told) as raised:
        read(path, schema=schema)
    assert raised.value.file == str(path)
    assert raised.value.column == "a"


def test_nested_fields_come_and_go(tmp_path: Path) -> None:
    kind = pa.struct([("x", pa.uint8()), ("gone", pa.string())])
    rows = [{"x": 1, "gone": "a"}, None, {"x": None, "gone": None}]
    plain(
        tmp_path / "t" / "1.parquet", {"s": pa.array(rows, kind), "l": pa.array([[rows[0]], None, []], pa.list_(kind))}
    )
    inner = st.StructType([st.StructField("X", st.LongType()), st.StructField("new", st.StringType())])
    schema = st.StructType([st.StructField("s", inner), st.StructField("l", st.ArrayType(inner))])
    made = {"X": 1, "new": None}
    assert read(tmp_path / "t", schema=schema).to_pylist() == [
        {"s": made, "l": [made]},
        {"s": None, "l": None},
        {"s": {"X": None, "new": None}, "l": []},
    ]
    only_new = st.StructType([st.StructField("s", st.StructType([inner["new"]]))])
    assert read(tmp_path / "t", schema=only_new).to_pylist() == [
        {"s": {"new": None}},
        {"s": None},
        {"s": {"new": None}},
    ]


def test_empty_things(tmp_path: Path, policy: TablePolicy) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    with pytest.raises(bs.UsageError, match="no data files"):
        read(folder)
    assert read(folder, schema="a bigint").num_rows == 0
    (folder / "0.parquet").touch()
    (folder / "_SUCCESS").touch()
    with pytest.raises(bs.FormatError, match=r"an empty file.*0\.parquet"):
        read(folder, policy=policy)
    (folder / "0.parquet").unlink()
    bs.write_table(pa.table({"name": pa.array([], pa.string())}), folder / "1.parquet", encryption=policy)
    assert read(folder, policy=policy).to_pylist() == []
    assert read(folder, ds.EqualTo(("name",), "x"), policy=policy).schema.names == ["name"]
    with pytest.raises(bs.UsageError, match="no such path"):
        read(tmp_path / "elsewhere", policy=policy)


# Folders ----------------------------------------------------------------------------------------------------------


def test_folders(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for n, (day, text) in enumerate(
        [("2024-01-01", "a%3Db"), ("2024-01-02", "__HIVE_DEFAULT_PARTITION__"), ("2024-01-02", "é")]
    ):
        plain(root / f"day={day}" / f"k=00{n}" / f"text={text}" / "f.parquet", {"id": [n], "k": [99]})
    plain(root / "_temporary" / "f.parquet", {"id": [9]})
    plain(root / "stray.parquet", {"id": [9]})
    rows = read(root).to_pylist()
    assert tuple(rows[0].items()) == (
        ("id", 0), ("k", 0), ("day", dt.date(2024, 1, 1)), ("text", "a=b")
    )  # fmt: skip
    assert [row["text"] for row in rows] == ["a=b", None, "é"]
    counted = _Counted()
    kept = read(root, ds.EqualTo(("day",), dt.date(2024, 1, 2)), ds.IsNotNull(("text",)), counted=counted)
    assert kept.column("id").to_pylist() == [2]
    assert counted.total.files == 1
    assert counted.total.files_pruned_by_partition == 2
    assert (
        read(root, ds.GreaterThan(("k",), 0), schema="id bigint, k string").num_rows == 3
    )  # of another type: left to Spark
    assert read(root, schema="k string").column("k").to_pylist() == ["000", "001", "002"]
    assert read(root, schema="day date").num_rows == 3
    with pytest.raises(bs.UsageError, match="no int"):
        read(root, schema="text int")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], "int"), (["1", "3000000000"], "bigint"), (["1", "1.5"], "double"), (["3000000000", "1.5"], "string"),
        (["9" * 20], "decimal(20,0)"), (["2024-01-01"], "date"), (["2024-02-30"], "string"),
        (["2024-01-01 10%3A00%3A00"], "timestamp"), (["a", "1"], "string"), (["__HIVE_DEFAULT_PARTITION__"], "void"),
        (["1e3"], "decimal(4,0)"), (["1.", "2"], "decimal(10,0)"), (["1e39"], "double"), (["-1.5e1"], "decimal(2,0)"), (["0001-01-01 10%3A00%3A00"], "timestamp"),
        (["1", "__HIVE_DEFAULT_PARTITION__"], "int"),
    ],
)  # fmt: skip
def test_types_of_folders(tmp_path: Path, values: list[str], kind: str) -> None:
    for value in values:
        plain(tmp_path / "t" / f"p={value}" / "f.parquet", {"id": [1]})
    assert BloomsealSource({"path": str(tmp_path / "t")}).schema()["p"].dataType.simpleString() == kind


def test_folders_that_contradict(tmp_path: Path) -> None:
    plain(tmp_path / "t" / "a=1" / "f.parquet", {"id": [1]})
    plain(tmp_path / "t" / "b=1" / "f.parquet", {"id": [1]})
    with pytest.raises(bs.UsageError, match="different partition columns"):
        read(tmp_path / "t")


def test_big_files_are_read_in_parts_and_small_ones_together(people: Path, policy: TablePolicy) -> None:
    seen: list[int] = []
    assert read(people, policy=policy, tasks=seen.append).num_rows == 400
    size = min(file.stat().st_size for file in people.iterdir())
    parts = read(people, policy=policy, tasks=seen.append, max_partition_bytes=str(size // 3))
    assert sorted(parts.column("id").to_pylist()) == list(range(400))
    assert seen[0] <= 2
    assert seen[1] >= 12


# What goes wrong --------------------------------------------------------------------------------------------------


def test_the_options(tmp_path: Path, people: Path, policy: TablePolicy) -> None:
    for options, told in [
        ({"password": "x"}, "looks like a secret"),
        ({"colums": "x"}, "no option colums"),
        ({"columns_without_key": "maybe"}, "error or null or drop"),
        ({"max_partition_bytes": "0"}, "at least 1"),
        ({"table": "other"}, "no table 'other'"),
    ]:
        with pytest.raises(bs.BloomsealError, match=told) as raised:
            read(people, policy=policy, **options)
        assert raised.value.what != "x"
    with pytest.raises(bs.PolicyError, match="plaintext file"):
        read(plain(tmp_path / "p.parquet", {"a": [1]}), policy=policy)
    assert read(tmp_path / "p.parquet", policy=policy, allow_plaintext="true").num_rows == 1
    with pytest.raises(bs.IntegrityError, match="AAD prefix"):
        read(people, policy=policy, aad_prefix="elsewhere/")


def test_nulls_where_the_schema_allows_none_are_refused(tmp_path: Path) -> None:
    """Handed on, they would be read as whatever stands in their place."""
    schema = st.StructType([st.StructField("n", st.LongType(), False)])
    assert read(plain(tmp_path / "whole.parquet", {"n": [1, 2]}), schema=schema).num_rows == 2
    with pytest.raises(bs.UnsupportedError, match=r"NOT NULL.*gaps\.parquet"):
        read(plain(tmp_path / "gaps.parquet", {"n": [1, None]}), schema=schema)


def test_one_bad_file_is_named(people: Path, policy: TablePolicy) -> None:
    file = people / "part 2.parquet"
    whole = file.read_bytes()
    with bs.open_file(file, decryption=policy) as opened:
        found = [opened.walk.meta(opened.walk.chunk(group, 1)).bloom_filter_offset or 0 for group in range(10)]
    for at in (found[3] + 20, len(whole) - 30):
        data = bytearray(whole)
        data[at] ^= 1
        file.write_bytes(data)
        with pytest.raises(bs.IntegrityError, match="part 2"):
            read(people, ds.EqualTo(("name",), NAMES[7]), policy=policy, schema="id bigint, name string")
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(bs.FormatError, match="part 2"):
        read(people, policy=policy, schema="id bigint")


@pytest.mark.parametrize(
    "changed",
    [
        {"column_keys": {"id": "footer"}, "complete": False},
        {"column_keys": {"name": "pii"}, "complete": False},
        {"column_keys": {}, "complete": True},
        {"column_keys": {"name": "other"}, "complete": True},
        {},
    ],
    ids=["in clear", "another column in clear", "under the footer key", "under another key", "a plaintext file"],
)
@pytest.mark.parametrize("wanted", [NAMES[7], "zzz"], ids=["asked", "ruled out by bounds"])
def test_a_later_file_with_the_same_columns_passes_no_check_for_the_first_one(
    people: Path, policy: TablePolicy, keys: bs.Keyring, changed: dict[str, Any], wanted: str
) -> None:
    """One plan serves both."""
    keys.create("other")
    file = people / "part 3.parquet"
    with bs.open_file(file, decryption=policy) as opened:
        table, columns = opened.read(), opened.leaves.raw
    arguments = policy.encryption_arguments(file) | {"keys": keys} | changed
    encryption = bs.EncryptionSpec(**arguments) if changed else None
    bs.write_table(table, file, encryption=encryption, row_group_size=10)
    with bs.open_file(file, decryption=bs.DecryptionSpec(keys, aad_prefix="people/") if changed else None) as opened:
        assert opened.leaves.raw == columns
    with pytest.raises(bs.PolicyError, match="part 3"):
        read(people, ds.EqualTo(("name",), wanted), policy=policy, schema="id bigint, name string")


def test_columns_without_a_key(tmp_path: Path, people: Path, policy: TablePolicy, keys: bs.Keyring) -> None:
    keys.disable("pii")
    assert read(people, policy=policy, schema="id bigint, real double").num_rows == 400
    with pytest.raises(bs.KeyAccessError, match="disabled") as raised:
        read(people, policy=policy)
    assert raised.value.column == "name"
    assert "columns_without_key" in (raised.value.hint or "")
    masked = read(people, policy=policy, columns_without_key="null")
    assert masked.column("name").null_count == 400
    assert masked.column("id").to_pylist() == list(range(400))
    with pytest.raises(
        bs.KeyAccessError, match="disabled"
    ):  # to leave rows out by nulls would say that they are not there
        read(people, ds.EqualTo(("name",), NAMES[7]), policy=policy, columns_without_key="null")
    left = infer_schema(
        SourceOptions.parse(
            {"path": str(people), "columns_without_key": "drop"}, Defaults(policy=Policy({"people": policy}))
        )
    )
    assert "name" not in left.names
    assert "id" in left.names
    keys.disable("footer")
    with pytest.raises(bs.KeyAccessError, match="footer"):
        read(people, policy=policy, columns_without_key="null", schema="id bigint")


def test_a_kms_that_is_away_masks_nothing(people: Path, policy: TablePolicy, keys: bs.Keyring) -> None:
    schema = "id bigint, name string"
    shutil.move(keys.path, f"{keys.path}.away")
    with pytest.raises(bs.BloomsealError, match="keyring"):
        read(people, policy=policy, columns_without_key="null", schema=schema)


def test_nothing_heavy_is_loaded_to_be_found() -> None:
    import subprocess
    import sys

    code = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_bloomseal as found; "
        "print(found.DefaultSource.name(), sorted(m for m in set(sys.modules) - before if 'bloomseal' not in m))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert told.stdout.strip() == "bloomseal []"
