"""The data source's tasks in this process, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

st = pytest.importorskip("pyspark.sql.types")


def test_a_filter_for_a_group_is_one_for_each_column_below_it(tmp_path: Path) -> None:
    from bloomseal.spark.source.options import Defaults, SourceOptions
    from bloomseal.spark.source.writer import TableWriter

    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    columns = {"home": {"key": "footer", "filter": True}, "home.zip": {"filter": {"fpp": 0.001}}}
    tables = {"t": {"footer_key": "footer", "complete": True, "columns": columns}}
    policy = bs.Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    settings = SourceOptions.parse({"path": str(tmp_path / "t")}, Defaults(policy=policy))
    inner = st.StructType().add("street", "string").add("zip", "string")
    schema = st.StructType().add("id", "long").add("home", inner)
    writer = TableWriter(settings, schema, overwrite=False)
    home = [{"street": "Elm", "zip": "10115"}]
    written = writer.write(iter([pa.record_batch({"id": pa.array([1]), "home": pa.array(home)})]))
    writer.commit([written])
    (file,) = (tmp_path / "t").glob("*.parquet")
    with bs.open_file(file, decryption=policy.for_table("t")) as opened:
        assert opened.probe("home.street", ["Elm", "Oak"]) == [[bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]]
        assert opened.probe("home.zip", ["10115", "no"]) == [[bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]]


def test_an_overwrite_loses_no_table_by_wrong_wrappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks have the KMS open what it has wrapped, before their files wait; an append asks nothing."""
    from bloomseal.spark.source.options import Defaults, SourceOptions
    from bloomseal.spark.source.writer import TableWriter

    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    tables = {"t": {"footer_key": "footer", "double_wrapping": False}}
    policy = bs.Policy.from_dict({"version": 1, "kms": f"keyring://{ring.path}", "tables": tables})
    settings = SourceOptions.parse({"path": str(tmp_path / "t")}, Defaults(policy=policy))

    def write(overwrite: bool, value: int) -> None:
        writer = TableWriter(settings, st.StructType().add("id", "long"), overwrite)
        writer.commit([writer.write(iter([pa.record_batch({"id": pa.array([value])})]))])

    def read() -> list[int]:
        found = bs.read_table(tmp_path / "t", decryption=policy.for_table("t"))
        return sorted(found["id"].to_pylist())

    write(False, 1)
    wrap, unwrap, asked = bs.Keyring.wrap_key, bs.Keyring.unwrap_key, list[str]()

    def noted(self: bs.Keyring, wrapped: str, name: str) -> bytes:
        asked.append(name)
        return unwrap(self, wrapped, name)

    monkeypatch.setattr(bs.Keyring, "unwrap_key", noted)
    monkeypatch.setattr(bs.Keyring, "wrap_key", lambda self, key, name: wrap(self, bytes(len(key)), name))
    with pytest.raises(bs.KeyAccessError, match="it wrapped another key"):
        write(True, 2)
    assert read() == [1]
    monkeypatch.setattr(bs.Keyring, "wrap_key", wrap)
    asked.clear()
    write(False, 3)
    assert not asked
    write(True, 4)
    assert len(asked) == 2  # the task's key, and the plan's
    assert read() == [4]


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
    from bloomseal.spark.source.files.logs import refuse_logs, sink_files

    refuse_logs(str(tmp_path / "not there"))
    (tmp_path / "metadata").mkdir()
    refuse_logs(str(tmp_path))
    assert sink_files(None, str(tmp_path)) is None
    (tmp_path / "metadata" / "v1.metadata.json").touch()
    with pytest.raises(bs.UnsupportedError, match="Iceberg"):
        refuse_logs(str(tmp_path))
    log = tmp_path / "t" / "_spark_metadata"
    log.mkdir(parents=True)
    line = '{{"path":"file://{root}/{name}","size":1,"action":"{action}"}}'
    said = [line.format(root=tmp_path / "t", name=name, action="add") for name in ("a%20b.parquet", "c.parquet")]
    (log / "0").write_text("v1\n{not read: the compacted note has it}")
    (log / "1.compact").write_text("\n".join(["v1", *said]))
    (log / "2").write_text("v1\n" + line.format(root=tmp_path / "t", name="c.parquet", action="delete"))
    assert sink_files(None, str(tmp_path / "t")) == {str(tmp_path / "t" / "a b.parquet")}
    with pytest.raises(bs.UnsupportedError, match="file sink"):
        refuse_logs(str(tmp_path / "t"))
    (log / "3").write_text("v2\n")
    with pytest.raises(bs.FormatError):
        sink_files(None, str(tmp_path / "t"))


def test_counts_in_prometheus_format() -> None:
    from bloomseal.spark.source.stats import SourceStats

    said = SourceStats(files=3, kms_calls=2).to_prometheus(table='a "b"').splitlines()
    assert "# TYPE bloomseal_read_files_total counter" in said
    assert r'bloomseal_read_files_total{table="a \"b\""} 3' in said
    assert "bloomseal_read_kms_calls_total 2" in SourceStats(kms_calls=2).to_prometheus()
