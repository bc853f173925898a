"""A file that is encrypted in part is not sealed; a file that can't be looked into is not called done."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.rotation import Seal, Unseal, plan, rotate
from bloomseal.rotation.outcome import Status

F, N, M = b"f" * 16, b"n" * 16, b"m" * 16
DATA = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "ssn": ["x", "y", "z"]})
PARTLY = {"footer_key": F, "column_keys": {"name": N}}


@pytest.fixture(autouse=True)
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _one(path: Path, job: Any) -> tuple[str, Any]:
    (planned,) = plan(path, job).files
    (done,) = rotate(path, job).files
    assert (planned.action == "fail") == (done.status is Status.FAILED)
    return planned.action, done


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize(
    ("wanted", "clear"),
    [
        ({"footer_key": F, "column_keys": {"name": N, "ssn": M}}, "ssn"),
        ({"footer_key": F, "column_keys": {"name": N}, "complete": True}, "id, ssn"),
        ({"footer_key": F}, "id, ssn"),
    ],
)
def test_columns_in_clear_that_should_not_be_are_named(
    tmp_path: Path, wanted: dict[str, Any], clear: str, plaintext_footer: bool
) -> None:
    """Such a file was reported as encrypted already, with nothing to do."""
    path = tmp_path / "a.parquet"
    bs.write_table(DATA, path, encryption=bs.EncryptionSpec(**PARTLY, plaintext_footer=plaintext_footer))
    before = path.read_bytes()
    action, done = _one(path, Seal(bs.EncryptionSpec(**wanted)))
    assert action == "fail"
    assert done.why == f"encrypted in part: {clear} in clear"
    assert not rotate(path, Seal(bs.EncryptionSpec(**wanted)), restart=True).ok
    assert path.read_bytes() == before


def test_under_a_policy_too(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    path = tmp_path / "a.parquet"
    bs.write_table(DATA, path, encryption=bs.EncryptionSpec("footer", {"name": "pii"}, keys=ring))
    document = {
        "version": 1,
        "tables": {"t": {"footer_key": "footer", "columns": {name: {"key": "pii"} for name in ("name", "ssn")}}},
    }
    _, done = _one(path, Seal(bs.Policy.from_dict(document, kms=ring).for_table("t")))
    assert done.status is Status.FAILED
    assert "ssn" in done.why


@pytest.mark.parametrize("wanted", [PARTLY, {"footer_key": F, "column_keys": {"name": M}}])
def test_a_file_that_is_sealed_as_wanted_is_done(tmp_path: Path, wanted: dict[str, Any]) -> None:
    path = tmp_path / "a.parquet"
    bs.write_table(DATA, path, encryption=bs.EncryptionSpec(**PARTLY))
    action, done = _one(path, Seal(bs.EncryptionSpec(**wanted)))
    assert (action, done.status) == ("none", Status.NOTHING)


def test_a_file_under_other_keys_is_not_called_done(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bs.write_table(DATA, path, encryption=bs.EncryptionSpec(**PARTLY))
    _, done = _one(path, Seal(bs.EncryptionSpec(footer_key=M)))
    assert done.status is Status.FAILED
    assert "can't be seen" in done.why


def test_leftovers_go_with_the_next_run_whatever_their_name(tmp_path: Path) -> None:
    """Of a file that is gone, of another output; not those of a living writer."""
    folder, out = tmp_path / "t", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    bs.write_table(DATA, folder / "a.parquet", encryption=bs.EncryptionSpec(**PARTLY))
    dead = [
        folder / ".gone.parquet.0123abcd.bloomseal-tmp",
        out / "._KEY_MATERIAL_FOR_x.json.0123456789abcdef.bloomseal-tmp",
    ]
    alive, other = folder / ".b.parquet.01234567.bloomseal-tmp", folder / ".notes.bloomseal-tmp"
    for file in (*dead, alive, other):
        file.write_bytes(b"left")
    keys = bs.DecryptionSpec(bs.ExplicitKeys(F, {"name": N}))
    fd = os.open(alive, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        plan(folder, Unseal(keys, output=str(out)))
        assert all(file.exists() for file in dead)
        assert rotate(folder, Unseal(keys, output=str(out))).ok
    finally:
        os.close(fd)
    assert sorted(file.name for file in folder.iterdir()) == [alive.name, other.name, "a.parquet"]
    assert [file.name for file in out.iterdir()] == ["a.parquet"]
