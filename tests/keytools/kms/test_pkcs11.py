"""The PKCS #11 client, through python-pkcs11, against a SoftHSM2 token that the tests make."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from bloomseal import EncryptionSpec, KeyTools, write_table
from bloomseal.audit import may_destroy
from bloomseal.core.errors import UsageError
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms.pkcs11 import PIN_VARIABLE, Pkcs11Kms
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.kms_protocols import KeyState
from support.kms_conformance import KmsClientConformance
from support.signing import signs_a_bundle
from support.softhsm import PIN, TOKEN, module_path, new_token

pytestmark = [
    pytest.mark.skipif(
        module_path() is None, reason="SoftHSM2 is not installed (python tests/support/softhsm.py, as root)"
    ),
    pytest.mark.xdist_group("softhsm"),
]

KEY = bytes(range(32))


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_token(tmp_path_factory.mktemp("softhsm"))


@pytest.fixture(autouse=True)
def _pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIN_VARIABLE, PIN)


@pytest.fixture
def kms(module: str) -> Pkcs11Kms:
    client = client_for(f"pkcs11:token={quote(TOKEN)}?module-path={quote(module)}")
    assert isinstance(client, Pkcs11Kms)
    return client


@pytest.fixture(scope="session")
def admin(module: str) -> Any:
    """A session of the test's own. It stays open, since closing it would log out the clients too."""
    import pkcs11

    return pkcs11.lib(module).get_token(token_label=TOKEN).open(rw=True, user_pin=PIN)


@pytest.fixture
def make_key(admin: Any) -> Iterator[Any]:
    """Makes AES keys in the token; they are gone afterwards."""
    from pkcs11 import Attribute, KeyType, ObjectClass

    def make(label: str, *, bits: int = 256, **attributes: Any) -> None:
        template = {Attribute.EXTRACTABLE: False, Attribute.SENSITIVE: True}
        template |= {Attribute[name]: value for name, value in attributes.items()}
        admin.generate_key(KeyType.AES, bits, label=label, store=True, template=template)

    yield make
    for key in list(admin.get_objects({Attribute.CLASS: ObjectClass.SECRET_KEY})):
        key.destroy()


def in_another_process(module: str, body: str, **environment: str) -> str:
    """What `body` prints; there the client itself logs in. It has `Pkcs11Kms`, `client_for` and the library's path as
    `module`.
    """
    code = (
        "import sys; from bloomseal.keytools import KmsAccessError; from bloomseal.keytools.kms.pkcs11 import Pkcs11Kms\n"
        "from bloomseal.keytools.kms.registry import client_for\n"
        f"module = {module!r}\n{textwrap.dedent(body)}"
    )
    outer = {name: value for name, value in os.environ.items() if name != PIN_VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**outer, **environment}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestConformance(KmsClientConformance):
    master_key, other_master_key = "pii", "health"

    @pytest.fixture(autouse=True)
    def _keys(self, kms: Pkcs11Kms, make_key: Any) -> None:
        self.kms = kms
        make_key("pii")
        make_key("health", bits=128)

    def make_client(self) -> Pkcs11Kms:
        return self.kms


class TestConformanceOfKeyWrap(TestConformance):
    """Keys that may only wrap, as tokens without AES-GCM have them."""

    @pytest.fixture(autouse=True)
    def _keys(self, kms: Pkcs11Kms, make_key: Any) -> None:
        self.kms = kms
        for name in ("pii", "health"):
            make_key(name, ENCRYPT=False, DECRYPT=False, WRAP=True, UNWRAP=True)


def test_the_mechanism_is_what_the_key_allows(kms: Pkcs11Kms, make_key: Any) -> None:
    make_key("gcm", WRAP=False, UNWRAP=False)
    make_key("wrap", ENCRYPT=False, DECRYPT=False)
    assert json.loads(kms.wrap_key(KEY, "gcm"))["mechanism"] == "AES_GCM"
    assert json.loads(kms.wrap_key(KEY, "wrap"))["mechanism"] == "AES_KEY_WRAP"
    for name in ("gcm", "wrap"):
        assert kms.unwrap_key(kms.wrap_key(KEY, name), name) == KEY


