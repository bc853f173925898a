"""Recipients: pairs of keys in a keyring, their lines, and what is sealed to them."""

from __future__ import annotations

import base64
import json
import pickle
import string
from pathlib import Path
from typing import Any

import cryptography_vectors
import pyarrow as pa
import pytest

from bloomseal import DecryptionSpec, EncryptionSpec, Keyring, KeyTools, Policy, read_table, write_table
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import BloomsealError, KeyAccessError, PolicyError, UsageError
from bloomseal.keytools import KmsAccessError, KmsClient, Problem
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms_protocols import DescribingKms, KeyState
from bloomseal.keytools.recipients.hpke import KeyKind, open_sealed, public_bytes, seal_to
from bloomseal.keytools.recipients.recipient import MAX_RECIPIENTS, Recipient, binding, parse_sealed
from bloomseal.keytools.recipients_kms import RecipientsKms
from support import hpke_by_hand as by_hand

KEY = bytes(range(16))
ROWS = pa.table({"ssn": ["a"]})
KEMS = {KeyKind.X25519: by_hand.X25519, KeyKind.HPKE: by_hand.X_WING}
PAIRS = tuple(KEMS)


@pytest.fixture(params=[None, "correct horse"], ids=["clear", "passphrase"])
def ring(tmp_path: Path, request: pytest.FixtureRequest) -> Keyring:
    ring = Keyring(tmp_path / "keys.json", passphrase=request.param, create=True)
    ring.create("pii", kind="hpke")
    ring.create("old", kind=KeyKind.X25519)
    ring.create("footer")
    return ring


def seed(number: int) -> SecretKey:
    return SecretKey(bytes([number]) * 32)


def recipient(number: int, kind: KeyKind = KeyKind.X25519) -> Recipient:
    return Recipient(kind, public_bytes(kind, seed(number)))


def published() -> list[dict[str, Any]]:
    """RFC 9180's vectors of base mode with X25519, and those of X-Wing, where the KDF is ours."""
    found: list[dict[str, Any]] = []
    for name in ("test-vectors.json", "hpke-pq-test-vectors.json"):
        with cryptography_vectors.open_vector_file(f"HPKE/{name}", "r") as file:
            found += json.load(file)
    return [
        one
        for one in found
        if (one["mode"], one["kdf_id"]) == (0, 1) and one["kem_id"] in KEMS.values() and one["aead_id"] in (1, 2, 3)
    ]


def test_published_vectors_open_by_hand() -> None:
    vectors = published()
    assert {(one["kem_id"], one["aead_id"]) for one in vectors} == {(32, 1), (32, 2), (32, 3), (25722, 3)}
    for one in vectors:
        kem, private, first = one["kem_id"], bytes.fromhex(one["skRm"]), one["encryptions"][0]
        info, aad, pt = (bytes.fromhex(text) for text in (one["info"], first["aad"], first["pt"]))
        sealed = bytes.fromhex(one["enc"] + first["ct"])
        assert by_hand.unseal(kem, private, sealed, info, one["aead_id"], aad) == pt
        assert by_hand.public_key(kem, private) == bytes.fromhex(one["pkRm"])
        kind = next(kind for kind, number in KEMS.items() if number == kem)
        assert public_bytes(kind, SecretKey(private)) == bytes.fromhex(one["pkRm"])


@pytest.mark.parametrize("kind", PAIRS)
def test_two_implementations_open_each_others(kind: KeyKind) -> None:
    public = public_bytes(kind, seed(1))
    assert by_hand.unseal(KEMS[kind], seed(1).reveal(), seal_to(kind, public, KEY, b"why"), b"why") == KEY
    assert open_sealed(kind, seed(1), by_hand.seal(KEMS[kind], public, KEY, b"why"), b"why") == KEY
    with pytest.raises(KeyAccessError, match="another public key"):
        open_sealed(kind, seed(1), by_hand.seal(KEMS[kind], public, KEY, b"why"), b"what for")


@pytest.mark.parametrize("kind", PAIRS)
def test_a_line_is_read_back(kind: KeyKind) -> None:
    one = recipient(1, kind)
    assert Recipient.parse(f" {one.line}\n") == one
    assert one.line.startswith("bsr1")
    assert one.line.isascii()
    assert len(one.line.split()) == 1
    assert len({recipient(number, kind).id for number in range(9)}) == 9


