"""What reports tell of a table with signers. Nobody else's file has its key asked for."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import bloomseal as bs
from bloomseal import evidence
from bloomseal.audit import audit
from bloomseal.audit.rendering.cbom import to_cbom
from bloomseal.audit.rendering.html import to_html
from bloomseal.audit.report import Report
from support.signed_table import ROWS, Counted, Table, made
from support.signing import unpack

WAYS = ("fine", "unsigned", "stranger", "renamed", "elsewhere", "altered", "cut", "stripped")
RULES = {
    "unsigned": "BS317",
    "stripped": "BS317",
    "cut": "BS201",
    "stranger": "BS318",
    "renamed": "BS319",
    "elsewhere": "BS319",
    "altered": "BS319",
}


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Partitions, each with a file that its author has signed; of all but the first somebody made something else."""
    table = made(tmp_path_factory.mktemp("spoilt"))
    author, stranger = table.policy(table.author), {"stranger": (table.other.key.line,)}
    for way in WAYS:
        policy = replace(author, signers=stranger, signer=table.other) if way == "stranger" else author
        bs.write_dataset(ROWS, table.root / f"day={way}", policy=policy.at(table.root), mode="append")
    for way in WAYS[1:]:
        folder = table.root / f"day={way}"
        (file,), (signature,) = folder.glob("*.parquet"), folder.glob("_SIGNATURE_*")
        match way:
            case "unsigned":
                signature.unlink()
            case "renamed":
                file.rename(folder / "other.parquet")
                signature.rename(folder / signature.name.replace(file.name, "other.parquet"))
            case "elsewhere":
                shutil.move(folder, table.root / "day=9")
            case "altered":
                said = signature.read_bytes()
                at = said.index(b'"sig":"') + 20
                signature.write_bytes(said[:at] + bytes([said[at] ^ 1]) + said[at + 1 :])
            case "cut":
                file.write_bytes(file.read_bytes()[:-100])
            case "stripped":
                # In plaintext, with the author's signature still beside it.
                bs.write_table(ROWS, folder / "new.parquet")
                (folder / "new.parquet").rename(file)
    return table


def looked(table: Table, **more: Any) -> tuple[Report, Counted]:
    kms = Counted(bs.Keyring(table.home / "keys.json"))
    return audit(table.root, policy=replace(table, kms=kms).policy(), **more), kms


def test_each_file_of_nobody_is_a_finding_without_a_key(spoilt: Table) -> None:
    for more in ({"with_keys": False}, {}):
        report, kms = looked(spoilt, **more)
        found = {(Path(one.file or "").parent.name.replace("=9", "=elsewhere"), one.rule.id) for one in report.findings}
        assert {(f"day={way}", rule) for way, rule in RULES.items()} <= found
        assert {rule for folder, rule in found if folder == "day=fine"} == set()
        assert {folder for folder, rule in found if rule == "BS320"} == {"day=cut", "day=stripped"}
    (fine,) = (spoilt.root / "day=fine").glob("*.parquet")
    alone = Counted(bs.Keyring(spoilt.home / "keys.json"))
    audit(fine, policy=replace(spoilt, kms=alone).policy())
    assert kms.asked == alone.asked > 0  # as if there were no other file


