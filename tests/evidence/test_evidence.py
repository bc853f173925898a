"""The pack, tried as an auditor would: everything is asked of the bundle alone."""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal import KeyTools, evidence
from bloomseal.cli.main import main
from bloomseal.core.thrift import Struct
from bloomseal.evidence.bundle.manifest import add_signature, checked
from bloomseal.keytools.kms_protocols import MasterKeyFacts
from bloomseal.policy import ColumnPolicy, KeyPolicy, Policy, Sensitivity, TablePolicy
from bloomseal.rotation import Rekey, Rewrap, Unseal, rotate
from evidence.test_bundle import key_pair
from support.lab import Lab, edit_meta, people
from support.sarif import check_sarif
from support.signing import unpack

CARD = "PCI DSS 3.6"
OWNED = KeyPolicy(
    owner="Payments",
    custodian="Security operations",
    users=("billing",),
    originator_usage=timedelta(days=365),
    recipient_usage=timedelta(days=1825),
    dual_control=True,
)


class Shop(Lab):
    """A table ``people`` of three files, ``ssn`` under a standard, a policy, and a signing key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table = folder / "lake" / "people"
        self.journal = folder / "rotation.jsonl"
        self.out = folder / "evidence.zip"
        self.private, self.public = key_pair(folder, "officer")
        for index in range(3):
            self.write(f"lake/people/{index}.parquet", bloom_filters={"ssn": True})

    def policy(self, columns: Any = None, **settings: Any) -> TablePolicy:
        card = ColumnPolicy(key="pii", sensitivity=Sensitivity.RESTRICTED, requirements=(CARD, "HIPAA", "SOX 404"))
        keys = {"pii": OWNED, "footer": KeyPolicy(custodian="Platform", users=("all",))}
        given = {"key_policies": keys, "max_key_age": timedelta(days=90), **settings}
        return super().policy({"ssn": card, **(columns or {})}, **given)

    def rotated(self, *, rekey: bool = False) -> None:
        for name in ("pii", "footer"):
            self.keyring.rotate(name)
        job = Rekey(self.policy()) if rekey else Rewrap(self.policy())
        assert rotate(self.table, job, journal=self.journal, restart=self.journal.exists()).ok

    def make(self, **options: Any) -> dict[str, Any]:
        given = {
            "policy": self.policy(),
            "keys": KeyTools(self.keyring),
            "signers": [evidence.FileSigner(self.private)],
        }
        given |= {"overwrite": True, "journals": [self.journal] if self.journal.exists() else []}
        return evidence.make(self.table, self.out, **{**given, **options}).told


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Shop(tmp_path)


def named(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{one['master_key']}:{one['version']}": one for one in told["keys"]}


def of_card(told: dict[str, Any]) -> dict[str, Any]:
    """What is told of the requirement on card numbers."""
    (found,) = (one for one in told["requirements"] if one["requirement"] == CARD)
    return found


def claims(told: Any) -> list[dict[str, Any]]:
    """Every claim, wherever it stands."""
    if isinstance(told, dict):
        return ([told] if "standing" in told else []) + [one for value in told.values() for one in claims(value)]
    return [one for value in told for one in claims(value)] if isinstance(told, list) else []


def test_the_bundle_answers_by_itself(shop: Shop, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(shop.table, backup)
    shop.rotated()
    shop.keyring.destroy("pii", 1)
    shop.make(destroyed=["pii:1"], samples=[backup])
    second, second_public = key_pair(tmp_path, "second")
    assert not evidence.verify(shop.out, shop.public).ok  # the policy wants two
    add_signature(shop.out, evidence.FileSigner(second))
    verification, _ = checked(shop.out, [shop.public, second_public])
    members = unpack(shop.out)
    assert verification.ok, verification.problems

    told = json.loads(members["evidence.json"])
    jsonschema.validate(told, json.loads(members["evidence.schema.json"]), jsonschema.Draft202012Validator)
    (card,) = (one for one in told["columns"] if one["column"] == "ssn")
    assert (card["keys"], card["files"], card["findings"]) == (["pii:2"], {"column key": 3}, {})
    (rotation,) = told["rotations"]
    assert rotation["complete"]["text"] == "not contradicted: 3 of 3 seen"
    assert {"before": "pii:1", "after": "pii:2", "files": 3} in rotation["keys"]
    assert rotation["chain"] == "whole"
    today = datetime.now(UTC).date()

    keys = named(told)
    assert (keys["pii:1"]["state"], keys["pii:1"]["files"]) == ("destroyed", 0)
    assert (keys["pii:2"]["state"], keys["pii:2"]["current"], keys["pii:2"]["files"]) == ("active", True, 3)
    assert keys["pii:2"]["rotation_due"][:10] == str(today + timedelta(days=365))
    assert [keys["pii:2"][name] for name in ("owner", "custodian", "users")] == [
        "Payments", "Security operations", ["billing"]
    ]  # fmt: skip
    assert keys["footer:1"]["state"] == "deactivated"
    uses = {one["column"]: one for one in keys["pii:2"]["uses"]}
    assert set(uses) == {"ssn", "name"}
    assert uses["ssn"]["data_keys"] == 3
    assert (
        uses["ssn"]["modules"] >= 3 * 2 * 5
    )  # of each chunk: metadata, a page and its header, a filter and its header
    (gone,) = told["destructions"]
    # Six attempts on the backup's files, and the keyring's own word.
    assert gone["destroyed"]["text"] == "not contradicted: 7 of 7 seen"
    assert (gone["unneeded"]["standing"], gone["files"]) == ("not seen", 3), gone
    (doubt,) = gone["unneeded"]["unseen"]
    assert doubt.startswith("pii:1: writers may hold a key under it, and use it until ")
    assert {(one["outcome"], one["problem"]) for one in gone["tried"]} == {("refused", "destroyed")}
    assert pq.read_table(pa.BufferReader(members["inventory.parquet"])).num_rows == 3 * 2 * 5


def test_a_requirement_is_told_by_what_was_seen_of_its_columns(shop: Shop) -> None:
    told = shop.make(policy=shop.policy({"pan": ColumnPolicy(key="pii", requirements=(CARD,))}))
    found = {one["requirement"]: one for one in told["requirements"]}
    assert list(found) == ["HIPAA", CARD, "SOX 404"]
    assert found["HIPAA"] == {
        "requirement": "HIPAA",
        "columns": ["people.ssn"],
        "files": 3,
        "looked_into": 3,
        "keys": ["footer:1", "pii:1"],
        "findings": {},
        "key_findings": [],
        "unseen": [],
    }
    assert found[CARD]["columns"] == ["people.pan", "people.ssn"]
    assert found[CARD]["unseen"] == ["people.pan: no file seen has it"]


def test_what_is_found_is_told_of_the_requirement(shop: Shop) -> None:
    edit_meta_leak(shop.signed("lake/people/3.parquet", bloom_filters={"city": True}))
    shop.plain("lake/people/4.parquet", bloom_filters={"ssn": True})
    later = datetime.now(UTC) + timedelta(days=400)
    told = shop.make(policy=shop.policy(key_policies={"pii": KeyPolicy(compromised=("1",))}), now=later)
    found = of_card(told)
    assert (found["findings"]["BS101"], found["findings"]["BS103"], found["findings"]["BS111"]) == (1, 1, 1)
    assert found["findings"]["BS106"] == 1
    texts = "; ".join(found["key_findings"])
    assert "pii:1: the originator usage period ended" in texts
    assert "pii:1: it is compromised, and files are under it" in texts
    assert named(told)["pii:1"]["state"] == "compromised"
    (column,) = (one for one in told["columns"] if one["column"] == "ssn")
    assert column["files"] == {"column key": 4, "plaintext": 1}
    assert column["findings"]["BS101"] == 1
    assert column["in_clear"]["Bloom filter"] == 1
    assert column["candidates_per_second"] > 1000
    assert 300 < column["values_in_filter"] < 500
    first = told["rules"][0]
    assert (first["severity"], first["findings"] > 0) == ("critical", True)
    assert sum(one["findings"] for one in told["rules"]) == sum(told["looked_at"]["findings"].values())


def leftover(shop: Shop) -> None:
    shop.plain("lake/people/_staging/part-0.parquet")


def broken(shop: Shop) -> None:
    (shop.table / "0.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")


def gone(shop: Shop) -> None:
    shop.keyring.destroy("pii", 1)


def a_fifth_rotated(shop: Shop) -> None:
    for index in range(3, 5):
        shop.write(f"lake/people/{index}.parquet", bloom_filters={"ssn": True})
    shop.keyring.rotate("pii")
    assert rotate(shop.table / "0.parquet", Rewrap(shop.policy()), journal=shop.journal).ok


def test_no_word_stands_over_what_was_found(shop: Shop) -> None:
    a_fifth_rotated(shop)
    (rotation,) = shop.make()["rotations"]
    assert rotation["complete"]["text"].startswith("contradicted by finding 4 files under pii:1")
    leftover(shop)
    assert of_card(shop.make())["findings"]["BS115"] == 1
    broken(shop)
    found = of_card(shop.make())
    assert found["findings"]["BS201"] == 1
    assert (found["looked_into"], found["files"]) == (4, 5)
    gone(shop)
    assert "pii:1: it is destroyed, and files are under it" in of_card(shop.make())["key_findings"]
    assert "fulfilled" not in shop.out.read_bytes().decode(errors="replace")


def test_an_expired_key_is_told(shop: Shop) -> None:
    expired = {"pii": KeyPolicy(expiry=date(2020, 1, 1)), "footer": OWNED}
    found = of_card(shop.make(policy=shop.policy(key_policies=expired)))
    assert "pii:1: its expiry ended on 2020-01-01, and files are under it still" in found["key_findings"]


def test_a_journal_of_some_files_says_nothing_of_the_others(shop: Shop) -> None:
    shop.rotated()
    shop.write("lake/people/3.parquet")  # under the new key, and in no journal
    (rotation,) = shop.make()["rotations"]
    assert rotation["complete"]["standing"] == "not seen"
    assert "1 file under footer, pii that the journal does not name" in rotation["complete"]["text"]
    for index in range(1, 4):
        (shop.table / f"{index}.parquet").unlink()
    (rotation,) = shop.make()["rotations"]
    assert "2 files that the journal names, as they are now" in rotation["complete"]["text"]


def test_a_file_that_cannot_be_read_may_be_the_one_that_was_missed(shop: Shop) -> None:
    shop.rotated()
    (shop.table / "late.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    told = shop.make()
    (rotation,) = told["rotations"]
    assert rotation["complete"]["text"] == "not seen: 1 file that can't be read, or not as a whole"
    assert "1 file that can't be read, or not as a whole" in told["looked_at"]["unseen"]


@pytest.mark.parametrize("spoil", [None, leftover, broken, gone, a_fifth_rotated])
@pytest.mark.parametrize("keys", [True, False])
def test_not_contradicted_is_all_seen(shop: Shop, spoil: Callable[[Shop], object] | None, keys: bool) -> None:
    """Of every claim in a bundle: what it says is what its own counts say, and no other word is in it."""
    if spoil is not None:
        spoil(shop)
    told = shop.make(keys=None, with_keys=keys, destroyed=["pii:1"])
    assert claims(told)
    for one in claims(told):
        match one["standing"]:
            case "contradicted":
                assert one["findings"]
                assert one["text"].startswith("contradicted by finding ")
            case "not contradicted":
                assert one["text"] == f"not contradicted: {one['seen']} of {one['of']} seen"
                assert 0 < one["seen"] == one["of"]
                assert not one["unseen"]
                assert not one["findings"]
            case _:
                assert one["text"].startswith("not seen: ")
                assert len(one["text"]) > len("not seen: ")
    if not keys:
        assert of_card(told)["looked_into"] == 0


def edit_meta_leak(path: Path) -> None:
    def spoil(meta: Struct) -> None:
        meta.set_struct(17, Struct())

    edit_meta(path, 1, spoil)


def test_without_keys_everything_hidden_is_unseen(shop: Shop) -> None:
    told = shop.make(keys=None, with_keys=False)
    assert told["looked_at"]["unseen"]
    assert told["looked_at"]["kms"] is None
    assert {(one["looked_into"], one["files"]) for one in told["requirements"]} == {(0, 3)}
    assert {one["state"] for one in told["keys"]} == {"unknown"}


def test_states_are_those_of_sp_800_57(shop: Shop) -> None:
    shop.keyring.rotate("other")
    shop.keyring.disable("other")
    policy = shop.policy({"city": ColumnPolicy(key="other")})
    assert {one["state"] for name, one in named(shop.make(policy=policy)).items() if name.startswith("pii")} == {
        "active"
    }
    future = KeyPolicy(activation=date(2100, 1, 1))
    keys = named(shop.make(policy=shop.policy(key_policies={"pii": future, "footer": future})))
    assert keys["pii:1"]["state"] == "pre-activation"
    assert keys["pii:1"]["findings"] == [{"kind": "overdue", "what": "files are under it before its activation"}]
    keys = named(shop.make(policy=shop.policy({"x": ColumnPolicy(key="other")}, key_policies={"other": KeyPolicy()})))
    assert (keys["other:1"]["state"], keys["other:2"]["state"]) == ("suspended", "suspended")


class Plain:
    """A KMS that counts no versions."""

    def __init__(self, ring: bs.Keyring) -> None:
        self._ring = ring

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        fields = json.loads(self._ring.wrap_key(key_bytes, master_key_identifier))
        return json.dumps({"version": fields["masterKeyVersion"], "key": fields["encryptedKey"]})

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        fields = json.loads(wrapped_key)
        told = {"masterKeyVersion": fields["version"], "encryptedKey": fields["key"]}
        return self._ring.unwrap_key(json.dumps(told), master_key_identifier)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        return replace(self._ring.describe(master_key_identifier, wrapped_key), current=None, versions=None)

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> None:  # noqa: ARG002
        return None


def test_a_kms_without_versions(shop: Shop) -> None:
    tools = KeyTools(Plain(shop.keyring))
    shutil.rmtree(shop.table)
    shop.write("lake/people/0.parquet", encryption={"keys": tools})
    told = shop.make(keys=tools)
    one = named(told)["pii:None"]
    assert (one["state"], one["current"], one["files"]) == ("active", True, 1)
    assert one["rotation_due"] is not None
    assert set(named(told)) == {"footer:None", "pii:None"}
    (found,) = shop.make(keys=tools, destroyed=["pii:1"], samples=[shop.table])["destructions"]
    assert found["destroyed"]["standing"] == "not seen"
    assert found["unneeded"]["standing"] != "not contradicted"


def test_a_rotation_is_complete_when_its_journal_has_ended(shop: Shop) -> None:
    shop.rotated()
    (rotation,) = shop.make()["rotations"]
    assert (rotation["complete"]["text"], rotation["files"], rotation["chain"]) == (
        "not contradicted: 3 of 3 seen", {"rewrapped": 3}, "whole"
    )  # fmt: skip
    assert rotation["by"][0].count("@") == 1
    lines = shop.journal.read_bytes().splitlines(keepends=True)
    shop.journal.write_bytes(b"".join(lines[:-1]))
    (rotation,) = shop.make()["rotations"]
    assert rotation["complete"]["text"] == "contradicted by finding the journal has no end"


def test_a_file_left_behind_is_counted(shop: Shop) -> None:
    left = (shop.table / "0.parquet").read_bytes()
    shop.rotated()
    (shop.table / "late.parquet").write_bytes(left)
    (rotation,) = shop.make()["rotations"]
    assert rotation["complete"]["findings"] == ["1 file under footer:1", "1 file under pii:1"]
    assert rotation["remaining"] == {"footer:1": 1, "pii:1": 1}


def test_a_rekey_tells_versions_before_and_after(shop: Shop) -> None:
    shop.rotated(rekey=True)
    (rotation,) = shop.make()["rotations"]
    assert rotation["operation"] == "rekey"
    assert rotation["keys"] == [
        {"before": "footer:1", "after": "footer:2", "files": 3},
        {"before": "pii:1", "after": "pii:2", "files": 3},
    ]
    assert rotation["complete"]["standing"] == "not contradicted"


def test_journals_are_found_where_rotations_keep_them(shop: Shop) -> None:
    shop.keyring.rotate("pii")
    assert rotate(shop.table, Rewrap(shop.policy())).ok
    (rotation,) = shop.make(journals=None)["rotations"]
    assert rotation["complete"]["standing"] == "not contradicted"
    with zipfile.ZipFile(shop.out) as archive:
        assert "rotation/000-rewrap.jsonl" in archive.namelist()


@pytest.mark.parametrize("relative", [True, False])
def test_the_last_rotation_of_a_table(shop: Shop, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    """By whatever path it is named, and whatever was unsealed from it since."""
    shop.keyring.rotate("pii")
    assert rotate(shop.table, Rewrap(shop.policy())).ok
    assert rotate(shop.table, Unseal(shop.policy(), output=str(shop.folder / "plain"))).ok
    monkeypatch.chdir(shop.folder)
    given = {"policy": shop.policy(), "keys": KeyTools(shop.keyring), "overwrite": True}
    told = evidence.make("lake/people" if relative else shop.table, shop.out, **given).told
    assert {(one["operation"], one["complete"]["text"]) for one in told["rotations"]} == {
        ("rewrap", "not contradicted: 3 of 3 seen"), ("unseal", "not contradicted: 3 of 3 seen")
    }  # fmt: skip


@pytest.mark.parametrize("change", ["altered", "removed", "inserted", "unchained"])
def test_an_altered_journal_is_told(shop: Shop, change: str) -> None:
    shop.rotated()
    lines = shop.journal.read_bytes().splitlines(keepends=True)
    match change:
        case "altered":
            number = next(number for number, line in enumerate(lines) if b'"rewrapped"' in line)
            lines[number] = lines[number].replace(b'"rewrapped"', b'"Rotated"')
        case "removed":
            del lines[3]
        case "inserted":
            lines.insert(3, lines[1])
        case "unchained":
            event = json.loads(lines[3])
            del event["chain"]
            lines[3] = json.dumps(event).encode() + b"\n"
    shop.journal.write_bytes(b"".join(lines))
    (rotation,) = shop.make()["rotations"]
    assert (rotation["complete"]["standing"], rotation["chain"]) == ("not seen", "broken")
    assert "altered" in rotation["complete"]["text"]
    with pytest.raises(bs.FormatError, match="altered"):
        rotate(shop.table, Rewrap(shop.policy()), journal=shop.journal)
    assert rotate(shop.table, Rewrap(shop.policy()), journal=shop.journal, restart=True).ok


def test_an_older_versions_journal_stays_readable(shop: Shop) -> None:
    shop.rotated()
    events = [json.loads(line) for line in shop.journal.read_bytes().splitlines()]
    for event in events:
        for name in ("chain", "user", "host", "keys"):
            event.pop(name, None)
    shop.journal.write_bytes(b"".join(json.dumps(event).encode() + b"\n" for event in events[:-1]))
    (rotation,) = shop.make()["rotations"]
    assert rotation["chain"] == "none"
    assert rotate(shop.table, Rewrap(shop.policy()), journal=shop.journal).ok
    (rotation,) = shop.make()["rotations"]
    assert rotation["chain"] == f"whole from line {len(events)} on"
    assert rotation["by"]


def test_a_certificate_says_when_the_key_is_not_gone(shop: Shop, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(shop.table, backup)
    shop.rotated()
    (found,) = shop.make(destroyed=["pii:1"], samples=[backup], also=[backup])["destructions"]
    assert (found["destroyed"]["standing"], found["unneeded"]["standing"]) == ("contradicted", "contradicted")
    assert found["files"] == 6
    assert {one["outcome"] for one in found["tried"]} == {"opened"}
    shop.keyring.destroy("pii", 1)
    (found,) = shop.make(destroyed=["pii:1"])["destructions"]
    assert found["destroyed"]["text"] == "not contradicted: 1 of 1 seen"  # the keyring's word
    (found,) = shop.make(destroyed=["pii:1"], with_keys=False, keys=None)["destructions"]
    assert found["destroyed"]["text"].startswith("not seen: no KMS was asked")
    assert found["unneeded"]["standing"] == "not seen"
    with pytest.raises(bs.UsageError, match="KEY:VERSION"):
        shop.make(destroyed=["pii"])


def test_each_form_satisfies_its_own_validator(shop: Shop) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    shop.rotated()
    shop.signed("lake/people/3.parquet", encryption={"algorithm": "AES_GCM_CTR_V1"})
    shop.make(policy=shop.policy(allow_ctr=True))
    assert checked(shop.out, shop.public)[0].ok
    members = unpack(shop.out)
    for name, version in (("cbom-1.6.json", SchemaVersion.V1_6), ("cbom-1.7.json", SchemaVersion.V1_7)):
        text = members[name].decode()
        assert JsonStrictValidator(version).validate_str(text) is None
        bill = json.loads(text)
        assert bill["specVersion"] == name[5:8]
        refs = {one["bom-ref"]: one for one in bill["components"]}
        key = refs["master-key:pii:2"]["cryptoProperties"]["relatedCryptoMaterialProperties"]
        assert key["state"] == "active"
        assert {"creationDate", "activationDate", "expirationDate"} <= key.keys()
        assert key["algorithmRef"] == "algorithm:AES-256-GCM"
        edges = {one["ref"]: set(one.get("dependsOn", ())) for one in bill["dependencies"]}
        assert edges["table:people"] >= {"data-keys:pii:2:AES_GCM_V1:128"}
        assert edges["data-keys:pii:2:AES_GCM_V1:128"] == {"algorithm:AES-128-GCM", "key-encryption-keys:pii:2"}
        assert edges["key-encryption-keys:pii:2"] == {"master-key:pii:2"}
        assert edges["master-key:pii:2"] == {"algorithm:AES-256-GCM"}
        assert set().union(*edges.values()) <= refs.keys()
    jsonschema.Draft202012Validator.check_schema(json.loads(members["evidence.schema.json"]))
    check_sarif(members["audit.sarif"].decode())


class _Page(HTMLParser):
    void = frozenset({"meta", "br", "!doctype"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_are_whole_and_trust_no_name(shop: Shop) -> None:
    hostile = '<script>alert("x")</script>\u202e\n'
    table = people().rename_columns(["id", hostile, "name", "city", "nothing"])
    shop.write("lake/people/hostile.parquet", table, encryption={"column_keys": {hostile: "pii"}})
    shop.plain("lake/people/plain.parquet", table, bloom_filters={hostile: True})
    shop.make(destroyed=["pii:1"])
    members = unzip(shop.out)
    for name in ("index.html", "leaks.html"):
        text = members[name].decode()
        page = _Page()
        page.feed(text)
        assert not page.open
        assert not {"script", "img", "iframe", "link"} & page.seen
        assert not {"src", "onload"} & page.attributes
        assert "&lt;script&gt;" in text
        assert "\u202e" not in text
        assert "@media print" in text
    assert "people: ssn" in members["index.html"].decode()


def unzip(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_leak_page_names_the_worst_first(shop: Shop) -> None:
    shop.make()
    page = unzip(shop.out)["leaks.html"].decode()
    assert "Of 1 sensitive columns that were seen, 0 give something away." in page
    shop.plain("lake/people/4.parquet", bloom_filters={"ssn": True})
    shop.make()
    page = unzip(shop.out)["leaks.html"].decode()
    assert "Of 1 sensitive columns that were seen, 1 give something away: ssn." in page
    assert "in 1 of 4 files" in page
    assert re.search(r"answer for [\d,]+ candidates a second on one core: all numbers of nine digits in about", page)


def test_the_same_look_gives_the_same_bytes(shop: Shop) -> None:
    shop.rotated()
    now = datetime(2030, 1, 1, tzinfo=UTC)
    shop.make(now=now)
    first = shop.out.read_bytes()
    shop.make(now=now)
    assert shop.out.read_bytes() == first


def test_no_secret_is_in_the_bundle(shop: Shop) -> None:
    shop.rotated()
    shop.make(destroyed=["pii:1"])
    data = shop.out.read_bytes()
    for key in shop.keyring.list():
        for version in key.versions:
            assert version.key is not None
            secret = version.key.reveal()
            assert secret not in data
            assert secret.hex().encode() not in data
    assert b"000-00-0000" not in data  # a value
    assert b"encryptedKey" not in data


def test_the_access_log_is_told_in_short(shop: Shop) -> None:
    log = shop.folder / "access.jsonl"
    policy = shop.policy(access_log=str(log))
    bs.read_table(shop.table, columns=["ssn"], decryption=policy)
    with log.open("a") as file:
        file.write("nonsense\n")
    told = shop.make(policy=shop.policy(access_log=str(log)), access_log=log)
    jsonschema.validate(told, json.loads(unzip(shop.out)["evidence.schema.json"]))
    short = told["access"]["log"]
    assert short["not_understood"] == 1
    assert {(one["key"], one["column"], one["outcome"]) for one in short["uses"]} >= {("pii:1", "ssn", "given")}


POLICY = """
version = 1
[keys.pii]
owner = "Payments"
custodian = "Security operations"
users = ["billing"]
originator_usage_days = 365
dual_control = true
[tables.people]
footer_key = "footer"
[tables.people.columns.ssn]
key = "pii"
sensitivity = "restricted"
requirement = "PCI DSS 3.6"
[tables.people.columns.name]
key = "pii"
"""


def test_what_would_end_it_is_told_before_the_look(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bloomseal.audit.facts.auditor.Auditor.look", lambda *_, **__: pytest.fail("it has looked"))
    shop.out.write_bytes(b"PAR1")
    with pytest.raises(bs.UsageError, match="already"):
        shop.make(overwrite=False)
    assert shop.out.read_bytes() == b"PAR1"
    with pytest.raises(bs.BloomsealError, match="can't write the bundle: No such file"):
        evidence.make(shop.table, shop.folder / "none" / "e.zip")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(bs.MissingDependencyError, match="jinja2"):
        shop.make()


@pytest.mark.parametrize("missing", ["lake/peple", "lake/people/7.parquet", "lake/peple/*.parquet", "empty"])
def test_nothing_is_no_evidence(shop: Shop, missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    (shop.folder / "empty").mkdir()
    place = str(shop.folder / missing)
    assert main(["evidence", place, "--output", str(shop.out), "--sign-key", str(shop.private)]) == 2
    assert "no data file" in (told := capsys.readouterr().err)
    assert missing in told or missing == "empty"
    assert not shop.out.exists()
    with pytest.raises(bs.UsageError):
        evidence.make([shop.table, place], shop.out) if missing != "empty" else evidence.make(place, shop.out)
    assert not shop.out.exists()


def test_the_index_opens_with_what_was_found_and_what_was_not_seen(shop: Shop) -> None:
    shop.rotated()
    broken(shop)
    shop.make(keys=None, with_keys=False, destroyed=["pii:1"])
    members = unzip(shop.out)
    text = members["index.html"].decode()
    assert [text.index(f">{title}</h2>") for title in ("Findings", "Not seen", "The bundle", "Requirements")] == sorted(
        text.index(f">{title}</h2>") for title in ("Findings", "Not seen", "The bundle", "Requirements")
    )
    assert "BS201 unreadable-file" in text
    assert "inside the encrypted footer" in text
    linked = set(re.findall(r'href="([^"]+)"', text))
    assert linked == {name for name in members if not name.startswith("signatures/")}
    assert all('href="index.html"' in members[name].decode() for name in ("audit.html", "leaks.html"))


def test_command_line(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    policy = shop.folder / "policy.toml"
    policy.write_text(POLICY)
    second, second_public = key_pair(shop.folder, "second")
    shop.rotated()
    ring = ["--keyring", str(shop.keyring.path)]
    command = ["evidence", str(shop.table), "--output", str(shop.out), "--policy", str(policy), *ring]
    command += ["--journal", str(shop.journal), "--sign-key", str(shop.private), "--destroyed", "pii:1"]
    assert main(command) == 0
    assert "1 more signature needed" in capsys.readouterr().out
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    check = ["evidence", "verify", str(shop.out), "--public-key", str(shop.public)]
    assert main(check) == 1
    assert "2 keys have to sign" in capsys.readouterr().out
    assert main(["evidence", "sign", str(shop.out), "--sign-key", str(second)]) == 0
    check += ["--public-key", str(second_public)]
    capsys.readouterr()
    assert main(check) == 0
    out = capsys.readouterr().out
    assert "as it was signed  yes" in out
    assert "pii:1 to pii:2 in 3 files): no file was missed: not contradicted: 3 of 3 seen" in " ".join(out.split())
    assert "pii:1: the KMS has destroyed it: contradicted by finding the keyring says that it is enabled" in out
    assert main([*check, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert told["evidence"]["looked_at"]["policy_sha256"]
    data = shop.out.read_bytes()
    shop.out.write_bytes(data.replace(b"Payments", b"payments"))
    assert main(check) == 1
    assert "altered (its checksum" in capsys.readouterr().out
    assert Policy.load(policy).for_table("people").key_policies["pii"].dual_control


def test_the_command_lines_keys_are_the_policys_kms_or_none(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    policy = shop.folder / "policy.toml"
    policy.write_text(POLICY.replace("version = 1", f"version = 1\nkms = 'keyring:{shop.keyring.path}'"))
    command = ["evidence", str(shop.table), "--output", str(shop.out), "--policy", str(policy), "--overwrite"]
    command += ["--sign-key", str(shop.private), "--format", "json"]
    for more, seen in (([], True), (["--without-keys"], False)):
        assert main([*command, *more]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["looked_at"]["with_keys"] is seen
        assert (told["looked_at"]["kms"] is not None) is seen
        assert (of_card(told)["looked_into"] == 3) is seen
    assert main([*command, "--without-keys", "--destroyed", "pii:1"]) == 2
    assert main([*command, "--without-keys", "--keyring", str(shop.keyring.path)]) == 2
