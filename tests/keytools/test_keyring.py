"""The local keyring: versions, states, protection, concurrent writers."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from bloomseal import Keyring
from bloomseal.core.errors import BloomsealError, KeyAccessError, PolicyError, UsageError
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, KmsClient, Problem
from bloomseal.keytools.kms.common import claimed_version
from bloomseal.keytools.kms_protocols import DescribingKms, KeyState, LocalKeyKms, RewrappingKms
from bloomseal.keytools.sources import as_key_source

KEY = bytes(range(16))


@pytest.fixture(params=[None, "correct horse"], ids=["clear", "passphrase"])
def passphrase(request: pytest.FixtureRequest) -> str | None:
    return request.param


@pytest.fixture
def keyring(tmp_path: Path, passphrase: str | None) -> Keyring:
    ring = Keyring(tmp_path / "keys.json", passphrase=passphrase, create=True)
    ring.create("pii", bits=256)
    ring.create("health", bits=128)
    return ring


def problem(caught: pytest.ExceptionInfo[KmsAccessError]) -> Problem:
    return caught.value.problem


def test_it_offers_every_capability(keyring: Keyring) -> None:
    for capability in (KmsClient, DescribingKms, RewrappingKms, LocalKeyKms):
        assert isinstance(keyring, capability)


def test_another_object_opens_what_this_one_wrapped(keyring: Keyring, passphrase: str | None) -> None:
    wrapped = keyring.wrap_key(KEY, "pii")
    again = Keyring(keyring.path, passphrase=passphrase)
    assert again.unwrap_key(wrapped, "pii") == KEY
    assert again.protected is (passphrase is not None)
    assert [(key.name, key.current.bits) for key in again.list()] == [("health", 128), ("pii", 256)]


def test_rotation_keeps_the_old_version_for_unwrapping(keyring: Keyring) -> None:
    old = keyring.wrap_key(KEY, "pii")
    assert keyring.rotate("pii").current.version == 2
    new = keyring.wrap_key(KEY, "pii")
    assert keyring.describe("pii").current == "2"
    assert (claimed_version(old), claimed_version(new)) == ("1", "2")
    assert keyring.unwrap_key(old, "pii") == keyring.unwrap_key(new, "pii") == KEY
    rewrapped = keyring.rewrap_key(old, "pii")
    assert claimed_version(rewrapped) == "2"
    moved = keyring.rewrap_key(old, "pii", "health")
    assert keyring.unwrap_key(moved, "health") == KEY
    dates = keyring.describe("pii")
    assert dates.created is not None
    assert dates.rotated is not None
    assert dates.created <= dates.rotated
    assert keyring.describe("health").rotated is None


def test_disabled_destroyed_and_unknown_are_three_answers(keyring: Keyring) -> None:
    wrapped = keyring.wrap_key(KEY, "pii")
    keyring.disable("pii")
    for use in (lambda: keyring.unwrap_key(wrapped, "pii"), lambda: keyring.wrap_key(KEY, "pii")):
        with pytest.raises(KmsAccessError, match="disabled") as caught:
            use()
        assert problem(caught) is Problem.DISABLED
    assert keyring.describe("pii").state is KeyState.DISABLED
    keyring.enable("pii")
    assert keyring.unwrap_key(wrapped, "pii") == KEY
    keyring.destroy("pii")
    with pytest.raises(KmsAccessError, match="destroyed") as caught:
        keyring.unwrap_key(wrapped, "pii")
    assert problem(caught) is Problem.DESTROYED
    with pytest.raises(KmsAccessError, match="destroyed"):
        keyring.rotate("pii")
    with pytest.raises(KmsAccessError, match="destroyed"):
        keyring.enable("pii", 1)
    assert keyring.describe("pii").state is KeyState.DESTROYED
    with pytest.raises(KmsAccessError, match="knows no master key") as caught:
        keyring.unwrap_key(wrapped, "nobody")
    assert problem(caught) is Problem.UNKNOWN


def test_one_version_can_be_destroyed_alone(keyring: Keyring) -> None:
    old = keyring.wrap_key(KEY, "pii")
    keyring.rotate("pii")
    new = keyring.wrap_key(KEY, "pii")
    keyring.destroy("pii", 1)
    assert keyring.unwrap_key(new, "pii") == KEY
    with pytest.raises(KmsAccessError, match="version 1"):
        keyring.unwrap_key(old, "pii")


def test_destroying_takes_the_bytes_out_of_the_file(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys.json", create=True)
    stored = json.loads(ring.path.read_text())["keys"]
    ring.create("pii")
    stored = json.loads(ring.path.read_text())["keys"]["pii"][0]["key"]
    ring.destroy("pii")
    assert stored not in ring.path.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_a_wrapped_key_serves_no_other_master_key_or_version(keyring: Keyring) -> None:
    wrapped = keyring.wrap_key(KEY, "pii")
    with pytest.raises(KmsAccessError, match="does not open") as caught:
        keyring.unwrap_key(wrapped, "health")
    assert problem(caught) is Problem.INVALID
    keyring.rotate("pii")
    claimed = json.dumps({**json.loads(wrapped), "masterKeyVersion": "2"})
    with pytest.raises(KmsAccessError, match="does not open"):
        keyring.unwrap_key(claimed, "pii")


@pytest.mark.parametrize(
    "wrapped", ["", "{}", "garbage", '{"masterKeyVersion":"9","encryptedKey":"AAAA"}', '{"masterKeyVersion":"1","encryptedKey":"AA"}',
                '{"masterKeyVersion":"-1","encryptedKey":""}', '{"masterKeyVersion":1,"encryptedKey":""}', '{"masterKeyVersion":"²","encryptedKey":""}']
)  # fmt: skip
def test_garbage_is_refused(tmp_path: Path, wrapped: str) -> None:
    ring = Keyring(tmp_path / "k", create=True)
    ring.create("pii")
    with pytest.raises(KmsAccessError):
        ring.unwrap_key(wrapped, "pii")


@pytest.mark.parametrize("mode", [0o604, 0o660, 0o444, 0o622])
def test_a_looser_mode_is_refused(keyring: Keyring, passphrase: str | None, mode: int) -> None:
    """Where a passphrase seals the keys, others may read the file, as on a read-only mount."""
    assert keyring.path.stat().st_mode & 0o777 == 0o600
    keyring.path.chmod(mode)
    if passphrase is not None and not mode & 0o022:
        assert Keyring(keyring.path, passphrase=passphrase).list() == keyring.list()
        return
    with pytest.raises(PolicyError, match="chmod 600"):
        Keyring(keyring.path, passphrase=passphrase)
    with pytest.raises(PolicyError, match="chmod 600"):
        keyring.list()


def test_one_key_is_handed_over_under_a_passphrase_of_its_own(keyring: Keyring, tmp_path: Path) -> None:
    first = keyring.wrap_key(bytes(16), "pii")
    keyring.rotate("pii")
    disabled = keyring.wrap_key(bytes(16), "pii")
    keyring.disable("pii", 2)
    keyring.rotate("pii")
    keyring.create("footer")
    copy = tmp_path / "partner.json"
    told = keyring.export(["pii"], copy, passphrase="theirs")
    assert [(one.version, one.key is not None) for one in told[0].versions] == [(1, True), (2, False), (3, True)]
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyAccessError, match="passphrase"):
        Keyring(copy, passphrase="ours")
    partner = Keyring(copy, passphrase="theirs")
    assert [key.name for key in partner.list()] == ["pii"]
    assert partner.unwrap_key(first, "pii") == bytes(16)
    assert partner.unwrap_key(keyring.wrap_key(bytes(range(16)), "pii"), "pii") == bytes(range(16))
    with pytest.raises(KmsAccessError):
        partner.enable("pii", 2)  # its bytes have stayed behind
    with pytest.raises(KmsAccessError):
        partner.unwrap_key(disabled, "pii")
    before = copy.read_bytes()
    with pytest.raises(UsageError, match="something is there"):
        keyring.export(["footer"], copy, passphrase="theirs")
    assert copy.read_bytes() == before
    for names, secret, error in (([], "x", UsageError), (["pii"], "", UsageError), (["no"], "x", KmsAccessError)):
        with pytest.raises(error):
            keyring.export(names, tmp_path / "other.json", passphrase=secret)
    keyring.disable("pii")
    with pytest.raises(KmsAccessError):
        keyring.export(["pii"], tmp_path / "other.json", passphrase="x")
    assert not (tmp_path / "other.json").exists()


def test_a_passphrase_from_a_file_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = tmp_path / "keys.json", tmp_path / "passphrase"
    Keyring(path, passphrase="right", create=True).create("pii")
    file.touch(0o600)
    file.write_bytes(b"right\r\nanother line")
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE_FILE", str(file))
    ring = Keyring(path)
    assert [key.name for key in ring.list()] == ["pii"]
    with pytest.raises(UsageError, match="although the environment gives one"):
        ring.change_passphrase(None)
    # As Spark's helpers have it: no secret in their environment.
    script = "import sys; from bloomseal import Keyring; print(Keyring(sys.argv[1]).list()[0].name)"
    told = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True).stdout
    assert told == "pii\n"
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "wrong")  # the variable goes first
    with pytest.raises(KeyAccessError, match="passphrase"):
        Keyring(path)


@pytest.mark.parametrize(
    ("content", "mode", "error", "text"),
    [
        (b"right", 0o640, PolicyError, "others than its owner"),
        (b"\nright", 0o600, KeyAccessError, "is empty"),
        (b"hunter\xff2", 0o600, KeyAccessError, "no UTF-8"),
        (None, 0o600, KeyAccessError, "No such file"),
    ],
)
def test_a_passphrase_file_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, mode: int, error: type[Exception], text: str
) -> None:
    file = tmp_path / "passphrase"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    Keyring(tmp_path / "keys.json", passphrase="right", create=True)
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE_FILE", str(file))
    with pytest.raises(error, match=text) as caught:
        Keyring(tmp_path / "keys.json")
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE_FILE", "passphrase")
    with pytest.raises(PolicyError, match="no absolute path"):
        Keyring(tmp_path / "keys.json")


def test_a_keyring_that_an_editor_saved_with_a_byte_order_mark_opens(keyring: Keyring, passphrase: str | None) -> None:
    wrapped = keyring.wrap_key(bytes(16), "pii")
    keyring.path.write_bytes(codecs.BOM_UTF8 + keyring.path.read_bytes())
    assert Keyring(keyring.path, passphrase=passphrase).unwrap_key(wrapped, "pii") == bytes(16)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyAccessError, match="No such file"):
        Keyring(tmp_path / "none.json")
    (tmp_path / "file").touch()
    with pytest.raises(KeyAccessError, match="can't be"):
        Keyring(tmp_path / "file" / "keys.json", create=True)


def test_a_wrong_passphrase_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    Keyring(path, passphrase="right", create=True).create("pii")
    with pytest.raises(KeyAccessError, match="passphrase"):
        Keyring(path, passphrase="wrong")
    with pytest.raises(KeyAccessError, match="protected by a passphrase"):
        Keyring(path)
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "right")
    monkeypatch.setenv("BLOOMSEAL_KEYRING", str(path))
    assert Keyring.from_environment().list()[0].name == "pii"
    monkeypatch.delenv("BLOOMSEAL_KEYRING")
    with pytest.raises(UsageError, match="BLOOMSEAL_KEYRING is not set"):
        Keyring.from_environment()


def tampered(document: dict[str, object], what: str) -> dict[str, object]:
    keys = document["keys"]
    assert isinstance(keys, dict)
    match what:
        case "entries exchanged":
            keys["pii"], keys["health"] = keys["health"], keys["pii"]
        case "key bytes exchanged":
            keys["pii"][0]["key"], keys["health"][0]["key"] = keys["health"][0]["key"], keys["pii"][0]["key"]
        case "entry dropped":
            del keys["pii"]
        case "disabled key enabled":
            keys["health"][0]["state"] = "enabled"
        case "scrypt weakened":
            document["protection"]["n"] = 2  # type: ignore[index]
        case "memory bomb":
            document["protection"]["n"] = 1 << 40  # type: ignore[index]
        case "authentication dropped":
            del document["authentication"]
        case "protection dropped":
            document["protection"] = None
    return document


@pytest.mark.parametrize(
    "what",
    [
        "entries exchanged",
        "key bytes exchanged",
        "entry dropped",
        "disabled key enabled",
        "scrypt weakened",
        "memory bomb",
        "authentication dropped",
        "protection dropped",
    ],
)
def test_whoever_can_write_the_file_but_lacks_the_passphrase_changes_nothing(tmp_path: Path, what: str) -> None:
    path = tmp_path / "keys.json"
    ring = Keyring(path, passphrase="right", create=True)
    ring.create("pii", bits=128)
    ring.create("health", bits=128)
    ring.disable("health")
    path.write_text(json.dumps(tampered(json.loads(path.read_text()), what)))
    with pytest.raises(KeyAccessError):
        Keyring(path, passphrase="right")


def test_every_truncation_and_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = Keyring(path, passphrase="right", create=True)
    ring.create("pii")
    wrapped = ring.wrap_key(KEY, "pii")
    data = path.read_bytes()
    for cut in range(0, len(data) - 1, 7):
        path.write_bytes(data[:cut])
        with pytest.raises(KeyAccessError):
            ring.unwrap_key(wrapped, "pii")
    for at in range(len(data)):
        if b"salt" in data[max(0, at - 40) : at + 3] or b'"n"' in data[at - 12 : at + 12]:
            continue  # each flip here costs one scrypt; the cases above cover it
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with contextlib.suppress(KeyAccessError):  # a flip in white space changes nothing
            assert ring.unwrap_key(wrapped, "pii") == KEY


def test_a_change_by_another_process_is_seen(keyring: Keyring, passphrase: str | None) -> None:
    other = Keyring(keyring.path, passphrase=passphrase)
    other.create("new")
    wrapped = other.wrap_key(KEY, "new")
    assert keyring.unwrap_key(wrapped, "new") == KEY
    keyring.disable("new")
    with pytest.raises(KmsAccessError, match="disabled"):
        other.unwrap_key(wrapped, "new")


def test_writers_in_many_processes_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    Keyring(path, create=True)
    code = "import sys; from bloomseal import Keyring\nfor i in range(5): Keyring(sys.argv[1]).create(f'{sys.argv[2]}-{i}')"
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert {key.name for key in Keyring(path).list()} == {f"{n}-{i}" for n in range(4) for i in range(5)}


def test_names_and_sizes_are_checked(keyring: Keyring) -> None:
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(UsageError):
            keyring.create(name)
    with pytest.raises(UsageError, match="exists"):
        keyring.create("pii")
    with pytest.raises(UsageError, match="100 bits"):
        keyring.create("odd", bits=100)


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    ring = Keyring(tmp_path / "real" / "keys.json", create=True)
    (tmp_path / "link.json").symlink_to(ring.path)
    Keyring(tmp_path / "link.json").create("pii")
    assert (tmp_path / "link.json").is_symlink()
    assert ring.list()[0].name == "pii"


def test_a_pickle_carries_the_path_only(
    keyring: Keyring, passphrase: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.dumps(keyring)
    assert b"correct horse" not in data
    assert len(data) < 400 + len(os.fspath(keyring.path))
    if passphrase:
        monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", passphrase)
    assert {key.name for key in pickle.loads(data).list()} == {"pii", "health"}  # noqa: S301


def test_it_makes_and_finds_the_keys_of_a_file(keyring: Keyring) -> None:
    keys = as_key_source(keyring).for_file(FileRef("t.parquet"), writing=True)
    made = {column: keys.new_key("pii", column, bits) for column, bits in ((None, 128), ("ssn", 192), ("name", 256))}
    keys.store()
    for column, (key, metadata) in made.items():
        assert as_key_source(keyring).for_file(FileRef("t.parquet")).retrieve_key(metadata, column) == key
    assert len({key.fingerprint for key, _ in made.values()}) == 3


def test_a_passphrase_that_is_no_text_is_refused_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes in the environment that are not UTF-8 arrive as lone surrogates."""
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "s3cret\udcff")
    with pytest.raises(KeyAccessError, match="not text") as caught:
        Keyring(tmp_path / "keys.json", create=True)
    assert caught.value.__context__ is None
    assert "s3cret" not in str(caught.value)


def test_a_name_is_a_text(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "ring.json", create=True)
    with pytest.raises(UsageError, match="printable characters"):
        ring.create(["footer", "pii"])  # type: ignore[arg-type]


def test_create_of_the_class_says_how_it_is_asked() -> None:
    for name in ("footer", ["footer"]):
        with pytest.raises(UsageError, match=r"create=True\)\.create\("):
            Keyring.create("keys.json", name)  # type: ignore[arg-type]


def _put_there(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.touch()
    path.chmod(0o666)


@pytest.mark.parametrize("there", [False, True])
def test_what_somebody_puts_in_its_place_says_not_who_may_read_it(tmp_path: Path, there: bool) -> None:
    """Whoever may write to the folder put a file of his there meanwhile, and the keys got the rights of that."""
    path = tmp_path / "keys.json"
    ring = Keyring.__new__(Keyring)
    ring._prepare(path, None, must_protect=False)
    if there:
        ring = Keyring(path, create=True)
    with pytest.raises(BloomsealError, match="left as it is"), ring._changing(missing_ok=True):
        _put_there(path)
    assert (path.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (b"", ["keys.json"])