def test_versions_by_label(kms: Pkcs11Kms, make_key: Any) -> None:
    make_key("pii", START_DATE=datetime.date(2025, 1, 2))
    old = kms.wrap_key(KEY, "pii")
    assert kms.describe("pii").current == "1"
    make_key("pii:v2", START_DATE=datetime.date(2026, 3, 4))
    make_key("pii:v10")
    make_key("piiv3")
    assert kms.describe("pii").current == "10"
    new = kms.wrap_key(KEY, "pii")
    assert [claimed_version(text) for text in (old, new)] == ["1", "10"]
    assert kms.unwrap_key(old, "pii") == kms.unwrap_key(new, "pii") == KEY
    # SoftHSM takes the attribute and fails when asked for it; what a token doesn't tell is None.
    assert (kms.describe("pii").created, kms.describe("pii").rotated) == (None, None)


def test_two_keys_of_one_label_are_no_version(kms: Pkcs11Kms, make_key: Any) -> None:
    """Which of them wrapped was chance: the other one does not open it, and may be the one that is kept."""
    make_key("pii")
    make_key("pii:v2")
    wrapped = kms.wrap_key(KEY, "pii")
    make_key("pii:v2")
    for use in (lambda: kms.wrap_key(KEY, "pii"), lambda: kms.unwrap_key(wrapped, "pii"), lambda: kms.describe("pii")):
        with pytest.raises(KmsAccessError, match="two keys of the token are labelled 'pii:v2'") as failure:
            use()
        assert failure.value.problem is Problem.INVALID


def test_a_version_can_not_be_passed_off_as_another(kms: Pkcs11Kms, make_key: Any) -> None:
    make_key("pii")
    make_key("pii:v2")
    fields = json.loads(kms.wrap_key(KEY, "pii"))
    for version, problem in (("1", Problem.INVALID), ("3", Problem.UNKNOWN)):
        with pytest.raises(KmsAccessError) as refused:
            kms.unwrap_key(json.dumps({**fields, "masterKeyVersion": version}), "pii")
        assert refused.value.problem is problem


def test_a_key_that_may_do_nothing_is_disabled(kms: Pkcs11Kms, make_key: Any) -> None:
    make_key("off", ENCRYPT=False, DECRYPT=False, WRAP=False, UNWRAP=False)
    make_key("on")
    with pytest.raises(KmsAccessError) as refused:
        kms.wrap_key(KEY, "off")
    assert refused.value.problem is Problem.DISABLED
    assert (kms.describe("off").state, kms.describe("on").state) == (KeyState.DISABLED, KeyState.ENABLED)


def test_a_wrong_pin_is_denied_and_not_shown(module: str, make_key: Any) -> None:
    make_key("pii")
    told = in_another_process(
        module,
        f"""
        for pin in ("987654", None):
            try:
                Pkcs11Kms(module, {TOKEN!r}, pin=lambda: pin).wrap_key(b"k" * 16, "pii")
            except KmsAccessError as error:
                print(error.problem, error, error.__context__)
        """,
    )
    assert told.startswith("denied the token denies the use of master key 'pii': PinIncorrect")
    assert told.count("None") == 2
    assert "987654" not in told


def test_an_absent_token_or_library_is_unreachable(module: str, tmp_path: Path) -> None:
    for kms in (Pkcs11Kms(module, "no such token"), Pkcs11Kms(str(tmp_path / "none.so"), TOKEN)):
        with pytest.raises(KmsAccessError) as refused:
            kms.wrap_key(KEY, "pii")
        assert refused.value.problem is Problem.UNREACHABLE


def test_a_client_logs_in_by_itself(module: str, make_key: Any, tmp_path: Path) -> None:
    make_key("pii")
    (tmp_path / "pin").write_text(PIN + "\n")
    uri = f"pkcs11:token={quote(TOKEN)}?module-path={module}"
    body = """
        kms = client_for({uri!r})
        assert kms.unwrap_key(kms.wrap_key(bytes(32), "pii"), "pii") == bytes(32)
        print(kms.describe("pii").state)
    """
    assert in_another_process(module, body.format(uri=uri), **{PIN_VARIABLE: PIN}) == "enabled"
    assert in_another_process(module, body.format(uri=f"{uri}&pin-source=file:{tmp_path / 'pin'}")) == "enabled"


def test_key_tools_over_it(kms: Pkcs11Kms, make_key: Any) -> None:
    make_key("pii")
    key, metadata = KeyTools(kms).for_file(FileRef("a.parquet")).new_key("pii", "ssn", 256)
    reader = KeyTools(kms)
    assert reader.for_file(FileRef("a.parquet")).retrieve_key(metadata, "ssn") == key
    assert reader.describe(metadata).wrapping_version == "1"


