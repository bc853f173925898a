"""Signers: lines of public keys, statements and envelopes, and what a policy makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import bloomseal as bs
from bloomseal.keytools.lines import as_line
from bloomseal.keytools.signatures.envelope import SignatureFault, Statement, envelope, judge, pae
from bloomseal.keytools.signatures.keys import PublicKey
from bloomseal.keytools.signatures.signers import Signers

# RFC 8032, section 7.1, TEST 1, 2 and 3: secret key, public key, message, signature.
RFC8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
STATEMENT = Statement("people", "day=1/a.parquet", 4321, "ab" * 32, "0123456789abcdef", "")
STORED = b'{"aad_file_unique":"0123456789abcdef","aad_prefix":"","length":4321,"path":"day=1/a.parquet","table":"people","tail_sha256":"abababababababababababababababababababababababababababababababab","version":1}'


def der(private: Any) -> bytes:
    made: bytes = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return made


class Signing:
    """A key pair in this process."""

    def __init__(self, private: Any = None) -> None:
        self._private = private or Ed25519PrivateKey.generate()
        self.key = PublicKey(der(self._private))

    def public_key(self) -> bytes:
        return self.key.pem

    def sign(self, message: bytes) -> bytes:
        if isinstance(self._private, ec.EllipticCurvePrivateKey):
            from cryptography.hazmat.primitives import hashes

            digest = hashes.SHA256() if self._private.curve.name == "secp256r1" else hashes.SHA384()
            return self.key.in_one_form(self._private.sign(message, ec.ECDSA(digest)))
        return bytes(self._private.sign(message))


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC8032)
def test_the_vectors_of_rfc_8032(secret: str, public: str, message: str, signature: str) -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    key = PublicKey(der(private))
    assert key.verifies(bytes.fromhex(signature), bytes.fromhex(message))
    assert not key.verifies(bytes.fromhex(signature), bytes.fromhex(message) + b"!")
    assert public in der(private).hex()
    assert PublicKey.from_line(key.line).fingerprint == key.fingerprint


def test_the_published_example_of_dsse() -> None:
    """https://github.com/secure-systems-lab/dsse, protocol.md, "Test Vectors"."""
    made = pae("http://example.com/HelloWorld", b"hello world")
    assert made == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_statement_has_one_form() -> None:
    assert STATEMENT.to_bytes() == STORED


@pytest.mark.parametrize(
    "private", [None, ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())]
)
def test_a_line_is_a_key_and_a_mistyped_one_is_none(private: Any) -> None:
    signing = Signing(private)
    line = signing.key.line
    assert line.startswith("bsv1")
    again = PublicKey.from_line(line)
    assert (again.fingerprint, again.algorithm) == (signing.key.fingerprint, signing.key.algorithm)
    made = envelope(STORED, [(signing.key, signing.sign)])
    assert judge(made, STATEMENT, {"me": (again,)}) == ("me", signing.key.algorithm, None, "", signing.key.fingerprint)
    for place in range(len(line)):
        other = line[:place] + ("a" if line[place] != "a" else "b") + line[place + 1 :]
        with pytest.raises(bs.UsageError):
            PublicKey.from_line(other)
    for other in ("", "bsv1", line.swapcase(), line + "a", line[:-1], line + " ", "ed25519:AAAA"):
        with pytest.raises(bs.UsageError):
            PublicKey.from_line(other)


