"""What older versions have written opens, and answers the same: every folder beside this file, kept for good."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import bloomseal as bs
from bloomseal import evidence
from bloomseal.audit import audit, compare
from bloomseal.audit.history import load_inventory
from bloomseal.cli.main import main
from bloomseal.rotation import Rekey, Rewrap, rotate
from bloomseal.rotation.journal import Journal
from compat.make import FILTERS, MODES, PASSPHRASE, PREFIX, ROWS, explicit

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if path.is_dir() and path.name[0].isdigit())


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, with the modes that keyrings had: a checkout does not keep those."""
    folder = tmp_path / request.param
    shutil.copytree(HERE / request.param, folder)
    for ring in ("keys.json", "locked.json", "signed/reader.json", "signed/author.json"):
        (folder / ring).chmod(0o600)
    return folder


def _table(kept: Path) -> Any:
    return bs.Policy.load(kept / "policy.toml", kms=bs.Keyring(kept / "keys.json")).for_table("people")


def _answers(path: Path, decryption: Any, filters: Any = tuple(FILTERS)) -> None:
    with bs.open_file(path, decryption=decryption) as file:
        assert file.read().equals(ROWS)
        assert file.verify().ok
        assert file.num_row_groups == -(-ROWS.num_rows // file.row_groups[0].num_rows)
        for column in filters:
            values = ROWS[column.split(".")[0]].to_pylist()
            asked = [value[0] if isinstance(value, list) else value for value in values if value is not None]
            verdicts = file.probe(column, asked)
            for position, value in enumerate(asked):
                assert any(group[position] is bs.Verdict.MAYBE_PRESENT for group in verdicts), (column, value)
            if column == "ssn":
                absent = [f"999-{i:02d}-0000" for i in range(50)]
                said = [one for group in file.probe(column, absent) for one in group]
                assert said.count(bs.Verdict.ABSENT) >= 45 * file.num_row_groups
        assert file.read(where=[("ssn", "==", "007-45-6789")]).equals(ROWS.slice(7, 1))


def test_this_version_is_kept_once_it_is_out() -> None:
    assert VERSIONS
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file()) < 300 * 1024 * len(VERSIONS)


@pytest.mark.parametrize("mode", [None, *MODES])
def test_a_file_of_each_mode(kept: Path, mode: str | None) -> None:
    if mode is None:
        _answers(kept / "files/plaintext.parquet", None)
        return
    prefix = PREFIX if "prefix" in mode else None
    spec = bs.DecryptionSpec(explicit(), aad_prefix=prefix, allow_ctr=mode.startswith("ctr"))
    _answers(kept / f"files/{mode}.parquet", spec)
    if mode == "gcm-prefix-supplied":
        with pytest.raises(bs.PolicyError):
            bs.open_file(kept / f"files/{mode}.parquet", decryption=bs.DecryptionSpec(explicit()))


@pytest.mark.parametrize("place", ["inside", "beside", "locked"])
def test_files_by_way_of_key_tools(kept: Path, place: str) -> None:
    ring = (
        bs.Keyring(kept / "keys.json") if place != "locked" else bs.Keyring(kept / "locked.json", passphrase=PASSPHRASE)
    )
    _answers(kept / f"tools/{place}/part-0.parquet", bs.DecryptionSpec(ring), ["ssn"])


@pytest.mark.parametrize("name", ["keys.json", "locked.json"])
def test_keyrings(kept: Path, name: str) -> None:
    if name == "locked.json":
        with pytest.raises(bs.KeyAccessError):
            bs.Keyring(kept / name, passphrase="another")
    ring = bs.Keyring(kept / name, passphrase=PASSPHRASE if name == "locked.json" else None)
    assert {key.name: len(key.versions) for key in ring.list()} == {"footer": 1, "pii": 2, "gone": 1}
    assert ring.describe("gone").state.value == "disabled"
    ring.rotate("pii")
    assert ring.describe("pii").current == "3"
    wrapped = ring.wrap_key(b"k" * 16, "pii")
    assert bs.Keyring(ring.path, passphrase=PASSPHRASE if name == "locked.json" else None).unwrap_key(wrapped, "pii")


def test_a_policy_and_its_table(kept: Path) -> None:
    table = _table(kept)
    assert table.columns["ssn"].filter.fpp == pytest.approx(0.001)
    found = bs.read_table(kept / "people", decryption=table)
    assert found.equals(ROWS)
    told = bs.verify(kept / "people", decryption=table)
    old = json.loads((kept / "reports/verify.json").read_text())
    assert told.ok is old["ok"] is True
    assert told.to_dict().keys() >= old.keys()


def test_rotations_begin_where_the_older_version_stood(kept: Path) -> None:
    table = _table(kept)
    for job in (Rewrap(table), Rekey(table, table)):
        assert rotate(kept / "people", job, journal=kept / f"{type(job).__name__}.jsonl").ok
    assert bs.read_table(kept / "people", decryption=table).equals(ROWS)


