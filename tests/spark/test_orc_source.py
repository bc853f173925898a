"""ORC tables through the data source: rows as other readers give them, filters that prune, keys as for Parquet."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal import DecryptionSpec, orc
from bloomseal.core.errors import UnsupportedError
from bloomseal.policy import Policy, TablePolicy
from bloomseal.spark.session import known_policy, register_source
from support.orc_files import ROWS, orc_file, orc_ring

from ..orc.generated import columns, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::bloomseal.core.errors.BloomsealWarning"),
]


@pytest.fixture(autouse=True)
def _nothing_enabled(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session that was given a KMS and a policy, by another test, takes them for every table."""
    before = known_policy(spark)
    monkeypatch.setattr("bloomseal.spark.request.known_policy", lambda _: (None, None))
    register_source(spark, None, None)
    yield
    register_source(spark, *before)


def _policy(kms: str, name: str = "pii", **options: Any) -> TablePolicy:
    sealed = {"name": {"key": name}, "num": {"key": "wide"}, "s": {"key": "wide"}}
    table = {"footer_key": "wide", "allow_ctr": True, "columns": sealed, **options}
    return Policy.from_dict({"version": 1, "kms": kms, "tables": {"t": table}}).for_table("t")


def _rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row["id"])


def test_rows_of_the_java_writer_are_those_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    made = spark.range(4_000).selectExpr(
        "id", "cast(id % 100 as tinyint) as small", "concat('n', id * 7) as name", "id / 3 as ratio",
        "cast(id as decimal(20, 3)) as amount", "date_add(date'2020-01-01', cast(id as int)) as day",
        "if(id % 3 = 0, null, array(id, id + 1)) as list", "map(id, 'x') as pairs", "struct(id as a, 'y' as b) as inner",
        "id % 2 = 0 as even", "cast(cast(id as string) as binary) as data",
    )  # fmt: skip
    options = {"orc.bloom.filter.columns": "name", "orc.row.index.stride": "1000"}
    made.repartition(2).sortWithinPartitions("id").write.options(**options).orc(folder)
    theirs, ours = spark.read.orc(folder), bss.read(spark, folder)
    assert ours.schema == theirs.schema
    assert _rows(ours) == _rows(theirs)
    one = bss.read(spark, folder, columns=["id", "inner.b"], where="name = 'n7000'")
    assert [tuple(row) for row in one.collect()] == [(1000, "y")]
    for asked in ("id between 5 and 7 or inner.a = 9", "name in ('n0', 'n7', 'x') and list is null",
                  "amount = 12.000", "day < date'2020-01-03' and even"):  # fmt: skip
        assert _rows(bss.read(spark, folder, where=asked)) == _rows(theirs.where(asked)), asked
    assert bss.read(spark, folder).count() == 4_000


def test_rows_of_the_cpp_writer_have_wall_clocks_and_instants(spark: SparkSession, tmp_path: Path) -> None:
    table = columns(300, seed=4).select(["i64", "wall", "moment", "text", "dec38"])
    (tmp_path / "t").mkdir()
    write(table, tmp_path / "t" / "0.orc", stride=100)
    frame = bss.read(spark, tmp_path / "t")
    assert [one.dataType.typeName() for one in frame.schema][1:3] == ["timestamp_ntz", "timestamp"]
    found, wanted = frame.collect(), table.to_pylist()
    for name in ("i64", "wall", "text", "dec38"):
        assert [row[name] for row in found] == [row[name] for row in wanted]
    moments = [row["moment"] and row["moment"].astimezone(dt.UTC) for row in found]
    assert moments == [row["moment"] and row["moment"].astimezone(dt.UTC) for row in wanted]
    with pytest.raises(Exception, match="timestamp"):
        spark.read.format("bloomseal").schema("wall timestamp").load(str(tmp_path / "t")).collect()