def test_no_typo_of_a_line_is_taken() -> None:
    line = recipient(7).line
    alphabet = string.ascii_letters + string.digits + "-_=+/ \n"
    typos = [line[:at] + char + line[at + 1 :] for at in range(len(line)) for char in alphabet if char != line[at]]
    typos += [line[:at] + line[at + 1 :] for at in range(len(line))]
    typos += [line[:at] + line[at] + line[at:] for at in range(len(line))]
    typos += [line[:at] + line[at + 1] + line[at] + line[at + 2 :] for at in range(len(line) - 1)]
    typos += [line[:at] for at in range(len(line))]
    for typo in typos:
        if typo.strip() != line:
            with pytest.raises(KeyAccessError, match="not a recipient"):
                Recipient.parse(typo)


def test_no_typo_of_a_long_line_is_taken() -> None:
    line = recipient(7, KeyKind.HPKE).line
    for at in range(len(line)):
        for typo in (
            line[:at] + ("A" if line[at] != "A" else "B") + line[at + 1 :],
            line[:at],
            line[:at] + line[at + 1 :],
        ):
            with pytest.raises(KeyAccessError, match="not a recipient"):
                Recipient.parse(typo)


@pytest.mark.parametrize("kind", PAIRS)
def test_a_line_whose_secret_everybody_knows_is_no_recipient(kind: KeyKind) -> None:
    """Points of small order on Curve25519, and of its twist: u = 0, 1, -1, two of order 8, and their other forms."""
    p, public = 2**255 - 19, public_bytes(kind, seed(1))
    eight = 325606250916557431795983626356110631294008115727848805560023387167927233504
    other = 39382357235489614581723060781553021112529911719440698176882885853963445705823
    for u in (0, 1, p - 1, eight, other, p, p + 1):
        for high in (0, 1 << 255):
            bad = Recipient(kind, public[:-32] + (u | high).to_bytes(32, "little"))
            with pytest.raises(KeyAccessError, match="everybody could open"):
                Recipient.parse(bad.line)
    with pytest.raises(PolicyError, match="everybody could open"):
        Policy.from_dict({"version": 1, "keys": {"pii": {"recipients": [bad.line]}}, "tables": {}})


@pytest.mark.parametrize("by", ["destroy", "export"])
def test_what_was_sealed_to_a_destroyed_pair_is_said_to_be_destroyed(ring: Keyring, tmp_path: Path, by: str) -> None:
    public, wrapped = ring.recipient("pii"), ring.wrap_key(KEY, "pii")
    ring.rotate("pii")
    if by == "destroy":
        ring.destroy("pii", 1)
        again = Keyring(ring.path, passphrase=ring._passphrase)
    else:
        ring.disable("pii", 1)
        ring.export(["pii"], tmp_path / "copy.json", passphrase=None)
        again = Keyring(tmp_path / "copy.json")
    for ask in (again.unwrap_key, again.opened_by):
        with pytest.raises(KmsAccessError) as caught:
            ask(wrapped, "pii")
        assert caught.value.problem is Problem.DESTROYED
    both = RecipientsKms({"pii": [public, recipient(3, KeyKind.HPKE).line]}).wrap_key(KEY, "pii")
    with pytest.raises(KmsAccessError, match="other recipients") as caught:
        again.unwrap_key(both, "pii")
    assert caught.value.problem is Problem.DENIED, "somebody else opens it"
    told = again.describe("pii").versions or ()
    assert told[0].fingerprint == Recipient.parse(public).id
    again.rotate("pii")  # what is stored again is the same
    assert (Keyring(again.path, passphrase=again._passphrase).describe("pii").versions or ())[0] == told[0]


