"""Key bytes, passphrases and tokens stay out of everything that is shown, logged, chained or shipped, on every failure
path.
"""

from __future__ import annotations

import base64
import copy
import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import BloomsealError
from bloomseal.core.keys.material import KeyMetadata
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.cache import Cache
from bloomseal.keytools.kms.calls import KmsCalls
from bloomseal.keytools.sources import as_key_source
from support.stand_ins import InMemoryKms
from support.watch import Secrets

TOKEN = "hvs.token-of-the-test"
PASSPHRASE = "passphrase-of-the-test"
DATA_KEY = b"\x01data key of it\x02"
MASTER_KEY = b"\x03master of them\x04"
TABLE = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", "c"]})


SECRETS = Secrets(TOKEN, PASSPHRASE, DATA_KEY, MASTER_KEY)
assert_clean = SECRETS.clean


class LeakyKms(InMemoryKms):
    """Fails with exceptions that quote what a request would hold, as vendors' do."""

    def __init__(self, failure: type[BaseException]) -> None:
        super().__init__({"pii": MASTER_KEY, "kf": MASTER_KEY})
        self.failure = failure

    def wrap_key(self, key_bytes: bytes, _: str) -> str:  # type: ignore[override]
        raise self.failure(f"POST with X-Token: {TOKEN} and {key_bytes!r} {DATA_KEY!r}")

    def unwrap_key(self, *_: str) -> bytes:
        raise self.failure(TOKEN, DATA_KEY, MASTER_KEY, {"token": TOKEN})

    def __repr__(self) -> str:
        return f"<LeakyKms token={TOKEN}>"


class LeakyRetriever:
    def retrieve_key(self, *_: object) -> bytes:
        raise ValueError(f"{TOKEN} {DATA_KEY!r}")

    def __repr__(self) -> str:
        return f"<LeakyRetriever {DATA_KEY!r}>"


FAILURES: list[type[BaseException]] = [
    PermissionError, KeyError, TimeoutError, ConnectionError, ValueError, RuntimeError, AssertionError,
]  # fmt: skip


def metadata() -> bytes:
    tools = bs.KeyTools(InMemoryKms({"pii": MASTER_KEY}), double_wrapping=False)
    material = tools._fresh.material_for(SecretKey(DATA_KEY), "pii", tools.wrap, {})
    return KeyMetadata(material=material).to_bytes()


def wrong_passphrase(tmp_path: Path) -> None:
    bs.Keyring(tmp_path / "k", passphrase=PASSPHRASE, create=True)
    bs.Keyring(tmp_path / "k", passphrase=PASSPHRASE + "!")


def broken_keyring(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "k", create=True)
    ring.create("pii", bits=128)
    document = json.loads(ring.path.read_text())
    document["keys"]["pii"][0]["key"] = base64.b64encode(MASTER_KEY).decode()
    document["keys"]["pii"][0]["bits"] = 256
    ring.path.write_text(json.dumps(document))
    ring.list()


def leaky(failure: type[BaseException], action: str) -> Callable[[Path], Any]:
    def run(tmp_path: Path) -> Any:
        tools = bs.KeyTools(LeakyKms(failure), attempts=1)
        if action == "unwrap":
            return tools.for_file(FileRef("t")).retrieve_key(metadata(), "ssn")
        if action == "wrap":
            return tools.for_file(FileRef("t")).new_key("pii", "ssn", 128)
        return bs.write_table(TABLE, tmp_path / "t.parquet", encryption=bs.EncryptionSpec("pii", keys=tools))

    return run


def through_a_retriever(tmp_path: Path) -> None:
    keys = bs.ExplicitKeys((DATA_KEY, "id"))
    bs.write_table(TABLE, tmp_path / "t.parquet", encryption=bs.EncryptionSpec((DATA_KEY, "id")))
    assert bs.read_table(tmp_path / "t.parquet", decryption=bs.DecryptionSpec(keys)) == TABLE
    bs.open_file(tmp_path / "t.parquet", decryption=bs.DecryptionSpec(LeakyRetriever()))


def wrong_length(_: Path) -> None:
    class Long(InMemoryKms):
        def unwrap_key(self, *_: str) -> bytes:
            return DATA_KEY + MASTER_KEY + b"!"

    bs.KeyTools(Long()).for_file(FileRef("t")).retrieve_key(metadata(), "ssn")


