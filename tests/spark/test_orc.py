"""ORC files by the Java writer inside Spark: what it hashes, and what of it nobody may believe."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pytest

import bloomseal as bs
from bloomseal import KeyAccessError, Verdict

from ..orc.generated import columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

_ZONE = "America/New_York"


@contextmanager
def _jvm_in(zone: str, spark: SparkSession) -> Iterator[None]:
    zones = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)


def _written(spark: SparkSession, table: pa.Table, folder: Path, **options: str) -> Path:
    names = ",".join(["group.inner" if name == "group" else name for name in table.column_names])
    given = {"orc.bloom.filter.columns": names, "orc.bloom.filter.fpp": "0.01", "orc.row.index.stride": "1000"}
    with _jvm_in(_ZONE, spark):
        rows = spark.createDataFrame(table)
        if "wall" in rows.columns:
            rows = rows.withColumn("wall", rows["wall"].cast("timestamp_ntz"))
        rows.coalesce(1).write.options(**given | {name.replace("_", "."): text for name, text in options.items()}).orc(
            str(folder)
        )
    (path,) = folder.glob("*.orc")
    assert pyarrow.orc.read_table(path)["i64"].to_pylist() == table["i64"].to_pylist()
    return path


def _asked(path: Path, column: str) -> list[tuple[int, Any]]:
    """The values as the C++ reader sees them: rows and values without nulls."""
    values = pyarrow.orc.read_table(path)[column].to_pylist()
    if column == "group":
        values = [row and row["inner"] for row in values]
    return [(row, value) for row, value in enumerate(values) if value is not None]


@pytest.mark.parametrize("compression", ["zlib", "snappy", "lz4", "zstd", "none"])
def test_no_value_of_the_java_writer_is_absent(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    table = columns(2_500, seed=3).drop_columns(["list", "nulls"])
    path = _written(spark, table, tmp_path / "t", compression=compression)
    with bs.open_file(path) as file:
        assert file.compression == compression
        assert file.schema.leaf("wall").type_name == "long"  # microseconds
        for column in table.column_names:
            rows = _asked(path, column)
            answers = file.verdicts("group.inner" if column == "group" else column, [value for _, value in rows])
            assert len(answers) == 3
            for place, (row, _) in enumerate(rows):
                assert answers[row // 1_000].verdicts[place] != Verdict.ABSENT, column
            told = sum(answer.verdicts.count(Verdict.ABSENT) for answer in answers)
            if column == "bool":
                assert told == 0
                assert all(answer.untrusted for answer in answers)
            elif column in ("wall", "i32", "i64", "text", "dec15", "dec38", "group"):
                assert 5 * told > len(rows)  # the edges are in every row group


def test_the_old_kind_is_not_believed_for_texts(spark: SparkSession, tmp_path: Path) -> None:
    table = columns(500).select(["i64", "text", "dec15", "moment"])
    path = _written(spark, table, tmp_path / "t", compression="none", orc_bloom_filter_write_version="original")
    # Both kinds are there; stripe footers then say that the younger one is a stream of a kind that nobody asks for.
    path.write_bytes(path.read_bytes().replace(b"\x08\x08\x10", b"\x08\x0f\x10"))
    with bs.open_file(path) as file:
        told = {info.column: info for info in file.filters}
        assert {info.kind for info in told.values()} == {"BLOOM_FILTER"}
        assert {name for name, info in told.items() if info.untrusted} == {"text", "dec15", "moment"}
        numbers = _asked(path, "i64")
        verdicts = file.verdicts("i64", [value for _, value in numbers])[0].verdicts
        assert set(verdicts) == {Verdict.MAYBE_PRESENT}
        assert file.verdicts("i64", [123_456_789])[0].verdicts == [Verdict.ABSENT]


def test_the_java_writer_leaves_filters_of_encrypted_columns_in_clear(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    settings = jvm.org.apache.hadoop.conf.Configuration()
    settings.set("orc.key.provider", "memory")
    # One per JVM: the writer gets the same.
    keys = jvm.org.apache.orc.impl.CryptoUtils.getKeyProvider(settings, jvm.java.security.SecureRandom())
    keys.addKey("pii", jvm.org.apache.orc.EncryptionAlgorithm.AES_CTR_128, bytes(range(16)))
    folder = tmp_path / "t"
    options = {
        "orc.key.provider": "memory",
        "orc.encrypt": "pii:text",
        "orc.mask": "nullify:text",
        "orc.bloom.filter.columns": "i64,text",
    }
    spark.createDataFrame(columns(500).select(["i64", "text"])).coalesce(1).write.options(**options).orc(str(folder))
    (path,) = folder.glob("*.orc")
    with bs.open_file(path) as file:
        assert file.encrypted_columns == ["text"]
        told = {info.column: info.untrusted for info in file.filters}
        assert told == {"i64": None, "text": "untrusted: in clear, on an encrypted column"}
        with pytest.raises(KeyAccessError, match="no keys were given"):
            file.probe("text", ["a"])


def test_types_that_spark_does_not_write(spark: SparkSession, tmp_path: Path) -> None:
    """Straight from the Java writer: CHAR, VARCHAR, and both kinds of timestamps around 1970."""
    from py4j.java_gateway import get_field, set_field

    jvm: Any = spark._jvm
    texts = ["a", "", "é", "ééééé", "a b", "12345678", "😀"]
    millis = [0, 1, 999, 86_400_000, -1, -500, -999, -1_000, -1_500, -86_400_001, -1_000_000_000_500, 1_720_000_000_123]
    schema = jvm.org.apache.orc.TypeDescription.fromString(
        "struct<c:char(8),v:varchar(8),w:timestamp,i:timestamp with local time zone>"
    )
    path = tmp_path / "java.orc"
    with _jvm_in(_ZONE, spark):
        options = jvm.org.apache.orc.OrcFile.writerOptions(jvm.org.apache.hadoop.conf.Configuration())
        options = options.setSchema(schema).bloomFilterColumns("c,v,w,i").bloomFilterFpp(1e-6)
        writer = jvm.org.apache.orc.OrcFile.createWriter(jvm.org.apache.hadoop.fs.Path(str(path)), options)
        batch = schema.createRowBatch()
        vectors = get_field(batch, "cols")
        for row, milli in enumerate(millis):
            for column in (0, 1):
                vectors[column].setVal(row, texts[row % len(texts)].encode())
            moment = jvm.java.sql.Timestamp(milli)
            moment.setNanos(milli % 1_000 * 1_000_000 + 400)
            for column in (2, 3):
                vectors[column].set(row, moment)
        set_field(batch, "size", len(millis))
        writer.addRowBatch(batch)
        writer.close()
    read = pyarrow.orc.read_table(path)
    with bs.open_file(path) as file:
        assert [column.type_name for column in file.schema.leaves] == [
            "char(8)",
            "varchar(8)",
            "timestamp",
            "timestamp_instant",
        ]
        for name in read.column_names:
            (answer,) = file.verdicts(name, read[name])
            assert answer.untrusted is None
            assert set(answer.verdicts) == {Verdict.MAYBE_PRESENT}, name
        assert set(file.verdicts("c", texts)[0].verdicts) == {Verdict.MAYBE_PRESENT}
        assert file.verdicts("c", ["b"])[0].verdicts == [Verdict.ABSENT]
        instants = [dt.datetime.fromtimestamp(milli / 1_000, dt.UTC) for milli in millis]
        assert set(file.verdicts("i", instants)[0].verdicts) == {Verdict.MAYBE_PRESENT}
        assert file.verdicts("i", [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)])[0].verdicts == [Verdict.ABSENT]
        assert file.verdicts("w", [dt.datetime(2024, 1, 1)])[0].verdicts == [Verdict.ABSENT]
        # Rules of zones differ from one machine to the next: only the wall-clock time is decided.
        assert file.verdicts("w", [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)])[0].verdicts == [Verdict.MAYBE_PRESENT]


def test_orc_tables_are_audited(spark: SparkSession, tmp_path: Path) -> None:
    import bloomseal.spark as bss
    from bloomseal import audit
    from bloomseal.policy import Policy

    folder = tmp_path / "t"
    spark.range(3_000).selectExpr("id", "cast(id as string) as ssn").repartition(2).write.options(
        **{"orc.bloom.filter.columns": "ssn"}
    ).orc(str(folder))
    columns_of = {"ssn": {"key": "pii", "sensitivity": "restricted"}}
    tables = {"people": {"footer_key": "footer", "columns": columns_of}}
    policy = Policy.from_dict({"version": 1, "kms": f"keyring://{tmp_path}/keys.json", "tables": tables})
    here = audit.audit(folder, policy=policy.for_table("people"))
    there = bss.audit(spark, folder, policy=policy.for_table("people"), with_keys=False)
    assert there.report.findings == here.findings
    assert {"BS101", "BS103", "BS111"} <= {one.rule.id for one in here.findings}
    assert here.inventory.num_rows == 2 * 2


def test_conditions_over_files_of_the_java_writer(spark: SparkSession, tmp_path: Path) -> None:
    import random

    import bloomseal as bs

    from ..orc.test_tables import condition

    table = columns(3_000, seed=8).drop_columns(["list", "nulls"]).sort_by("wall")
    path = _written(spark, table, tmp_path / "t", compression="zstd")
    whole, rng = pyarrow.orc.read_table(path), random.Random(6)
    values = {name: whole[name].drop_null().to_pylist() for name in whole.column_names if name != "group"}
    pruned = 0
    with bs.open_file(path) as file:
        assert file.read().equals(whole)
        assert file.verify(filters=True).failures == []
        for _ in range(60):
            asked = condition(rng, values, whole.schema)
            found = file.read(["i64"], asked)
            assert found.equals(whole.filter(asked).select(["i64"])), asked
            pruned += file.stats.row_groups - file.stats.decoded
    assert pruned > 8
