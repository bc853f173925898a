"""Every public verb, in every outcome, with every key and token known: none of them is shown, logged, warned of,
reported or kept.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.audit import audit, may_destroy
from bloomseal.audit.rendering.cbom import to_cbom
from bloomseal.audit.rendering.html import to_html
from bloomseal.audit.rendering.sarif import to_sarif
from bloomseal.core.encryption import SecretKey
from bloomseal.keytools import MasterKeys
from bloomseal.keytools.local_keys import LocalKeyCalls
from bloomseal.rotation import Rekey, Repair, Rewrap, Seal, Unseal, plan, rotate
from support.watch import Secrets

PASSPHRASE, TOKEN = "passphrase-of-the-test", "hvs.token-of-the-test"
ROWS = pa.table({"ssn": [f"{i:03d}-45-6789" for i in range(30)], "n": list(range(30))})
FILTERS = {"ssn": True, "n": True}


class TokenKms:
    """A client that holds a token, and quotes it when it fails, as vendors' do."""

    def __init__(self, ring: bs.Keyring) -> None:
        self.token, self._ring, self.fails = TOKEN, ring, False

    def __reduce__(self) -> NoReturn:
        # As vendors' clients do: a policy's pickle carries its client's, which is the client's own affair.
        raise TypeError("it holds a connection")

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        if self.fails:
            raise RuntimeError(f"POST with {self.token} of {key_bytes!r}")
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        if self.fails:
            raise RuntimeError(f"POST with {self.token}: {self._ring.unwrap_key(wrapped_key, master_key_identifier)!r}")
        return self._ring.unwrap_key(wrapped_key, master_key_identifier)


class Bench:
    """A table to work on, and all secrets that came to be: passphrase, token, master keys, every KEK and data key."""

    def __init__(self, folder: Path, secrets: Secrets, *, internal: bool) -> None:
        self.folder, self.secrets, self.root = folder, secrets, folder / "t"
        self.root.mkdir()
        self.ring = bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE, create=True)
        for name in ("footer", "pii"):
            self.ring.create(name)
        self.kms = TokenKms(self.ring)
        columns = {"ssn": {"key": "pii", "filter": True, "sensitivity": "restricted"}}
        table = {
            "footer_key": "footer",
            "complete": True,
            "columns": columns,
            "material": "internal" if internal else "external",
        }
        policy = bs.Policy.from_dict({"version": 1, "tables": {"t": table}}, kms=self.kms)
        self.policy = policy.for_table("t")
        self.file = self.root / "a.parquet"
        bs.write_table(ROWS, self.file, encryption=self.policy, bloom_filters=FILTERS, row_group_size=10)


@pytest.fixture(params=[True, False], ids=["material inside", "material beside"])
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Bench:
    secrets = Secrets(PASSPHRASE, TOKEN)
    made = SecretKey.generate.__func__  # type: ignore[attr-defined]

    def known(cls: type[SecretKey], bits: int = 128) -> SecretKey:
        key: SecretKey = made(cls, bits)
        secrets.add(key.reveal())
        return key

    monkeypatch.setattr(SecretKey, "generate", classmethod(known))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BLOOMSEAL_KEYRING_PASSPHRASE", raising=False)
    return Bench(tmp_path, secrets, internal=request.param)


@contextmanager
def _failing(bench: Bench) -> Iterator[None]:
    bench.kms.fails = True
    bench.policy.keys.forget()
    try:
        yield
    finally:
        bench.kms.fails = False


def _audit(bench: Bench) -> Any:
    report = audit(bench.root, keys=bench.policy.keys, policy=bench.policy, deep=True)
    for told in (to_html(report), to_sarif(report), to_cbom(report), report.to_json(inventory=True)):
        bench.secrets.clean(told, "a report")
    bench.secrets.clean(repr(report.inventory.to_pylist()), "the inventory")
    return report


VERBS: dict[str, Callable[[Bench], Any]] = {
    "write_table": lambda b: bs.write_table(ROWS, b.root / "b.parquet", encryption=b.policy, bloom_filters=FILTERS),
    "write_dataset": lambda b: bs.write_dataset(ROWS, b.folder / "set", encryption=b.policy, bloom_filters=FILTERS),
    "read_table": lambda b: bs.read_table(b.root, where=[("ssn", "==", "003-45-6789")], decryption=b.policy),
    "open_file": lambda b: bs.open_file(b.file, decryption=b.policy),
    "open_table": lambda b: bs.open_table(b.root, decryption=b.policy),
    "scan": lambda b: bs.open_table(b.root, decryption=b.policy).scan().read_all(),
    "probe": lambda b: bs.probe(b.root, "ssn", ["003-45-6789"], decryption=b.policy),
    "verify": lambda b: bs.verify(b.root, decryption=b.policy),
    "inspect": lambda b: bs.inspect(b.file),
    "attach": lambda b: bs.attach_filters(b.root, {"n": bs.FilterSpec(fpp=0.1)}, decryption=b.policy),
    "plan": lambda b: plan(b.root, Rekey(b.policy, b.policy)),
    "rekey": lambda b: rotate(b.root, Rekey(b.policy, b.policy)),
    "rekey, a file": lambda b: bs.rekey(b.file, decryption=b.policy, encryption=b.policy),
    "rewrap": lambda b: (b.ring.rotate("pii"), rotate(b.root, Rewrap(b.policy)))[1],
    "rewrap, a file": lambda b: (b.ring.rotate("pii"), bs.rewrap(b.file, decryption=b.policy))[1],
    "unseal": lambda b: rotate(b.root, Unseal(b.policy, output=str(b.folder / "clear"))),
    "seal": lambda b: (bs.write_table(ROWS, b.root / "c.parquet"), rotate(b.root, Seal(b.policy)))[1],
    "erase": lambda b: bs.open_table(b.root, decryption=b.policy).erase([("ssn", "==", "003-45-6789")]),
    "audit": _audit,
    "may_destroy": lambda b: may_destroy("pii", "1", b.root, keys=b.policy.keys, policy=b.policy),
    "keyring": lambda b: (b.ring.create("more"), b.ring.rotate("footer"), b.ring.disable("more"), b.ring.list()),
}