def test_inventory_cbom_and_evidence_name_signers(spoilt: Table, tmp_path: Path) -> None:
    report, kms = looked(spoilt)
    author, stranger = spoilt.author.key, spoilt.other.key
    told = {row["file"].split("/")[-2]: row for row in report.inventory.to_pylist()}
    names = ("signature", "signer", "signer_algorithms", "signer_keys")
    assert [told["day=fine"][name] for name in names] == ["signed", "author", "ed25519", author.fingerprint]
    assert [told["day=stranger"][name] for name in names] == ["unknown signer", None, None, stranger.fingerprint]
    assert Counter(row["signature"] for row in told.values()) == {
        "signed": 1, "unsigned": 2, "unknown signer": 1, "wrong signature": 3, None: 1
    }  # fmt: skip

    assert report.summary()["signatures"] == report.signatures
    assert [(one["signer"] or one["signature"], one["files"], one["post_quantum"]) for one in report.signatures] == [
        ("author", 1, False), ("unknown signer", 1, None), ("unsigned", 2, None), ("wrong signature", 3, None)
    ]  # fmt: skip
    assert "author: 1 files (ed25519, not post-quantum); unknown signer: 1 files" in to_html(report)

    text = to_cbom(report)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_7).validate_str(to_cbom(report, version="1.7")) is None
    bill = json.loads(text)
    parts = {one["bom-ref"]: one for one in bill["components"]}
    public = parts[f"public-key:{author.fingerprint}"]
    assert public["cryptoProperties"]["relatedCryptoMaterialProperties"]["type"] == "public-key"
    assert properties(public) == {"signer": "author", "files-signed": "1"}
    algorithm = parts["algorithm:ed25519"]["cryptoProperties"]["algorithmProperties"]
    assert (algorithm["primitive"], algorithm["nistQuantumSecurityLevel"]) == ("signature", 0)
    assert properties(parts["table:people"]) == {
        "files": "8", "files-signed": "1", "files-unsigned": "2", "files-unknown-signer": "1", "files-wrong-signature": "3"
    }  # fmt: skip
    edges = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert public["bom-ref"] in edges["table:people"]
    assert edges[public["bom-ref"]] == ["algorithm:ed25519"]
    assert stranger.fingerprint not in text

    both = {"author": author.line, "late": stranger.line}
    policy = replace(spoilt, kms=kms).policy(signers=both)
    made = evidence.make(spoilt.root / "day=fine", tmp_path / "e.zip", policy=policy)
    members = unpack(tmp_path / "e.zip")
    jsonschema.validate(made.told, json.loads(members["evidence.schema.json"]), jsonschema.Draft202012Validator)
    facts = {"table": "people", "algorithms": ["ed25519"], "post_quantum": False}
    assert made.told["signatures"] == [
        {**facts, "signature": "signed", "signer": "author", "keys": [author.fingerprint], "files": 1},
        {**facts, "signature": "none seen", "signer": "late", "keys": [stranger.fingerprint], "files": 0},
    ]
    assert b"ed25519, not post-quantum" in members["index.html"]


def test_a_signature_that_can_t_be_read_is_no_missing_one(spoilt: Table, tmp_path: Path) -> None:
    root = tmp_path / "people"
    shutil.copytree(spoilt.root / "day=fine", root / "day=fine")
    (signature,) = (root / "day=fine").glob("_SIGNATURE_*")
    signature.rename(tmp_path / "away")
    signature.symlink_to(tmp_path / "away")
    kms = Counted(bs.Keyring(spoilt.home / "keys.json"))
    report = audit(root, policy=replace(spoilt, home=tmp_path, kms=kms).policy())
    assert (report.ok, report.signatures[0]["signature"], kms.asked) == (False, "not seen", 0)
    assert [one.rule.id for one in report.findings] == []
    assert any("who signed" in text and "can't read the signature" in text for text in report.unseen)


def properties(component: dict[str, Any]) -> dict[str, str]:
    return {one["name"].removeprefix("bloomseal:"): one["value"] for one in component["properties"]}


def test_a_signer_whom_the_policy_names_no_longer_is_known_by_his_key(spoilt: Table) -> None:
    dropped = spoilt.policy(signers={"next": spoilt.other.key.line})
    (finding,) = audit(next((spoilt.root / "day=fine").glob("*.parquet")), policy=dropped).findings
    assert finding.rule.id == "BS318"
    assert spoilt.author.key.fingerprint in finding.message


def test_a_bundle_tells_who_answers_for_what_a_rotation_made(spoilt: Table, tmp_path: Path) -> None:
    root, journal = tmp_path / "people", tmp_path / "journal.jsonl"
    shutil.copytree(spoilt.root / "day=fine", root / "day=1")
    table = replace(spoilt, home=tmp_path)
    policy = table.policy(table.other, signers={"operator": table.other.key.line})
    assert bs.rotation.rotate(root, bs.rotation.Reseal(policy, policy), journal=journal).ok
    (told,) = evidence.make(root, tmp_path / "e.zip", policy=policy, journals=[journal]).told["rotations"]
    assert (told["files"], told["signed_by"]) == ({"rekeyed": 1}, {"operator": 1})
    assert b"1 files signed by operator" in unpack(tmp_path / "e.zip")["index.html"]
