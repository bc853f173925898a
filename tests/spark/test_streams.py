"""Streams in and out of sealed tables: every row once, whenever a driver dies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def policy(spark: SparkSession, ring: bs.Keyring) -> Policy:
    columns = {"ssn": {"key": "pii", "filter": {"ndv": 100}}}
    table = {"footer_key": "footer", "complete": True, "partition_by": ["k"], "columns": columns}
    found = Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": {"t": table}})
    bss.enable(spark, policy=found)
    return found


@pytest.fixture
def rows(spark: SparkSession, policy: Policy) -> Callable[[int, int], DataFrame]:
    return lambda start, end: spark.range(start, end, 1, 2).selectExpr("id", "concat('ssn-', id) AS ssn", "id % 2 AS k")


def run(stream: Any, checkpoint: Path, **options: str) -> None:
    """Until all that is there is done."""
    stream = stream.option("checkpointLocation", str(checkpoint)).options(**options)
    stream.trigger(availableNow=True).start().awaitTermination()


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_from_table_to_table_each_row_once_also_when_a_batch_is_repeated(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    source, sink, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"

    def copy() -> None:
        stream = spark.readStream.schema(rows(0, 1).schema).parquet(str(source)).where("id != 5")
        run(bss.write_stream(stream, sink, partition_by=["k"]), checkpoint)

    bss.write(rows(0, 8), source)
    copy()
    assert bss.check_table(spark, sink).rows == 7
    bss.write(rows(8, 12), source, mode="append")
    bss.rekey(spark, source)  # the same names: nothing new
    copy()
    wanted = [n for n in range(12) if n != 5]
    assert ids(bss.read(spark, sink)) == wanted
    # As if the driver had died between the sink's commit and Spark's note of it: Spark runs the last batch again.
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in commits.glob(f"*{last}*"):
        file.unlink()
    copy()
    assert ids(bss.read(spark, sink)) == ids(spark.read.parquet(str(sink))) == wanted


def test_the_data_source_is_no_stream(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    from bloomseal.spark.source.source import BloomsealSource

    with pytest.raises(bs.UsageError, match=r"reads tables only.*readStream"):
        BloomsealSource({"path": str(tmp_path)}).streamReader(StructType())


def test_the_file_sinks_log_says_which_files_are_live(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def copy() -> None:
        stream = spark.readStream.schema(rows(0, 1).schema).parquet(str(tmp_path / "in"))
        run(bss.write_stream(stream, out, partition_by=["k"]), tmp_path / "checkpoint")

    bss.write(rows(0, 8), tmp_path / "in")
    copy()
    bss.write(rows(8, 10), tmp_path / "in", mode="append")
    copy()
    assert bss.check_table(spark, out).rows == 10
    # A batch that failed has left a file, which is not the table's.
    file = next(out.glob("k=0/*.parquet"))
    shutil.copy(file, file.with_name("part-left-behind.parquet"))
    assert ids(bss.read(spark, out)) == ids(spark.read.parquet(str(out))) == list(range(10))
    # Nobody else may write there: Spark would not see it.
    before = sorted(tmp_path.rglob("*"))
    for mode in ("append", "overwrite"):
        with pytest.raises(bs.UnsupportedError, match="log names its files"):
            bss.write(rows(0, 1), out, mode=mode, partition_by=["k"])
    stream = spark.readStream.schema(rows(0, 1).schema).parquet(str(tmp_path / "in"))
    with pytest.raises(bs.UsageError, match="files already"):
        bss.write_stream(stream, tmp_path / "in")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sink_is_found_in_any_thread_and_session(
    spark: SparkSession, rows: Callable[[int, int], DataFrame], policy: Policy, tmp_path: Path
) -> None:
    """Spark looks for it in the thread's active session."""
    other = spark.newSession()
    bss.enable(other, policy=policy)
    bss.write(rows(0, 4), tmp_path / "in")

    def copy(session: SparkSession, name: str) -> list[int]:
        stream = session.readStream.schema(rows(0, 1).schema).parquet(str(tmp_path / "in"))
        run(bss.write_stream(stream, tmp_path / name), tmp_path / f"checkpoint-{name}")
        return ids(bss.read(session, tmp_path / name))

    assert copy(other, "of-another-session") == [0, 1, 2, 3]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(copy, spark, "in-another-thread").result() == [0, 1, 2, 3]
