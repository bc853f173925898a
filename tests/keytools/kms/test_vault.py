"""The Vault client, through hvac, against a stub of the transit engine's documented HTTP API (no server can be
installed here).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bloomseal import EncryptionSpec, KeyTools, write_table
from bloomseal.audit import may_destroy
from bloomseal.core.errors import UsageError
from bloomseal.core.keys.material import KeyMaterial, KeyMetadata
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.kms.vault import VaultKms
from bloomseal.keytools.kms_protocols import KeyState
from support.kms_conformance import KmsClientConformance
from support.signing import signs_a_bundle
from support.vendor_stubs import VaultStub

TOKEN = "hvs.a-token-that-must-not-show"
KEY = bytes(range(32))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[VaultStub]:
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    monkeypatch.delenv("VAULT_CACERT", raising=False)
    with VaultStub(TOKEN) as stub:
        stub.new_key("pii")
        stub.new_key("health")
        yield stub


@pytest.fixture
def kms(server: VaultStub) -> VaultKms:
    client = client_for(f"vault://{server.address}/transit?plain_http=true")
    assert isinstance(client, VaultKms)
    return client


class TestConformance(KmsClientConformance):
    master_key, other_master_key = "pii", "health"

    @pytest.fixture(autouse=True)
    def _kms(self, kms: VaultKms) -> None:
        self.kms = kms

    def make_client(self) -> VaultKms:
        return self.kms


def test_versions(kms: VaultKms, server: VaultStub) -> None:
    old = kms.wrap_key(KEY, "pii")
    server.new_key("pii")
    new = kms.rewrap_key(old, "pii")
    assert ("POST", "/v1/transit/rewrap/pii") in server.requests  # the engine did it, not this process
    assert [claimed_version(text) for text in (old, new)] == ["1", "2"]
    assert kms.describe("pii").current == "2"
    assert kms.unwrap_key(old, "pii") == kms.unwrap_key(new, "pii") == KEY
    dates = kms.describe("pii")
    assert dates.created is not None
    assert dates.rotated is not None
    assert dates.created < dates.rotated
    assert kms.describe("pii").state is KeyState.ENABLED


def test_a_version_below_the_allowed_is_disabled(kms: VaultKms, server: VaultStub) -> None:
    wrapped = kms.wrap_key(KEY, "pii")
    server.new_key("pii")
    server.min_decryption_version = 2
    with pytest.raises(KmsAccessError) as refused:
        kms.unwrap_key(wrapped, "pii")
    assert refused.value.problem is Problem.DISABLED


def test_a_wrong_token_is_denied_and_not_shown(server: VaultStub) -> None:
    kms = VaultKms(f"http://{server.address}", token="hvs.another-one")
    with pytest.raises(KmsAccessError) as refused:
        kms.wrap_key(KEY, "pii")
    assert refused.value.problem is Problem.DENIED
    assert refused.value.__context__ is None
    assert "another-one" not in f"{refused.value} {kms!r}"


def test_a_renewed_token_is_picked_up(kms: VaultKms, server: VaultStub, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = kms.wrap_key(KEY, "pii")
    server.token = "hvs.the-renewed-one"
    with pytest.raises(KmsAccessError):
        kms.unwrap_key(wrapped, "pii")
    monkeypatch.setenv("VAULT_TOKEN", server.token)
    assert kms.unwrap_key(wrapped, "pii") == KEY


@pytest.mark.parametrize("name", ["../sys/raw", "a/b", "pii?x=1", "", "..", "ü"])
def test_a_files_master_key_can_not_lead_elsewhere(kms: VaultKms, server: VaultStub, name: str) -> None:
    with pytest.raises(KmsAccessError) as refused:
        kms.unwrap_key("vault:v1:AAAA", name)
    assert refused.value.problem is Problem.UNKNOWN
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "errors", "problem"),
    [
        (403, ["permission denied"], Problem.DENIED),
        (404, [], Problem.UNKNOWN),
        (429, ["rate limited"], Problem.THROTTLED),
        (500, ["internal error"], Problem.UNREACHABLE),
        (502, [], Problem.UNREACHABLE),
        (503, ["Vault is sealed"], Problem.UNREACHABLE),
        (400, ["cipher: message authentication failed"], Problem.INVALID),
        (400, ["key is soft deleted"], Problem.DISABLED),
    ],
)
def test_every_refusal_has_its_meaning(
    kms: VaultKms, server: VaultStub, status: int, errors: list[str], problem: Problem
) -> None:
    server.override = lambda *_: (status, {"errors": errors})
    with pytest.raises(KmsAccessError) as refused:
        kms.wrap_key(KEY, "pii")
    assert refused.value.problem is problem
    assert refused.value.retryable is (problem in (Problem.UNREACHABLE, Problem.THROTTLED))


def test_an_answer_without_its_fields_is_no_answer(kms: VaultKms, server: VaultStub) -> None:
    server.override = lambda *_: (200, {"data": {}})
    for call in (lambda: kms.wrap_key(KEY, "pii"), lambda: kms.describe("pii").current):
        with pytest.raises(KmsAccessError):
            call()
    server.override = lambda *_: (200, {"data": {"plaintext": ""}})
    tools = KeyTools(kms, double_wrapping=False)
    metadata = KeyMetadata(material=KeyMaterial("pii", "vault:v1:AAAA", is_footer_key=False)).to_bytes()
    with pytest.raises(KmsAccessError, match="0 bytes"):
        tools.for_file(FileRef("x")).retrieve_key(metadata, "c")


def test_redirects_are_not_followed(kms: VaultKms, server: VaultStub) -> None:
    server.override = lambda *_: (307, {})
    with pytest.raises(KmsAccessError):
        kms.wrap_key(KEY, "pii")
    assert len(server.requests) == 1


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(KmsAccessError) as refused:
        VaultKms("http://127.0.0.1:9", token=TOKEN).wrap_key(KEY, "pii")
    assert refused.value.problem is Problem.UNREACHABLE


@pytest.mark.parametrize(
    "uri",
    [
        "vault:",
        "vault://h?verify=no",
        "vault://example.org?plain_http=true",
        "vault://h?allow_http=true&verify=no",
        "vault://me@h/transit",
    ],
)
def test_uris_that_are_none(uri: str) -> None:
    with pytest.raises(UsageError):
        client_for(uri)


def test_a_version_is_told_by_opening(kms: VaultKms, server: VaultStub, tmp_path: Path) -> None:
    keys = KeyTools(kms, internal=False)
    spec = EncryptionSpec(footer_key="health", column_keys={"ssn": "pii"}, keys=keys, plaintext_footer=True)
    write_table(pa.table({"ssn": ["1", "2"]}), tmp_path / "a.parquet", encryption=spec)
    server.new_key("pii")
    versions = kms.describe("pii").versions
    assert [(one.version, one.wraps) for one in versions] == [("1", False), ("2", True)]
    assert versions[0].retired is not None
    sidecar = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
    assert may_destroy("pii", "1", tmp_path, keys=keys, after=0).answer == "no"
    # The text says that version 2 wrapped it.
    whole = json.loads(sidecar.read_text())
    for name, text in whole.items():
        if '"masterKeyID":"pii"' in text:
            whole[name] = text.replace("vault:v1:", "vault:v2:")
    sidecar.write_text(json.dumps(whole))
    answer = may_destroy("pii", "1", tmp_path, keys=KeyTools(kms), after=0)
    assert answer.answer == "unknown"
    assert any("says it is under pii, version 2" in doubt for doubt in answer.doubts)
    for version in ("v1", "01", "77"):
        with pytest.raises(UsageError, match="it has 1, 2"):
            may_destroy("pii", version, tmp_path, keys=KeyTools(kms))
    with pytest.raises(UsageError, match="knows no master key"):
        may_destroy("pi", "1", tmp_path, keys=KeyTools(kms))


def test_it_tells_the_time_of_the_server(kms: VaultKms, server: VaultStub) -> None:
    server.time = 1_767_225_600
    assert kms.describe("pii").clock == datetime(2026, 1, 1, tzinfo=UTC)
    server.time = None
    assert kms.describe("pii").clock is None


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa-p256", "ecdsa-p384"])
def test_it_signs_evidence(
    server: VaultStub, kms: VaultKms, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    digests = {"ecdsa-p256": ("sha256", ec.SECP256R1()), "ecdsa-p384": ("sha384", ec.SECP384R1())}
    digest, curve = digests.get(kind, (None, None))
    # The latest of two versions signs.
    server.pairs["evidence"] = [
        Ed25519PrivateKey.generate() if curve is None else ec.generate_private_key(curve) for _ in range(2)
    ]
    signs_a_bundle(f"vault://{server.address}/transit?plain_http=true#evidence", tmp_path, capsys, digest=digest)
    with pytest.raises(KmsAccessError) as refused:
        kms.public_key("pii")  # a master key is none to sign with
    assert refused.value.problem is Problem.INVALID
    with pytest.raises(KmsAccessError) as refused:
        kms.sign(b"x", "nobody")
    assert refused.value.problem is Problem.UNKNOWN