def test_a_tombstone_without_an_id_opens(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii", kind="x25519")
    wrapped = ring.wrap_key(KEY, "pii")
    ring.destroy("pii")
    document = json.loads(ring.path.read_text())
    del document["keys"]["pii"][0]["recipient"]
    ring.path.write_text(json.dumps(document))
    older = Keyring(ring.path)
    assert older.describe("pii").state is KeyState.DESTROYED
    with pytest.raises(KmsAccessError, match="sealed to other recipients"):
        older.unwrap_key(wrapped, "pii")


def test_a_name_that_no_file_can_hold_is_our_error(tmp_path: Path) -> None:
    name, ring = "pii\ud800", Keyring(tmp_path / "keys.json", create=True)

    class Other:
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
            return base64.b64encode(key_bytes).decode()

        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
            return base64.b64decode(wrapped_key)

    with pytest.raises(KmsAccessError, match="no text"):
        RecipientsKms({name: [recipient(1).line]})
    for kms in (Other(), ring):
        with pytest.raises(KmsAccessError, match="no text"):
            write_table(ROWS, tmp_path / "a.parquet", encryption=EncryptionSpec(name, keys=KeyTools(kms)))
    assert not (tmp_path / "a.parquet").exists()


def test_a_key_that_nobody_can_have_is_refused_by_our_error() -> None:
    with pytest.raises(KeyAccessError, match="no public key"):
        seal_to(KeyKind.X25519, bytes(32), KEY, b"")
    with pytest.raises(KeyAccessError, match="no public key"):
        seal_to(KeyKind.HPKE, b"\xff" * 1216, KEY, b"")


@pytest.mark.parametrize("name", ["pii", "old"])
def test_a_keyring_opens_what_its_line_sealed(ring: Keyring, name: str) -> None:
    writer = RecipientsKms({name: [ring.recipient(name)]})
    assert isinstance(writer, KmsClient)
    assert isinstance(writer, DescribingKms)
    wrapped = writer.wrap_key(KEY, name)
    assert ring.unwrap_key(wrapped, name) == KEY == ring.unwrap_key(ring.wrap_key(KEY, name), name)
    ring.rotate(name)
    assert ring.unwrap_key(wrapped, name) == KEY
    assert ring.opened_by(wrapped, name) == (name, "1")
    assert ring.opened_by(ring.wrap_key(KEY, name), name) == (name, "2")
    with pytest.raises(KmsAccessError, match="this policy only writes"):
        writer.unwrap_key(wrapped, name)


def test_the_facts_tell_what_kind_of_key_it_is(ring: Keyring) -> None:
    told = ring.describe("pii")
    named = Recipient.parse(ring.recipient("pii")).id
    assert (told.authenticates_writers, told.current) == (False, f"hpke:{named}")
    assert (told.versions or ())[0].fingerprint == named
    assert (
        RecipientsKms({"pii": [ring.recipient("pii")]}).describe("pii").current
        == told.current
        == claimed_version(ring.wrap_key(KEY, "pii"))
    )
    assert ring.describe("footer").current == "1"
    assert ring.describe("footer").authenticates_writers is True


def test_keys_of_one_kind_open_nothing_of_another(ring: Keyring) -> None:
    for wrapped, name in ((ring.wrap_key(KEY, "footer"), "pii"), (ring.wrap_key(KEY, "pii"), "footer")):
        with pytest.raises(KmsAccessError) as caught:
            ring.unwrap_key(wrapped, name)
        assert caught.value.problem in (Problem.INVALID, Problem.DENIED)
    with pytest.raises(KmsAccessError):
        ring.unwrap_key(ring.wrap_key(KEY, "old"), "pii")
    with pytest.raises(KmsAccessError, match="a pair"):
        ring.open_local_key(KEY, "pii", 0)
    with pytest.raises(KmsAccessError):
        ring.unwrap_bytes(bytes(44), "pii")
    with pytest.raises(KmsAccessError, match="no public half"):
        ring.recipient("footer")


def test_a_seed_never_serves_as_an_aes_key(tmp_path: Path) -> None:
    """A keyring without protection whose entry was turned into one of an AES key, and its text beside it."""
    ring = Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii", kind="x25519")
    wrapped = ring.wrap_key(KEY, "pii")
    text = ring.path.read_text()
    ring.path.write_text(text.replace('"kind": "x25519",', ""))
    with pytest.raises(KmsAccessError):
        Keyring(ring.path).unwrap_key(wrapped, "pii")


def test_what_was_sealed_for_one_master_key_opens_for_no_other(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii", kind="x25519")
    document = json.loads(ring.path.read_text())
    document["keys"]["health"] = document["keys"]["pii"]  # the same pair under two names
    ring.path.write_text(json.dumps(document))
    ring = Keyring(ring.path)
    with pytest.raises(KmsAccessError, match="does not open"):
        ring.unwrap_key(ring.wrap_key(KEY, "pii"), "health")


def test_others_recipients_are_named(ring: Keyring) -> None:
    other = recipient(3, KeyKind.HPKE)
    with pytest.raises(KmsAccessError, match=other.id) as caught:
        ring.unwrap_key(RecipientsKms({"pii": [other.line]}).wrap_key(KEY, "pii"), "pii")
    assert caught.value.lacking
    assert not caught.value.unauthentic


def test_each_of_several_recipients_opens_and_no_disabled_version(ring: Keyring) -> None:
    first = ring.recipient("pii")
    ring.rotate("pii")
    wrapped = RecipientsKms({"pii": [first, recipient(3, KeyKind.HPKE).line, ring.recipient("pii")]}).wrap_key(
        KEY, "pii"
    )
    assert ring.opened_by(wrapped, "pii").version == "2"
    ring.disable("pii", 2)
    assert ring.unwrap_key(wrapped, "pii") == KEY
    ring.disable("pii", 1)
    with pytest.raises(KmsAccessError) as caught:
        ring.unwrap_key(wrapped, "pii")
    assert caught.value.problem is Problem.DISABLED
    ring.destroy("pii")
    with pytest.raises(KmsAccessError):
        ring.unwrap_key(wrapped, "pii")
    assert ring.describe("pii").state is KeyState.DESTROYED


def test_lists_of_recipients_that_make_no_sense_are_refused() -> None:
    def lines(*numbers: int, kind: KeyKind = KeyKind.X25519) -> list[str]:
        return [recipient(number, kind).line for number in numbers]

    RecipientsKms({"pii": lines(*range(MAX_RECIPIENTS))})
    for wrong in ([], lines(1, 1), lines(*range(17)), lines(1) + lines(2, kind=KeyKind.HPKE)):
        with pytest.raises(PolicyError):
            RecipientsKms({"pii": wrong})


def test_the_most_recipients_fit_into_key_metadata(tmp_path: Path) -> None:
    lines = [recipient(number, KeyKind.HPKE).line for number in range(MAX_RECIPIENTS)]
    wrapped = RecipientsKms({"pii": lines}).wrap_key(bytes(32), "pii")
    assert len(wrapped) < 1 << 15
    parsed = parse_sealed(wrapped)
    assert parsed is not None
    assert len(parsed[1]) == MAX_RECIPIENTS
    assert by_hand.unseal(by_hand.X_WING, seed(15).reveal(), [*parsed[1].values()][15], binding("pii")) == bytes(32)


def test_broken_texts_are_our_error() -> None:
    good = RecipientsKms({"pii": [recipient(1).line, recipient(2).line]}).wrap_key(KEY, "pii")
    data = base64.b64decode(good[5:])
    entry = data[2 : 2 + (len(data) - 2) // 2]
    broken = [
        data[:-1], data + b"x", data[:2], data[:1], b"", b"\x09" + data[1:], data[:1] + b"\x03" + data[2:],
        data[:1] + b"\0" + data[2:], data[:2] + entry + entry, data[:1] + b"\x11" + entry * 17, data[:2] + entry + entry[::-1] + b"0",
    ]  # fmt: skip
    texts = [good[:5] + base64.b64encode(one).decode() for one in broken]
    for text in [*texts, "bss1.", "bss1.%%%", good + "=", "bss1." + "A" * 40_000]:
        with pytest.raises(KeyAccessError):
            parse_sealed(text)
    for other in ("", "bss2.AAAA", "{}", "vault:v1:AAAA"):
        assert parse_sealed(other) is None


def test_every_altered_bit_is_noticed(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii", kind="x25519")
    wrapped = ring.wrap_key(KEY, "pii")
    data = base64.b64decode(wrapped[5:])
    for at in range(len(data)):
        altered = bytes([*data[:at], data[at] ^ 0x10, *data[at + 1 :]])
        with pytest.raises(KeyAccessError):
            ring.unwrap_key("bss1." + base64.b64encode(altered).decode(), "pii")


def test_an_older_program_refuses_the_file_and_an_older_file_opens(ring: Keyring, tmp_path: Path) -> None:
    assert json.loads(ring.path.read_text())["formatVersion"] == 2
    plain = Keyring(tmp_path / "plain.json", create=True)
    plain.create("footer")
    text = json.loads(plain.path.read_text())
    assert text["formatVersion"] == 1
    assert "kind" not in text["keys"]["footer"][0]


def test_nothing_shows_the_private_key(ring: Keyring, caplog: pytest.LogCaptureFixture) -> None:
    key = ring.list()[-1]
    assert key.name == "pii"
    assert key.current.key is not None
    secret = key.current.key.reveal()
    shown = repr(key) + repr(ring) + str(ring.describe("pii")) + caplog.text
    assert secret.hex() not in shown
    assert base64.b64encode(secret).decode() not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_wrong_asks(ring: Keyring) -> None:
    for wrong in (lambda: ring.create("x", kind="rsa"), lambda: ring.create("x", kind="hpke", bits=128)):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(UsageError):
        ring.rotate("pii", bits=128)
    with pytest.raises(BloomsealError):
        RecipientsKms({"pii": [recipient(1).line]}).wrap_key(KEY, "other")


def test_a_copy_is_handed_to_a_recipient(ring: Keyring, tmp_path: Path) -> None:
    mine = Keyring(tmp_path / "mine.json", passphrase="another horse", create=True)
    mine.create("me", kind="hpke")
    place = tmp_path / "footer.sealed"
    wrapped, sealed = ring.wrap_key(KEY, "footer"), ring.wrap_key(KEY, "pii")
    ring.export(["footer", "pii"], place, passphrase=None, recipient=mine.recipient("me") + "\n")
    secrets = [key.current.key for key in ring.list() if key.current.key is not None]
    assert all(base64.b64encode(one.reveal()) not in place.read_bytes() for one in secrets)
    with pytest.raises(KeyAccessError, match="whose key is not here"):
        ring.add_copy(place)
    assert {key.name for key in mine.add_copy(place)} == {"footer", "pii"}
    assert mine.unwrap_key(wrapped, "footer") == KEY == mine.unwrap_key(sealed, "pii")
    with pytest.raises(UsageError, match="exists already"):
        mine.add_copy(place)
    other = Keyring(tmp_path / "other.json", create=True)
    with pytest.raises(UsageError, match="something is there"):
        ring.export(["pii"], place, passphrase=None, recipient=mine.recipient("me"))
    with pytest.raises(KeyAccessError, match="not a recipient"):
        ring.export(["pii"], tmp_path / "x", passphrase=None, recipient="bsr1nonsense")
    for text in ("{}", place.read_text().replace('"sealed": "', '"sealed": "A'), "nonsense"):
        place.write_text(text)
        with pytest.raises(KeyAccessError):
            other.add_copy(place)


VECTORS = Path(__file__).parents[1] / "vectors" / "recipients"
"""Of other parents than Bloomseal: see `make.py` there."""


def test_stored_vectors_of_other_parents_open(tmp_path: Path) -> None:
    place = tmp_path / "keyring.json"
    place.write_bytes((VECTORS / "keyring.json").read_bytes())
    place.chmod(0o600)
    ring = Keyring(place)
    for name, one in json.loads((VECTORS / "texts.json").read_text()).items():
        assert ring.recipient(name) == one["line"]
        assert ring.unwrap_key(one["wrapped"], name).hex() == one["key"]
    rows = read_table(VECTORS / "people.parquet", decryption=DecryptionSpec(keys=ring))
    assert rows["ssn"].to_pylist() == ["078-05-1120", "219-09-9999"]
    ring.create("more")  # what is stored again is the same
    assert (
        json.loads(place.read_text())["keys"]["pii"]
        == json.loads((VECTORS / "keyring.json").read_text())["keys"]["pii"]
    )
