"""docs/kms.md, "How soon a disabled key stops working": seen with each kind of client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.keytools import KmsClient
from bloomseal.keytools.kms.vault import VaultKms
from keytools.kms.test_azure import TOKEN as AZURE_TOKEN
from keytools.kms.test_azure import URL, client
from support.stand_ins import MASTER_KEYS, InMemoryKms
from support.vendor_stubs import AzureStub, VaultStub

ROWS = pa.table({"ssn": ["000-00-0000"]})
Withdrawn = tuple[KmsClient, str, Callable[[], object]]
"""A client, a master key's name, and what withdraws the right to it."""


@pytest.fixture(params=["keyring", "vault", "azure", "any other"])
def kms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Withdrawn]:
    with ExitStack() as stack:
        match request.param:
            case "keyring":
                ring = bs.Keyring(tmp_path / "keys.json", create=True)
                ring.create("pii")
                # By another process, as it were.
                yield ring, "pii", lambda: bs.Keyring(ring.path).disable("pii")
            case "vault":
                vault = stack.enter_context(VaultStub("t"))
                vault.new_key("pii")
                yield VaultKms(f"http://{vault.address}", token="t"), "pii", lambda: _refuse(vault)
            case "azure":
                azure = stack.enter_context(AzureStub(URL, AZURE_TOKEN))
                azure.new_key("pii")
                yield client(azure), "pii", lambda: _refuse(azure)
            case _:
                mine = InMemoryKms()
                yield mine, next(iter(MASTER_KEYS)), lambda: setattr(mine, "failing", PermissionError())


def _refuse(stub: VaultStub | AzureStub) -> None:
    stub.override = lambda _method, _path: (403, {"errors": ["permission denied"]})


def _opened(path: Path, tools: bs.KeyTools) -> bs.SealedFile:
    return bs.open_file(path, decryption=bs.DecryptionSpec(tools))


def test_a_withdrawn_right_ends_with_the_cache_and_over_a_keyring_at_once(kms: Withdrawn, tmp_path: Path) -> None:
    client, name, withdraw = kms
    path = tmp_path / "t.parquet"
    bs.write_table(ROWS, path, encryption=bs.EncryptionSpec(name, keys=bs.KeyTools(client)))
    cached, uncached = bs.KeyTools(client), bs.KeyTools(client, cache_lifetime=0)
    for tools in (cached, uncached):
        _opened(path, tools).close()
    with _opened(path, cached) as held:
        withdraw()
        assert held.read().equals(ROWS), "an open file keeps its keys"
    with pytest.raises(bs.KeyAccessError):
        _opened(path, uncached)
    if isinstance(client, bs.Keyring):
        with pytest.raises(bs.KeyAccessError, match="disabled"):
            _opened(path, cached)
        client.enable(name)
        assert bs.read_table(path, decryption=bs.DecryptionSpec(cached)).equals(ROWS)
    else:
        assert bs.read_table(path, decryption=bs.DecryptionSpec(cached)).equals(ROWS)
        cached.forget()
        with pytest.raises(bs.KeyAccessError):
            _opened(path, cached)