def _small_order() -> set[bytes]:
    """Points whose order divides 8, in each form: multiples of a random point's part that the order of the group's
    large subgroup leaves.
    """
    p, large = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, p) % p

    def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        (x1, y1), (x2, y2) = one, other
        part = d * x1 * x2 * y1 * y2
        return (x1 * y2 + x2 * y1) * pow(1 + part, -1, p) % p, (y1 * y2 + x1 * x2) * pow(1 - part, -1, p) % p

    def times(number: int, point: tuple[int, int]) -> tuple[int, int]:
        found = (0, 1)
        for bit in f"{number:b}":
            found = add(found, found)
            found = add(found, point) if bit == "1" else found
        return found

    points = set()
    for y in range(2, 20):
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        for root in (pow(square, (p + 3) // 8, p), pow(square, (p + 3) // 8, p) * pow(2, (p - 1) // 4, p) % p):
            if root * root % p == square:
                part = times(large, (root, y))
                points |= {times(number, part) for number in range(8)}
    ys = {other for _, y in points for other in (y, y + p) if other < 1 << 255}
    return {(y | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)}


def test_a_key_that_takes_anybodys_signature_is_none(tmp_path: Path) -> None:
    keys = _small_order()
    assert len(keys) == 14
    for raw in keys:
        public = Ed25519PublicKey.from_public_bytes(raw)
        forged = [(point + bytes(32), bytes([number])) for point in keys for number in range(9)]
        assert any(_holds(public, *one) for one in forged), "OpenSSL takes a signature that needed no key"
        with pytest.raises(bs.UsageError, match="anybody's signature"):
            PublicKey.from_line(as_line("bsv1", b"\1" + raw))
        with pytest.raises(bs.UsageError, match="anybody's signature"):
            PublicKey(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(bs.PolicyError, match="anybody's signature"):
        policy({"me": as_line("bsv1", b"\1" + bytes(32))})


def _holds(public: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a field more": lambda it: it.update(more=1),
    "a field less": lambda it: it.pop("payloadType"),
    "another type": lambda it: it.update(payloadType="application/json"),
    "no signature": lambda it: it.update(signatures=[]),
    "no list": lambda it: it.update(signatures={}),
    "a signature twice": lambda it: it["signatures"].append(it["signatures"][0]),
    "a field more in a signature": lambda it: it["signatures"][0].update(more=1),
    "no base64": lambda it: it.update(payload="*"),
    "a number for a text": lambda it: it.update(payload=1),
    "too many": lambda it: it.update(signatures=[{"keyid": str(i), "sig": ""} for i in range(17)]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_envelope_of_another_form_is_wrong(change: str) -> None:
    signing = Signing()
    made = json.loads(envelope(STORED, [(signing.key, signing.sign)]))
    CHANGES[change](made)
    data = json.dumps(made, sort_keys=True, separators=(",", ":")).encode()
    assert judge(data, STATEMENT, {"me": (signing.key,)}).fault is SignatureFault.WRONG


def test_spaces_and_repeated_fields_are_another_form() -> None:
    signing = Signing()
    made = envelope(STORED, [(signing.key, signing.sign)])
    for data in (
        made + b"\n",
        made.replace(b":", b": ", 1),
        b'{"payload":"",' + made[1:],
        b"[]",
        b"",
        b"\xff",
        b"{" * 9999,
    ):
        assert judge(data, STATEMENT, {"me": (signing.key,)}).fault is SignatureFault.WRONG


def test_who_signed_and_what() -> None:
    one, other = Signing(), Signing()
    made = envelope(STORED, [(one.key, one.sign)])
    assert judge(None, STATEMENT, {"one": (one.key,)}).fault is SignatureFault.UNSIGNED
    assert judge(made, STATEMENT, {"other": (other.key,), "one": (one.key,)}).signer == "one"
    assert judge(made, STATEMENT, {"other": (other.key,)}).fault is SignatureFault.UNKNOWN
    assert judge(made, STATEMENT, {"both": (one.key, other.key)}).fault is SignatureFault.UNKNOWN
    both = envelope(STORED, [(one.key, one.sign), (other.key, other.sign)])
    assert judge(both, STATEMENT, {"both": (one.key, other.key)}).algorithms == "ed25519, ed25519"
    half = envelope(STORED, [(one.key, one.sign), (other.key, one.sign)])
    assert judge(half, STATEMENT, {"both": (one.key, other.key)}).fault is SignatureFault.WRONG
    for field, value, what in (
        ("table", "b", "another table"),
        ("path", "b", "another place"),
        ("length", 1, "another file"),
    ):
        found = judge(made, STATEMENT._replace(**{field: value}), {"one": (one.key,)})
        assert found.fault is SignatureFault.WRONG
        assert what in found.why


def policy(signers: Any, **more: Any) -> Any:
    ring = more.pop("kms", "keyring:nowhere.json")
    table = {"footer_key": "footer", **({} if signers is None else {"signers": signers}), **more}
    return bs.Policy.from_dict({"version": 1, "tables": {"people": table}}, kms=ring).for_table()


def test_a_policy_names_signers_by_lines() -> None:
    lines = [Signing().key.line, Signing().key.line]
    assert policy({"a": lines[0], "b": lines}).signers == {"a": (lines[0],), "b": tuple(lines)}
    assert policy(None).authors is None
    for wrong in ({}, {"a": "bsv1"}, {"a": []}, {"a": 1}, {"a": lines[0][:-1]}, [lines[0]]):
        with pytest.raises(bs.PolicyError):
            policy(wrong)


def test_what_goes_elsewhere_signs_nothing() -> None:
    import pickle

    signing = Signing()
    from dataclasses import replace

    mine = replace(policy({"me": signing.key.line}, root="/people"), signer=signing)
    assert mine.authors.own[0] == "me"
    there = pickle.loads(pickle.dumps(mine))  # noqa: S301
    assert there.authors.public_keys.keys() == {"me"}
    for one in (there.authors, pickle.loads(pickle.dumps(mine.authors))):  # noqa: S301
        with pytest.raises(bs.PolicyError, match="no key to sign with"):
            _ = one.own


def test_a_key_to_sign_with_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = Ed25519PrivateKey.generate()
    file = tmp_path / "mine.pem"
    file.touch(0o600)
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    line = PublicKey(der(private)).line
    signers = {"me": line, "both": [line, Signing().key.line]}
    assert Signers(signers, "t", signer=str(file)).own[0] == "me"
    monkeypatch.setenv("BLOOMSEAL_SIGNER", str(file))
    assert Signers(signers, "t").own[0] == "me"
    monkeypatch.setenv("BLOOMSEAL_SIGNER", "vault://127.0.0.1:1/transit#")
    with pytest.raises(bs.UsageError, match="not named"):
        _ = Signers(signers, "t").own
    with pytest.raises(bs.PolicyError, match="none of the signers"):
        _ = Signers(signers, "t", signer=Signing()).own
    file.chmod(0o644)
    with pytest.raises(bs.PolicyError, match="others"):
        _ = Signers(signers, "t", signer=file).own


def test_signers_satisfy_authentic_writers() -> None:
    assert policy(None, authentic_writers=True, kms=_Wraps()).keys.authentic_writers
    assert not policy({"me": Signing().key.line}, authentic_writers=True, kms=_Wraps()).keys.authentic_writers


class _Wraps:
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str: ...

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes: ...


def test_a_keyring_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bloomseal.cli.main import main
    from bloomseal.keytools import KmsAccessError

    path = tmp_path / "collector.json"
    assert main(["keyring", "create", "--keyring", str(path), "--kind", "ed25519", "me"]) == 0
    capsys.readouterr()
    assert main(["keyring", "signer", "--keyring", str(path), "me"]) == 0
    line = capsys.readouterr().out.strip()
    for signer in (f"keyring:{path}#me", "me"):
        assert Signers({"me": line}, "t", signer=signer, kms=bs.Keyring(path)).own[0] == "me"
    ring = bs.Keyring(path)
    assert PublicKey.from_line(line).verifies(ring.sign(b"x", "me"), b"x")
    ring.create("aes")
    for refused in (
        lambda: ring.wrap_key(bytes(16), "me"),
        lambda: ring.recipient("me"),
        lambda: ring.sign(b"x", "aes"),
        lambda: ring.open_local_key(bytes(16), "me", 0),
    ):
        with pytest.raises(KmsAccessError):
            refused()
    ring.rotate("me")
    assert not PublicKey.from_line(line).verifies(ring.sign(b"x", "me"), b"x")
    ring.disable("me")
    with pytest.raises(KmsAccessError):
        ring.sign(b"x", "me")


@pytest.mark.parametrize("keys", [5, {"a": None}, {"a": [1]}])
def test_signers_of_another_type_are_an_error_of_ours(keys: Any) -> None:
    with pytest.raises((bs.UsageError, bs.PolicyError)):
        bs.Signers(keys, "t")