def test_encrypted_columns_are_read_with_keys(spark: SparkSession, tmp_path: Path) -> None:
    ring, folder = orc_ring(tmp_path / "keys.json"), tmp_path / "t"
    for number in range(2):
        orc.repair_filters(orc_file(folder / f"{number}.orc", ring), decryption=DecryptionSpec(ring, allow_ctr=True))
    policy = _policy(f"keyring://{ring.path}")
    everything = sorted([*row[:3], *row[3]] for row in ROWS * 2 if row[1] is not None)
    found = bss.read(spark, folder, policy=policy).where("name is not null").collect()
    assert sorted([row["id"], row["name"], row["num"], *row["s"]] for row in found) == everything
    asked = bss.read(spark, folder, columns=["id", "num"], where=f"name = '{ROWS[5][1]}'", policy=policy)
    assert [tuple(row) for row in asked.collect()] == [(5, ROWS[5][2])] * 2
    stats = bss.df_stats(asked)
    assert (stats.files, stats.rows) == (2, 2)
    assert stats.pruned_by_filter >= 2
    assert stats.row_groups == stats.decoded + stats.pruned_by_filter + stats.pruned_by_statistics == 6
    assert "own key, at hand, filter" in str(bss.explain(spark, folder, "num = 1", policy=policy))


def test_key_sets_and_indexes_are_for_parquet(spark: SparkSession, tmp_path: Path) -> None:
    ring, folder = orc_ring(tmp_path / "keys.json"), tmp_path / "t"
    orc_file(folder / "0.orc", ring)
    policy = _policy(f"keyring://{ring.path}")
    for ask in (
        lambda: bss.semi_join(spark, folder, "name", ["name7"], policy=policy),
        lambda: bss.read(spark, folder, keys={"name": ["name7"]}, policy=policy),
        lambda: bss.prune(spark, folder, "name", ["name7"], policy=policy),
    ):
        with pytest.raises(UnsupportedError, match="take Parquet"):
            ask()


def test_what_can_not_be_opened_is_refused_or_null(spark: SparkSession, tmp_path: Path) -> None:
    ring, folder = orc_ring(tmp_path / "keys.json"), tmp_path / "t"
    orc_file(folder / "0.orc", ring)
    assert [row["id"] for row in bss.read(spark, folder, columns=["id"]).collect()] == [row[0] for row in ROWS]
    with pytest.raises(Exception, match="no keys were given"):
        bss.read(spark, folder, columns=["name"]).collect()
    with pytest.raises(Exception, match="nothing authenticates"):
        bss.read(spark, folder, columns=["name"], policy=_policy(f"keyring://{ring.path}", allow_ctr=False)).collect()
    ring.disable("pii")
    policy = _policy(f"keyring://{ring.path}")
    with pytest.raises(Exception, match="disabled"):
        bss.read(spark, folder, columns=["name"], policy=policy).collect()
    masked = bss.read(spark, folder, policy=policy, columns_without_key="null")
    first = masked.where("id = 5").collect()[0]
    assert (first["name"], first["num"]) == (None, ROWS[5][2])
    assert bs.read_table(folder / "0.orc", columns=["id"]).num_rows == len(ROWS)


def test_filters_are_attached_and_files_verified(spark: SparkSession, tmp_path: Path) -> None:
    ring, folder = orc_ring(tmp_path / "keys.json"), tmp_path / "t"
    for number in range(2):
        orc_file(folder / f"{number}.orc", ring)
    sealed = {"name": {"key": "pii", "filter": {"fpp": 0.01}}, "num": {"key": "wide"}, "s": {"key": "wide"}}
    policy = _policy(f"keyring://{ring.path}", columns=sealed)
    for attached, present in ((2, 0), (0, 2)):
        rows = bss.attach(spark, folder, policy=policy).collect()
        assert [(row["attached"], row["present"], row["failure"]) for row in rows] == [(attached, present, None)] * 2
        assert [row["filter_bytes"] > 1_000 for row in rows] == [bool(attached)] * 2
    found = bss.verify(spark, folder, policy=policy, filters=True).collect()
    assert [(row["ok"], row["complete"], row["failures"]) for row in found] == [(True, False, [])] * 2
    with bs.open_file(folder / "0.orc", decryption=policy) as file:
        assert {str(one[0]) for one in file.probe("name", ["nobody at all"])} == {"absent"}