def with_a_key_that_is_none(_: Path) -> None:
    bs.ExplicitKeys(DATA_KEY + b"!")


def with_a_secret_in_the_uri(_: Path) -> None:
    as_key_source(f"vault://user:{TOKEN}@vault.example/transit")


def with_a_pin_in_the_uri(_: Path) -> None:
    as_key_source(f"pkcs11:token=t?pin-value={PASSPHRASE}")


# What is done → what the message must speak of, so that no other failure is looked at than the one that is meant.
PATHS: dict[str, tuple[Callable[[Path], Any], str]] = {
    **{
        f"{action} {one.__name__}": (leaky(one, action), "LeakyKms")
        for one in FAILURES
        for action in ("wrap", "unwrap", "write")
    },
    "a retriever": (through_a_retriever, "LeakyRetriever failed with ValueError"),
    "an answer of a wrong length": (wrong_length, "a key of 33 bytes"),
    "a key of a wrong length": (with_a_key_that_is_none, "a key of 17 bytes"),
    "a wrong passphrase": (wrong_passphrase, "the passphrase does not open the keyring"),
    "a broken keyring": (broken_keyring, "is not of 256 bits"),
    "a secret in a URI": (with_a_secret_in_the_uri, "a secret in it"),
    "a PIN in a URI": (with_a_pin_in_the_uri, "a secret in it"),
}


@pytest.mark.parametrize("path", PATHS)
def test_failures_are_clean(tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run, meant = PATHS[path]
    with pytest.raises(BloomsealError, match=meant) as caught:
        run(tmp_path)
    SECRETS.clean_error(caught.value, path)
    assert_clean(caplog.text, f"{path}: the log")


def test_reprs_are_clean(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "k", passphrase=PASSPHRASE, create=True)
    key = SecretKey(DATA_KEY)
    tools = bs.KeyTools(LeakyKms(ValueError))
    explicit = bs.ExplicitKeys(DATA_KEY, {"ssn": (DATA_KEY, "id")}, {"kf": MASTER_KEY})
    good = bs.KeyTools(InMemoryKms({"pii": MASTER_KEY}))
    keys = good.for_file(FileRef("t"))
    keys.new_key("pii", "ssn", 128)
    shown = [ring, ring.create("pii"), key, tools, tools.for_file(FileRef("t")), explicit, good, keys]
    shown += [good.counters, as_key_source(LeakyRetriever()), bs.DecryptionSpec(LeakyRetriever())]
    shown += [bs.EncryptionSpec(DATA_KEY, {"ssn": (DATA_KEY, b"id")}, tools), bs.DecryptionSpec(explicit)]
    shown += [KmsCalls(LeakyKms(ValueError), timeout=1, attempts=1, max_parallel=1), Cache(1.0), [key], {"key": key}]
    for one in shown:
        assert_clean(f"{one!r} {one!s}", type(one).__name__)


def test_what_holds_keys_refuses_pickling() -> None:
    tools = bs.KeyTools(InMemoryKms({"pii": MASTER_KEY}))
    keys = tools.for_file(FileRef("t"))
    keys.new_key("pii", "ssn", 128)
    for one in (SecretKey(DATA_KEY), bs.ExplicitKeys(DATA_KEY), tools, keys):
        with pytest.raises((TypeError, pickle.PicklingError)):
            pickle.dumps(one)


def test_keyrings_that_travel_leave_their_secrets_behind(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "k", passphrase=PASSPHRASE, create=True)
    ring.create("pii")
    ring.wrap_key(DATA_KEY, "pii")
    assert_clean(pickle.dumps(ring).decode("latin-1"), "the pickle")
    text = ring.path.read_text()
    assert_clean(text, "the file")
    assert PASSPHRASE not in text


def test_keys_compare_without_telling_where_they_differ() -> None:
    """In constant time, by the library's function; here: rightly."""
    key = SecretKey(DATA_KEY)
    assert key == SecretKey(DATA_KEY)
    assert key != SecretKey(MASTER_KEY)
    assert key != DATA_KEY
    assert copy.deepcopy(key) is key


def test_expired_keys_are_dropped() -> None:
    now = [0.0]
    cache: Cache[SecretKey] = Cache(600.0, clock=lambda: now[0])
    cache.put("a", SecretKey(DATA_KEY))
    now[0] = 601.0
    assert len(cache) == 0
    assert not cache._entries