def test_a_signed_table_for_recipients(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = kept / "signed"
    policy, people = home / "policy.toml", home / "people"
    assert bs.read_table(people, policy=policy).equals(ROWS)
    with bs.open_file(people / "part-0.parquet", policy=policy) as file:
        assert (file.verify().ok, file.verify().signed_by) == (True, "author")
    report = audit(people, policy=policy)
    assert (report.findings, report.unseen) == ([], [])
    with pytest.raises(bs.KeyAccessError, match="was destroyed"):
        bs.read_table(home / "gone.parquet", decryption=bs.DecryptionSpec(bs.Keyring(home / "reader.json")))
    monkeypatch.setenv("BLOOMSEAL_SIGNER", f"keyring:{home}/author.json#author")
    told = bs.open_table(people, policy=policy).index("ssn").update()  # a checkout has other times
    assert (told.covered, told.refreshed, told.hashed) == (1, 1, 0)
    indexed = bs.open_table(people, policy=policy, use_index="require")
    assert indexed.read(where=[("ssn", "==", "007-45-6789")]).equals(ROWS.slice(7, 1))
    bs.write_dataset(ROWS, people, policy=policy, mode="append")
    bs.Keyring(home / "reader.json").rotate("pii")
    assert rotate(people, Rekey(bs.Policy.load(policy).for_table()), journal=kept / "signed.jsonl").ok
    assert bs.read_table(people, policy=policy).num_rows == 2 * ROWS.num_rows


def test_a_stored_signature_holds_by_hand(kept: Path) -> None:
    """As DSSE, RFC 8032 and docs/signatures.md have it, without Bloomseal."""
    home = kept / "signed"
    line = next(line for line in (home / "policy.toml").read_text().splitlines() if line.startswith("signers.author"))
    text = line.split('"')[1].removeprefix("bsv1")
    held = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert (held[:1], len(held)) == (b"\1", 1 + 32 + 6)
    for place in ("part-0.parquet", "_bloomseal_index/ssn/manifest.parquet"):
        path = home / "people" / place
        data = path.read_bytes()
        tail = data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") :]
        digest = hashlib.sha256(tail).hexdigest()
        envelope = json.loads((path.parent / f"_SIGNATURE_{path.name}_{digest[:32]}.json").read_text())
        kind, payload = envelope["payloadType"], base64.b64decode(envelope["payload"])
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        (signature,) = (base64.b64decode(one["sig"]) for one in envelope["signatures"])
        Ed25519PublicKey.from_public_bytes(held[1:33]).verify(signature, message)
        said = json.loads(payload)
        assert (said["table"], said["path"], said["length"]) == ("people", place, len(data))
        assert (said["tail_sha256"], said["version"]) == (digest, 1)


@pytest.mark.parametrize("operation", ["seal", "rekey", "rewrap"])
def test_a_journal_is_taken_up(kept: Path, operation: str) -> None:
    path = kept / f"journals/{operation}.jsonl"
    path.chmod(0o600)
    start = json.loads(path.read_text().splitlines()[0])
    with Journal(path, operation, start["job"]) as journal:
        assert journal.resumed
        assert list(journal.done) == ["@FOLDER@/sealed/part-0.parquet"]
        assert journal.finished
    assert bs.read_table(kept / "sealed", decryption=_table(kept).at(kept / "sealed")).equals(ROWS)


def test_reports_have_the_same_fields_and_inventories_compare(kept: Path) -> None:
    table = _table(kept)
    report = audit(kept / "people", keys=table.keys, policy=table)
    old = json.loads((kept / "reports/audit.json").read_text())
    now = json.loads(report.to_json())
    assert now.keys() >= old.keys()
    assert {name: now[name] for name in ("files", "column_chunks", "with_keys")} == {
        name: old[name] for name in ("files", "column_chunks", "with_keys")
    }
    before = load_inventory(kept / "reports/inventory.parquet")
    assert set(before.column_names) <= set(report.inventory.column_names)
    changes = compare(before, report.inventory)
    assert len(changes.added) == len(changes.removed) == 2, "the same files, at another place"
    for name in ("seal", "rekey", "rewrap"):
        told = json.loads((kept / f"reports/{name}.json").read_text())
        assert [one["status"] for one in told["files"]] == (["nothing to do"] if name == "rewrap" else ["rotated"])


def test_bundles_verify(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = kept / "evidence" / "bundle.zip"
    public = sorted((kept / "evidence").glob("*.pub.pem"))
    found = evidence.verify(bundle, public)
    assert found.ok, found.problems
    assert {"evidence.json", "index.html", "inventory.parquet"} <= found.members.keys()
    command = ["evidence", "verify", str(bundle), *(text for path in public for text in ("--public-key", str(path)))]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "as it was signed  yes" in told
    if kept.name == "0.1.0":  # it says *fulfilled*: a word that is not repeated
        assert "fulfilled" not in told
        assert "an earlier version's verdicts" in told
    bundle.write_bytes(bundle.read_bytes().replace(b"fulfilled", b"Fulfilled"))
    assert main(command) == 1
