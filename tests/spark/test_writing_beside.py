"""What is written to a table that is there already: no row is hidden by it, none is lost, none lies open unseen."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import ColumnPolicy, Policy
from bloomseal.spark.writing import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
MODE = "spark.sql.sources.partitionOverwriteMode"
TABLE = {"footer_key": "footer", "columns": {"ssn": {"key": "pii", "filter": {"ndv": 100}}}}


@pytest.fixture(scope="module")
def policy(ring: bs.Keyring) -> Policy:
    return Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"t": TABLE}})


@pytest.fixture(scope="module")
def rows(spark: SparkSession, policy: Policy) -> Callable[[int, int], DataFrame]:
    bss.enable(spark, policy=policy)

    def make(start: int, end: int) -> DataFrame:
        return spark.range(start, end, 1, 1).selectExpr("id", "concat('ssn-', id) AS ssn", "id % 2 AS k")

    return make


def ids(spark: SparkSession, folder: Path) -> list[int]:
    ours = sorted(row.id for row in bss.read(spark, folder, columns=["id"]).collect())
    assert ours == sorted(row.id for row in spark.read.parquet(str(folder)).select("id").collect())
    return ours


def test_rows_that_no_read_would_see_are_refused(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    def append(path: Path, *by: str) -> Any:
        return bss.write(rows(10, 12), path, mode="append", partition_by=by)

    bss.write(rows(0, 4), tmp_path / "parted", partition_by=["k"])
    bss.write(rows(0, 4), tmp_path / "flat")
    for path, by in ((tmp_path / "parted", ()), (tmp_path / "parted", ("id",)), (tmp_path / "flat", ("k",))):
        before = sorted(path.rglob("*"))
        with pytest.raises(bs.UsageError, match="would not be seen"):
            append(path, *by)
        assert sorted(path.rglob("*")) == before
    append(tmp_path / "parted", "k")
    append(tmp_path / "flat")
    assert ids(spark, tmp_path / "parted") == ids(spark, tmp_path / "flat") == [0, 1, 2, 3, 10, 11]


def test_the_session_says_what_an_overwrite_replaces(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    def overwrite(start: int, **options: str) -> list[int]:
        some = rows(start, start + 4).where("k = 1")
        bss.write(some, tmp_path / "t", mode="overwrite", partition_by=["k"], options=options)
        return ids(spark, tmp_path / "t")

    bss.write(rows(0, 4), tmp_path / "t", partition_by=["k"])
    spark.conf.set(MODE, "dynamic")
    try:
        assert overwrite(10) == [0, 2, 11, 13]
        assert overwrite(20, partitionOverwriteMode="static") == [21, 23]
    finally:
        spark.conf.unset(MODE)
    assert overwrite(30) == [31, 33]


def test_a_column_that_only_looks_like_a_keyed_one_is_not_written(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], policy: Policy, tmp_path: Path
) -> None:
    unfiltered = replace(policy.for_table("t"), columns={"ssn": ColumnPolicy(key="pii")})
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(bs.PolicyError, match="differs from that of ssn"):
            bss.write(rows(0, 4).selectExpr("id", "ssn", "ssn AS SSN"), tmp_path / "t", policy=unfiltered)
        assert not (tmp_path / "t").exists()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_of_writes_at_the_same_time_no_row_is_lost(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    """Each job of Spark's own committer removes the temporary folder of all when it is done."""
    for number in range(3):
        together = threading.Barrier(3)

        def append(start: int, folder: Path = tmp_path / str(number), together: threading.Barrier = together) -> int:
            frame = rows(start, start + 32).repartition(16)
            together.wait(60)
            return bss.write(frame, folder, mode="append").rows

        with ThreadPoolExecutor(3) as pool:
            told = list(pool.map(append, (0, 100, 200)))
        assert ids(spark, tmp_path / str(number)) == [*range(32), *range(100, 132), *range(200, 232)]
        assert told == [32, 32, 32]


