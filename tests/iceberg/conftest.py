"""The vectors of encrypted Iceberg tables, and their KMS: a keyring with the published master keys."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from support.iceberg_vectors import PACKED


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("iceberg")
    with tarfile.open(PACKED) as packed:
        packed.extractall(place, filter="data")
    return place / "iceberg"


@pytest.fixture(scope="session")
def keyring(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> bs.Keyring:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BLOOMSEAL_KEYRING_PASSPHRASE", raising=False)
        return ring_of(vectors, tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of Spark in this process may have set one."""
    monkeypatch.delenv("BLOOMSEAL_KEYRING_PASSPHRASE", raising=False)


def ring_of(vectors: Path, path: Path) -> bs.Keyring:
    ring = bs.Keyring(path, create=True)
    keys = {name: bytes.fromhex(key) for name, key in json.loads((vectors / "keys.json").read_text()).items()}
    for name, key in keys.items():
        ring.create(name, bits=len(key) * 8)
    document = json.loads(path.read_text())
    for name, key in keys.items():
        document["keys"][name][0]["key"] = base64.b64encode(key).decode()
    path.write_text(json.dumps(document))
    return bs.Keyring(path)


@pytest.fixture
def spec(keyring: bs.Keyring) -> Callable[..., bs.DecryptionSpec]:
    def made(master: str = "master-main", **more: Any) -> bs.DecryptionSpec:
        return bs.DecryptionSpec(keyring, iceberg=bs.IcebergSpec(master, **more))

    return made
