"""Pruning by key sets, and the semi-join that reads what is left: never a row too few, and no key where others can see
it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import pickle
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.encryption import Algorithm
from bloomseal.core.errors import BloomsealWarning
from bloomseal.policy import Policy, TablePolicy
from bloomseal.sbbf import KeySet
from bloomseal.spark.request import Request
from bloomseal.spark.semijoin.question import KeyQuestion
from bloomseal.spark.source.files.piece import Piece
from bloomseal.spark.source.options import SourceOptions
from bloomseal.spark.source.sealed_keyset import SealedKeys

from .pruned import counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:decrypted|the values that your:bloomseal.core.errors.BloomsealWarning"),
]
FILES, GROUPS, ROWS = 6, 5, 200
TOTAL = FILES * GROUPS * ROWS


def digest(number: int) -> str:
    return hashlib.md5(str(number).encode()).hexdigest()  # noqa: S324


@pytest.fixture(scope="module")
def keyed(ring: bs.Keyring) -> TablePolicy:
    """Of a table whose every column has a filter."""
    columns: dict[str, Any] = {
        "ssn": {"key": "pii", "sensitivity": "restricted", "filter": {"fpp": 0.001, "ndv": ROWS}}
    }
    columns |= {name: {"filter": {"fpp": 0.001, "ndv": ROWS}} for name in ("id", "score", "day", "amount", "info.code")}
    table = {"footer_key": "footer", "complete": True, "columns": columns}
    document = {"version": 1, "kms": f"keyring://{ring.path}", "tables": {"keyed": table}}
    return Policy.from_dict(document).for_table("keyed")


def rows_of(numbers: range) -> pa.Table:
    scores = [float("nan") if i % 997 == 0 else -0.0 if i % 499 == 0 else i / 7 for i in numbers]
    days = [None if i % 50 == 0 else dt.date(2000, 1, 1) + dt.timedelta(i) for i in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "ssn": [None if i % 100 == 99 else digest(i) for i in numbers],
            "score": pa.array(scores, pa.float64()),
            "day": days,
            "amount": pa.array(numbers, pa.int32()).cast(pa.decimal128(12, 2)),
            "info": [{"code": f"code-{i:08}", "n": i} for i in numbers],
        }
    )


@pytest.fixture(scope="module")
def path(spark: SparkSession, keyed: TablePolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prune") / "keyed [1]"  # a name that Hadoop would take for a pattern
    folder.mkdir()
    for number in range(FILES):
        numbers = range(number * GROUPS * ROWS, (number + 1) * GROUPS * ROWS)
        bs.write_table(
            rows_of(numbers), folder / f"part {number}.parquet", encryption=keyed,
            bloom_filters=keyed.bloom_filters(), row_group_size=ROWS,
        )  # fmt: skip
    with pytest.MonkeyPatch.context():
        bss.enable(spark, kms=str(keyed.kms))
    return folder


def native(spark: SparkSession, path: Path, column: str, keys: DataFrame) -> list[Any]:
    """Spark's own semi-join of the whole table."""
    rows = spark.read.parquet(str(path).replace("[", "\\[").replace("]", "\\]"))
    return rows.join(keys, rows[column] == keys[keys.columns[0]], "left_semi").collect()


def same(ours: DataFrame, theirs: list[Any]) -> bool:
    return sorted(map(repr, ours.collect())) == sorted(map(repr, theirs))


