"""The local keyring's protection: it never lapses, and changes on purpose only."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from bloomseal import Keyring
from bloomseal.core.errors import KeyAccessError, UsageError
from bloomseal.keytools.sources import as_key_source

KEY = bytes(range(16))


@pytest.fixture(params=[None, "correct horse"], ids=["clear", "passphrase"])
def keyring(tmp_path: Path, request: pytest.FixtureRequest) -> Keyring:
    ring = Keyring(tmp_path / "keys.json", passphrase=request.param, create=True)
    ring.create("pii")
    return ring


def in_clear(path: Path) -> bytes:
    """What somebody without the passphrase can put in a keyring's place."""
    other = path.with_name("planted.json")
    ring = Keyring(other, create=True)
    ring.create("pii")
    ring.create("health")
    return other.read_bytes()


@pytest.fixture(autouse=True)
def _no_passphrase_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOOMSEAL_KEYRING_PASSPHRASE", raising=False)


@pytest.mark.parametrize("source", ["argument", "environment", "running", "pickle", "uri"])
def test_a_keyring_in_clear_is_refused_where_a_passphrase_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    path = tmp_path / "keys.json"
    ring = Keyring(path, passphrase="right", create=True)
    ring.create("pii")
    planted = in_clear(path)
    pickled = pickle.dumps(ring)
    path.write_bytes(planted)
    if source in ("environment", "uri"):
        monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "right")
    use = {
        "argument": lambda: Keyring(path, passphrase="right"),
        "environment": lambda: Keyring(path),
        "running": lambda: ring.rotate("pii"),
        "pickle": lambda: pickle.loads(pickled),  # noqa: S301
        "uri": lambda: as_key_source(f"keyring://{path}"),
    }[source]
    with pytest.raises(KeyAccessError, match="has no protection"):
        use()
    assert path.read_bytes() == planted


def test_protection_outlives_the_passphrase_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    planted = in_clear(path)
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "right")
    ring = Keyring(path, create=True)
    monkeypatch.delenv("BLOOMSEAL_KEYRING_PASSPHRASE")
    path.write_bytes(planted)
    with pytest.raises(KeyAccessError, match="has no protection"):
        ring.create("more")


def test_an_empty_passphrase_makes_no_keyring_in_clear(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="empty passphrase"):
        Keyring(tmp_path / "keys.json", passphrase="", create=True)
    assert not (tmp_path / "keys.json").exists()


def test_scrypt_never_gets_cheaper_and_a_change_makes_it_dearer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    with monkeypatch.context() as patch:
        patch.setattr("bloomseal.keytools.keyring.keyfile.PassphraseKeys.__init__.__defaults__", (None, 1 << 14))
        Keyring(path, passphrase="right", create=True).create("pii")
    cheap = path.read_bytes()
    assert json.loads(cheap)["protection"]["n"] == 1 << 14
    ring = Keyring(path, passphrase="right")
    ring.rotate("pii")
    assert json.loads(path.read_bytes())["protection"]["n"] == 1 << 16
    assert len(ring.list()[0].versions) == 2
    path.write_bytes(cheap)
    with pytest.raises(KeyAccessError, match="cost is lower"):
        ring.rotate("pii")


@pytest.mark.parametrize("change", ["create", "rotate", "destroy"])
def test_an_older_keyring_put_back_is_noticed_by_whoever_saw_the_newer_one(keyring: Keyring, change: str) -> None:
    old = keyring.path.read_bytes()
    {"create": lambda: keyring.create("x"), "rotate": lambda: keyring.rotate("pii"), "destroy": lambda: keyring.destroy("pii")}[change]()  # fmt: skip
    keyring.list()
    keyring.path.write_bytes(old)
    with pytest.raises(KeyAccessError, match="older or weaker keyring"):
        keyring.rotate("pii")
    assert keyring.path.read_bytes() == old


def test_a_passphrase_is_given_changed_and_taken_away_on_purpose(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = Keyring(path, create=True)
    ring.create("pii")
    wrapped = ring.wrap_key(KEY, "pii")
    for new in ("first", "second", None):
        stored = path.read_text()
        ring.change_passphrase(new)
        assert ring.protected is (new is not None)
        assert path.read_text() != stored
        assert Keyring(path, passphrase=new).unwrap_key(wrapped, "pii") == KEY
        assert ring.unwrap_key(wrapped, "pii") == KEY
        ring.rotate("pii")
        assert Keyring(path, passphrase=new).protected is (new is not None)


def test_a_keyring_is_not_left_in_clear_while_the_environment_has_a_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOMSEAL_KEYRING_PASSPHRASE", "right")
    ring = Keyring(tmp_path / "keys.json", create=True)
    with pytest.raises(UsageError, match="the environment gives one"):
        ring.change_passphrase(None)
    assert ring.protected


def test_a_fifo_in_the_place_of_the_keyring_hangs_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json", 0o600)
    with pytest.raises(KeyAccessError, match="no regular file"):
        Keyring(tmp_path / "keys.json")


def test_a_link_in_the_place_of_the_lock_truncates_nothing(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys.json", create=True)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".keys.json.lock.bloomseal-tmp").symlink_to(victim)
    with pytest.raises(KeyAccessError, match="can't be written"):
        ring.create("pii")
    assert victim.read_text() == "precious"
