"""The Azure client, through Azure's own library, against a stub of the documented REST API (there is no server to be
had).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import RequestsTransport

from bloomseal.core.errors import UsageError
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.keytools.kms.azure import AzureKeyVault
from bloomseal.keytools.kms.common import claimed_version, pack, unpack
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.kms_protocols import KeyState
from support.kms_conformance import KmsClientConformance
from support.vendor_stubs import AzureStub

URL = "https://lake.vault.azure.net"
TOKEN = "a-bearer-token-that-must-not-show"
KEY = bytes(range(32))


class _Credential:
    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(TOKEN, int(time.time()) + 3600)


class _ToStub(RequestsTransport):
    """Sends what is meant for the vault to the stub; the library itself insists on https and on Azure's domains."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def send(self, request: Any, **options: Any) -> Any:
        wanted = request.url
        assert wanted.startswith(URL)
        request.url = wanted.replace(URL, f"http://{self._address}")
        try:
            return super().send(request, **options)
        finally:
            request.url = wanted


@pytest.fixture
def server() -> Iterator[AzureStub]:
    with AzureStub(URL, TOKEN) as stub:
        stub.new_key("pii")
        stub.new_key("health")
        yield stub


def client(server: AzureStub, credential: Any = None) -> AzureKeyVault:
    return AzureKeyVault(URL, credential or _Credential(), transport=_ToStub(server.address))


@pytest.fixture
def kms(server: AzureStub) -> AzureKeyVault:
    return client(server)


class TestConformance(KmsClientConformance):
    master_key, other_master_key = "pii", "health"

    @pytest.fixture(autouse=True)
    def _kms(self, kms: AzureKeyVault) -> None:
        self.kms = kms

    def make_client(self) -> AzureKeyVault:
        return self.kms


def test_versions(kms: AzureKeyVault, server: AzureStub) -> None:
    old = kms.wrap_key(KEY, "pii")
    server.new_key("pii")
    new = kms.wrap_key(KEY, "pii")
    versions = [version for version, _ in server.keys["pii"]]
    assert [claimed_version(text) for text in (old, new)] == versions
    assert kms.describe("pii").current == versions[1]
    assert kms.unwrap_key(old, "pii") == KEY
    assert kms.describe("pii").rotated is not None


def test_it_opens_what_iceberg_stores(kms: AzureKeyVault, server: AzureStub) -> None:
    """The service's ciphertext alone, which names no version: that of the latest one."""
    wrapped = unpack(kms.wrap_key(KEY, "pii"), "pii", kms.kms_name)[1]
    assert kms.unwrap_bytes(wrapped, "pii") == KEY
    assert kms.opened_by(wrapped, "pii") is None
    server.new_key("pii")
    for name in ("pii", "health"):
        with pytest.raises(KmsAccessError):
            kms.unwrap_bytes(wrapped, name)


def test_writers_are_authentic_by_the_version_that_wrapped(kms: AzureKeyVault) -> None:
    """A key may have versions of both types; whoever has the public half of one names it, whichever is the latest."""
    by_rsa = kms.wrap_key(KEY, "pii")
    by_aes = pack(str(claimed_version(by_rsa)), bytes(24), algorithm="A256KW")
    asked = [kms.describe("pii", wrapped).authenticates_writers for wrapped in (None, by_rsa, by_aes)]
    assert asked == [False, False, True]


def test_a_disabled_key(kms: AzureKeyVault, server: AzureStub) -> None:
    wrapped = kms.wrap_key(KEY, "pii")
    server.disabled.add("pii")
    assert kms.describe("pii").state is KeyState.DISABLED
    for call in (lambda: kms.unwrap_key(wrapped, "pii"), lambda: kms.wrap_key(KEY, "pii")):
        with pytest.raises(KmsAccessError) as refused:
            call()
        assert refused.value.problem is Problem.DISABLED


@pytest.mark.parametrize("name", ["../secrets/x", "a/b", "", "ü", "x?y"])
def test_a_files_master_key_can_not_lead_elsewhere(kms: AzureKeyVault, server: AzureStub, name: str) -> None:
    wrapped = kms.wrap_key(KEY, "pii")
    server.requests.clear()
    with pytest.raises(KmsAccessError) as refused:
        kms.unwrap_key(wrapped, name)
    assert refused.value.problem is Problem.UNKNOWN
    fields = json.loads(wrapped)
    with pytest.raises(KmsAccessError):
        kms.unwrap_key(json.dumps({**fields, "masterKeyVersion": "../../secrets"}), "pii")
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (401, Problem.DENIED),
        (403, Problem.DENIED),
        (404, Problem.UNKNOWN),
        (400, Problem.INVALID),
        (429, Problem.THROTTLED),
        (503, Problem.UNREACHABLE),
    ],
)
def test_every_refusal_has_its_meaning(kms: AzureKeyVault, server: AzureStub, status: int, problem: Problem) -> None:
    server.override = lambda *_: (status, {"error": {"code": "X", "message": "AAECAwQFBgc"}})
    with pytest.raises(KmsAccessError) as refused:
        kms.wrap_key(KEY, "pii")
    assert refused.value.problem is problem
    assert "AAECAwQFBgc" not in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert refused.value.__context__ is None


@pytest.mark.parametrize("uri", ["azure-kv:", "azure-kv://evil.example", "azure-kv://x.vault.azure.net/keys/k"])
def test_uris_that_are_none(uri: str) -> None:
    with pytest.raises(UsageError):
        client_for(uri)
