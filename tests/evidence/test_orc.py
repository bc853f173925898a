"""ORC files in a bundle: counted, their keys named as the KMS names them, and samples of them tried."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import evidence
from bloomseal.policy import ColumnPolicy, TablePolicy
from bloomseal.rotation import Rekey, rotate
from support.orc_files import orc_file, orc_ring


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BLOOMSEAL_KEYRING", "BLOOMSEAL_KEYRING_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def _policy(ring: bs.Keyring) -> TablePolicy:
    columns = {"name": ColumnPolicy("pii"), "num": ColumnPolicy("wide"), "s": ColumnPolicy("wide")}
    return TablePolicy("t", ring, "pii", columns, allow_ctr=True)


def _made(folder: Path, ring: bs.Keyring, **options: Any) -> dict[str, Any]:
    given = {"policy": _policy(ring), "keys": ring, "journals": [folder / "journal"], "overwrite": True}
    return evidence.make(folder / "t", folder / "bundle.zip", **{**given, **options}).told


def test_a_rotation_of_orc_files_is_told(folder: Path) -> None:
    ring = orc_ring(folder / "keys.json")
    shutil.copy(orc_file(folder / "t" / "a.orc", ring), folder / "t" / "b.orc")
    shutil.copytree(folder / "t", folder / "backup")
    ring.rotate("pii")
    policy = _policy(ring)
    assert rotate(folder / "t", Rekey(policy), journal=folder / "journal").ok
    told = _made(folder, ring)
    assert told["looked_at"]["files"] == 2
    keys = {f"{one['master_key']}:{one['version']}": one for one in told["keys"]}
    # A keyring counts its versions from 1, the files from 0.
    assert (keys["pii:4"]["files"], keys["pii:4"]["state"], keys["wide:2"]["files"]) == (2, "active", 2)
    assert keys["pii:4"]["data_key_algorithms"] == ["AES_CTR 128"]
    assert keys["wide:2"]["data_key_algorithms"] == ["AES_CTR 256"]
    (rotation,) = told["rotations"]
    assert (rotation["operation"], rotation["remaining"]) == ("rekey", {})
    assert rotation["complete"]["text"] == "not contradicted: 2 of 2 seen"
    assert {"before": "pii:3", "after": "pii:4", "files": 2} in rotation["keys"]
    with zipfile.ZipFile(folder / "bundle.zip") as members:
        bill = members.read("cbom-1.6.json")
    assert b"AES-256-CTR" in bill
    assert b"unknown" not in bill
    # A file that it has missed.
    shutil.copy(folder / "backup" / "a.orc", folder / "t" / "c.orc")
    (rotation,) = _made(folder, ring)["rotations"]
    assert (rotation["complete"]["standing"], rotation["remaining"]) == ("contradicted", {"pii:3": 1})
    # Without the keyring nobody knows how it calls the versions.
    (rotation,) = _made(folder, ring, keys=None, with_keys=False)["rotations"]
    assert rotation["complete"]["standing"] == "not seen"


def test_samples_of_orc_files_are_tried(folder: Path) -> None:
    ring = orc_ring(folder / "keys.json")
    orc_file(folder / "t" / "a.orc", ring)
    shutil.copytree(folder / "t", folder / "backup")
    ring.rotate("pii")
    assert rotate(folder / "t", Rekey(_policy(ring)), journal=folder / "journal").ok
    samples = [folder / "backup"]
    (found,) = _made(folder, ring, destroyed=["pii:3"], samples=samples)["destructions"]
    assert found["destroyed"]["standing"] == "contradicted"
    assert {(one["column"], one["outcome"]) for one in found["tried"]} == {("name", "opened")}
    ring.destroy("pii", 3)
    (found,) = _made(folder, ring, destroyed=["pii:3"], samples=samples)["destructions"]
    assert {(one["column"], one["outcome"], one["problem"]) for one in found["tried"]} == {
        ("name", "refused", "destroyed")
    }
    assert (found["destroyed"]["standing"], found["files"]) == ("not contradicted", 1)
    # Nothing ties an ORC file's keys to the version that it names.
    assert found["unneeded"]["standing"] == "not seen"
    (found,) = _made(folder, ring, destroyed=["pii:4"], samples=samples)["destructions"]
    assert found["unneeded"]["standing"] == "contradicted"
    assert {one["outcome"] for one in found["tried"]} == {"not tried"}