def test_survivors_are_those_of_one_machine(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    wanted = [digest(i) for i in (7, 1500, 1501, 5998)] + ["no such", None, digest(7)]
    result = bss.prune(spark, path, "SSN", wanted, policy=keyed, files_per_task=2)
    rows = result.collect()
    for one in rows:
        with bs.open_file(one.file, decryption=keyed) as file:
            assert one.row_groups == np.flatnonzero(file.maybe_present("ssn", wanted[:5]).any(axis=1)).tolist()
    left = {Path(one.file).name for one in rows if one.row_groups}
    assert left >= {"part 0.parquet", "part 1.parquet", "part 5.parquet"}
    told = counts(result)
    assert told["row_groups"] == FILES * GROUPS
    assert 3 <= told["row_groups_left"] <= 5
    assert told["by_filter"] + told["by_statistics"] + told["row_groups_left"] == FILES * GROUPS
    prediction = KeyQuestion.of(Request(spark, path, keyed, None, None), "SSN", wanted).prediction
    assert (prediction.pays, prediction.keys) == (True, 5)


def test_bounds_narrow_before_filters_are_asked(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    result = bss.prune(spark, path, "id", np.arange(0, TOTAL, 10), policy=keyed)
    assert counts(result)["row_groups_left"] == FILES * GROUPS
    few = bss.prune(spark, path, "id", pa.array([3, 4, None, -5, 10**12]), policy=keyed)
    assert counts(few)["by_statistics"] == FILES * GROUPS - 1
    assert [one.row_groups for one in few.collect() if one.row_groups] == [[0]]


def test_a_million_keys_are_hashed_once_and_told_not_to_pay(
    spark: SparkSession, keyed: TablePolicy, path: Path
) -> None:
    letters = np.random.default_rng(7).bytes(16_000_000).hex()
    keys = pa.array([letters[i : i + 32] for i in range(0, len(letters), 32)])
    with pytest.warns(BloomsealWarning, match=r"can't pay: 1000000 keys: (9\d|100)% of"):
        bss.prune(spark, path, "ssn", keys, policy=keyed)
    clustered = bss.prune(spark, path, "id", pa.array(np.arange(TOTAL, TOTAL + 1_000_000)), policy=keyed)
    assert counts(clustered)["row_groups_left"] == 0


def test_keys_that_are_everywhere_are_told_by_a_sample(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    keys = [digest(i) for i in range(50, TOTAL, ROWS)]
    with pytest.warns(BloomsealWarning, match=r"read whole.*100% of 30 row groups that were asked"):
        frame = bss.semi_join(spark, path, "ssn", keys, columns=["id"], policy=keyed)
    assert sorted(row.id for row in frame.collect()) == list(range(50, TOTAL, ROWS))
    # By Spark's own reader, which is told to open the columns of the query alone.
    plan = str(frame._jdf.queryExecution().executedPlan().toString())
    assert "ReadSchema: struct<id:bigint,ssn:string>" in plan


COLUMNS = {
    "ssn": [digest(i) for i in (1, 99, 2500, 2501)] + [None, "no such"],
    "id": [0, 17, 17, 5999, -1, None],
    "score": [1 / 7, None, 1e9],
    "day": [dt.date(2000, 1, 2), dt.date(2010, 5, 5), None],
    "info.code": ["code-00000001", "code-00004444", "code"],
}


@pytest.mark.parametrize("column", list(COLUMNS))
@pytest.mark.parametrize("given", ["list", "frame"])
def test_the_semi_join_equals_spark_s_own(
    spark: SparkSession, keyed: TablePolicy, path: Path, column: str, given: str
) -> None:
    wanted = COLUMNS[column]
    kind = {"id": "bigint", "score": "double", "day": "date"}.get(column, "string")
    frame = spark.createDataFrame([(value,) for value in wanted], f"k {kind}")
    theirs = native(spark, path, column, frame)
    assert theirs
    ours = bss.semi_join(spark, path, column, wanted if given == "list" else frame, policy=keyed)
    assert same(ours, theirs)
    counted = bss.df_stats(ours)
    assert counted.files == FILES
    assert counted.row_groups == FILES * GROUPS
    assert counted.decoded < FILES * GROUPS


def test_nan_and_signed_zeros_match_as_spark_has_it(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    for value in (float("nan"), 0.0, -0.0):
        frame = spark.createDataFrame([(value,)], "k double")
        theirs = native(spark, path, "score", frame)
        assert len(theirs) > 3
        with pytest.MonkeyPatch.context():
            found = _quiet(lambda value=value: bss.semi_join(spark, path, "score", [value], policy=keyed))
        assert same(found, theirs)


def test_what_reads_cost_is_told(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    bss.semi_join(spark, path, "ssn", [digest(1234)], columns=["id"], policy=keyed).collect()
    told = dict(
        line.split(" ") for line in bss.df_stats(spark).to_prometheus(job="a").splitlines() if not line.startswith("#")
    )
    assert int(told['bloomseal_read_files_total{job="a"}']) >= FILES
    assert int(told['bloomseal_read_microseconds_total{job="a"}']) > 0
    assert int(told['bloomseal_read_pruned_by_filter_total{job="a"}']) >= FILES * GROUPS // 2
    table = spark.read.parquet(str(path).replace("[", "\\[").replace("]", "\\]"))
    said = bss.explain(table.where(f"ssn = '{digest(1234)}'"))
    assert digest(1234) not in said
    assert "asked of:    ssn" in said
    rows = next(int(line.split()[1].replace(",", "")) for line in said.splitlines() if line.startswith("rows:"))
    assert ROWS <= rows <= 3 * ROWS
    assert "no column" in bss.explain(table)
    with pytest.raises(bs.UsageError, match="no Parquet files"):
        bss.explain(spark.range(3))
    with pytest.raises(bs.UsageError, match="no table is named"):
        bss.explain(spark)


def test_two_semi_joins_are_two(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    """The first frame is run after the second is made, alone, cached, and in one query with it."""
    first = bss.semi_join(spark, path, "ssn", [digest(1234)], columns=["id"], policy=keyed)
    second = bss.semi_join(spark, path, "ssn", [digest(2345), digest(17)], columns=["id"], policy=keyed)
    assert first.cache().collect() == [(1234,)]
    first.unpersist()
    assert sorted(first.union(second).collect()) == [(17,), (1234,), (2345,)]


def _quiet(function: Any) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BloomsealWarning)
        return function()


def test_columns_conditions_and_keys_of_other_kinds(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    wanted = pa.table({"ssn": [digest(i) for i in range(0, TOTAL, 40)], "more": range(0, TOTAL, 40)})
    found = bss.semi_join(spark, path, "ssn", wanted, columns=["id"], policy=keyed)
    assert found.columns == ["id"]
    assert sorted(row.id for row in found.collect()) == list(range(0, TOTAL, 40))
    where = bss.semi_join(spark, path, "ssn", wanted, columns=["id"], where="amount >= 3000", policy=keyed)
    assert sorted(row.id for row in where.collect()) == list(range(3000, TOTAL, 40))
    small = spark.createDataFrame([(1,), (2,)], "k int")
    assert bss.semi_join(spark, path, "id", small, policy=keyed).count() == 2
    once = (digest(i) for i in (3, 4))
    assert bss.semi_join(spark, path, "ssn", once, policy=keyed).count() == 2
    assert bss.semi_join(spark, path, "ssn", [digest(-1)], policy=keyed).collect() == []
    assert bss.semi_join(spark, path, "ssn", [], policy=keyed).collect() == []
    with pytest.raises(bs.UsageError, match="cast them"):
        bss.semi_join(spark, path, "amount", spark.createDataFrame([(1,)], "k int"), policy=keyed)
    with pytest.raises(bs.UsageError, match="INT64 column"):
        bss.semi_join(spark, path, "id", spark.createDataFrame([("1",)], "k string"), policy=keyed)
    nested = spark.sql("SELECT array(1) AS many, named_struct('a', 1) AS one, map('a', 1) AS named")
    frames = [(column, nested.select(name)) for column in ("id", "ssn") for name in nested.columns]
    for column, keys in (("id", ["x"]), ("ssn", "x"), ("nothing", [1]), ("info", [1]), ("ssn", [1]), *frames):
        with pytest.raises(bs.UsageError):
            bss.semi_join(spark, path, column, keys, policy=keyed)


def test_partitioned_tables_and_files_of_other_types(spark: SparkSession, keyed: TablePolicy, tmp_path: Path) -> None:
    """The second file's column is narrower than the first's, as Spark allows: the keys are hashed for the first's, so
    that nothing rules out a row group of it.
    """
    table = dataclasses.replace(_only(keyed, "id"), partition_by=("day",))
    for number, kind in enumerate((pa.int64(), pa.int32(), pa.int32())):
        rows = pa.table({"id": pa.array(range(number * 100, number * 100 + 100), kind)})
        folder = tmp_path / "t" / f"day=2024-01-0{number + 1}"
        folder.mkdir(parents=True)
        bs.write_table(rows, folder / "a.parquet", encryption=table, bloom_filters={"id": bs.FilterSpec()},
                       row_group_size=10)  # fmt: skip
    found = bss.prune(spark, tmp_path / "t", "id", [5, 150, 295], policy=table)
    assert [one.row_groups for one in found.collect()] == [[0], [*range(10)], [*range(10)]]
    rows = bss.semi_join(spark, tmp_path / "t", "id", [5, 150, 295], policy=table)
    assert [(row.id, str(row.day)) for row in rows.orderBy("id").collect()] == [
        (5, "2024-01-01"),
        (150, "2024-01-02"),
        (295, "2024-01-03"),
    ]


def _lone(folder: Path, numbers: range, keyed: TablePolicy) -> Path:
    """One more file of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    bs.write_table(rows_of(numbers), folder / "part x.parquet", encryption=keyed, row_group_size=ROWS,
                   bloom_filters=keyed.bloom_filters())  # fmt: skip
    return folder / "part x.parquet"


def test_what_spark_passes_over_is_no_part_of_the_table(
    spark: SparkSession, keyed: TablePolicy, path: Path, tmp_path: Path
) -> None:
    wanted = [digest(7), digest(TOTAL + 7)]
    table = tmp_path / "t"
    shutil.copytree(path, table)
    _lone(table / "below", range(TOTAL, TOTAL + 1000), keyed)
    assert counts(bss.prune(spark, table, "ssn", wanted, policy=keyed))["files"] == FILES
    assert [row.id for row in bss.semi_join(spark, table, "ssn", wanted, policy=keyed).collect()] == [7]
    # Where there are folders of values, Spark reads nothing beside them.
    keyed = dataclasses.replace(keyed, partition_by=("k",))
    shutil.move(table / "below", table / "k=1")
    assert counts(bss.prune(spark, table, "ssn", wanted, policy=keyed))["files"] == 1
    found = bss.semi_join(spark, table, "ssn", wanted, policy=keyed)
    assert [(row.id, row.k) for row in found.collect()] == [(TOTAL + 7, 1)]


def test_a_file_that_was_replaced_after_the_frame_was_made_is_asked_itself(
    spark: SparkSession, keyed: TablePolicy, path: Path, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    shutil.copytree(path, table)
    other = _lone(tmp_path / "other", range(TOTAL, TOTAL + 1000), keyed)
    wanted = [digest(i) for i in (7, 1007, TOTAL + 7, TOTAL + 907)]
    now = [7, TOTAL + 7, TOTAL + 907]
    second = bss.semi_join(spark, table, "ssn", wanted, policy=keyed)
    shutil.copy(other, table / "part 1.parquet")
    assert sorted(row.id for row in second.collect()) == now
    # The keys travel under a key of the first file.
    first = bss.semi_join(spark, table, "ssn", wanted, policy=keyed)
    shutil.copy(other, table / "part 0.parquet")
    with pytest.raises(Exception, match=r"IntegrityError.*part 0\.parquet"):
        first.collect()


def _forged(file: Path) -> None:
    """A plaintext file of somebody without a key, in another one's place."""
    rows = rows_of(range(1)).set_column(0, "id", pa.array([-1], pa.int64()))
    bs.write_table(rows, file)


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
@pytest.mark.parametrize("pays", [True, False])
def test_a_plaintext_file_is_refused_however_many_keys_are_asked(
    spark: SparkSession, keyed: TablePolicy, tmp_path: Path, pays: bool
) -> None:
    """By our reader, and where nothing can be ruled out by Spark's own."""
    bss.enable(spark, kms=str(keyed.kms))
    wanted = [digest(i) for i in range(0, 1000, ROWS if pays else 2)]
    policy = keyed if pays else _only(keyed, "id")
    for number in range(3):
        _lone(tmp_path / "t", range(1000), policy).rename(tmp_path / "t" / f"part {number}.parquet")
    found = bss.semi_join(spark, tmp_path / "t", "ssn", wanted, columns=["id"], policy=policy)
    assert all(row.id >= 0 for row in found.collect())
    genuine = (tmp_path / "t" / "part 1.parquet").read_bytes()
    _forged(tmp_path / "t" / "part 1.parquet")
    # Ours, or that of Spark's reader, which may come to the file before we have looked at it.
    told = r"(?s)PolicyError: a plaintext file.*part 1\.parquet|part%201\.parquet.*decryptor on plaintext file"
    with pytest.raises(Exception, match=told):
        bss.semi_join(spark, tmp_path / "t", "ssn", wanted, policy=policy).collect()
    # Put there after the frame was made.
    queries = {"collect": found.collect, **({"count": found.count} if pays else {})}
    for name, query in queries.items():
        with pytest.raises(Exception, match=told):
            pytest.fail(f"{name} gave {query()}")
    (tmp_path / "t" / "part 1.parquet").write_bytes(genuine)
    assert all(row.id >= 0 for row in found.collect())


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
@pytest.mark.parametrize("pays", [True, False])
def test_a_column_under_another_key_is_refused_whoever_reads(
    spark: SparkSession, keyed: TablePolicy, tmp_path: Path, pays: bool
) -> None:
    """Made by somebody who may use the footer key alone. Spark's reader would take it."""
    from dataclasses import replace

    bss.enable(spark, kms=str(keyed.kms))
    own = replace(keyed, columns={**keyed.columns, "score": replace(keyed.columns["score"], key="health")})
    for number, policy in enumerate((own, keyed, own)):
        _lone(tmp_path / "t", range(1000), policy).rename(tmp_path / "t" / f"part {number}.parquet")
    # In four of five row groups, so that bigger files are left to Spark's reader.
    wanted = [digest(i) for i in range(0, 800 if pays else 1000, ROWS)]
    with pytest.raises(Exception, match=r"(?s)PolicyError: [^\n]*(score is|is) sealed under [^\n]*part 1\.parquet"):
        bss.semi_join(spark, tmp_path / "t", "ssn", wanted, policy=own).collect()
    # Nobody looks at columns that the query does not have.
    found = bss.semi_join(spark, tmp_path / "t", "ssn", wanted, columns=["id"], policy=own)
    assert found.count() == 3 * len(wanted)


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
def test_spark_s_reader_takes_no_column_that_is_sealed_in_another_way(
    spark: SparkSession, keyed: TablePolicy, tmp_path: Path
) -> None:
    """Forged with the footer key alone: parquet-java would open each."""
    from dataclasses import replace

    bss.enable(spark, kms=str(keyed.kms))
    # Nothing is ruled out without filters.
    policy = replace(keyed, columns={"ssn": replace(keyed.columns["ssn"], filter=None)})
    loose = replace(policy, columns={})
    forged = {
        "ssn' is in plaintext": bs.EncryptionSpec("footer", {"id": "footer"}, keys=loose.keys),
        "AES_GCM_CTR_V1": replace(policy, algorithm=Algorithm.AES_GCM_CTR_V1),
        "'ssn' is sealed under master key 'footer'": loose,
        "the footer is sealed under master key 'pii'": replace(policy, footer_key="pii"),
    }
    wanted = [digest(i) for i in range(0, 1000, 2)]
    for number, (told, sealing) in enumerate(forged.items()):
        table = tmp_path / str(number)
        for part in range(3):
            _lone(table, range(1000), policy).rename(table / f"part {part}.parquet")
        found = bss.semi_join(spark, table, "ssn", wanted, columns=["ssn"], policy=policy)
        assert "FileScan parquet" in str(found._jdf.queryExecution().executedPlan().toString())
        assert found.count() == 3 * len(wanted)
        bs.write_table(rows_of(range(1000)), table / "part 1.parquet", encryption=sealing, row_group_size=ROWS)
        with pytest.raises(Exception, match=rf"(?s)PolicyError: [^\n]*{told}[^\n]*part 1\.parquet"):
            found.collect()


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
def test_what_spark_s_own_reader_has_otherwise_is_read_by_ours(
    spark: SparkSession, keyed: TablePolicy, tmp_path: Path
) -> None:
    """Where nothing can be ruled out: nanoseconds, which it refuses; files whose types differ; files that it lists and
    this does not.
    """
    policy, wanted = _only(keyed, "ssn"), [digest(i) for i in range(1000)]
    moments = pa.array([1_700_000_000_123_456_000 + i for i in range(1000)], pa.timestamp("ns", tz="UTC"))
    first = pa.table({"ssn": wanted, "n": pa.array(range(1000), pa.int64())})
    tables = {
        "nanoseconds": [first.append_column("at", moments)],
        "narrower": [first, first.set_column(1, "n", pa.array(range(1000), pa.int32()))],
    }
    for name, files in tables.items():
        for number, rows in enumerate(files):
            (tmp_path / name).mkdir(exist_ok=True)
            bs.write_table(rows, tmp_path / name / f"{number}.parquet", encryption=policy, row_group_size=100,
                           bloom_filters=policy.bloom_filters())  # fmt: skip
        found = bss.semi_join(spark, tmp_path / name, "ssn", wanted, policy=policy)
        assert sorted(row.n for row in found.collect()) == sorted([*range(1000)] * len(files))
        assert "bloomseal" in str(found._jdf.queryExecution().executedPlan().toString())


def test_filters_that_were_attached_meanwhile_are_no_other_file(
    spark: SparkSession, keyed: TablePolicy, tmp_path: Path
) -> None:
    file = _lone(tmp_path / "t", range(1000), keyed)
    found = bss.semi_join(spark, tmp_path / "t", "ssn", [digest(7)], policy=keyed)
    bs.attach_filters(file, {"info.n": bs.FilterSpec()}, decryption=keyed)
    assert [row.id for row in found.collect()] == [7]


def test_collations_are_left_to_spark(spark: SparkSession, keyed: TablePolicy, tmp_path: Path) -> None:
    """Equal texts have other bytes, and so other hashes."""
    rows = spark.sql("SELECT id, named_struct('word', concat('é', id) COLLATE UNICODE_CI) AS n FROM range(100)")
    policy = _only(keyed, "id")
    bss.write(rows, tmp_path / "t", policy=policy)
    for ask in (bss.prune, bss.semi_join):
        with pytest.raises(bs.UsageError, match="collation"):
            ask(spark, tmp_path / "t", "n.word", ["É7"], policy=policy)
    assert bss.read(spark, tmp_path / "t", where="n.word = 'É7'", policy=policy).first() == (7, ("é7",))


@pytest.mark.parametrize(
    "keys",
    [
        [7, 1 << 63, -(1 << 63) - 1, None, 1 << 70],
        [1 << 70, *range(7, 8)],
        np.array([7, 1 << 63], dtype=np.uint64),
        pa.array([7, None, 1 << 63], pa.uint64()),
        dict.fromkeys([7]),
        range(7, 8),
    ],
)
def test_numbers_that_no_column_holds_are_absent(
    spark: SparkSession, keyed: TablePolicy, path: Path, keys: Any
) -> None:
    assert counts(bss.prune(spark, path, "id", keys, policy=keyed))["row_groups_left"] == 1
    assert [row.id for row in bss.semi_join(spark, path, "id", keys, policy=keyed).collect()] == [7]


@pytest.mark.filterwarnings("ignore:the table is read whole:bloomseal.core.errors.BloomsealWarning")
def test_decimals_that_no_column_holds_are_absent(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    keys = [7, Decimal("8.00"), Decimal("9.001"), Decimal("1e20"), Decimal("NaN"), 1 << 70, None]
    found = bss.semi_join(spark, path, "amount", keys, policy=keyed)
    assert sorted(row.id for row in found.collect()) == [7, 8]


def test_keys_are_taken_once(spark: SparkSession, keyed: TablePolicy, path: Path, tmp_path: Path) -> None:
    """A frame that has other keys each time: joined with later ones, rows would be lost that the first ruled out."""
    from pyspark.sql import functions as f

    source = str(tmp_path / "key")
    Path(source).write_text(digest(7))
    now = f.udf(lambda _: Path(source).read_text(), "string", useArrow=False).asNondeterministic()
    found = bss.semi_join(spark, path, "ssn", spark.range(1).select(now("id").alias("ssn")), policy=keyed)
    Path(source).write_text(digest(2007))
    assert [row.id for row in found.collect()] == [7]


def test_backticks_in_names(spark: SparkSession, keyed: TablePolicy, tmp_path: Path) -> None:
    bss.write(spark.range(9).withColumnRenamed("id", "a`b"), tmp_path / "t", policy=_only(keyed))
    ways = [7], spark.range(7, 8), spark.range(7, 8).withColumnRenamed("id", "a`b")
    for keys in ways:
        found = bss.semi_join(spark, tmp_path / "t", "a`b", keys, columns=["a`b"], policy=_only(keyed))
        assert found.collect() == [(7,)]


def _only(policy: TablePolicy, *names: str) -> TablePolicy:
    from dataclasses import replace

    return replace(policy, columns={name: column for name, column in policy.columns.items() if name in names})


def test_what_can_t_be_asked_survives_and_is_not_read(
    spark: SparkSession, keyed: TablePolicy, path: Path, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    table.mkdir()
    sources = sorted(path.glob("*.parquet"))
    for source in sources[:3]:
        (table / source.name).write_bytes(source.read_bytes())
    with bs.open_file(sources[1], decryption=keyed) as file:
        leaf = file.walk.footer.schema.leaf("ssn").index
        offset = file.walk.meta(file.walk.chunk(2, leaf)).bloom_filter_offset
    content = bytearray((table / sources[1].name).read_bytes())
    assert offset is not None
    content[offset + 60] ^= 1
    (table / sources[1].name).write_bytes(content)
    result = bss.prune(spark, table, "ssn", [digest(2700)], policy=keyed)
    assert [one.file for one in result.collect() if one.failure is not None] == [str(table / sources[1].name)]
    with pytest.raises(Exception, match=f"IntegrityError.*{sources[1].name}"):
        bss.semi_join(spark, table, "ssn", [digest(2700)], policy=keyed).collect()


def test_keys_travel_sealed(keyed: TablePolicy, path: Path) -> None:
    first = next(path.glob("*.parquet"))
    with bs.open_file(first, decryption=keyed) as file:
        leaf = file.walk.footer.schema.leaf("ssn").index
        kind = file.walk.footer.schema.leaves[leaf].type
        keys = file.key_set("ssn", [digest(5), digest(6)])
        sealed = SealedKeys.of(keys, kind, file, leaf, Piece(None, str(first), 0))
    travelling = pickle.dumps(sealed)
    for value in keys.between(None, None).tolist():
        assert int(value).to_bytes(8, "little") not in travelling
    again = pickle.loads(travelling).open(SourceOptions((str(path),), str(keyed.kms), keyed))  # noqa: S301
    assert set(again.between(None, None).tolist()) == set(keys.between(None, None).tolist())
    with pytest.raises(bs.BloomsealError):
        sealed.open(SourceOptions((str(path),), str(keyed.kms), _refused(keyed)))
    with pytest.raises(bs.UsageError):
        pickle.dumps(KeySet.of(["a"], kind))


def _refused(policy: TablePolicy) -> TablePolicy:
    from dataclasses import replace

    columns = dict(policy.columns)
    columns["ssn"] = replace(columns["ssn"], key="health")
    return replace(policy, columns=columns)


def test_no_key_stands_in_the_plan(spark: SparkSession, keyed: TablePolicy, path: Path) -> None:
    wanted = [digest(i) for i in range(30)]
    frame = bss.semi_join(spark, path, "ssn", wanted, policy=keyed)
    plan = frame._jdf.queryExecution()
    told = plan.toString() + plan.executedPlan().treeString() + plan.optimizedPlan().toJSON()
    assert frame.count() == 30
    assert not [value for value in wanted if value in told]
    assert "LeftSemi" in told


def test_a_plan_lists_no_files_for_indexes_that_are_not_there(
    spark: SparkSession, keyed: TablePolicy, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("listed")

    monkeypatch.setattr("bloomseal.table.query.indexes.Indexes.__init__", never)
    wanted = spark.createDataFrame(pa.table({"ssn": [digest(7), "no such"]}))
    assert counts(bss.prune(spark, path, "ssn", wanted, policy=keyed))["row_groups_left"] == 1
    monkeypatch.undo()
    with pytest.raises(bs.UsageError, match="an index is required"):
        bss.prune(spark, path, "ssn", wanted, policy=keyed, use_index="require")


def test_no_folder_says_what_a_sealed_column_holds(
    spark: SparkSession, keyed: TablePolicy, tmp_path: Path, path: Path
) -> None:
    """Attack: by whoever may write to the folder, old rows under a value of his choice, and genuine ones under another
    one, so that nobody opens them. All columns are sealed, this one under the footer's key.
    """
    del path  # with it comes the key bridge
    new = rows_of(range(2 * ROWS))
    for name, rows in (("old", new.drop_columns(["info"])), ("new", new.append_column("city", [["Kiel"] * 2 * ROWS]))):
        (tmp_path / f"city={name}").mkdir()
        bs.write_table(rows, tmp_path / f"city={name}" / "x.parquet", encryption=keyed, bloom_filters={"ssn": True})
    for ask in (
        lambda: bss.read(spark, tmp_path, columns=["id", "city"], policy=keyed).collect(),
        lambda: bss.read(spark, tmp_path, columns=["id"], where="city = 'old'", policy=keyed).collect(),
        lambda: bss.prune(spark, tmp_path, "ssn", [digest(1)], policy=keyed),
        lambda: bss.prune(spark, tmp_path, "city", ["Kiel"], policy=keyed),
        lambda: bss.semi_join(spark, tmp_path, "ssn", [digest(1)], policy=keyed).collect(),
        lambda: bss.semi_join(spark, tmp_path, "city", ["Kiel", "old"], policy=keyed).collect(),
        lambda: bss.explain(spark, tmp_path, "city = 'old'", policy=keyed),
        lambda: bss.check_table(spark, tmp_path, policy=keyed),
    ):
        with pytest.raises(Exception, match="may be a sealed one"):
            ask()


def test_files_without_rows_seal_no_keys(spark: SparkSession, keyed: TablePolicy, tmp_path: Path, path: Path) -> None:
    """Attack: nothing in such a file tells the column's key, and whoever may use the footer's plants as many as he
    likes. The first file with rows has the key; where there is none, no key travels.
    """
    del path  # with it comes the key bridge
    rows = rows_of(range(ROWS))
    for number in range(30):
        bs.write_table(rows.slice(0, 0), tmp_path / f"a{number}.parquet", encryption=keyed)
    wanted = [digest(7)]
    assert counts(bss.prune(spark, tmp_path, "ssn", wanted, policy=keyed))["row_groups_left"] == 0
    assert bss.semi_join(spark, tmp_path, "ssn", wanted, policy=keyed).collect() == []
    bs.write_table(rows, tmp_path / "m.parquet", encryption=keyed, bloom_filters={"ssn": True})
    found = KeyQuestion.of(Request(spark, tmp_path, keyed, None, None), "ssn", wanted)
    assert found.search.sealed.piece.name.endswith("m.parquet")
    told = counts(bss.prune(spark, tmp_path, "ssn", wanted, policy=keyed))
    assert (told["failed"], told["row_groups_left"]) == (0, 1)
    assert [row.id for row in bss.semi_join(spark, tmp_path, "ssn", wanted, policy=keyed).collect()] == [7]
