"""What an audit says of encrypted tables: each hole by its rule, nothing of clean ones; and what hangs from a key."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import evidence
from bloomseal.audit import Severity, audit, inventory, may_destroy
from bloomseal.audit.rendering.cbom import to_cbom
from bloomseal.audit.report import Report
from bloomseal.audit.rules.catalogue import RULES
from bloomseal.policy import TablePolicy
from support.iceberg_vectors import expected

EXPECTED = expected()
WITHOUT_KEYS = {
    "hole_clear_avro": "BS502",
    "hole_clear_bounds": "BS502",
    "hole_clear_data_file": "BS502",
    "hole_kek_no_timestamp": "BS504",
    "hole_manifest_replaced": "BS502",
    "hole_no_key_id": "BS504",
    "hole_rest_clear": "BS501",
    "hole_rollback": "BS505",
    "hole_statistics_key": "BS503",
}
WITH_KEYS = {
    "hole_foreign_master": "BS504",
    "hole_null_length": "BS506",
    "hole_rust_like": "BS506",
    "hole_swapped_manifests": "BS504",
    "hole_truncated_list_zero": "BS504",
    "hole_vector_without_key": "BS504",
}


def keys_of(place: Path) -> list[dict[str, Any]]:
    newest = max(place.glob("metadata/*.metadata.json"))
    found: list[dict[str, Any]] = json.loads(newest.read_text())["encryption-keys"]
    return found


def audited(vectors: Path, keyring: bs.Keyring, name: str, *, keys: bool) -> Report:
    place = vectors / "tables" / name
    if not keys:
        return audit(place)
    spec = bs.IcebergSpec(EXPECTED[name].get("caller") or EXPECTED[name]["master_key"])
    return audit(place, policy=TablePolicy("t", keyring, "master-main", iceberg=spec))


def of_tables(report: Report) -> set[str]:
    return {one.rule.id for one in report.findings if one.rule.id.startswith("BS5")}


def test_every_hole_has_its_rule() -> None:
    of_holes = {*WITHOUT_KEYS.values(), *WITH_KEYS.values()}
    assert of_holes | {"BS507"} == {rule for rule in RULES if rule.startswith("BS5")}
    assert {*WITHOUT_KEYS, *WITH_KEYS} == {name for name, one in EXPECTED.items() if not one["valid"]}


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("name", WITHOUT_KEYS)
def test_a_hole_that_everybody_sees(vectors: Path, keyring: bs.Keyring, name: str, keys: bool) -> None:
    report = audited(vectors, keyring, name, keys=keys)
    assert of_tables(report) == {WITHOUT_KEYS[name]}
    (finding, *_) = (one for one in report.findings if one.rule.id == WITHOUT_KEYS[name])
    assert finding.file is not None
    assert finding.file.startswith(str(vectors / "tables" / name))
    assert finding.mend


@pytest.mark.parametrize("name", WITH_KEYS)
def test_a_hole_that_a_key_holder_sees(vectors: Path, keyring: bs.Keyring, name: str) -> None:
    assert of_tables(audited(vectors, keyring, name, keys=False)) == set()
    assert of_tables(audited(vectors, keyring, name, keys=True)) == {WITH_KEYS[name]}


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("name", [name for name, one in EXPECTED.items() if one["valid"]])
def test_a_clean_table(vectors: Path, keyring: bs.Keyring, name: str, keys: bool) -> None:
    report = audited(vectors, keyring, name, keys=keys)
    found = {one.rule.id for one in report.at_least(Severity.WARNING)}
    if name == "parts16" and keys:
        assert found == {"BS119"}  # Iceberg's folders are named after partition values
        return
    assert not found
    assert report.ok is (True if keys else None), (report.unseen, report.hidden)


@pytest.mark.parametrize(("keys", "opened"), [(False, 0), (True, 1)])
def test_what_is_not_seen_of_snapshots(vectors: Path, keyring: bs.Keyring, keys: bool, opened: int) -> None:
    unseen = " ".join(map(str, audited(vectors, keyring, "people16", keys=keys).hidden))
    assert f"{3 - opened} snapshots whose lists of files are sealed" in unseen


def test_a_kek_that_grew_old(vectors: Path) -> None:
    place = vectors / "tables" / "people16"
    made = datetime(2026, 11, 20, tzinfo=UTC)  # as its metadata say
    assert of_tables(audit(place, now=made.replace(year=2028))) == set()
    assert of_tables(audit(place, now=made.replace(year=2029))) == {"BS507"}


def test_a_table_hangs_from_its_master_key(vectors: Path, keyring: bs.Keyring) -> None:
    place = vectors / "tables" / "people16"
    answer = may_destroy("master-main", None, place, keys=keyring, after=0)
    assert answer.answer == "no"
    assert any("KEK" in reason.what and reason.answer == "no" for reason in answer.reasons)
    assert may_destroy("master-main", "1", place, keys=keyring, after=0).answer == "no"
    other = may_destroy("master-long", None, place, keys=keyring, after=0)
    assert not any("KEK" in reason.what for reason in other.reasons)
    assert other.answer == "unknown"


def test_older_metadata_count(vectors: Path, keyring: bs.Keyring, tmp_path: Path) -> None:
    """The current metadata name another master key by now; an older file still needs the one in question."""
    place = Path(shutil.copytree(vectors / "tables" / "small32", tmp_path / "t"))
    newest = max((place / "metadata").glob("*.metadata.json"))
    document = json.loads(newest.read_text())
    for one in document["encryption-keys"]:
        if one["encrypted-by-id"] == "master-long":
            one["encrypted-by-id"] = "master-main"
            one["key-id"] += "2"
    newest.write_text(json.dumps(document))
    assert may_destroy("master-long", None, place, keys=keyring, after=0).answer == "no"


@pytest.mark.parametrize(
    "wrong", ["[]", "{}", '{"properties": 3}', "", '{"snapshots": {"a": 1}, "encryption-keys": [1, [], "x"]}']
)
def test_metadata_that_are_anything_end_no_audit(vectors: Path, tmp_path: Path, wrong: str) -> None:
    place = Path(shutil.copytree(vectors / "tables" / "small32", tmp_path / "t"))
    oldest = min((place / "metadata").glob("*.metadata.json"))
    oldest.write_text(wrong)
    report = audit(place)
    assert report.unseen or report.hidden


def test_keks_are_rows_of_the_inventory(vectors: Path, keyring: bs.Keyring) -> None:
    place = vectors / "tables" / "people16"
    rows = [one for one in inventory(place).to_pylist() if one["footer_material"] == "kek"]
    assert [(one["footer_master_key"], one["footer_key_version"]) for one in rows] == [("master-main", None)]
    spec = bs.IcebergSpec("master-main")
    report = audit(place, policy=TablePolicy("t", keyring, "master-main", iceberg=spec))
    told = report.inventory.to_pylist()
    (kek,) = (one for one in told if one["footer_material"] == "kek")
    assert kek["file"] == str(max(place.glob("metadata/*.metadata.json")))
    assert (kek["footer_master_key"], kek["footer_key_version"], kek["footer_key_state"]) == (
        "master-main", "1", "enabled",
    )  # fmt: skip
    (made,) = (one["properties"]["KEY_TIMESTAMP"] for one in keys_of(place) if "properties" in one)
    assert kek["footer_kek_since"] == datetime.fromtimestamp(int(made) // 1000, UTC)
    hanging = {one["file"] for one in told if one["footer_kek_id"] == kek["footer_kek_id"] and one is not kek}
    files = {str(path) for path in place.rglob("*.parquet")}
    assert files < hanging
    # The current snapshot's list, and the manifests that it names.
    assert sum(path.endswith(".avro") for path in hanging - files) == len(hanging - files) == 1 + 3
    assert report.files == len(files)


def test_keks_in_cbom_and_evidence(vectors: Path, keyring: bs.Keyring, tmp_path: Path) -> None:
    place = vectors / "tables" / "people16"
    policy = TablePolicy("t", keyring, "master-main", iceberg=bs.IcebergSpec("master-main"))
    bill = json.loads(to_cbom(audit(place, policy=policy)))
    (keks,) = (one for one in bill["components"] if one["bom-ref"].startswith("key-encryption-keys"))
    assert keks["bom-ref"] == "key-encryption-keys:master-main:1"
    assert {"name": "bloomseal:keys-at-least", "value": "1"} in keks["properties"]
    needs = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert needs[keks["bom-ref"]] == ["master-key:master-main:1"]
    assert any(keks["bom-ref"] in one for ref, one in needs.items() if ref.startswith("data-key"))
    made = evidence.make(place, tmp_path / "bundle.zip", policy=policy)
    (key,) = (one for one in made.told["keys"] if one["version"] == "1" and one["files"])
    assert key["master_key"] == "master-main"
    assert {use["column"]: use["keks"] for use in key["uses"]}.items() >= {"(footer)": 1, "(KEK)": 1, "ssn": 1}.items()
