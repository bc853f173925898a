"""Big sets of keys are looked up in a sealed index, by tasks or on the driver; only those that it knows are joined."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.core.exclusion import Reason
from bloomseal.read.parquet import ParquetFile
from bloomseal.spark.request import Request
from bloomseal.spark.semijoin import question
from bloomseal.spark.semijoin.question import KeyQuestion
from bloomseal.spark.source.files.piece import Piece
from bloomseal.spark.source.options import SourceOptions
from bloomseal.spark.source.planning import Files, by_indexes, need_marks
from bloomseal.spark.source.sealed_keyset import SealedKeys
from bloomseal.spark.source.search import KeySearch, mark

from .indexed_tables import FILES, ROWS, ids, one, opened, ssn, turned
from .pruned import counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bloomseal.policy import TablePolicy

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.fixture
def narrowings(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many keys the index knew, each time that they were looked up; None: it was not to be asked."""
    told: list[int | None] = []
    inner = question._known_keys

    def watched(*args: Any) -> Any:
        found = inner(*args)
        told.append(None if found is None else len(found[0]))
        return found

    monkeypatch.setattr(question, "_known_keys", watched)
    monkeypatch.setattr(question, "_MANY", 100)
    return told


def many_keys(spark: SparkSession) -> DataFrame:
    """Nulls, keys that come twice, and many that are nowhere; of 1,200 rows every tenth has one."""
    keys = [*(ssn(i) for i in range(0, FILES * ROWS, 10)), ssn(10), None, None, *(f"nowhere {i}" for i in range(2_000))]
    return spark.createDataFrame(pa.table({"k": keys})).repartition(3)


def spark_own(spark: SparkSession, table: Path, keys: DataFrame) -> list[int]:
    rows = bss.read(spark, table, use_index="never")
    return ids(rows.join(keys, rows["ssn"] == keys["k"], "left_semi"))


def test_many_keys_are_looked_up_in_the_index(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], narrowings: list[int | None]
) -> None:
    keys, every_tenth = many_keys(spark), list(range(0, FILES * ROWS, 10))
    frame = bss.semi_join(spark, table, "ssn", keys)
    assert ids(frame) == every_tenth == spark_own(spark, table, keys)
    assert narrowings == [121]  # one comes twice; they are in every row group: nothing is ruled out, and all are joined
    narrowings.clear()
    few = keys.where(f"k LIKE 'nowhere%' OR k IS NULL OR k IN ('{ssn(410)}', '{ssn(1010)}')").repartition(3)
    frame = bss.semi_join(spark, table, "ssn", few)
    assert ids(frame) == [410, 1010] == spark_own(spark, table, few)
    assert narrowings == [2]
    stats = bss.df_stats(frame)
    assert (stats.files, stats.files_unopened, stats.decoded) == (2, FILES - 2, 2)
    assert counts(bss.prune(spark, table, "ssn", few))["row_groups_left"] == 2
    # The same keys at hand, not in a frame; and none at all that is there.
    assert ids(bss.semi_join(spark, table, "ssn", few.toArrow())) == [410, 1010]
    assert bss.semi_join(spark, table, "ssn", few.where("k LIKE 'nowhere%'")).count() == 0
    assert bss.semi_join(spark, table, "ssn", few.where("k = ''")).count() == 0
    assert narrowings == [2, 2, 2, 0, None]  # of none at all there is nothing to look up
    with pytest.raises(bs.UsageError, match="cannot be asked for an int"):
        bss.semi_join(spark, table, "ssn", few.selectExpr("length(k) AS k").selectExpr("CAST(k AS BIGINT) AS k"))


