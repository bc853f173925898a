"""The rotation audit: what was rotated, what was missed, and what may be destroyed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bloomseal import DecryptionSpec, EncryptionSpec, ExplicitKeys, KeyTools, read_table, seal_file
from bloomseal.audit import compare, inventory, may_destroy
from bloomseal.rotation import Rewrap, rotate
from support.lab import Lab, people


def test_rewrapped_missed_added_and_removed(lab: Lab) -> None:
    for name in ("a", "b", "gone"):
        lab.signed(f"t/{name}.parquet")
    before = inventory(lab.folder / "t", keys=lab.keyring)
    lab.keyring.rotate("pii")
    lab.keyring.rotate("footer")
    rotate(
        [lab.folder / "t" / "a.parquet"], Rewrap(DecryptionSpec(KeyTools(lab.keyring))), journal=lab.folder / "journal"
    )
    (lab.folder / "t" / "gone.parquet").unlink()
    lab.signed("t/new.parquet")
    changes = compare(before, inventory(lab.folder / "t", keys=lab.keyring))
    names = {
        kind: [Path(path).stem for path in getattr(changes, kind)]
        for kind in ("rotated", "rekeyed", "partly", "missed", "added", "removed", "unknown")
    }
    assert names == {
        "rotated": ["a"], "rekeyed": [], "partly": [], "missed": ["b"], "added": ["new"], "removed": ["gone"], "unknown": [],
    }  # fmt: skip
    assert changes.needed == {("footer", "1"): 1, ("footer", "2"): 2, ("pii", "1"): 1, ("pii", "2"): 2}
    assert changes.retired == []


def test_rekeyed_and_partly_rotated(lab: Lab) -> None:
    for name in ("whole", "part"):
        lab.signed(f"t/{name}.parquet")
    before = inventory(lab.folder / "t", keys=lab.keyring)
    lab.keyring.rotate("pii")
    lab.signed("t/part.parquet")  # the footer's master key has its old version
    lab.keyring.rotate("footer")
    lab.signed("t/whole.parquet")
    changes = compare(before, inventory(lab.folder / "t", keys=lab.keyring))
    assert [Path(path).stem for path in changes.rekeyed] == ["part", "whole"]
    assert [Path(path).stem for path in changes.partly] == ["part"]
    assert [Path(path).stem for path in changes.rotated] == ["whole"]
    assert changes.retired == [("pii", "1")]


def test_yes_no_and_unknown(lab: Lab) -> None:
    path = lab.write("t/a.parquet")
    old = lab.ask("pii", "1", lab.folder / "t")
    assert (old.answer, old.needed_by) == ("no", [str(path)])
    # Without the footer key nobody sees which keys the columns have.
    assert may_destroy("pii", "1", lab.folder / "t").answer == "unknown"
    # The footer's own key material is in clear.
    assert may_destroy("footer", "1", lab.folder / "t").answer == "no"
    assert old.under == ["footer:1", "pii:1"]
    lab.keyring.rotate("pii")
    assert lab.ask("pii", "1", lab.folder / "t").answer == "no"
    rotate([path], Rewrap(DecryptionSpec(KeyTools(lab.keyring))), journal=lab.folder / "journal")
    answer = lab.ask("pii", "1", lab.folder / "t")
    assert (answer.answer, answer.files, answer.keys, answer.under) == ("yes", 1, 3, ["footer:1", "pii:2"])
    assert answer.looked_at == [str(lab.folder / "t")]
    assert answer.not_looked_at
    lab.keyring.destroy("pii", 1)
    assert read_table(path, decryption=DecryptionSpec(KeyTools(lab.keyring))).equals(people())


def test_doubts_forbid_a_yes(lab: Lab) -> None:
    lab.keyring.rotate("other")
    lab.signed("t/a.parquet")
    assert lab.ask("other", "1", lab.folder / "t").answer == "yes"
    bad = lab.folder / "t" / "bad.parquet"
    bad.write_bytes(b"no Parquet")
    answer = lab.ask("other", "1", lab.folder / "t")
    assert answer.answer == "unknown"
    assert len(answer.doubts) == 1
    assert "bad.parquet" in answer.doubts[0]
    bad.unlink()
    lab.signed("t/own.parquet", encryption={"footer_key": (b"f" * 16, "kf"), "column_keys": None, "keys": None})
    assert lab.ask("other", "1", lab.folder / "t").answer == "unknown"
    keys = ExplicitKeys(keys_by_id={"kf": b"f" * 16})
    assert lab.ask("other", "1", lab.folder / "t" / "own.parquet", keys=keys).answer == "unknown"
    empty = lab.folder / "empty"
    empty.mkdir()
    assert lab.ask("other", "1", empty).answer == "unknown"


@pytest.mark.parametrize("name", ["000000_0", ".a.parquet", "_change_data/a.parquet", "_metadata", "a.parquet.bak"])
def test_whatever_a_file_is_called_its_keys_are_needed(lab: Lab, name: str) -> None:
    lab.signed("t/good.parquet", encryption={"column_keys": None})
    path = lab.signed(f"t/{name}")
    needed = path.read_bytes()
    path.unlink()
    lab.keyring.rotate("pii")
    (lab.folder / "t" / "_SUCCESS").touch()
    (lab.folder / "t" / "notes.txt").write_text("no data")
    assert lab.ask("pii", "1", lab.folder / "t").answer == "yes"
    path.write_bytes(needed)
    answer = lab.ask("pii", "1", lab.folder / "t")
    assert (answer.answer, answer.needed_by, answer.doubts) == ("no", [str(path)], [])


def test_files_without_rows_need_no_column_key(lab: Lab) -> None:
    lab.write("t/a.parquet", people().slice(0, 0))
    lab.keyring.rotate("pii")
    assert lab.ask("pii", "1", lab.folder / "t").answer == "yes"
    assert may_destroy("pii", "1", lab.folder / "t").answer == "unknown"


def test_missing_key_material_is_a_doubt(lab: Lab) -> None:
    lab.signed("t/a.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    assert may_destroy("pii", "1", lab.folder / "t").answer == "no"
    (lab.folder / "t" / "_KEY_MATERIAL_FOR_a.parquet.json").unlink()
    assert lab.ask("pii", "1", lab.folder / "t").answer == "unknown"


def _seal(lab: Lab, folder: Path) -> None:
    spec = {
        "footer_key": "footer",
        "column_keys": {"ssn": "pii"},
        "keys": KeyTools(lab.keyring),
        "plaintext_footer": True,
    }
    from bloomseal import EncryptionSpec

    for path in folder.rglob("*.parquet"):
        with_keys = path.read_bytes()[-4:] == b"PAR1" and inventory(path)["algorithm"].null_count
        if with_keys:
            seal_file(path, encryption=EncryptionSpec(**spec))


def test_delta_history_counts(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = lab.folder / "delta"
    deltalake.write_deltalake(str(folder), people(), mode="append")
    _seal(lab, folder)
    lab.keyring.rotate("pii")
    deltalake.write_deltalake(str(folder), people(), mode="overwrite")
    _seal(lab, folder)
    live = inventory(folder)
    assert set(live["key_version"].drop_null().to_pylist()) == {"2"}
    assert len(live["file"].unique()) == 1
    answer = lab.ask("pii", "1", folder)
    assert (answer.answer, answer.files, len(answer.needed_by)) == ("no", 2, 1)
    Path(answer.needed_by[0]).unlink()  # as a vacuum does
    assert lab.ask("pii", "1", folder).answer == "yes"


def test_a_delta_table_below_a_folder(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = lab.folder / "lake" / "customers"
    for _ in range(2):
        deltalake.write_deltalake(str(folder), people(), mode="overwrite")
    lab.signed("lake/other/a.parquet")
    assert len(inventory(lab.folder / "lake")["file"].unique()) == 2


def test_iceberg_snapshots_count(lab: Lab) -> None:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=str(lab.folder / "ice"))
    catalog.create_namespace("n")
    data = people().select(["id", "ssn"])
    table = catalog.create_table("n.t", schema=data.schema)
    table.append(data)
    _seal(lab, lab.folder / "ice")
    lab.keyring.rotate("pii")
    table.overwrite(data)
    _seal(lab, lab.folder / "ice")
    metadata = table.metadata_location.removeprefix("file://")
    assert set(inventory(metadata)["key_version"].drop_null().to_pylist()) == {"2"}
    answer = lab.ask("pii", "1", metadata)
    assert (answer.answer, answer.files) == ("no", 2)
    assert isinstance(inventory(metadata), pa.Table)


_ODD = pa.table({"p": ["a b", "c/d", "é%", "x#?"], "ssn": ["1", "2", "3", "4"]})


def test_delta_files_with_odd_names_are_found(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = lab.folder / "a table #1"
    lab.keyring.rotate("pii")
    deltalake.write_deltalake(str(folder), _ODD, partition_by=["p"])
    assert set(inventory(folder)["file"].to_pylist()) == set(map(str, folder.rglob("*.parquet")))
    answer = lab.ask("pii", "1", folder)
    assert (answer.answer, answer.files, answer.missing) == ("yes", 4, [])


def test_iceberg_files_with_odd_names_are_found(lab: Lab) -> None:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import NestedField, StringType

    catalog = memory.InMemoryCatalog("test", warehouse=f"file://{lab.folder}/ice")
    catalog.create_namespace("n")
    schema = Schema(NestedField(1, "p", StringType()), NestedField(2, "ssn", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    table.append(_ODD)
    _seal(lab, lab.folder / "ice")
    metadata = table.metadata_location.removeprefix("file://")
    answer = lab.ask("pii", "1", metadata)
    assert (answer.answer, len(answer.needed_by), answer.missing) == ("no", 4, [])


def test_iceberg_delete_files_count(lab: Lab) -> None:
    """Those that are Parquet; a file of deletion vectors holds no key."""
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    iceberg: Any = pytest.importorskip("support.iceberg_deletes")
    from pyiceberg.manifest import DataFileContent, FileFormat

    catalog = memory.InMemoryCatalog("deletes", warehouse=f"file://{lab.folder}/ice")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"ssn": pa.string()}))
    table.append(pa.table({"ssn": ["1", "2"]}))
    (data,) = lab.folder.rglob("*.parquet")
    seal_file(data, encryption=EncryptionSpec("footer", keys=KeyTools(lab.keyring)))
    rows = pa.table({"file_path": [f"file://{data}"], "pos": [0]})
    deletes = lab.plain("ice/n/t/data/deletes.parquet", rows)
    seal_file(deletes, encryption=EncryptionSpec("pii", keys=KeyTools(lab.keyring)))
    (vectors := deletes.with_name("vectors.puffin")).write_bytes(b"PFA1")
    metadata = iceberg.add_deletes(
        table, (deletes, FileFormat.PARQUET), (vectors, FileFormat.PUFFIN), content=DataFileContent.POSITION_DELETES
    )
    answer = lab.ask("pii", "1", metadata)
    assert (answer.answer, answer.needed_by, answer.missing) == ("no", [str(deletes)], [])


def test_live_files_that_are_gone_or_elsewhere_are_doubts(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    lab.keyring.rotate("pii")
    folder = lab.folder / "delta"
    for _ in range(2):
        deltalake.write_deltalake(str(folder), people(), mode="append")
    assert lab.ask("pii", "1", folder).answer == "yes"
    elsewhere = (
        '{"add":{"path":"s3://bucket/a.parquet","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}'
    )
    log = folder / "_delta_log" / f"{2:020d}.json"
    log.write_text(elsewhere + "\n")
    answer = lab.ask("pii", "1", folder)
    assert (answer.answer, len(answer.doubts)) == ("unknown", 1)
    assert answer.doubts[0].startswith("s3://bucket/a.parquet: ")
    log.unlink()
    next(folder.glob("*.parquet")).unlink()
    answer = lab.ask("pii", "1", folder)
    assert (answer.answer, len(answer.doubts), len(answer.missing)) == ("unknown", 1, 1)
