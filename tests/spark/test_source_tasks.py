"""The data source's tasks in this process, without a JVM."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs

st = pytest.importorskip("pyspark.sql.types")


def test_schemas_merge_to_the_wider_type() -> None:
    from bloomseal.spark.source.merging import merged

    def schema(**kinds: st.DataType) -> st.StructType:
        return st.StructType([st.StructField(name, kind) for name, kind in kinds.items()])

    whole, long = st.IntegerType(), st.LongType()
    for one, other, want in [
        (whole, long, long),
        (st.FloatType(), st.DoubleType(), st.DoubleType()),
        (st.ByteType(), st.DoubleType(), st.DoubleType()),
        (st.DecimalType(5, 2), st.DecimalType(9, 4), st.DecimalType(9, 4)),
        (st.DecimalType(5, 2), whole, st.DecimalType(12, 2)),
        (st.ArrayType(whole), st.ArrayType(long), st.ArrayType(long)),
        (st.MapType(whole, whole), st.MapType(whole, long), st.MapType(whole, long)),
        (schema(a=whole), schema(a=long, b=long), schema(a=long, b=long)),
        (st.DateType(), st.TimestampNTZType(), st.TimestampNTZType()),
    ]:
        assert merged([schema(x=one), schema(X=other)]) == schema(x=want)
        assert merged([schema(x=other), schema(late=whole, x=one)]) == schema(x=want, late=whole)
    for one, other in [
        (whole, st.StringType()),
        (long, st.DoubleType()),
        (st.DecimalType(38, 0), st.DecimalType(38, 9)),
    ]:
        with pytest.raises(bs.UnsupportedError, match="no common type"):
            merged([schema(x=one), schema(x=other)])


def test_a_folder_with_a_log_is_not_written_to(tmp_path: Path) -> None:
    from bloomseal.spark.listing import files_at
    from bloomseal.spark.source.files.logs import need_no_stream, sink_files

    files_at(str(tmp_path / "not there"), to_write=True).need_no_log()
    (tmp_path / "metadata").mkdir()
    files_at(str(tmp_path)).need_no_log()
    need_no_stream(str(tmp_path))
    assert sink_files(None, str(tmp_path)) is None
    (tmp_path / "metadata" / "v1.metadata.json").touch()
    with pytest.raises(bs.UnsupportedError, match="Iceberg"):
        files_at(str(tmp_path)).need_no_log()
    log = tmp_path / "t" / "_spark_metadata"
    log.mkdir(parents=True)
    line = '{{"path":"file://{root}/{name}","size":1,"action":"{action}"}}'
    said = [line.format(root=tmp_path / "t", name=name, action="add") for name in ("a%20b.parquet", "c.parquet")]
    (log / "0").write_text("v1\n{not read: the compacted note has it}")
    (log / "1.compact").write_text("\n".join(["v1", *said]))
    (log / "2").write_text("v1\n" + line.format(root=tmp_path / "t", name="c.parquet", action="delete"))
    assert sink_files(None, str(tmp_path / "t")) == {str(tmp_path / "t" / "a b.parquet")}
    with pytest.raises(bs.UnsupportedError, match="file sink"):
        need_no_stream(str(tmp_path / "t"))
    (log / "3").write_text("v2\n")
    with pytest.raises(bs.FormatError):
        sink_files(None, str(tmp_path / "t"))


def test_counts_in_prometheus_format() -> None:
    from bloomseal.spark.source.stats import SourceStats

    said = SourceStats(files=3, kms_calls=2).to_prometheus(table='a "b"').splitlines()
    assert "# TYPE bloomseal_read_files_total counter" in said
    assert r'bloomseal_read_files_total{table="a \"b\""} 3' in said
    assert "bloomseal_read_kms_calls_total 2" in SourceStats(kms_calls=2).to_prometheus()


def test_partition_values_of_a_log_have_its_types(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    from bloomseal.spark.source.options import Defaults, SourceOptions
    from bloomseal.spark.source.reader import TableReader, infer_schema

    def read(name: str, values: pa.Array) -> list[Any]:
        folder = str(tmp_path / name)
        deltalake.write_deltalake(folder, pa.table({"n": [1, 2], "p": values}), partition_by=["p"])
        settings = SourceOptions.parse({"path": folder})
        reader = TableReader(settings, infer_schema(settings), Defaults(zone="Asia/Tokyo"))
        rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
        return [row["p"] for row in sorted(rows, key=lambda row: row["n"])]

    moment = dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    for name, kind, value in [
        ("instant", pa.timestamp("us", "UTC"), moment),
        ("wall clock", pa.timestamp("us"), moment.replace(tzinfo=None)),
        ("flag", pa.bool_(), True),
        ("number", pa.float64(), 1.5),
    ]:
        assert read(name, pa.array([value, None], kind)) == [value, None]
    with pytest.raises(bs.UnsupportedError, match="of bytes"):
        read("bytes", pa.array([b"q", None]))
