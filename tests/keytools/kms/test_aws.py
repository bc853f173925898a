"""The AWS client, through boto3, against moto's HTTP server. What moto does not do (disabled keys still decrypt there)
is shaped by hand.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from moto.kms.utils import ECDSAPrivateKey
from moto.server import ThreadedMotoServer

from bloomseal import EncryptionSpec, KeyTools, write_table
from bloomseal.audit import may_destroy
from bloomseal.core.errors import UsageError
from bloomseal.core.keys.material import KeyMaterial, KeyMetadata
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.aws import AwsKms
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.kms.signing import der
from bloomseal.keytools.kms_protocols import KeyState
from support.kms_conformance import KmsClientConformance
from support.signing import signs_a_bundle

REGION = "eu-central-1"
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def admin(endpoint: str) -> Any:
    return boto3.client("kms", region_name=REGION, endpoint_url=endpoint)


@pytest.fixture
def kms(endpoint: str) -> AwsKms:
    client = client_for(f"aws-kms://{REGION}?endpoint={endpoint}")
    assert isinstance(client, AwsKms)
    return client


class TestConformance(KmsClientConformance):
    unknown_master_key = "alias/no-such-key"

    @pytest.fixture(autouse=True)
    def _keys(self, kms: AwsKms, admin: Any) -> None:
        self.kms = kms
        self.master_key, self.other_master_key = (admin.create_key()["KeyMetadata"]["KeyId"] for _ in range(2))

    def make_client(self) -> AwsKms:
        return self.kms


def test_ids_arns_and_aliases_name_keys(kms: AwsKms, admin: Any) -> None:
    made = admin.create_key()["KeyMetadata"]
    alias = f"alias/{made['KeyId'][:8]}"
    admin.create_alias(AliasName=alias, TargetKeyId=made["KeyId"])
    alias_arn = made["Arn"].replace(f"key/{made['KeyId']}", alias)
    for name in (made["KeyId"], made["Arn"], alias, alias_arn):
        assert kms.unwrap_key(kms.wrap_key(KEY, name), name) == KEY
        assert kms.describe(name).state is KeyState.ENABLED
        assert kms.describe(name).created is not None


def test_the_context_binds_the_master_keys_name(kms: AwsKms, admin: Any) -> None:
    made = admin.create_key()["KeyMetadata"]
    wrapped = kms.wrap_key(KEY, made["KeyId"])
    with pytest.raises(KmsAccessError) as refused:  # the same key, by another name
        kms.unwrap_key(wrapped, made["Arn"])
    assert refused.value.problem is Problem.INVALID


def test_what_iceberg_stores_has_no_context(kms: AwsKms, admin: Any) -> None:
    made = admin.create_key()["KeyMetadata"]
    wrapped = admin.encrypt(KeyId=made["KeyId"], Plaintext=KEY)["CiphertextBlob"]
    assert kms.unwrap_bytes(wrapped, made["KeyId"]) == KEY
    assert kms.opened_by(wrapped, made["KeyId"]).key == made["Arn"]
    with pytest.raises(KmsAccessError):
        kms.opened_by(base64.b64encode(wrapped).decode(), made["KeyId"])


def test_rewrapping_stays_inside_and_moves_the_context(kms: AwsKms, admin: Any) -> None:
    old, new = (admin.create_key()["KeyMetadata"]["KeyId"] for _ in range(2))
    moved = kms.rewrap_key(kms.wrap_key(KEY, old), old, new)
    assert kms.unwrap_key(moved, new) == KEY
    with pytest.raises(KmsAccessError):
        kms.unwrap_key(moved, old)


def test_a_rotation_is_dated(kms: AwsKms, admin: Any) -> None:
    name = admin.create_key()["KeyMetadata"]["KeyId"]
    wrapped = kms.wrap_key(KEY, name)
    assert kms.describe(name).rotated is None
    admin.rotate_key_on_demand(KeyId=name)
    dates = kms.describe(name)
    assert dates.rotated is not None
    assert dates.created is not None
    assert dates.rotated.tzinfo is not None
    assert kms.unwrap_key(wrapped, name) == KEY


def test_states(kms: AwsKms, admin: Any) -> None:
    name = admin.create_key()["KeyMetadata"]["KeyId"]
    admin.disable_key(KeyId=name)
    assert kms.describe(name).state is KeyState.DISABLED
    admin.schedule_key_deletion(KeyId=name, PendingWindowInDays=7)
    assert kms.describe(name).state is KeyState.PENDING_DELETION


def test_key_tools_over_it_make_one_call_per_kek(kms: AwsKms, admin: Any) -> None:
    name = admin.create_key()["KeyMetadata"]["Arn"]
    writer = KeyTools(kms)
    made = [writer.for_file(FileRef(f"{i}.parquet")).new_key(name, "ssn", 128) for i in range(20)]
    assert writer.counters.wraps == 1
    reader = KeyTools(kms)
    for i, (key, metadata) in enumerate(made):
        assert reader.for_file(FileRef(f"{i}.parquet")).retrieve_key(metadata, "ssn") == key
    assert (reader.counters.unwraps, reader.counters.hits) == (1, 19)


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (400, "AccessDeniedException", Problem.DENIED),
        (400, "UnrecognizedClientException", Problem.DENIED),
        (400, "ExpiredTokenException", Problem.DENIED),
        (400, "DisabledException", Problem.DISABLED),
        (400, "KMSInvalidStateException", Problem.DISABLED),
        (400, "NotFoundException", Problem.UNKNOWN),
        (400, "IncorrectKeyException", Problem.INVALID),
        (400, "InvalidCiphertextException", Problem.INVALID),
        (400, "ThrottlingException", Problem.THROTTLED),
        (500, "KMSInternalException", Problem.UNREACHABLE),
        (503, "SomethingNew", Problem.UNREACHABLE),
    ],
)
def test_every_refusal_has_its_meaning(status: int, code: str, problem: Problem) -> None:
    with (
        _answering(status, f'{{"__type":"{code}","message":"echo AAECAwQFBgc="}}') as url,
        pytest.raises(KmsAccessError) as refused,
    ):
        AwsKms(REGION, endpoint=url).wrap_key(KEY, "alias/pii")
    assert refused.value.problem is problem
    assert refused.value.retryable is (problem in (Problem.UNREACHABLE, Problem.THROTTLED))
    assert "alias/pii" in str(refused.value)
    assert "AAECAwQFBgc" not in str(refused.value)  # a vendor's free text may echo the request
    assert refused.value.__context__ is None


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(KmsAccessError) as refused:
        AwsKms(REGION, endpoint="http://127.0.0.1:9").unwrap_key("AAAA", "alias/pii")
    assert refused.value.problem is Problem.UNREACHABLE


def test_no_credentials_are_denied(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(KmsAccessError) as refused:
        AwsKms(REGION, endpoint=endpoint).wrap_key(KEY, "alias/pii")
    assert refused.value.problem is Problem.DENIED


@pytest.mark.parametrize(
    "uri", ["aws-kms://eu-central-1/key", "aws-kms://eu-central-1?verify=false", "aws-kms://a:b@x"]
)
def test_uris_that_are_none(uri: str) -> None:
    with pytest.raises(UsageError):
        client_for(uri)


def test_it_is_not_pickled(kms: AwsKms) -> None:
    import pickle

    with pytest.raises(TypeError):
        pickle.dumps(kms)
    assert "testing" not in repr(kms)


def test_a_key_of_another_length_than_asked_is_no_key(kms: AwsKms, admin: Any) -> None:
    name = admin.create_key()["KeyMetadata"]["KeyId"]
    wrapped = kms.wrap_key(b"seventeen bytes!!", name)
    tools = KeyTools(kms, double_wrapping=False)
    metadata = KeyMetadata(material=KeyMaterial(name, wrapped, is_footer_key=False)).to_bytes()
    with pytest.raises(KmsAccessError, match="17 bytes"):
        tools.for_file(FileRef("x")).retrieve_key(metadata, "c")


class _answering:  # noqa: N801
    """An HTTP server that gives one answer to everything."""

    def __init__(self, status: int, body: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def _under(kms: AwsKms, path: Path, name: str) -> None:
    keys = KeyTools(kms)
    spec = EncryptionSpec(footer_key=name, column_keys={"ssn": name}, keys=keys, plaintext_footer=True)
    write_table(pa.table({"ssn": ["1", "2"]}), path, encryption=spec)


def test_a_key_is_one_whatever_its_names(kms: AwsKms, admin: Any, tmp_path: Path) -> None:
    made, other = (admin.create_key()["KeyMetadata"] for _ in range(2))
    alias = f"alias/t{made['KeyId'][:8]}"
    admin.create_alias(AliasName=alias, TargetKeyId=made["KeyId"])
    alias_arn = made["Arn"].replace(f"key/{made['KeyId']}", alias)
    _under(kms, tmp_path / "a.parquet", alias)
    for name in (made["KeyId"], made["Arn"], alias, alias_arn):
        answer = may_destroy(name, "*", tmp_path, keys=KeyTools(kms), after=0)
        assert (answer.answer, answer.needed_by) == ("no", [str(tmp_path / "a.parquet")])
        assert answer.under == [f"{made['Arn']}:?"]  # moto tells no key material
    admin.disable_key(KeyId=other["KeyId"])
    assert may_destroy(other["KeyId"], None, tmp_path, keys=KeyTools(kms), after=0).answer == "yes"
    with pytest.raises(UsageError, match="knows no master key"):
        may_destroy("alias/no-such-key", None, tmp_path, keys=KeyTools(kms))
    with pytest.raises(UsageError, match="knows no version '1'"):
        may_destroy(made["KeyId"], "1", tmp_path, keys=KeyTools(kms))
    # The alias leads to another key now; what it wrapped before is still under the first one.
    admin.update_alias(AliasName=alias, TargetKeyId=other["KeyId"])
    assert may_destroy(made["KeyId"], None, tmp_path, keys=KeyTools(kms), after=0).answer == "no"


def test_without_an_answer_there_is_no_yes(kms: AwsKms, admin: Any, tmp_path: Path) -> None:
    name = admin.create_key()["KeyMetadata"]["KeyId"]
    _under(kms, tmp_path / "a.parquet", name)
    with _answering(400, '{"__type":"ThrottlingException"}') as url:
        tools = KeyTools(AwsKms(REGION, endpoint=url), attempts=1)
        answer = may_destroy("alias/other", None, tmp_path, keys=tools, after=0)
    assert answer.answer == "unknown"
    assert "too many requests" in answer.doubts[0]


def test_it_tells_the_time_of_the_kms(kms: AwsKms, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = admin.create_key()["KeyMetadata"]["KeyId"]
    told = kms.describe(name).clock
    assert told is not None
    assert abs((datetime.now(UTC) - told).total_seconds()) < 60
    for head in ({}, {"date": "soon"}, {"date": "Sun, 01 Feb 2026 00:00:00 -0000"}):
        answer = {"KeyMetadata": {}, "ResponseMetadata": {"HTTPHeaders": head}}
        monkeypatch.setattr(kms._client, "describe_key", lambda answer=answer, **_: answer)
        assert kms.describe(name).clock is None


def test_versions_are_key_materials(monkeypatch: pytest.MonkeyPatch, kms: AwsKms) -> None:
    """As AWS documents DescribeKey, ListKeyRotations and Decrypt; moto knows no key material."""
    arn = "arn:aws:kms:eu-central-1:111122223333:key/mrk-1234"
    day = datetime(2026, 1, 1, tzinfo=UTC)
    pages = [
        {"Rotations": [{"KeyMaterialId": "b", "RotationDate": day}], "Truncated": True, "NextMarker": "x"},
        {"Rotations": [{"KeyMaterialId": "a"}], "Truncated": False},
    ]
    described = {"Arn": arn, "KeyState": "Enabled", "CurrentKeyMaterialId": "b"}
    asked: list[dict[str, Any]] = []

    def decrypt(**request: Any) -> dict[str, Any]:
        asked.append(request)
        return {"KeyId": arn, "Plaintext": KEY, "KeyMaterialId": "a"}

    monkeypatch.setattr(kms._client, "describe_key", lambda **_: {"KeyMetadata": described})
    monkeypatch.setattr(kms._client, "list_key_rotations", lambda **request: pages["Marker" in request])
    monkeypatch.setattr(kms._client, "decrypt", decrypt)
    assert [(one.version, one.wraps, one.retired) for one in kms.describe("alias/pii").versions] == [
        ("a", False, day),
        ("b", True, None),
    ]
    assert kms.describe("alias/pii").identify("a") == (
        "mrk-1234",
        "a",
    )  # its replicas in other regions are the same key
    assert kms.opened_by(base64.b64encode(b"blob").decode(), "alias/pii") == ("mrk-1234", "a")
    assert "KeyId" not in asked[0]


@pytest.mark.parametrize(("spec", "digest"), [("ECC_NIST_P256", hashes.SHA256()), ("ECC_NIST_P384", hashes.SHA384())])
def test_it_signs_evidence(
    admin: Any,
    endpoint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spec: str,
    digest: hashes.HashAlgorithm,
) -> None:
    def as_documented(self: Any, message: bytes, _: str) -> bytes:
        """moto signs a digest as if it were the message."""
        signed: bytes = self.private_key.sign(message, ec.ECDSA(Prehashed(digest)))
        return signed

    monkeypatch.setattr(ECDSAPrivateKey, "sign", as_documented)
    key = admin.create_key(KeySpec=spec, KeyUsage="SIGN_VERIFY")["KeyMetadata"]["KeyId"]
    uri = f"aws-kms://{REGION}?endpoint={endpoint}#{key}"
    signs_a_bundle(uri, tmp_path, capsys, digest=digest.name)


def test_it_signs_by_ed25519_what_is_short_enough(monkeypatch: pytest.MonkeyPatch, kms: AwsKms) -> None:
    """As AWS documents GetPublicKey and Sign; moto has no such keys."""
    private, asked = Ed25519PrivateKey.generate(), dict[str, Any]()

    def sign(**request: Any) -> dict[str, Any]:
        asked.update(request)
        return {"Signature": private.sign(request["Message"])}

    described = {"PublicKey": der(private.public_key())}
    monkeypatch.setattr(kms._client, "get_public_key", lambda **_: described)
    monkeypatch.setattr(kms._client, "sign", sign)
    private.public_key().verify(kms.sign(b"m" * 4096, "alias/evidence"), b"m" * 4096)
    assert (asked["MessageType"], asked["SigningAlgorithm"]) == ("RAW", "ED25519_SHA_512")
    with pytest.raises(KmsAccessError, match="P-256"):
        kms.sign(b"m" * 4097, "alias/evidence")
    for other in (der(ec.generate_private_key(ec.SECP521R1()).public_key()), b"no key"):
        described["PublicKey"] = other
        with pytest.raises(KmsAccessError, match="not a key for Ed25519"):
            kms.sign(b"m", "alias/evidence")


def test_an_audit_that_is_throttled_has_not_looked(
    kms: AwsKms, admin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bloomseal.audit import audit
    from bloomseal.cli.main import main

    _under(kms, tmp_path / "a.parquet", admin.create_key()["KeyMetadata"]["KeyId"])
    with _answering(400, '{"__type":"ThrottlingException"}') as url:
        report = audit(tmp_path, keys=KeyTools(AwsKms(REGION, endpoint=url), attempts=1))
        assert not report.ok
        assert any("too many requests" in one for one in report.unseen), report.unseen
        assert main(["audit", str(tmp_path), "--kms", f"aws-kms://{REGION}?endpoint={url}"]) == 3
    assert "too many requests" in capsys.readouterr().out
