"""Tables with a log: Delta and Iceberg. What is live is read, dead files are told, and nothing is read as a plain
folder.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.audit.facts.places import find_files as to_audit
from bloomseal.read.predicate.where import parse_where
from bloomseal.rotation import Rewrap, rotate
from bloomseal.rotation.outcome import Status
from bloomseal.storage.discovery.kinds import FileKind
from bloomseal.table.query.schema import conform

deltalake = pytest.importorskip("deltalake")
memory = pytest.importorskip("pyiceberg.catalog.memory")

DATA = pa.table(
    {
        "country": ["DE", "FR", None, "a b/é"],
        "day": pa.array([1, 2, 3, None], pa.int32()),
        "ssn": ["000", "111", "222", "333"],
        "n": pa.array([1, 2, 3, 4], pa.int16()),
    }
)


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return ring


def seal(folder: Path, ring: bs.Keyring) -> None:
    """All that is in clear, sealed in place. A Delta log's sizes are then no longer the files'."""
    spec = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=ring)
    for path in folder.rglob("*.parquet"):
        if path.read_bytes()[-4:] == b"PAR1" and "_delta_log" not in path.parts:
            bs.seal_file(path, encryption=spec, bloom_filters={"ssn": True})


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: json.dumps(row, default=str))


@pytest.fixture
def delta(tmp_path: Path, ring: bs.Keyring) -> Path:
    folder = tmp_path / "delta"
    deltalake.write_deltalake(str(folder), DATA, partition_by=["country", "day"])
    deltalake.write_deltalake(str(folder), DATA.slice(0, 2), partition_by=["country", "day"], mode="overwrite")
    seal(folder, ring)
    return folder


def test_a_delta_partition_of_bytes_is_refused(tmp_path: Path) -> None:
    # The log has their spelling: b"q" would be found nowhere.
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"b": [b"q", None], "n": [1, 2]}), partition_by=["b"])
    with pytest.raises(bs.UnsupportedError, match="partition column of bytes"):
        bs.open_table(tmp_path / "t")


@pytest.fixture
def spec(ring: bs.Keyring) -> bs.DecryptionSpec:
    return bs.DecryptionSpec(bs.KeyTools(ring), partition_by=["country", "day"])


def test_delta_reads_the_live_files_of_a_version(delta: Path, spec: bs.DecryptionSpec) -> None:
    assert rows(bs.read_table(delta, decryption=spec)) == rows(DATA.slice(0, 2))
    assert rows(bs.read_table(delta, decryption=spec, version=0)) == rows(DATA)
    table = bs.open_table(delta, decryption=spec)
    assert table.version == 1
    assert table.schema.names == DATA.schema.names
    assert table.schema.types == DATA.schema.types
    assert len(table) == 2
    assert table.read(["ssn"], [("day", "==", 2), ("country", "==", "FR")]).to_pylist() == [{"ssn": "111"}]
    assert table.read(["n"], [("ssn", "==", "000")]).to_pylist() == [{"n": 1}]
    assert table.scan().read_all().num_rows == 2
    old = bs.open_table(delta, decryption=spec, version=0)
    assert old.read(["ssn"], [("country", "==", "a b/é")]).to_pylist() == [{"ssn": "333"}]
    assert old.read(["ssn"], [("day", ">=", 2)])["ssn"].to_pylist() == ["111", "222"]
    assert old.verify().ok
    with pytest.raises(bs.UnsupportedError, match="sizes"):
        table.attach({"n": True})
    with pytest.raises(bs.UsageError, match=r"has no version 7.*newest is \d"):
        bs.open_table(delta, version=7)
    wrong: Any
    for wrong in ("1", -1, True, 1.0):
        with pytest.raises(bs.UsageError, match="is no version of a Delta table"):
            bs.open_table(delta, version=wrong)


def test_a_value_means_what_the_logs_type_makes_of_it(tmp_path: Path) -> None:
    """Files whose moments have no zone, as INT96 and some writers have them, in a table whose log says UTC: tuples,
    expressions and SQL find what `read` gives, inside structs too.
    """
    folder, utc = tmp_path / "delta", pa.timestamp("us", "UTC")
    kind = pa.struct([("t", utc), ("l", pa.list_(utc))])
    naive = pa.struct([("t", pa.timestamp("ns")), ("l", pa.list_(pa.timestamp("ns")))])
    nanos = [-1, 1_704_067_200_000_000_999, None]  # before 1970, and finer than the log
    for number, options in enumerate(({}, {"use_deprecated_int96_timestamps": True})):
        rows = {"n": [3 * number + place for place in range(3)], "t": pa.nulls(3, utc), "s": pa.nulls(3, kind)}
        deltalake.write_deltalake(str(folder), pa.table(rows), mode="append")
        (path,) = (one for one in folder.glob("*.parquet") if pq.read_table(one)["n"][0].as_py() == 3 * number)
        coarse = pa.array([-1000, 1_704_067_200_000_000_000, None], pa.timestamp("ns"))
        inside = [coarse, pa.ListArray.from_arrays([0, 1, 2, 3], coarse)]
        moments = pa.array(nanos, pa.timestamp("ns")) if options else coarse
        rows |= {"t": moments, "s": pa.StructArray.from_arrays(inside, fields=list(naive))}
        pq.write_table(pa.table(rows), path, coerce_timestamps=None if options else "us", **options)
    table = bs.open_table(folder)
    assert table.schema.types == [pa.int64(), utc, kind]
    found = table.read()
    early, late = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert found["t"].to_pylist() == [early, late, None] * 2
    assert [row["t"] for row in found["s"].to_pylist()] == [early, late, None] * 2
    assert [row["l"] for row in found["s"].to_pylist()] == [[early], [late], [None]] * 2
    assert table.scan().read_all().equals(found)
    for value, wanted in ((early, [0, 3]), (late, [1, 4])):
        for column, field in (("t", ds.field("t")), ("s.t", ds.field("s", "t"))):
            sql = f"{column} = '{value.isoformat()}'"
            for filters in ([(column, "==", value)], field == pa.scalar(value, utc), parse_where(sql, table.leaves)):
                assert sorted(table.read(["n"], filters)["n"].to_pylist()) == wanted, (column, filters)
                assert sorted(table.scan(["n"], filters).read_all()["n"].to_pylist()) == wanted, (column, filters)
    with pytest.raises(bs.UsageError, match="cannot be asked"):
        table.read(where=[("t", "==", late.replace(tzinfo=None))])


def test_delta_columns_that_came_late_and_grew(tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    deltalake.write_deltalake(str(folder), pa.table({"a": [1]}))
    deltalake.write_deltalake(str(folder), pa.table({"a": [2], "b": ["x"]}), mode="append", schema_mode="merge")
    found = bs.read_table(folder)
    assert rows(found) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert bs.read_table(folder, where=[("b", "==", "x")]).num_rows == 1
    assert bs.read_table(folder, version=0).column_names == ["a"]


def test_a_part_of_a_delta_table_and_a_folder_above_are_refused(delta: Path, spec: bs.DecryptionSpec) -> None:
    with pytest.raises(bs.UsageError, match="part of a Delta table"):
        bs.read_table(delta / "country=DE", decryption=spec)
    with pytest.raises(bs.UsageError, match="Delta table lies below"):
        bs.read_table(delta.parent, decryption=spec)


@pytest.mark.parametrize("pattern", ["*.parquet", "**/*.parquet", "country=*/*/*.parquet", "country=DE/**"])
def test_a_pattern_inside_a_delta_table_is_refused(delta: Path, spec: bs.DecryptionSpec, pattern: str) -> None:
    """It would name dead files too."""
    with pytest.raises(bs.UsageError, match="pattern names files of a Delta table"):
        bs.read_table(delta / pattern, decryption=spec)
    one = next(delta.rglob("*.parquet"))
    assert bs.read_table(one, decryption=spec).num_rows == 1


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("inside", "what"),
    [
        ("data", "folder is a part"),
        ("data/country=DE", "folder is a part"),
        ("da*/*/*.parquet", "pattern names files"),
        ("data/**", "pattern names files"),
        ("data/country=*/*.parquet", "pattern names files"),
    ],
)
def test_a_part_of_an_iceberg_table_is_refused(
    iceberg: Any, spec: bs.DecryptionSpec, tmp_path: Path, inside: str, what: str, remote: bool
) -> None:
    """Its data folder holds dead files beside the live ones."""
    folder = tmp_path / "ice" / "n" / "t"
    filesystem = SubTreeFileSystem("/", LocalFileSystem()) if remote else None
    for ask in (bs.read_table, bs.open_table):
        with pytest.raises(bs.UsageError, match=f"the {what} of an Iceberg table"):
            ask(f"{folder}/{inside}", decryption=spec, filesystem=filesystem)


def test_a_folder_called_data_is_a_table_like_others(tmp_path: Path) -> None:
    folder = tmp_path / "metadata" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "metadata").mkdir()
    bs.write_table(DATA, folder / "a.parquet")
    assert bs.read_table(folder).num_rows == DATA.num_rows
    assert bs.read_table(f"{folder}/*.parquet").num_rows == DATA.num_rows


def test_without_the_library_nothing_is_read(delta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(bs.MissingDependencyError, match=r"bloomseal\[delta\]"):
        bs.read_table(delta)
    (delta / "_delta_log").rename(delta / "metadata")
    (delta / "metadata" / "v1.metadata.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    with pytest.raises(bs.MissingDependencyError, match=r"bloomseal\[iceberg\]"):
        bs.read_table(delta)


def log_more(folder: Path, *actions: dict[str, Any]) -> None:
    number = len(list((folder / "_delta_log").glob("*.json")))
    text = "\n".join(map(json.dumps, actions))
    (folder / "_delta_log" / f"{number:020d}.json").write_text(text)


def test_what_changes_a_files_rows_is_refused(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        folder = tmp_path / name
        deltalake.write_deltalake(str(folder), pa.table({"a": [1, 2]}))
        return folder

    def protocol(feature: str) -> dict[str, Any]:
        versions = {"minReaderVersion": 3, "minWriterVersion": 7}
        return {"protocol": {**versions, "readerFeatures": [feature], "writerFeatures": [feature]}}

    vectors = fresh("vectors")
    first = json.loads((vectors / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[-1])
    add = next(
        json.loads(line)["add"]
        for line in (vectors / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        if "add" in json.loads(line)
    )
    assert first
    add["deletionVector"] = {
        "storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40, "cardinality": 1,
    }  # fmt: skip
    remove = {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}
    log_more(vectors, protocol("deletionVectors"), remove, {"add": add})
    with pytest.raises(bs.UnsupportedError, match="deletion vectors"):
        bs.read_table(vectors)
    (vectors / "purged.parquet").write_bytes((vectors / add["path"]).read_bytes())
    purged = {name: value for name, value in add.items() if name != "deletionVector"} | {"path": "purged.parquet"}
    remove["remove"]["deletionVector"] = add["deletionVector"]
    log_more(vectors, remove, {"add": purged})
    assert bs.read_table(vectors).num_rows == 2
    with pytest.raises(bs.UnsupportedError, match="deletion vectors"):
        bs.open_table(vectors, version=1)
    quiet = fresh("quiet")
    log_more(quiet, protocol("deletionVectors"))
    assert bs.read_table(quiet).num_rows == 2
    unknown = fresh("unknown")
    log_more(unknown, protocol("rowsUpsideDown"))
    with pytest.raises(bs.BloomsealError, match=r"rowsUpsideDown|can't be opened"):
        bs.read_table(unknown)
    (tmp_path / "hudi" / ".hoodie").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "hudi" / "a.parquet")
    with pytest.raises(bs.UnsupportedError, match="Hudi"):
        bs.read_table(tmp_path / "hudi")


@pytest.mark.parametrize("remote", [False, True])
def test_a_part_of_a_hudi_table_is_refused(tmp_path: Path, remote: bool) -> None:
    (tmp_path / "hudi" / ".hoodie").mkdir(parents=True)
    (tmp_path / "hudi" / "day=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "hudi" / "day=1" / "a.parquet")
    filesystem = SubTreeFileSystem("/", LocalFileSystem()) if remote else None
    for inside, what in (("day=1", "folder is a part"), ("*/*.parquet", "pattern names files")):
        with pytest.raises(bs.UsageError, match=f"the {what} of a Hudi table"):
            bs.read_table(f"{tmp_path}/hudi/{inside}", filesystem=filesystem)


@pytest.mark.parametrize("remote", [False, True])
def test_compressed_metadata_of_older_writers_make_an_iceberg_table(tmp_path: Path, remote: bool) -> None:
    """Its files hold rows that were deleted: as a folder they are not read."""
    folder = tmp_path / "ice"
    (folder / "metadata").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "metadata" / "v1.metadata.json.gz").write_bytes(b"no metadata")
    pq.write_table(pa.table({"a": [1]}), folder / "data" / "a.parquet")
    filesystem = SubTreeFileSystem(str(tmp_path), LocalFileSystem()) if remote else None
    named = "ice" if remote else str(folder)
    with pytest.raises(bs.UsageError, match=r"can't be opened|on a subtree file system"):
        bs.read_table(named, filesystem=filesystem)
    with pytest.raises(bs.UsageError, match="the folder is a part of an Iceberg table"):
        bs.read_table(f"{named}/data", filesystem=filesystem)


def test_metadata_that_nobody_may_list_are_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "day=1" / "a.parquet")
    listed = os.listdir

    def refuse(path: Any) -> list[str]:
        if os.fspath(path).endswith("/metadata"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listed(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(bs.UsageError, match="can't look at the place"):
        bs.read_table(tmp_path / "day=1")


def test_a_log_leads_nowhere_else(delta: Path, spec: bs.DecryptionSpec, tmp_path: Path, ring: bs.Keyring) -> None:
    other = tmp_path / "other.parquet"
    bs.write_table(DATA.select(["ssn", "n"]), other, encryption=bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=ring))
    before = other.read_bytes()
    for path in (str(other), f"file://{other}", "../other.parquet"):
        add = {
            "path": path,
            "partitionValues": {"country": "DE", "day": "1"},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
        }
        log_more(delta, {"add": add})
        with pytest.raises(bs.UsageError, match=r"leads out of the table|can't be opened"):
            bs.read_table(delta, decryption=spec)
        report = rotate(delta, Rewrap(spec), journal=tmp_path / "j", restart=True)
        assert not report.ok
        assert other.read_bytes() == before
        sorted((delta / "_delta_log").glob("*.json"))[-1].unlink()
    live = bs.open_table(delta).files[0]
    Path(live).unlink()
    with pytest.raises(bs.UsageError, match="not there"):
        bs.read_table(delta, decryption=spec)


def test_rotation_and_audit_take_the_live_and_name_the_dead(
    delta: Path, ring: bs.Keyring, spec: bs.DecryptionSpec, tmp_path: Path
) -> None:
    live = set(bs.open_table(delta).files)
    every = set(map(str, delta.rglob("country=*/**/*.parquet")))
    ring.rotate("pii")
    report = rotate(delta, Rewrap(bs.DecryptionSpec(bs.KeyTools(ring))), journal=tmp_path / "j")
    assert report.ok
    assert {file.path for file in report.files if file.status is Status.REWRAPPED} == live
    assert {file.path for file in report.files if file.status is Status.DEAD} == every - live
    assert bs.read_table(delta, decryption=spec).num_rows == 2
    places = to_audit(delta)
    assert {ref.path for ref in places.files} == live
    assert {one.ref.path for one in places.outside if one.kind is FileKind.DEAD} == every - live
    assert any("no live version" in what for what in audit(delta).hidden)


@pytest.fixture
def iceberg(tmp_path: Path, ring: bs.Keyring) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import IntegerType, NestedField, StringType

    catalog = memory.InMemoryCatalog("test", warehouse=f"file://{tmp_path}/ice")
    catalog.create_namespace("n")
    schema = Schema(
        NestedField(1, "country", StringType()),
        NestedField(2, "day", IntegerType()),
        NestedField(3, "ssn", StringType()),
        NestedField(4, "n", IntegerType()),
    )
    partition = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "country"))
    table = catalog.create_table("n.t", schema=schema, partition_spec=partition)
    data = DATA.set_column(3, "n", DATA["n"].cast(pa.int32()))
    table.append(data)
    table.overwrite(data.slice(0, 2))
    seal(tmp_path / "ice", ring)
    return table


def test_rows_of_an_iceberg_table_are_erased_by_its_engine(
    iceberg: Any, spec: bs.DecryptionSpec, tmp_path: Path
) -> None:
    table = bs.open_table(tmp_path / "ice" / "n" / "t", decryption=spec)
    with pytest.raises(bs.UnsupportedError) as refused:
        table.erase([("n", "==", 1)])
    assert "expire_snapshots" in (refused.value.hint or "")


def test_iceberg_reads_the_live_files_of_a_snapshot(iceberg: Any, spec: bs.DecryptionSpec, tmp_path: Path) -> None:
    folder = tmp_path / "ice" / "n" / "t"
    assert rows(bs.read_table(folder, decryption=spec)) == rows(DATA.slice(0, 2))
    first = iceberg.metadata.snapshots[0].snapshot_id
    table = bs.open_table(folder, decryption=spec, version=first)
    assert rows(table.read()) == rows(DATA)
    assert table.read(["ssn"], [("country", "==", "a b/é")]).to_pylist() == [{"ssn": "333"}]
    assert table.read(["n"], [("ssn", "==", "222")]).to_pylist() == [{"n": 3}]
    newest = iceberg.metadata_location.removeprefix("file://")
    assert bs.read_table(newest, decryption=spec).num_rows == 2
    stale = min((folder / "metadata").glob("*.metadata.json"))
    with pytest.raises(bs.UsageError, match="newer metadata"):
        bs.read_table(stale, decryption=spec)
    (folder / "metadata" / "version-hint.text").write_text("99")
    with pytest.raises(bs.UsageError, match="version 99"):
        bs.read_table(folder, decryption=spec)
    (folder / "metadata" / "version-hint.text").unlink()
    with pytest.raises(bs.UsageError, match="no snapshot"):
        bs.read_table(newest, decryption=spec, version=1)


def test_two_newest_metadata_are_no_answer(iceberg: Any, spec: bs.DecryptionSpec, tmp_path: Path) -> None:
    newest = Path(iceberg.metadata_location.removeprefix("file://"))
    shutil.copy(newest, newest.with_name(f"{newest.name[:5]}-0000-another.metadata.json"))
    with pytest.raises(bs.UsageError, match="2 metadata files are the newest"):
        bs.read_table(newest.parent.parent, decryption=spec)
    assert bs.read_table(newest, decryption=spec).num_rows == 2


def test_iceberg_columns_go_by_their_ids(iceberg: Any, spec: bs.DecryptionSpec, tmp_path: Path) -> None:
    folder = tmp_path / "ice" / "n" / "t"
    from pyiceberg.types import StringType

    with iceberg.update_schema() as change:
        change.add_column("late", StringType())
    found = bs.read_table(folder, decryption=spec)
    assert found["late"].null_count == found.num_rows == 2
    with iceberg.update_schema() as change:
        change.rename_column("ssn", "number")
    with pytest.raises(bs.UnsupportedError, match="renamed"):
        bs.read_table(folder, decryption=spec)
    with pytest.raises(bs.UnsupportedError, match="renamed"):
        bs.read_table(folder, columns=["day"], decryption=spec)


def test_iceberg_that_was_copied_is_not_read_where_it_was(
    iceberg: Any, spec: bs.DecryptionSpec, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "ice" / "n" / "t", copied)
    files = bs.open_table(copied, decryption=spec).files
    assert files
    assert all(Path(file).is_relative_to(copied) for file in files)
    (tmp_path / "moved").symlink_to(tmp_path / "ice")
    assert bs.read_table(tmp_path / "moved" / "n" / "t", decryption=spec).num_rows == 2


def test_metadata_choose_no_class_and_no_endpoint(
    iceberg: Any, tmp_path: Path, spec: bs.DecryptionSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: pyiceberg takes the metadata's properties for its own settings, and imports the class they name."""
    (tmp_path / "planted_module.py").write_text("raise SystemExit('the storage has its code run')")
    monkeypatch.syspath_prepend(tmp_path)
    metadata = Path(iceberg.metadata_location.removeprefix("file://"))
    told = json.loads(metadata.read_text())
    told["properties"] = {"py-io-impl": "planted_module.Reader", "DEFAULT_SCHEME": "http"}
    metadata.write_text(json.dumps(told))
    assert bs.open_table(metadata.parent.parent, decryption=spec).read().num_rows
    assert "planted_module" not in sys.modules