def test_without_turns_no_row_is_lost_either(
    spark: SparkSession,
    rows: Callable[[int, int], DataFrame],
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As other users and machines write, and Spark itself: nobody orders them."""
    monkeypatch.setattr(frames, "in_turn", lambda _: contextlib.nullcontext())
    for number in range(3):
        folder, together = tmp_path / str(number), threading.Barrier(3)

        def append(start: int, folder: Path = folder, together: threading.Barrier = together) -> None:
            frame = rows(start, start + 32).repartition(16)
            together.wait(60)
            if start:
                bss.write(frame, folder, mode="append")
            else:
                frame.write.mode("append").options(**bss.options(policy, "t")).parquet(str(folder))

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(append, (0, 100, 200)))
        assert ids(spark, folder) == [*range(32), *range(100, 132), *range(200, 232)]
        assert not [*folder.glob("_temporary"), *folder.glob(".spark-staging-*")]


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], bool]], Any]]:
    """Does the same again and again in a thread, until it is done or the test is over."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        def repeat(step: Callable[[], bool]) -> None:
            while not over.is_set() and not step():
                pass

        yield lambda step: pool.submit(repeat, step)
        over.set()


def test_sessions_without_ours_take_nothing_away(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    """Spark's own committer removes the temporary folder of all when it is done."""
    folder, frame = tmp_path / "t", rows(10, 14).coalesce(1)
    bss.write(rows(0, 4), folder)

    def ends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (folder / "_temporary" / "0").mkdir(parents=True)
        shutil.rmtree(folder / "_temporary")
        yield from batches

    bss.write(frame.mapInArrow(ends, frame.schema), folder, mode="append")
    assert ids(spark, folder) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_two_that_make_the_same_folder_of_a_partition_both_add_to_it(
    spark: SparkSession,
    rows: Callable[[int, int], DataFrame],
    policy: Policy,
    tmp_path: Path,
    beside: Callable[[Callable[[], bool]], Any],
) -> None:
    """Moved to where a folder is already, one lands in it (`k=1/k=1`), and the table can't be read any more."""
    chances = random.Random(7)

    def make_next(folder: Path) -> bool:
        """As another write does, just when the commit comes to it."""
        if not (task := next(iter(folder.glob(".spark-staging-*/_temporary/*/task_*")), None)):
            return False
        for name in [one.name for one in task.iterdir()]:
            end = time.perf_counter() + chances.uniform(0, 60e-6)
            while time.perf_counter() < end:
                pass
            with contextlib.suppress(FileExistsError):
                (folder / name).mkdir()
                (folder / name / "_another").touch()
            end = time.perf_counter() + 0.05
            with contextlib.suppress(OSError):
                while any((task / name).iterdir()) and time.perf_counter() < end:
                    pass
        return True

    frame = rows(0, 200).selectExpr("id", "ssn", "id AS k")
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        beside(functools.partial(make_next, folder))
        frame.write.mode("append").partitionBy("k").parquet(str(folder))  # in plaintext, for the sake of speed
        assert not list(folder.glob("k=*/k=*"))


def test_until_an_overwrite_commits_readers_find_the_old_table(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    folder, go = tmp_path / "t", tmp_path / "go"
    bss.write(rows(0, 4), folder)

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not go.exists():
            time.sleep(0.05)
        yield from batches

    frame = rows(10, 14)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(bss.write, frame.mapInArrow(waits, frame.schema), folder, mode="overwrite")
        try:
            while not list(folder.glob(".spark-staging-*")):
                time.sleep(0.01)
            assert ids(spark, folder) == [0, 1, 2, 3]
        finally:
            go.touch()
        under_way.result()
    assert ids(spark, folder) == [10, 11, 12, 13]
    assert not (folder / "_temporary").exists()


def test_an_append_beside_an_overwrite_ends_well(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], policy: Policy, tmp_path: Path
) -> None:
    """Spark's own overwrite would take away what it has under way; ours replaces what was there when it ended."""
    folder, go = tmp_path / "t", tmp_path / "go"
    bss.write(rows(0, 4), folder)

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not go.exists():
            time.sleep(0.05)
        yield from batches

    frame, options = rows(10, 14), bss.options(policy, "t")
    appends = frame.mapInArrow(waits, frame.schema).write.mode("append").options(**options)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(appends.parquet, str(folder))
        try:
            while not list(folder.glob(".spark-staging-*")):
                time.sleep(0.01)
            rows(20, 24).write.mode("overwrite").options(**options).parquet(str(folder))
            assert ids(spark, folder) == [20, 21, 22, 23]
        finally:
            go.touch()
        under_way.result()
    assert ids(spark, folder) == [10, 11, 12, 13, 20, 21, 22, 23]


def test_a_write_whose_rows_were_taken_away_fails(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    """By an overwrite that removes all of the folder, as Spark's own does in sessions without ours."""
    bss.write(rows(0, 4), tmp_path / "t")
    folder = tmp_path / "t"

    def takes_away(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for staged in folder.glob(".spark-staging-*"):
            shutil.rmtree(staged)
        yield from batches

    frame = rows(10, 14).coalesce(1)
    with pytest.raises(bs.BloomsealError, match="removed what this one had written"):
        bss.write(frame.mapInArrow(takes_away, frame.schema), tmp_path / "t", mode="append")
    assert ids(spark, tmp_path / "t") == [0, 1, 2, 3]


def test_what_killed_drivers_have_left_goes_with_an_overwrite(
    rows: Callable[[int, int], DataFrame], spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    bss.write(rows(0, 4), folder)
    fresh, old, timeless = (folder / f".spark-staging-{name}" for name in ("fresh", "old", "timeless"))
    for staged in (fresh, old, timeless):
        (staged / "_temporary" / "0").mkdir(parents=True)
    overwrites = [folder / "_temporary" / name for name in ("overwrite-fresh", "overwrite-old")]
    for one in overwrites:
        one.mkdir(parents=True)
    for one in (old / "_temporary" / "0", overwrites[1]):
        os.utime(one, (1000, 1000))
    os.utime(timeless / "_temporary" / "0", (0, 0))  # as object stores have it that know no time of a folder
    bss.write(rows(4, 8), folder, mode="append")
    assert old.exists()
    bss.write(rows(10, 12), folder, mode="overwrite")
    assert [one.exists() for one in (fresh, old, timeless, *overwrites)] == [True, False, True, True, False]
    assert ids(spark, folder) == [10, 11]


def test_an_application_keeps_its_own_committer(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    name = "spark.sql.parquet.output.committer.class"
    theirs = "org.apache.hadoop.mapreduce.lib.output.PartialFileOutputCommitter"

    def ours(start: int, folder: Path = tmp_path / "t") -> bool:
        """Does a task find the folder of a write by our protocol?"""

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = list(folder.glob(".spark-staging-*/_began"))
            (folder.parent / "found").write_text(str(len(found)))
            yield from batches

        frame = rows(start, start + 4)
        bss.write(frame.mapInArrow(look, frame.schema), folder, mode="append")
        return (folder.parent / "found").read_text() != "0"

    assert ours(0)
    spark.conf.set(name, theirs)
    try:
        assert not ours(4)
    finally:
        spark.conf.unset(name)
    assert ids(spark, tmp_path / "t") == list(range(8))


def test_threads_may_begin_at_the_same_time(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], policy: Policy, tmp_path: Path
) -> None:
    """The first to use a policy makes a data source that knows it."""
    bss.write(rows(0, 4), tmp_path / "t")
    for number in range(3):
        table = Policy.from_dict({"version": 1, "kms": policy.for_table("t").kms, "tables": {f"t{number}": TABLE}})
        together = threading.Barrier(4)

        def read(_: int, table: Policy = table, together: threading.Barrier = together) -> int:
            together.wait(60)
            return bss.read(spark, tmp_path / "t", policy=table).count()

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(read, range(4))) == [4] * 4


def test_what_is_no_list_of_columns_or_no_table_is_refused(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    bss.write(rows(0, 4), tmp_path / "t")
    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "t"))
    with pytest.raises(bs.UsageError, match="write_stream"):
        bss.write(stream, tmp_path / "u")
    with pytest.raises(bs.UsageError, match="as a list"):
        bss.write(rows(0, 4), tmp_path / "u", partition_by="k")
    with pytest.raises(bs.UsageError, match="as a list"):
        bss.read(spark, tmp_path / "t", columns="id")
    with pytest.raises(bs.UsageError, match=r"no such column.*idd.*id, ssn, k"):
        bss.read(spark, tmp_path / "t", columns=["idd"])
    with pytest.raises(bs.UsageError, match=r"no such column.*idd.*id, ssn, k"):
        bss.semi_join(spark, tmp_path / "t", "ssn", ["ssn-1"], columns=["idd"])
    with pytest.raises(bs.UsageError, match="as a list"):
        bss.semi_join(spark, tmp_path / "t", "ssn", ["ssn-1"], columns="id")
    assert not (tmp_path / "u").exists()