@pytest.mark.parametrize(
    "uri",
    [
        "pkcs11:",
        "pkcs11:object=x?module-path=/m",
        "pkcs11:token=x;slot-id=y?module-path=/m",
        "pkcs11:token=x?pin-value=1234",
    ],
)
def test_uris_that_are_none(uri: str) -> None:
    with pytest.raises(UsageError) as refused:
        client_for(uri)
    assert "1234" not in str(refused.value)


def test_a_version_is_told_by_opening(kms: Pkcs11Kms, make_key: Any, tmp_path: Path) -> None:
    make_key("pii")
    keys = KeyTools(kms, internal=False)
    spec = EncryptionSpec(footer_key="pii", keys=keys, plaintext_footer=True)
    write_table(pa.table({"ssn": ["1", "2"]}), tmp_path / "a.parquet", encryption=spec)
    make_key("pii:v2")
    assert [(one.version, one.wraps) for one in kms.describe("pii").versions] == [("1", False), ("2", True)]
    assert may_destroy("pii", "1", tmp_path, keys=keys, after=0).answer == "no"
    sidecar = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
    text = sidecar.read_text()
    changed = text.replace('masterKeyVersion\\\\\\":\\\\\\"1', 'masterKeyVersion\\\\\\":\\\\\\"2')
    assert changed != text
    sidecar.write_text(changed)
    assert may_destroy("pii", "1", tmp_path, keys=KeyTools(kms), after=0).answer == "unknown"


def test_a_labelled_version_is_one_key_by_both_its_names(kms: Pkcs11Kms, make_key: Any, tmp_path: Path) -> None:
    for label in ("pii", "pii:v2", "pii:v3"):
        make_key(label)
    spec = EncryptionSpec(footer_key="pii:v2", keys=KeyTools(kms), plaintext_footer=True)
    write_table(pa.table({"ssn": ["1", "2"]}), tmp_path / "a.parquet", encryption=spec)
    assert may_destroy("pii", "2", tmp_path, keys=KeyTools(kms), after=0).answer == "no"
    assert may_destroy("pii", "1", tmp_path, keys=KeyTools(kms), after=0).answer == "yes"
    assert may_destroy("pii:v2", None, tmp_path, keys=KeyTools(kms), after=0).answer == "no"
    # A version of its own makes it no other key.
    make_key("pii:v2:v2")
    write_table(pa.table({"ssn": ["1"]}), tmp_path / "b.parquet", encryption=spec)
    (tmp_path / "a.parquet").unlink()
    answer = may_destroy("pii:v2", None, tmp_path, keys=KeyTools(kms), after=0)
    assert (answer.answer, answer.needed_by) == ("no", [str(tmp_path / "b.parquet")])
    # Without CKA_START_DATE the token does not tell since when.
    assert may_destroy("pii", "1", tmp_path, keys=KeyTools(kms)).answer == "unknown"


@pytest.mark.parametrize("kind", ["ed25519", "secp256r1", "secp384r1"])
def test_it_signs_evidence(
    kms: Pkcs11Kms, admin: Any, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    from pkcs11 import Attribute, KeyType, Mechanism
    from pkcs11.util.ec import encode_named_curve_parameters

    oid, of, made_by = (
        ("1.3.101.112", KeyType.EC_EDWARDS, Mechanism.EC_EDWARDS_KEY_PAIR_GEN)
        if kind == "ed25519"
        else (kind, KeyType.EC, Mechanism.EC_KEY_PAIR_GEN)
    )
    parameters = admin.create_domain_parameters(
        of, {Attribute.EC_PARAMS: encode_named_curve_parameters(oid)}, local=True
    )
    pair = parameters.generate_keypair(mechanism=made_by, store=True, label="evidence")
    uri = f"pkcs11:token={quote(TOKEN)}?module-path={quote(module)}#evidence"
    digest = {"secp256r1": "sha256", "secp384r1": "sha384"}.get(kind)
    try:
        signs_a_bundle(uri, tmp_path, capsys, digest=digest)
        with pytest.raises(KmsAccessError) as refused:
            kms.sign(b"x", "nobody")
        assert refused.value.problem is Problem.UNKNOWN
        twin = parameters.generate_keypair(mechanism=made_by, store=True, label="evidence")
        with pytest.raises(KmsAccessError, match="more than one"):
            kms.sign(b"x", "evidence")
        pair = (*pair, *twin)
    finally:
        for one in pair:
            one.destroy()
