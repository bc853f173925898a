"""Master keys under which anybody can wrap: told by each client, refused where a policy asks for authentic writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import bloomseal as bs
from bloomseal.keytools.kms.aws import AwsKms
from bloomseal.keytools.kms.vault import VaultKms
from bloomseal.keytools.kms_protocols import DescribingKms
from bloomseal.policy import Policy, TablePolicy
from bloomseal.rotation.keys import Rewrapper, mapped
from keytools.kms.test_azure import TOKEN as AZURE_TOKEN
from keytools.kms.test_azure import URL, client
from support.stand_ins import MASTER_KEYS, InMemoryKms
from support.vendor_stubs import AzureStub, VaultStub

KEY = bytes(range(16))


@pytest.fixture
def azure() -> Iterator[AzureStub]:
    with AzureStub(URL, AZURE_TOKEN) as stub:
        stub.new_key("pii")
        yield stub


def policy(kms: Any, master_key: str = "pii", *, authentic_writers: bool = True) -> TablePolicy:
    table = {"footer_key": master_key, "authentic_writers": authentic_writers}
    return Policy.from_dict({"version": 1, "tables": {"people": table}}, kms=kms).for_table("people")


def test_symmetric_master_keys_serve(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("pii")
    rows = pa.table({"ssn": ["000-00-0000"]})
    bs.write_table(rows, tmp_path / "t.parquet", encryption=policy(ring))
    assert bs.read_table(tmp_path / "t.parquet", decryption=policy(ring)).equals(rows)


def test_a_file_under_an_rsa_key_is_refused_to_read_and_to_write(azure: AzureStub, tmp_path: Path) -> None:
    rows = pa.table({"ssn": ["000-00-0000"]})
    kms = client(azure)
    # Anybody with the public half could have written it: the vault was not asked to wrap.
    bs.write_table(rows, tmp_path / "t.parquet", encryption=policy(kms, authentic_writers=False))
    assert not [path for method, path in azure.requests if "wrapkey" in path]
    assert bs.read_table(tmp_path / "t.parquet", decryption=policy(kms, authentic_writers=False)).equals(rows)
    with pytest.raises(bs.PolicyError, match="public key"):
        bs.read_table(tmp_path / "t.parquet", decryption=policy(kms))
    with pytest.raises(bs.PolicyError, match="public key"):
        bs.write_table(rows, tmp_path / "new.parquet", encryption=policy(kms))
    assert not (tmp_path / "new.parquet").exists()


def test_a_client_that_cannot_tell_is_refused(tmp_path: Path) -> None:
    kms = InMemoryKms()
    assert not isinstance(kms, DescribingKms)
    with pytest.raises(bs.PolicyError, match="does not tell"):
        bs.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet", encryption=policy(kms, next(iter(MASTER_KEYS))))


def test_key_tools_that_do_not_ask_do_not_serve_a_policy_that_does() -> None:
    tools = bs.KeyTools(InMemoryKms())
    with pytest.raises(bs.PolicyError, match="do not ask"):
        policy(tools).keys  # noqa: B018


def test_a_rewrap_does_not_move_a_key_under_a_public_one(azure: AzureStub) -> None:
    tools = bs.KeyTools(client(azure), authentic_writers=True)
    rewrapper = Rewrapper(tools, mapped({"pii": "pii"}))
    wrapped = client(azure).wrap_key(KEY, "pii")
    with pytest.raises(bs.PolicyError, match="public key"):
        rewrapper._rewrap(("pii", wrapped, "pii"), tools.calls_for(None))


def test_vault_tells_by_the_keys_type() -> None:
    with VaultStub("t") as stub:
        stub.new_key("pii")
        kms = VaultKms(f"http://{stub.address}", token="t")
        wrapped = kms.wrap_key(KEY, "pii")
        assert kms.describe("pii", wrapped).authenticates_writers is True
        for kind, answer in {"rsa-4096": False, "managed_key": None}.items():
            stub.override = lambda _method, _path, kind=kind: (200, {"data": {"type": kind, "keys": {}}})
            assert kms.describe("pii", wrapped).authenticates_writers is answer


def test_aws_tells_by_the_keys_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        admin = boto3.client("kms", region_name="eu-central-1", endpoint_url=endpoint)
        kms = AwsKms("eu-central-1", endpoint=endpoint)
        for spec, answer in {"SYMMETRIC_DEFAULT": True, "RSA_2048": False}.items():
            made = admin.create_key(KeySpec=spec, KeyUsage="ENCRYPT_DECRYPT")["KeyMetadata"]["KeyId"]
            assert kms.describe(made).authenticates_writers is answer
    finally:
        server.stop()