def test_keys_in_half_of_the_table_are_left_to_sparks_own_reader(
    spark: SparkSession, table: Path, narrowings: list[int | None]
) -> None:
    half = list(range(0, FILES * ROWS // 2, 4))
    keys = pa.table({"k": [*map(ssn, half), *(f"nowhere {i}" for i in range(100))]})
    request = Request(spark, table, None, None, None)
    assert KeyQuestion.of(request, "ssn", keys).prediction.pays
    assert not KeyQuestion.of(request, "ssn", keys, beside_spark=True).prediction.pays
    with pytest.warns(bs.BloomsealWarning, match="read whole"):
        frame = bss.semi_join(spark, table, "ssn", keys)
    assert ids(frame) == half
    assert narrowings == [len(half)] * 3


def test_an_index_that_does_not_cover_all_is_not_asked_for_the_keys_alone(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], narrowings: list[int | None]
) -> None:
    few = many_keys(spark).where(f"k = '{ssn(410)}' OR k LIKE 'nowhere%'")
    policy = indexed[1]
    # A file that the index does not know, and then one in the place of another.
    rows = pa.table({"ssn": ["nowhere 7"] * ROWS, "id": range(ROWS)})
    bs.write_table(rows, table / "new.parquet", encryption=policy.for_table("t").at(table), row_group_size=20)
    (table / "new.parquet").chmod(0o600)
    assert ids(bss.semi_join(spark, table, "ssn", few)) == sorted([*range(ROWS), 410]) == spark_own(spark, table, few)
    opened(table, policy).index("ssn").update()
    assert bss.semi_join(spark, table, "ssn", few).count() == ROWS + 1
    turned(table, policy)
    keys = few.union(spark.createDataFrame(pa.table({"k": ["somebody else"]})))
    assert bss.semi_join(spark, table, "ssn", keys).count() == 2 * ROWS
    assert narrowings == [None, 2, None]


def test_other_files_than_keys_were_looked_up_for(
    spark: SparkSession,
    table: Path,
    indexed: tuple[Path, bs.Policy],
    narrowings: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file gets a key that was nowhere when tasks looked: no run may pass over it, covered by then or not."""
    few = many_keys(spark).where(f"k = '{ssn(20)}' OR k LIKE 'nowhere%'")
    keys = few.union(spark.createDataFrame(pa.table({"k": ["somebody else"]})))
    frame = bss.semi_join(spark, table, "ssn", keys)
    assert ids(frame) == [20]
    turned(table, indexed[1])
    with pytest.raises(Exception, match="replaced while the query was under way"):
        frame.collect()
    opened(table, indexed[1]).index("ssn").update()
    with pytest.raises(Exception, match="replaced while the query was under way"):
        frame.collect()
    # Between the tasks and the planning of the frame: all keys are asked then.
    again = many_keys(spark).where(f"k = '{ssn(30)}' OR k LIKE 'nowhere%'")
    inner = question._known_keys

    def later(*args: Any) -> Any:
        found = inner(*args)
        rows = pa.table({"ssn": ["nowhere 3"] * ROWS, "id": range(ROWS)})
        path = next(file for file in sorted(table.glob("*.parquet")) if "somebody else" not in values_in(file))
        bs.write_table(rows, path, encryption=indexed[1].for_table("t").at(table), row_group_size=20)
        opened(table, indexed[1]).index("ssn").update()
        return found

    def values_in(file: Path) -> list[str]:
        found: list[str] = bs.read_table(file, decryption=indexed[1].for_table("t").at(table)).column("ssn").to_pylist()
        return found

    monkeypatch.setattr(question, "_known_keys", later)
    assert bss.semi_join(spark, table, "ssn", again).where("ssn = 'nowhere 3'").count() == ROWS
    assert narrowings == [1, 1]


def test_a_column_that_another_file_spells_otherwise(
    spark: SparkSession, table: Path, indexed: tuple[Path, bs.Policy], narrowings: list[int | None]
) -> None:
    """Spark reads `SSN` as `ssn`. The index covers such a file, and has none of its values."""
    few = many_keys(spark).where(f"k = '{ssn(20)}' OR k LIKE 'nowhere%'")

    def naming(*columns: str) -> TablePolicy:
        wide = {"footer_key": "footer", "complete": True, "columns": {name: {"key": "pii"} for name in columns}}
        kms = str(indexed[1].for_table("t").kms)
        return bs.Policy.from_dict({"version": 1, "kms": kms, "tables": {"t": wide}}).for_table("t")

    rows, policy = pa.table({"SSN": ["nowhere 7"] * ROWS, "id": range(ROWS)}), naming("ssn", "SSN")
    bs.write_table(rows, table / "other.parquet", encryption=naming("SSN").at(table), row_group_size=20)
    index = bs.open_table(table, decryption=policy).index("ssn")
    index.update()
    assert index.uncovered() == []
    got = bss.semi_join(spark, table, "ssn", few, policy=policy)
    rows_of = bss.read(spark, table, policy=policy, use_index="never")
    own = rows_of.join(few, rows_of["ssn"] == few["k"], "left_semi")
    assert ids(got) == ids(own)
    assert narrowings == [None]


def test_a_file_that_is_replaced_after_a_run_was_planned_is_not_read_for_some_of_the_keys(
    indexed: tuple[Path, bs.Policy], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks open files later than the plan was made, and hold no other keys than those that the index knew. Where they
    hold all of them, filters tell what is in another file.
    """
    policy = indexed[1].for_table("t")
    path = one(table, indexed[1])
    settings = SourceOptions((str(path),), str(policy.kms), policy.at(table))
    piece = Piece(None, str(path), path.stat().st_size, root=str(table))
    with settings.open(piece) as file:
        leaf = file.leaf("ssn")
        sealed = SealedKeys.of(file.key_set("ssn", [ssn(417)]), leaf.type, file, leaf.index, piece)
    every = KeySearch(sealed, settings)
    plan = by_indexes(Files([piece], settings, None), ["ssn"], lambda stand_in: every.ways(stand_in, [[]]))
    (left,) = plan.pieces
    assert left.kept is not None
    some = KeySearch(sealed, settings, frozenset([mark(str(path), left.kept.sighting.state)]))
    need_marks(some, plan)
    with pytest.raises(bs.UnsupportedError, match="replaced while the query was under way"):
        need_marks(KeySearch(sealed, settings, frozenset()), plan)
    asked: list[Any] = []
    inner = ParquetFile.survivors
    monkeypatch.setattr(ParquetFile, "survivors", lambda *args: asked.append(args) or inner(*args))
    with settings.open(piece) as file:
        for search in (every, some):
            found = search.ask(file, left.kept)
            assert (found.row_groups, found.ruled_out_by(Reason.INDEX)) == (left.kept.groups, 4)
        assert asked == []  # an index is the better filter
        # What no index was asked about its statistics and filters are.
        assert every.ask(file).row_groups == left.kept.groups
        assert len(asked) == 1
    turned(table, indexed[1])
    with settings.open(piece) as file:
        assert every.ask(file, left.kept).row_groups == ()
        assert len(asked) == 2
        for search in (some, pickle.loads(pickle.dumps(some))):  # noqa: S301 - our own
            for kept in (left.kept, None):
                with pytest.raises(bs.UnsupportedError, match="replaced while the query was under way"):
                    search.ask(file, kept)


def test_batches_of_few_rows_travel_together() -> None:
    from bloomseal.spark.source.reader import _together

    taken: list[int] = []

    def batches(sizes: list[int]) -> Iterator[pa.RecordBatch]:
        for size in sizes:
            taken.append(size)
            yield pa.record_batch({"n": range(sum(taken[:-1]), sum(taken))})

    found = _together(batches([1] * 250))
    assert next(found).num_rows == 1
    assert taken == [1]  # whoever wants one row waits for no other
    rest = list(found)
    assert [one.num_rows for one in rest] == [1, 2, 4, 8, 16, 32, 64, 122]
    assert [n for one in rest for n in one.column(0).to_pylist()] == list(range(1, 250))
    taken.clear()
    assert [one.num_rows for one in _together(batches([1, 3_000, 1_000, 24, 1, 2_000]))] == [1, 3_000, 1_024, 2_001]
    assert list(_together(iter(()))) == []
