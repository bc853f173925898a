"""How tokens and data keys travel: over TLS, or to this very machine and then past every proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from bloomseal.core.errors import UsageError
from bloomseal.keytools import KmsAccessError
from bloomseal.keytools.kms.aws import AwsKms
from bloomseal.keytools.kms.azure import AzureKeyVault
from bloomseal.keytools.kms.common import is_here
from bloomseal.keytools.kms.registry import client_for
from bloomseal.keytools.kms.vault import VaultKms
from support.vendor_stubs import VaultStub

KEY = bytes(range(32))
TOKEN = "hvs.a-token-that-no-proxy-sees"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, str]]]]:
    """The environment's proxy for everything; it records what it sees and passes nothing on."""
    seen: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def _record(self) -> None:
            seen.append((self.path, dict(self.headers)))
            self.send_error(502)

        do_GET = do_POST = do_PUT = do_CONNECT = _record  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
    yield seen
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    monkeypatch.delenv("VAULT_CACERT", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def test_no_proxy_sees_what_goes_to_a_vault_on_this_machine(proxy: list[Any]) -> None:
    with VaultStub(TOKEN) as stub:
        stub.new_key("pii")
        kms: Any = client_for(f"vault://{stub.address}/transit?plain_http=true")
        assert kms.unwrap_key(kms.wrap_key(KEY, "pii"), "pii") == KEY
    assert not proxy


@pytest.mark.parametrize("named", ["argument", "environment"])
def test_no_proxy_sees_what_goes_to_an_aws_endpoint_on_this_machine(
    proxy: list[Any], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        if named == "environment":
            monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", f"http://{host}:{port}")
        kms = AwsKms("eu-central-1", endpoint=f"http://{host}:{port}" if named == "argument" else None)
        name = kms._client.create_key()["KeyMetadata"]["KeyId"]
        assert kms.unwrap_key(kms.wrap_key(KEY, name), name) == KEY
    finally:
        server.stop()
    assert not proxy


def test_plain_http_to_another_machine_is_refused_before_anything_is_sent(
    proxy: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for make in (
        lambda: VaultKms("http://vault.example:8200"),
        lambda: client_for("vault://vault.example:8200/transit?plain_http=true"),
        lambda: AwsKms("eu-central-1", endpoint="http://kms.example"),
        lambda: client_for("aws-kms://eu-central-1?endpoint=http://kms.example"),
        lambda: AzureKeyVault("http://lake.vault.azure.net", object()),
    ):
        with pytest.raises(UsageError, match="in clear"):
            make()
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "http://kms.example")
    with pytest.raises(UsageError, match="in clear"):
        AwsKms("eu-central-1")
    assert not proxy


@pytest.mark.parametrize(
    "uri",
    [
        "vault://vault.example:8200/transit?plain_http=true&allow_http=true",
        "aws-kms://eu-central-1?endpoint=http://kms.example&allow_http=true",
    ],
)
def test_plain_http_to_another_machine_can_be_asked_for(proxy: list[Any], uri: str) -> None:
    kms = client_for(uri)
    with pytest.raises(KmsAccessError):
        kms.wrap_key(KEY, "pii")
    assert proxy, "it went the environment's way"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "[::1]", "localhost"])
def test_this_machine(host: str) -> None:
    assert is_here(f"http://{host}:8200")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1.example", "http://localhost.example", "http://0.0.0.0:80", "http://127.1", "http://me@vault.example",
     "http://127.0.0.1@vault.example", "http://vault.example\\@127.0.0.1", "http://me@127.0.0.1", "ftp://127.0.0.1", "vault.example", "http://", "http://[::1"],
)  # fmt: skip
def test_another_machine_or_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        is_here(url)
    assert not is_here("https://vault.example")
