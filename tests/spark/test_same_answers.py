"""Spark's answers over sealed tables are those over a plaintext copy: generated predicates over every type, through
both doors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import Policy

from .queries import Query, predicates, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
BATCH = 12
FILTERED = [
    "tiny", "small", "num", "big", "single", "real", "d9", "d18", "d38", "word", "code", "bytes", "day", "moment", "local",
    "list.list.element", "pairs.key_value.key", "place.zip", "place.town",
]  # fmt: skip


@dataclass(frozen=True)
class Copies:
    """The same rows three times.

    Attributes:
        plain: in plaintext, without filters.
        sealed: every column under a key of its own kind, sealed filters on all that can have one.
        partly: as `sealed`, but that nobody may use the key of column ``word``.
        int96: timestamps as INT96, sealed.
    """

    policy: Policy
    plain: str
    sealed: str
    partly: str
    int96: str


@pytest.fixture(scope="module")
def copies(spark: SparkSession, ring: bs.Keyring, work: Path) -> Copies:
    def described(key: str) -> dict[str, Any]:
        columns = {name: {"key": "health", "filter": {"fpp": 0.01}} for name in FILTERED}
        columns["word"]["key"] = key
        return {"footer_key": "footer", "complete": True, "columns": columns}

    tables = {"sealed": described("pii"), "partly": described("forbidden"), "int96": described("pii")}
    policy = Policy.from_dict({"version": 1, "kms": f"guarded:{ring.path}", "tables": tables})
    # Whoever seals reads back what the KMS wrapped.
    sealing = Policy.from_dict({"version": 1, "kms": f"keyring:{ring.path}", "tables": tables})
    base = work / "same answers"  # with a space
    frame = table(spark)

    def plain(name: str, kind: str) -> Path:
        with _conf(spark, "spark.sql.parquet.outputTimestampType", kind):
            # Many small row groups, so that there is something to prune.
            frame.write.option("parquet.block.size", 4096).option("parquet.page.size", 1024).parquet(str(base / name))
        return base / name

    def sealed(source: Path, name: str, key: str) -> Path:
        spec = sealing.for_table(name)
        (base / name).mkdir()
        for file in sorted(source.glob("*.parquet")):
            made = base / name / file.name
            bs.seal_file(file, made, encryption=spec)
            keys = bs.DecryptionSpec(bs.Keyring(ring.path))
            bs.attach_filters(made, spec.bloom_filters(), decryption=keys)
        return base / name

    micros = plain("plain", "TIMESTAMP_MICROS")
    old = plain("plain int96", "INT96")
    return Copies(
        policy,
        str(micros),
        str(sealed(micros, "sealed", "pii")),
        str(sealed(micros, "partly", "forbidden")),
        str(sealed(old, "int96", "pii")),
    )


@pytest.fixture(scope="module", autouse=True)
def compiled(spark: SparkSession) -> Iterator[None]:
    with (
        _conf(spark, "spark.sql.codegen.wholeStage", "true"),
        _conf(spark, "spark.sql.codegen.factoryMode", "FALLBACK"),
    ):
        yield


@pytest.fixture(scope="module", autouse=True)
def enabled(spark: SparkSession, copies: Copies) -> None:
    with pytest.warns(bs.BloomsealWarning) if bss.advice(spark) else contextlib.nullcontext():
        bss.enable(spark, policy=copies.policy)


@contextlib.contextmanager
def _conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _expected(plain: DataFrame, queries: Sequence[Query]) -> list[set[int]]:
    """Every predicate as a column of one scan over plaintext that prunes nothing."""
    from pyspark.sql import functions as f

    found: list[set[int]] = [set() for _ in queries]
    for start in range(0, len(queries), 50):
        some = queries[start : start + 50]
        frame = plain.select("id", *(f.expr(f"coalesce({q.sql}, false)").alias(f"q{i}") for i, q in enumerate(some)))
        for row in frame.collect():
            for i in range(len(some)):
                if row[i + 1]:
                    found[start + i].add(row[0])
    return found


def _compare(queries: Sequence[Query], expected: Sequence[set[int]], read: Callable[[Query], DataFrame]) -> int:
    """Run each predicate with pushdown; how many of the answers have rows."""
    from pyspark.sql import functions as f

    differ = []
    for start in range(0, len(queries), BATCH):
        some = queries[start : start + BATCH]
        frames = [read(query).select(f.lit(i).alias("q"), "id") for i, query in enumerate(some)]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        got: list[list[int]] = [[] for _ in some]
        for row in whole.collect():
            got[row.q].append(row.id)
        for i, query in enumerate(some):
            if sorted(got[i]) != sorted(expected[start + i]):
                differ.append(f"{query.sql}: {len(got[i])} rows, not {len(expected[start + i])}")
    assert not differ, "\n".join(differ)
    return sum(bool(answer) for answer in expected)


def _queries(count: int, seed: int) -> list[Query]:
    found = predicates(count, seed)
    assert len({query.sql for query in found}) > 0.9 * count
    return found


@pytest.mark.parametrize(
    ("count", "seed"), [(64, 11), pytest.param(600, 12, marks=pytest.mark.torture)], ids=["some", "hundreds"]
)
def test_through_the_bridge(spark: SparkSession, copies: Copies, count: int, seed: int) -> None:
    # parquet-java asks a filter for one of the two zeros.
    queries = [query for query in _queries(count, seed) if not query.zeros]
    plain = spark.read.parquet(copies.plain)
    hits = _compare(
        queries, _expected(plain, queries), lambda query: spark.read.parquet(copies.sealed).where(query.sql)
    )
    assert count / 4 < hits


def test_there_is_something_to_prune(copies: Copies) -> None:
    keys = bs.DecryptionSpec(copies.policy.for_table("sealed").keys)
    for path in Path(copies.sealed).glob("*.parquet"):
        with bs.open_file(path, decryption=keys) as file:
            assert file.num_row_groups >= 3
            assert all(file.filter(group, column) for group in range(file.num_row_groups) for column in FILTERED)


def test_whole_rows_through_the_bridge(spark: SparkSession, copies: Copies) -> None:
    plain, sealed = spark.read.parquet(copies.plain), spark.read.parquet(copies.sealed)
    assert plain.schema == sealed.schema
    assert _rows(plain) == _rows(sealed)


def _rows(frame: DataFrame) -> list[str]:
    # As text, so that NaN equals itself and the zeros' signs count.
    return [repr(row) for row in frame.orderBy("id").collect()]


def _source(spark: SparkSession, path: str, table: str, where: str | None = None, **options: str) -> DataFrame:
    return bss.read(spark, path, where=where, table=table, options=options)


@pytest.mark.parametrize(
    ("count", "seed"), [(64, 21), pytest.param(600, 22, marks=pytest.mark.torture)], ids=["some", "hundreds"]
)
def test_through_the_data_source(spark: SparkSession, copies: Copies, count: int, seed: int) -> None:
    queries = _queries(count, seed)
    plain = spark.read.parquet(copies.plain)
    hits = _compare(
        queries, _expected(plain, queries), lambda query: _source(spark, copies.sealed, "sealed", query.sql)
    )
    assert count / 4 < hits


def test_whole_rows_through_the_data_source(spark: SparkSession, copies: Copies) -> None:
    plain = spark.read.parquet(copies.plain)
    for name in ("sealed", "int96"):
        read = _source(spark, getattr(copies, name), name)
        assert plain.schema == read.schema
        assert _rows(plain) == _rows(read)


@pytest.mark.parametrize(("count", "seed"), [(16, 31), pytest.param(200, 32, marks=pytest.mark.torture)])
def test_int96_through_the_data_source(spark: SparkSession, copies: Copies, count: int, seed: int) -> None:
    queries = [query for query in _queries(8 * count, seed) if "moment" in query.columns][:count]
    expected = _expected(spark.read.parquet(copies.plain), queries)
    _compare(queries, expected, lambda query: _source(spark, copies.int96, "int96", query.sql))


@pytest.mark.parametrize(("count", "seed"), [(16, 41), pytest.param(200, 42, marks=pytest.mark.torture)])
def test_with_some_of_the_keys(spark: SparkSession, copies: Copies, count: int, seed: int) -> None:
    """Queries that leave the forbidden column alone, through both doors; and with it as nulls, on request."""
    queries = [query for query in _queries(2 * count, seed) if "word" not in query.columns][:count]
    plain = spark.read.parquet(copies.plain)
    expected = _expected(plain, queries)
    bridge = [query for query in queries if not query.zeros]
    _compare(bridge, _expected(plain, bridge), lambda query: spark.read.parquet(copies.partly).where(query.sql))
    _compare(
        queries, expected, lambda query: bss.read(spark, copies.partly, columns=["id"], where=query.sql, table="partly")
    )
    _compare(
        queries, expected, lambda query: _source(spark, copies.partly, "partly", query.sql, columns_without_key="null")
    )
    masked = _source(spark, copies.partly, "partly", columns_without_key="null")
    assert masked.where("word is not null").count() == 0
    assert _rows(masked.drop("word")) == _rows(plain.drop("word"))


def test_the_forbidden_column_is_refused_when_touched(spark: SparkSession, copies: Copies) -> None:
    for read in (
        lambda: spark.read.parquet(copies.partly).where("word = 'word-1'").collect(),
        lambda: _source(spark, copies.partly, "partly").where("word = 'word-1'").collect(),
        lambda: _source(spark, copies.partly, "partly").select("word").collect(),
    ):
        with pytest.raises(Exception, match=r"forbidden|word"):
            read()