@pytest.mark.parametrize("where", ["http://127.0.0.1:9/m.avro", "s3://bucket/m.avro", "pipe"])
def test_metadata_lead_to_no_other_storage_and_no_pipe(
    iceberg: Any, tmp_path: Path, spec: bs.DecryptionSpec, where: str
) -> None:
    """Attack: a manifest list on another storage, to which credentials would be shown; or one that nobody ends."""
    if where == "pipe":
        os.mkfifo(tmp_path / "m.avro")
        where = str(tmp_path / "m.avro")
    metadata = Path(iceberg.metadata_location.removeprefix("file://"))
    told = json.loads(metadata.read_text())
    for snapshot in told["snapshots"]:
        snapshot["manifest-list"] = where
    metadata.write_text(json.dumps(told))
    with pytest.raises(bs.UsageError, match=r"lead to|can't be opened"):
        bs.open_table(metadata.parent.parent, decryption=spec)


def test_a_pipe_in_a_log_is_refused_at_once(delta: Path, iceberg: Any, spec: bs.DecryptionSpec) -> None:
    """Attack: a name that the library opens leads to a pipe, and whoever reads the table waits for ever."""
    os.mkfifo(delta / "_delta_log" / "_last_checkpoint")
    with pytest.raises(bs.UsageError, match="no regular file"):
        bs.open_table(delta, decryption=spec)
    metadata = Path(iceberg.metadata_location.removeprefix("file://"))
    metadata.unlink()
    os.mkfifo(metadata)
    with pytest.raises(bs.UsageError, match="no regular file"):
        bs.open_table(metadata.parent.parent, decryption=spec)


def test_instants_of_a_log_are_floored_and_never_wrap() -> None:
    """The log says microseconds where INT96 has nanoseconds; or nanoseconds, whose range ends in 2262."""
    fine = pa.table({"at": pa.array([-1, 1_500], pa.timestamp("ns"))})
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    found = conform(fine, schema, {}, "f", sealed_instants=True)
    assert found.column("at").cast(pa.int64()).to_pylist() == [-1, 1]
    late = pa.table({"at": pa.array([253_402_214_400_000_000], pa.timestamp("us"))})
    for zone in (None, "UTC"):
        with pytest.raises(bs.UsageError, match="does not fit"):
            conform(late, pa.schema([("at", pa.timestamp("ns", zone))]), {}, "f", sealed_instants=True)
