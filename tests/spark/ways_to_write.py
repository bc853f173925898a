"""Every way in which a Spark session writes files, below a place that is to hold sealed ones only: what comes of each.
Run by `smoke.py` under each version, and by `test_ways_to_write.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bloomseal as bs
import bloomseal.spark as bss
from bloomseal.policy import TablePolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

V1 = "spark.sql.sources.useV1SourceList"
SEALED = "sealed"
REFUSED = "refused"
SCHEMA = "id BIGINT, ssn STRING, k BIGINT"


def batch_ways(
    spark: SparkSession, rows: DataFrame, sealing: dict[str, str]
) -> dict[str, tuple[str, Callable[[Path], Any]]]:
    """Name → what is to come of it, and what does it."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in sealing.items())
    select = "SELECT 1L AS id, 'x' AS ssn, 1L AS k"

    def create(path: Path, more: str = "") -> str:
        spark.sql(f"CREATE TABLE w_{path.name} ({SCHEMA}) USING parquet {more} LOCATION '{path}'")
        return f"w_{path.name}"

    def write_to(path: Path) -> Any:
        writer = rows.writeTo(f"w_{path.name}").using("parquet").option("path", str(path))
        for name, value in sealing.items():
            writer = writer.option(name, value)
        writer.create()

    def without_v1(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def by_v2(path: Path) -> None:
            before = spark.conf.get(V1)
            spark.conf.set(V1, "")
            try:
                write(path)
            finally:
                spark.conf.set(V1, before)

        return by_v2

    def saved(kind: str, **options: str) -> Callable[[Path], Any]:
        return lambda path: rows.write.format(kind).mode("append").options(**options).save(str(path))

    def as_table(path: Path) -> Any:
        return rows.write.options(**sealing).option("path", str(path))

    return {
        "save": (SEALED, saved("parquet", **sealing)),
        "save without options": (REFUSED, saved("parquet")),
        "save, misspelt": (REFUSED, saved("parquet", **{"parquet.encryption.footer.keys": "footer"})),
        "by DSv2": (SEALED, without_v1(saved("parquet", **sealing))),
        "by DSv2 without options": (REFUSED, without_v1(saved("parquet"))),
        **{f"{kind}": (REFUSED, saved(kind)) for kind in ("orc", "json", "csv")},
        **{f"{kind} with options": (REFUSED, saved(kind, **sealing)) for kind in ("orc", "json", "csv")},
        "json by DSv2": (REFUSED, without_v1(saved("json"))),
        "text": (REFUSED, lambda path: rows.select("ssn").write.text(str(path))),
        "partitionBy": (SEALED, lambda path: rows.write.options(**sealing).partitionBy("k").parquet(str(path))),
        "saveAsTable": (SEALED, lambda path: as_table(path).saveAsTable(f"w_{path.name}")),
        "bucketBy": (SEALED, lambda path: as_table(path).bucketBy(2, "id").saveAsTable(f"w_{path.name}")),
        # Spark takes no options of a writer that inserts, only the table's.
        "insertInto with options": (REFUSED, lambda path: rows.write.options(**sealing).insertInto(create(path))),
        "insertInto a protected table": (
            SEALED,
            lambda path: [bss.protect_table(spark, create(path)), rows.write.insertInto(f"w_{path.name}")],
        ),
        "INSERT": (REFUSED, lambda path: spark.sql(f"INSERT INTO {create(path)} {select}")),
        "INSERT with options": (
            SEALED,
            lambda path: spark.sql(f"INSERT INTO {create(path, f'OPTIONS ({listed})')} {select}"),
        ),
        "CTAS": (
            SEALED,
            lambda path: spark.sql(
                f"CREATE TABLE w_{path.name} USING parquet OPTIONS ({listed}) LOCATION '{path}' AS {select}"
            ),
        ),
        "CTAS with properties": (
            REFUSED,
            lambda path: spark.sql(
                f"CREATE TABLE w_{path.name} USING parquet LOCATION '{path}' TBLPROPERTIES ({listed}) AS {select}"
            ),
        ),
        "INSERT OVERWRITE DIRECTORY": (
            SEALED,
            lambda path: spark.sql(f"INSERT OVERWRITE DIRECTORY '{path}' USING parquet OPTIONS ({listed}) {select}"),
        ),
        "writeTo": (SEALED, write_to),
        "bss.write": (SEALED, lambda path: bss.write(rows, path)),
    }  # fmt: skip


def stream_ways(
    spark: SparkSession, sealing: dict[str, str], *, keeps_options: bool
) -> dict[str, tuple[str, Callable[[Any, Path], Any]]]:
    """As `batch_ways`, given a streaming frame. From Spark 4.2 on its file sink gets options."""
    by_sink = SEALED if keeps_options else REFUSED

    def to_table(stream: Any, path: Path, **options: str) -> Any:
        spark.sql(f"CREATE TABLE w_{path.name} ({SCHEMA}) USING parquet LOCATION '{path}'")
        bss.protect_table(spark, f"w_{path.name}")
        place = str(path.with_name(f"c {path.name}"))
        writer = stream.writeStream.options(checkpointLocation=place, **options).trigger(availableNow=True)
        writer.toTable(f"w_{path.name}").awaitTermination()

    def sink(stream: Any, path: Path, kind: str = "parquet", **options: str) -> Any:
        return stream.writeStream.format(kind).options(path=str(path), **options)

    def each(write: Callable[[DataFrame, Path], Any]) -> Callable[[Any, Path], Any]:
        return lambda stream, path: stream.writeStream.foreachBatch(lambda batch, _: write(batch, path) and None)

    return {
        "a stream": (by_sink, lambda stream, path: sink(stream, path, **sealing)),
        "a stream without options": (REFUSED, sink),
        "a stream, partitionBy": (by_sink, lambda stream, path: sink(stream, path, **sealing).partitionBy("k")),
        "a stream of JSON": (REFUSED, lambda stream, path: sink(stream, path, "json")),
        "a stream of ORC with options": (REFUSED, lambda stream, path: sink(stream, path, "orc", **sealing)),
        # Of the table's options the sink gets none, in any version.
        "toTable": (REFUSED, to_table),
        "toTable with options": (by_sink, lambda stream, path: to_table(stream, path, **sealing)),
        "foreachBatch": (
            SEALED,
            each(lambda batch, path: batch.write.mode("append").options(**sealing).parquet(str(path))),
        ),
        "foreachBatch without options": (REFUSED, each(lambda batch, path: batch.write.parquet(str(path)))),
        "foreachBatch, bss.write": (SEALED, each(lambda batch, path: bss.write(batch, path, mode="append"))),
        "write_stream": (by_sink, lambda stream, path: bss.write_stream(stream, path)),
    }


def found(path: Path) -> str:
    """What lies there: opened without keys, whatever it is called; `_spark_metadata` and signatures have no rows."""
    files = [
        one
        for one in path.rglob("*")
        if one.is_file()
        and one.suffix != ".crc"
        and one.name != "_SUCCESS"
        and one.parent.name != "_spark_metadata"
        and not one.name.startswith("_SIGNATURE_")
    ]
    if not any(one.stat().st_size for one in files):
        return REFUSED
    clear = [one.name for one in files if one.read_bytes()[-4:] != b"PARE"]
    return f"in clear: {clear}" if clear else SEALED


def opened(spark: SparkSession, path: Path, policy: TablePolicy) -> str:
    """SEALED where both readers find the same rows under the policy, which binds each file to its place."""
    files = [one for one in path.rglob("*.parquet") if not one.name.startswith("_")]
    ours = []
    for one in files:
        with bs.open_file(one, decryption=policy.at(path)) as file:
            ours += file.read(["id"])["id"].to_pylist()
    sparks = [row.id for row in spark.read.parquet(str(path)).select("id").collect()]
    return SEALED if sorted(ours) == sorted(sparks) and ours else f"{sorted(ours)} and {sorted(sparks)}"


def try_all(
    spark: SparkSession,
    rows: DataFrame,
    sealing: dict[str, str],
    folder: Path,
    policy: TablePolicy,
    *,
    keeps_options: bool,
) -> tuple[dict[str, str], list[str]]:
    """Try every way: what came of each, and the ones that came out otherwise than they should.

    Args:
        folder: a place that is to hold sealed files only, empty.
    """
    came_out: dict[str, str] = {}
    wrong, source = [], folder.parent / f"in {folder.name}"
    spark.newSession().sql("SELECT 1L AS id, 'x' AS ssn, 1L AS k").write.json(str(source))
    stream = spark.readStream.schema(rows.schema).json(str(source))

    def judge(name: str, path: Path, wanted: str, write: Callable[[], Any]) -> None:
        told = ""
        try:
            write()
        except Exception as error:
            told = str(error)
        finally:
            spark.sql(f"DROP TABLE IF EXISTS w_{path.name}")
        came = found(path) if found(path) != SEALED else opened(spark, path, policy)
        came_out[name] = came
        if came != wanted or bool(told) != (wanted == REFUSED):
            wrong.append(f"{name}: {came}, wanted {wanted}; {told[:1000]}")

    for number, (name, (wanted, write)) in enumerate(batch_ways(spark, rows, sealing).items()):
        path = folder / f"b{number}"
        judge(name, path, wanted, lambda write=write, path=path: write(path))
    for number, (name, (wanted, make)) in enumerate(stream_ways(spark, sealing, keeps_options=keeps_options).items()):
        path = folder / f"s{number}"

        def run(make: Any = make, path: Path = path) -> None:
            if (writer := make(stream, path)) is not None:
                writer = writer.option("checkpointLocation", str(path.with_name(f"c {path.name}")))
                writer.trigger(availableNow=True).start().awaitTermination()

        judge(name, path, wanted, run)
    return came_out, wrong