def _tried(bench: Bench, verb: str, where: str) -> bool:
    """Did it end well? Whatever it returned or raised, and all that lies below the folder, is searched."""
    try:
        told = VERBS[verb](bench)
    except bs.BloomsealError as error:
        bench.secrets.clean_error(error, where)
        return False
    finally:
        assert bench.secrets.clean_tree(bench.folder) > 1
    bench.secrets.clean_object(told, where)
    return True


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_tells_a_secret(bench: Bench, verb: str, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert _tried(bench, verb, verb)
        with _failing(bench):
            _tried(bench, verb, f"{verb}, the KMS failing")
        data = bytearray(bench.file.read_bytes())
        for place in range(0, len(data), 37):
            data[place] ^= 1
        bench.file.write_bytes(data)
        _tried(bench, verb, f"{verb}, the file broken")
    for one in warned:
        bench.secrets.clean(str(one.message), "a warning")
    bench.secrets.clean(caplog.text, "the log")
    out, err = capfd.readouterr()
    bench.secrets.clean(out + err, "the streams")


def test_the_search_finds_what_is_there(bench: Bench, tmp_path: Path) -> None:
    """A search that finds nothing proves something only if it can find."""
    key = bench.ring.list()[0].versions[0].key
    assert key is not None
    bench.secrets.add(key.reveal())
    for number, text in enumerate((key.reveal().hex(), str(list(key.reveal())), repr(key.reveal()), TOKEN)):
        with pytest.raises(AssertionError, match="holds secrets"):
            bench.secrets.clean(f"before {text} after", "a text")
        (tmp_path / f"log{number}").write_text(text)
        with pytest.raises(AssertionError, match="holds secrets"):
            bench.secrets.clean_tree(tmp_path)
        (tmp_path / f"log{number}").unlink()
        with pytest.raises(AssertionError, match="holds secrets"):
            bench.secrets.clean_error(RuntimeError(text), "an error")


_KEPT = Path(__file__).parent / "vectors" / "orc" / "encrypted.orc"
_PII, _WIDE = bytes(range(16, 32)), bytes(range(32))
_NAMES = {"name": bs.FilterSpec(fpp=0.1)}
ORC_VERBS: dict[str, Callable[[Path, bs.DecryptionSpec], Any]] = {
    "repair": lambda root, spec: rotate(root, Repair(spec)),
    "repair, planned": lambda root, spec: plan(root, Repair(spec)),
    "repair, a file": lambda root, spec: orc.repair_filters(root / "a.orc", decryption=spec),
    "rekey": lambda root, spec: rotate(root, Rekey(spec)),
    "rekey, a file": lambda root, spec: orc.rekey(root / "a.orc", decryption=spec),
    "attach": lambda root, spec: bs.attach_filters(root, _NAMES, decryption=spec),
    "read": lambda root, spec: bs.read_table(root, where=[("num", "==", 7919)], decryption=spec),
    "open": lambda root, spec: bs.open_file(root / "a.orc", decryption=spec),
    "verify": lambda root, spec: bs.verify(root, filters=True, decryption=spec),
}


@pytest.mark.parametrize("verb", ORC_VERBS)
def test_no_verb_of_orc_tells_a_secret(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """Master keys, and every local key that they open: those of the old file and those of the new one."""
    secrets, opened = Secrets(_PII, _WIDE), LocalKeyCalls.open
    root = tmp_path / "t"
    root.mkdir()
    (root / "a.orc").write_bytes(_KEPT.read_bytes())

    def known(calls: LocalKeyCalls, *given: Any) -> SecretKey:
        key = opened(calls, *given)
        secrets.add(key.reveal())
        return key

    def tried(keys: MasterKeys, where: str) -> bool:
        try:
            told = ORC_VERBS[verb](root, bs.DecryptionSpec(keys, allow_ctr=True))
        except bs.BloomsealError as error:
            secrets.clean_error(error, where)
            return False
        finally:
            assert secrets.clean_tree(tmp_path) > 0
        secrets.clean_object(told, where)
        return True

    monkeypatch.setattr(LocalKeyCalls, "open", known)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tried(MasterKeys({"pii": [None, bytes(16)], "wide": bytes(32)}), f"{verb}, with wrong keys")
        assert tried(MasterKeys({"pii": [None, _PII], "wide": _WIDE}), verb)
        data = bytearray((root / "a.orc").read_bytes())
        for place in range(0, len(data) - 2_000, 37):
            data[place] ^= 1
        (root / "a.orc").write_bytes(data)
        tried(MasterKeys({"pii": [None, _PII], "wide": _WIDE}), f"{verb}, the file broken")
    for one in warned:
        secrets.clean(str(one.message), "a warning")
    secrets.clean(caplog.text, "the log")
    out, err = capfd.readouterr()
    secrets.clean(out + err, "the streams")
