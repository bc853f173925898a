"""KMS URIs → clients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bloomseal import Keyring, KeyTools
from bloomseal.core.errors import BloomsealError, KeyAccessError, MissingDependencyError, UsageError
from bloomseal.keytools import register_kms
from bloomseal.keytools.kms import registry
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.sources import as_key_source
from support.stand_ins import InMemoryKms


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_clients", type(registry._clients)())


def test_a_keyring_by_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Keyring(tmp_path / "k e y s.json", create=True).create("pii")
    uri = (tmp_path / "k e y s.json").as_uri().replace("file:", "keyring:")
    for one in (uri, f"keyring:{tmp_path}/k%20e%20y%20s.json"):
        client = client_for(one)
        assert isinstance(client, Keyring)
        assert client.list()[0].name == "pii"
    monkeypatch.setenv("BLOOMSEAL_KEYRING", str(tmp_path / "k e y s.json"))
    assert isinstance(client_for("keyring:"), Keyring)
    monkeypatch.delenv("BLOOMSEAL_KEYRING")
    monkeypatch.setattr(registry, "_clients", type(registry._clients)())
    with pytest.raises(UsageError, match="BLOOMSEAL_KEYRING"):
        client_for("keyring:")
    with pytest.raises(UsageError, match="no keyring URI"):
        client_for("keyring://host/path")
    with pytest.raises(KeyAccessError, match="can't be read"):
        client_for("keyring:///no/such/file.json")


def test_the_same_uri_is_the_same_client_and_so_the_same_cache() -> None:
    made: list[str] = []

    def factory(uri: str) -> InMemoryKms:
        made.append(uri)
        return InMemoryKms()

    register_kms("Mine", factory)
    assert client_for("mine:a") is client_for("mine:a")
    assert client_for("MINE:b") is not client_for("mine:a")
    assert as_key_source("mine:a") is as_key_source("mine:a")
    assert isinstance(as_key_source("mine:a"), KeyTools)
    assert made == ["mine:a", "MINE:b"]
    assert KeyTools("mine:a").kms is client_for("mine:a")


def test_what_a_caller_registers_wins_at_once() -> None:
    first, second = InMemoryKms(), InMemoryKms()
    register_kms("keyring", lambda _: first)
    assert client_for("keyring:x") is first
    register_kms("keyring", lambda _: second)
    assert client_for("keyring:x") is second
    for wrong in ("", "1a", "a b", "a:b", "ä"):
        with pytest.raises(UsageError, match="no URI scheme"):
            register_kms(wrong, lambda _: first)


def test_an_installed_package_brings_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real distribution on the path, with the entry point as pip would write it."""
    (tmp_path / "filing_kms.py").write_text(
        "from support.stand_ins import InMemoryKms\ndef from_uri(uri): return InMemoryKms()\n"
    )
    info = tmp_path / "filing_kms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: filing-kms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bloomseal.kms]\nfiling = filing_kms:from_uri\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "filing" in registry.schemes()
    assert isinstance(client_for("filing:cabinet"), InMemoryKms)


@pytest.mark.parametrize(
    "uri",
    [
        "vault://user:hunter2@vault.example/transit",
        "vault://vault.example/transit?token=hunter2",
        "vault://vault.example/transit?TOKEN=hunter2",
        "pkcs11:token=t?pin-value=hunter2",
        "pkcs11:token=t;pin-value=hunter2",
        "keyring:///k.json?passphrase=hunter2",
        "aws-kms://eu-central-1?secret=hunter2",
        "mine:x?password=hunter2",
        "vault://[hunter2",
    ],
)
def test_secrets_in_uris_are_refused_and_not_repeated(uri: str) -> None:
    register_kms("mine", lambda _: InMemoryKms())
    with pytest.raises(UsageError) as caught:
        client_for(uri)
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__context__!r}"


@pytest.mark.parametrize("uri", ["", "nothing", "no-such:x", "/a/path", "://", "ftp://x"])
def test_unknown_schemes_name_the_known_ones(uri: str) -> None:
    with pytest.raises(UsageError, match="keyring"):
        client_for(uri)


@pytest.mark.parametrize(
    ("uri", "library", "extra"),
    [
        ("aws-kms://eu-central-1", "boto3", "aws"),
        ("azure-kv://v.vault.azure.net", "azure.keyvault.keys", "azure"),
        ("gcp-kms://projects/p/locations/l/keyRings/r", "google.cloud.kms", "gcp"),
        ("pkcs11:token=t?module-path=/x.so", "pkcs11", "pkcs11"),
        ("vault://vault.example/transit", "hvac", "vault"),
    ],
)
def test_what_is_not_installed_names_the_pip_line(
    monkeypatch: pytest.MonkeyPatch, uri: str, library: str, extra: str
) -> None:
    for name in list(sys.modules):
        if name == library or name.startswith(f"{library}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # how an import of something absent fails
    with pytest.raises(MissingDependencyError) as caught:
        client_for(uri)
    assert caught.value.hint == f"pip install 'bloomseal[{extra}]'"


def test_a_factory_that_fails_is_named_by_its_failure_only() -> None:
    def factory(uri: str) -> InMemoryKms:
        raise RuntimeError(f"hunter2 {uri}")

    register_kms("mine", factory)
    with pytest.raises(BloomsealError, match="RuntimeError") as caught:
        client_for("mine:x")
    assert "hunter2" not in f"{caught.value} {caught.value.__context__!r} {caught.value.__cause__!r}"


def test_a_factory_that_makes_no_client_is_noticed() -> None:
    register_kms("mine", lambda _: 42)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError):
        KeyTools("mine:x")


def test_key_tools_load_no_vendors_library() -> None:
    code = (
        "import sys, bloomseal.keytools as k; [getattr(k, name) for name in k.__all__]; from bloomseal.keytools.kms.registry import schemes; schemes();"
        "print([m for m in ('boto3', 'botocore', 'hvac', 'pkcs11', 'google.cloud', 'azure', 'requests', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_relative_keyring_is_that_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder's keyring must not answer because its URI was spelt alike."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Keyring(tmp_path / name / "a ring.json", create=True).create(name)
    for asked in ("keyring:a%20ring.json", "keyring:./a%20ring.json", "keyring:"):
        for name in ("one", "two", "one"):
            monkeypatch.chdir(tmp_path / name)
            monkeypatch.setenv("BLOOMSEAL_KEYRING", "a ring.json")
            client = client_for(asked)
            assert isinstance(client, Keyring)
            assert [key.name for key in client.list()] == [name]
            assert client_for(asked) is client
    monkeypatch.setenv("BLOOMSEAL_KEYRING", str(tmp_path / "two" / "a ring.json"))
    assert [key.name for key in client_for("keyring:").list()] == ["two"]  # type: ignore[attr-defined]
