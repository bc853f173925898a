"""A session that leaves out what it can't read gets no answer with fewer rows from a sealed table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
SKIP = "spark.sql.files.ignoreCorruptFiles"
SCHEMA = "id BIGINT, ssn STRING"


@pytest.fixture(scope="module")
def keys(spark: SparkSession, work: Path) -> bs.Keyring:
    ring = bs.Keyring(work / "left out.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return ring


@pytest.fixture(scope="module")
def policy(keys: bs.Keyring) -> Policy:
    tables = {"t": {"footer_key": "footer", "columns": {"ssn": {"key": "pii", "filter": {"ndv": 100}}}}}
    return Policy.from_dict({"version": 1, "kms": f"keyring://{keys.path}", "tables": tables})


@pytest.fixture
def table(spark: SparkSession, policy: Policy, tmp_path: Path) -> Iterator[Path]:
    bss.enable(spark, policy=policy, cache_lifetime=0)
    bss.write(spark.range(0, 10, 1, 2).selectExpr("id", "concat('ssn-', id) AS ssn"), tmp_path / "t")
    spark.conf.set(SKIP, "true")
    yield tmp_path / "t"
    spark.conf.unset(SKIP)
    bss.enable(spark, policy=policy)


def reads(spark: SparkSession, table: Path) -> dict[str, Callable[[], Any]]:
    """Each way to Spark's own reader, schema inferred or given."""
    given: Callable[..., DataFrame] = lambda **options: spark.read.options(**options).schema(SCHEMA).parquet(str(table))  # noqa: E731

    def stream() -> None:
        rows = spark.readStream.schema(SCHEMA).parquet(str(table)).writeStream.format("noop")
        place = str(table.with_name("checkpoint"))
        rows.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()

    def by_option() -> int:
        spark.conf.set(SKIP, "false")
        try:
            return given(IGNOREcorruptFiles="true").count()
        finally:
            spark.conf.set(SKIP, "true")

    return {
        "count": lambda: spark.read.parquet(str(table)).count(),
        "look-up": lambda: given().where("ssn = 'ssn-7'").collect(),
        "by an option": by_option,
        "stream": stream,
        "explain": lambda: bss.explain(given()),
    }


@pytest.mark.parametrize("harm", ["none", "a disabled key", "altered", "cut short"])
def test_what_skips_corrupt_files_reads_no_sealed_ones(
    spark: SparkSession, keys: bs.Keyring, policy: Policy, table: Path, harm: str
) -> None:
    """Spark skips a file whatever exception it meets there: where a key is refused, or nothing authenticates."""
    if harm == "a disabled key":
        keys.disable("pii")
        keys.disable("footer")
    if harm == "altered":  # which Hadoop's own checksums see before a key is asked for
        for file in table.glob("*.parquet"):
            text = bytearray(file.read_bytes())
            text[-40] ^= 1
            file.write_bytes(text)
    if harm == "cut short":
        for file in [*table.glob("*.parquet")][:1]:
            file.write_bytes(b"\0" * 300)
    try:
        for name, read in reads(spark, table).items():
            with pytest.raises(
                Exception,
                match="STREAM_FAILED"
                if name == "stream"
                else "would leave out, without a word|CANNOT_READ_FILE_FOOTER",
            ):
                print(name, read())
        if harm == "none":
            assert bss.read(spark, table).count() == 10
            assert bss.semi_join(spark, table, "ssn", ["ssn-7"]).count() == 1
            assert spark.read.option("ignoreCorruptFiles", "false").parquet(str(table)).count() == 10
        else:
            for find in (
                lambda: bss.read(spark, table).count(),
                lambda: bss.semi_join(spark, table, "id", [7]).count(),
            ):
                with pytest.raises(bs.BloomsealError if harm == "a disabled key" else Exception):
                    find()
    finally:
        keys.enable("pii")
        keys.enable("footer")


def test_a_known_place_is_read_whole_or_not_at_all(spark: SparkSession, policy: Policy, table: Path) -> None:
    """A file cut short asks for no key."""
    for file in table.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:300])
    bss.enable(spark, policy=policy, refuse_plaintext=[table])
    with pytest.raises(Exception, match="would leave out, without a word"):
        spark.read.schema(SCHEMA).parquet(str(table)).count()


def test_other_files_are_skipped_as_before(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    spark.range(4).coalesce(1).write.parquet(str(tmp_path / "plain"))
    (tmp_path / "plain" / "broken.parquet").write_bytes(b"no Parquet file")
    assert spark.read.schema("id BIGINT").parquet(str(tmp_path / "plain")).count() == 4


def test_enable_says_what_leaves_rows_out(spark: SparkSession, policy: Policy, table: Path) -> None:
    missing = "spark.sql.files.ignoreMissingFiles"
    spark.conf.set(missing, "true")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            bss.enable(spark, policy=policy)
        assert {name for name in (SKIP, missing) for one in told if name in str(one.message)} == {SKIP, missing}
        spark.conf.set(SKIP, "false")
        assert missing in bss.explain(spark.read.parquet(str(table)))
    finally:
        spark.conf.unset(missing)
    assert missing not in bss.explain(spark.read.parquet(str(table)))
