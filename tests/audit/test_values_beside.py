"""Values of a sealed column beside its data: in logs of whatever age, names, gaps of files, and cut-off leftovers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal import KeyTools
from bloomseal.audit import Severity
from bloomseal.audit.report import Report
from bloomseal.core.sbbf import SplitBlockBloomFilter
from bloomseal.policy import ColumnPolicy, Sensitivity
from bloomseal.write.assemble import filter_modules
from support.lab import Lab, glued, people, told

SAFE = {"delta.dataSkippingStatsColumns": "id"}
STATS = json.dumps({"numRecords": 1, "minValues": {"ssn": "0"}, "maxValues": {"ssn": "9"}})


def _report(lab: Lab, folder: Path, **options: Any) -> Report:
    return lab.keyed(folder, policy=lab.policy(), **options).report()


def _held(report: Report, rule: str = "BS113") -> dict[str | None, str]:
    return {one.column: one.message for one in report.findings if one.rule.id == rule}


def _sealed(lab: Lab, folder: Path) -> Path:
    """All of its data files sealed as the policy says."""
    for path in folder.rglob("*.parquet"):
        if "_delta_log" not in path.parts and path.read_bytes()[-4:] == b"PAR1":
            bs.seal_file(
                path,
                encryption=bs.EncryptionSpec(
                    "footer",
                    {name: "pii" for name in ("ssn", "name") if name in pq.read_schema(path).names},
                    KeyTools(lab.keyring),
                ),
            )
    return folder


@pytest.fixture
def delta(lab: Lab) -> Path:
    """A sealed Delta table without statistics of sealed columns."""
    folder = lab.folder / "t"
    deltalake.write_deltalake(str(folder), people(), configuration=SAFE)
    return _sealed(lab, folder)


def _older_commit(folder: Path) -> str:
    commit = folder / "_delta_log" / f"{0:020d}.json"
    lines = commit.read_text().splitlines()
    add = {
        "add": {
            "path": "gone.parquet",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            "stats": STATS,
        }
    }
    commit.write_text("\n".join([*lines, json.dumps(add)]) + "\n")
    remove = {"remove": {"path": "gone.parquet", "deletionTimestamp": 1, "dataChange": True}}
    (commit.with_name(f"{1:020d}.json")).write_text(json.dumps(remove) + "\n")
    return commit.name


def _compacted(folder: Path) -> str:
    path = folder / "_delta_log" / f"{0:020d}.{1:020d}.compacted.json"
    path.write_text(json.dumps({"add": {"path": "x.parquet", "partitionValues": {}, "stats": STATS}}) + "\n")
    return path.name


def _checkpoint(folder: Path) -> str:
    """A part of a checkpoint, its statistics as columns."""
    name = "part-1.parquet"
    stats = pa.array([{"minValues": {"ssn": "0"}, "maxValues": {"ssn": "9"}}])
    add = pa.StructArray.from_arrays([pa.array(["x.parquet"]), stats], ["path", "stats_parsed"])
    (folder / "_delta_log" / "_sidecars").mkdir()
    pq.write_table(pa.table({"add": add}), folder / "_delta_log" / "_sidecars" / name)
    return name


def _checkpoint_with_text(folder: Path) -> str:
    name = "part-2.parquet"
    values = pa.array([[("ssn", "078")]], pa.map_(pa.string(), pa.string()))
    add = pa.StructArray.from_arrays([pa.array(["x.parquet"]), values], ["path", "partitionValues"])
    (folder / "_delta_log" / "_sidecars").mkdir()
    pq.write_table(pa.table({"add": add}), folder / "_delta_log" / "_sidecars" / name)
    return name


def _checksum(folder: Path) -> str:
    path = folder / "_delta_log" / f"{0:020d}.crc"
    path.write_text(json.dumps({"numFiles": 1, "allFiles": [{"path": "x.parquet", "stats": STATS}]}))
    return path.name


def _predicate(folder: Path) -> str:
    path = folder / "_delta_log" / f"{1:020d}.json"
    said = {
        "commitInfo": {"operation": "DELETE", "operationParameters": {"predicate": "[\"(ssn#12 = '078-05-1120')\"]"}}
    }
    path.write_text(json.dumps(said) + "\n")
    return path.name


def _staged(folder: Path) -> str:
    path = folder / "_delta_log" / "_staged_commits" / f"{1:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"add": {"path": "x.parquet", "partitionValues": {"ssn": "078"}}}) + "\n")
    return path.name


PLANTED = [_older_commit, _compacted, _checkpoint, _checkpoint_with_text, _checksum, _predicate, _staged]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda one: one.__name__)
def test_any_file_of_a_delta_log(lab: Lab, delta: Path, plant: Callable[[Path], str]) -> None:
    clean = _report(lab, delta)
    assert not clean.findings, told(clean.findings)
    assert not clean.hidden
    name = plant(delta)
    held = _held(report := _report(lab, delta))
    assert set(held) == {"ssn"}
    assert name in held["ssn"]
    assert "078" not in report.to_json()


def test_a_real_checkpoint(lab: Lab) -> None:
    folder = lab.folder / "t"
    deltalake.write_deltalake(str(folder), people())
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    held = _held(_report(lab, _sealed(lab, folder)))
    assert set(held) == {"ssn", "name"}
    assert "2 files" in held["ssn"]


def test_the_finding_weighs_what_the_column_weighs(lab: Lab, delta: Path) -> None:
    _checksum(delta)
    policy = lab.policy({"ssn": ColumnPolicy(key="pii", sensitivity=Sensitivity.RESTRICTED)})
    (found,) = [one for one in lab.keyed(delta, policy=policy).report().findings if one.rule.id == "BS113"]
    assert found.severity is Severity.ERROR
    # Without policy and keys an encrypted footer hides which columns are sealed.
    assert "BS113" not in lab.case(delta).ids()


def test_a_column_that_is_mapped_to_another_name(lab: Lab, delta: Path) -> None:
    schema = {
        "type": "struct",
        "fields": [{"name": "ssn", "type": "string", "metadata": {"delta.columnMapping.physicalName": "col-7"}}],
    }
    stats = json.dumps({"minValues": {"col-7": "0"}})
    actions = [{"metaData": {"schemaString": json.dumps(schema)}}, {"add": {"path": "x.parquet", "stats": stats}}]
    text = "\n".join(map(json.dumps, actions)) + "\n"
    (delta / "_delta_log" / f"{0:020d}.{0:020d}.compacted.json").write_text(text)
    assert set(_held(_report(lab, delta))) == {"ssn"}


def _iceberg(lab: Lab, *, partitioned: bool = False, metrics: str = "none") -> tuple[Any, Path]:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    catalog = memory.InMemoryCatalog(f"beside{id(lab)}", warehouse=str(lab.folder / "ice"))
    catalog.create_namespace("n")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "ssn_part")) if partitioned else PartitionSpec()
    table = catalog.create_table(
        "n.t", schema=schema, partition_spec=spec, properties={"write.metadata.metrics.default": metrics}
    )
    table.append(people(4).select(["id", "ssn"]))
    folder = Path(table.location().removeprefix("file://"))
    for path in folder.rglob("*.parquet"):
        bs.seal_file(path, encryption=bs.EncryptionSpec("footer", {"ssn": "pii"}, KeyTools(lab.keyring)))
    return table, folder


def test_an_iceberg_table_that_tells_nothing(lab: Lab) -> None:
    _, folder = _iceberg(lab)
    report = _report(lab, folder)
    assert not _held(report)
    assert not report.hidden


def test_iceberg_partition_values_of_any_transform(lab: Lab) -> None:
    _, folder = _iceberg(lab, partitioned=True)
    held = _held(_report(lab, folder))
    assert "partition values" in held["ssn"]


def test_older_iceberg_manifests(lab: Lab) -> None:
    """Values of a snapshot that was expired, in a manifest that nobody names any more."""
    table, folder = _iceberg(lab, metrics="full")
    old = table.current_snapshot().snapshot_id
    with table.transaction() as change:
        change.set_properties({"write.metadata.metrics.default": "none"})
    table.overwrite(people(4).select(["id", "ssn"]))
    with table.maintenance.expire_snapshots() as expire:
        expire.by_id(old)
    metadata = folder / "metadata"
    newest = Path(table.metadata_location.removeprefix("file://"))
    for path in metadata.glob("*.metadata.json"):
        if path != newest:
            path.unlink()
    _sealed(lab, folder)
    held = _held(_report(lab, folder))
    assert "smallest and greatest values" in held["ssn"]


@pytest.mark.parametrize("way", ["relative", "link", "metadata", "dots"])
def test_iceberg_bounds_by_whatever_path(lab: Lab, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, folder = _iceberg(lab, metrics="full")
    monkeypatch.chdir(folder.parent)
    (lab.folder / "link").symlink_to(folder)
    given = {
        "relative": Path(folder.name), "link": lab.folder / "link", "dots": folder.parent / ".." / folder.parent.name / folder.name,
        "metadata": Path(table.metadata_location.removeprefix("file://")),
    }[way]  # fmt: skip
    assert "ssn" in _held(_report(lab, given))


@pytest.mark.parametrize("packed", [False, True])
def test_iceberg_sketches(lab: Lab, packed: bool) -> None:
    _, folder = _iceberg(lab)
    blobs = [{"type": "apache-datasketches-theta-v1", "fields": [2]}, {"type": "deletion-vector-v1", "fields": [1]}]
    payload = json.dumps({"blobs": blobs}).encode()
    if packed:
        payload = pa.compress(payload, codec="lz4", asbytes=True)
    ending = len(payload).to_bytes(4, "little") + bytes([packed, 0, 0, 0]) + b"PFA1"
    (folder / "metadata" / "x.stats").write_bytes(b"PFA1" + bytes(8) + b"PFA1" + payload + ending)
    report = _report(lab, folder)
    held = _held(report)
    assert set(held) == {"ssn"}
    assert "theta" in held["ssn"]


@pytest.mark.parametrize(
    "name", ["ssn=078-05-1120/a.parquet", "d=1/SSN=078/a.parquet", "part-ssn=078-0.parquet", "ss%6E=078/a.parquet"]
)
def test_names_that_hold_values(lab: Lab, name: str) -> None:
    lab.write(f"t/{name}")
    report = _report(lab, lab.folder / "t")
    held = _held(report, "BS119")
    assert set(held) == {"ssn"}
    assert "078" not in held["ssn"]
    assert not report.ok


def test_the_folder_that_was_named_and_an_empty_one(lab: Lab) -> None:
    lab.write("t/ssn=078/a.parquet")
    assert _held(_report(lab, lab.folder / "t" / "ssn=078"), "BS119")
    lab.write("u/a.parquet")
    (lab.folder / "u" / "ssn=079").mkdir()
    assert _held(_report(lab, lab.folder / "u"), "BS119")


def test_a_policy_that_is_complete_only_tells_of_other_names(lab: Lab) -> None:
    lab.write("t/day=1/a.parquet", encryption={"complete": True})
    report = lab.keyed(lab.folder / "t", policy=lab.policy(complete=True)).report()
    (found,) = [one for one in report.findings if one.rule.id == "BS119"]
    assert (found.column, found.severity) == ("day", Severity.INFO)
    assert not _held(_report(lab, lab.folder / "t"), "BS119")


CUT = [
    "_temporary/0/_temporary/attempt_1_m_0_1/part-0.snappy.parquet", ".part-0-0.inprogress.1b2c", ".part-1-7.pending",
    "a.parquet._COPYING_", "part-00000", ".x.tmp", "_tmp.part-r-0.parquet",
]  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_cut_off_leftovers_by_their_head(lab: Lab, name: str) -> None:
    lab.write("t/a.parquet")
    left = lab.plain(f"t/{name}")
    os.truncate(left, left.stat().st_size // 2)
    report = _report(lab, lab.folder / "t")
    found = [one for one in report.findings if one.rule.id == "BS115"]
    assert [(one.file, one.severity) for one in found] == [(str(left), Severity.CRITICAL)]
    # A sealed one tells nothing.
    lab.write(f"t/{name}")
    os.truncate(left, left.stat().st_size // 2)
    assert not _report(lab, lab.folder / "t").findings


def test_a_cut_off_leftover_of_orc_is_not_seen(lab: Lab) -> None:
    """What its footer said of encryption is lost with it."""
    lab.write("t/a.parquet")
    left = lab.folder / "t" / ".part-0.inprogress.7"
    pyarrow.orc.write_table(people(), left)
    os.truncate(left, left.stat().st_size // 2)
    report = _report(lab, lab.folder / "t")
    assert [text for text in report.unseen if left.name in text]
    assert not report.ok


def _filter(_: Lab) -> bytes:
    header, bitset = filter_modules(SplitBlockBloomFilter(1024), None, lambda _: b"")
    return bytes(header) + bytes(bitset)


def _page(lab: Lab) -> bytes:
    path = lab.plain("page.parquet")
    with bs.open_file(path) as file:
        start, length = file.walk.extent(file.walk.chunk(0, 1))
    return path.read_bytes()[start : start + length]


@pytest.mark.parametrize(
    "hide", [_filter, _page, lambda lab: lab.plain("x.parquet").read_bytes(), lambda _: b"078-05-1120"]
)
@pytest.mark.parametrize("write", [Lab.write, Lab.signed])
def test_bytes_in_a_gap(lab: Lab, hide: Callable[[Lab], bytes], write: Callable[..., Path]) -> None:
    path = write(lab, "t/a.parquet", bloom_filters={"ssn": True}, write_page_index=True)
    assert not _held(_report(lab, lab.folder / "t"), "BS118").keys()
    glued(path, hide(lab))
    found = [one for one in _report(lab, lab.folder / "t").findings if one.rule.id == "BS118"]
    assert len(found) == 1
    assert (found[0].severity is Severity.CRITICAL) == ("no known kind" not in found[0].message)
    glued(path, bytes(100))
    assert "078" not in found[0].message


@pytest.mark.parametrize("how", ["filter", "dictionary"])
def test_a_copy_under_another_name(lab: Lab, how: str) -> None:
    count = 50_000 if how == "filter" else 2000
    table = people(count).append_column("customer_no", people(count)["ssn"])
    filters = {"bloom_filters": {"ssn": True, "customer_no": True}} if how == "filter" else {"use_dictionary": True}
    lab.write("t/a.parquet", table, row_group_size=count // 2, **filters)
    assert not _held(_report(lab, lab.folder / "t"), "BS120")
    (found,) = [one for one in _report(lab, lab.folder / "t", deep=True).findings if one.rule.id == "BS120"]
    assert (found.column, found.row_groups) == ("ssn", (0, 1))
    assert "customer_no" in found.message
    # Few values are equal by chance.
    few = people().append_column("town", people()["city"])
    spec = {"column_keys": {"city": "pii"}}
    lab.write("u/a.parquet", few, encryption=spec, bloom_filters={"city": True, "town": True}, use_dictionary=True)
    assert "BS120" not in lab.keyed(lab.folder / "u", deep=True).ids()


OTHERS = {
    "a.csv": b"ssn\n078\n", "b.json": b'{"ssn": "078"}', "c.avro": b"Obj\x01", "d.arrow": b"ARROW1\0\0", "e.zip": b"PK\x03\x04",
    "f.sqlite": b"SQLite format 3\0", "g.log": b"ssn=078", "_h": b"x", ".i.csv.crc": b"ssn\n078", "metadata/j.txt": b"x",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["_backup/_delta_log/00000000000000000000.json", "metadata/snap-1.avro", "_x/metadata/a.stats"]
)
def test_logs_that_nobody_reads_are_listed(lab: Lab, name: str) -> None:
    lab.write("t/a.parquet")
    path = lab.folder / "t" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"add": {"path": "a", "stats": "{}"}}')
    (text,) = _report(lab, lab.folder / "t").hidden
    assert path.name in text


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_listed_as_not_looked_at(lab: Lab, name: str) -> None:
    lab.write("t/a.parquet")
    path = lab.folder / "t" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(OTHERS[name])
    report = _report(lab, lab.folder / "t")
    (text,) = report.hidden
    assert path.name in text
    assert "not looked at" in report.verdict


def test_what_engines_leave_is_no_stranger(lab: Lab, delta: Path) -> None:
    for name in ("_SUCCESS", "._SUCCESS.crc", ".a.parquet.crc", "_committed_123", "_started_123"):
        (delta / name).write_bytes(
            b"crc\0" + bytes(8) if name.endswith(".crc") else b"" if name == "_SUCCESS" else b"{}"
        )
    deltalake.DeltaTable(str(delta)).create_checkpoint()
    report = _report(lab, delta)
    assert not report.hidden
    assert not report.findings
    assert report.ok


@pytest.mark.parametrize("why", ["every day", "full"])
def test_filters_that_are_equal_by_chance(lab: Lab, why: str) -> None:
    """Two columns of dates that hold every day of three years; two overfull filters, which have all bits set."""
    count, size = 3000, bs.FilterSpec(num_bytes=64 if why == "full" else 2048)
    if why == "every day":
        days = pa.array(range(1000), pa.int32()).cast(pa.date32()).to_pylist()
        born, seen = pa.array(days * 3, pa.date32()), pa.array(days[::-1] * 3, pa.date32())
    else:
        born, seen = (pa.array([f"{name}{number}" for number in range(count)]) for name in "ab")
    table = pa.table({"born": born, "seen": seen})
    spec = {"column_keys": {"born": "pii"}}
    filters = {"born": size, "seen": size}
    path = lab.write("t/a.parquet", table, encryption=spec, bloom_filters=filters, row_group_size=count)
    file = bs.open_file(path, decryption=bs.DecryptionSpec(keys=KeyTools(lab.keyring)))
    assert file.filter(0, "born") == file.filter(0, "seen")
    assert "BS120" not in lab.keyed(path, deep=True).ids()
