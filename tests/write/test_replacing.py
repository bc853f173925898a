"""Who replaces a file has the KMS open what it has wrapped; who writes a new one need not be allowed to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.cli.main import main
from bloomseal.keytools import KmsAccessError, Problem

ROWS = pa.table({"ssn": ["078-05-1120", "000-00-0000"], "country": ["DE", "FR"]})
KEYS = {"footer_key": "footer", "column_keys": {"ssn": "pii"}}


class OnlyWraps:
    """A writer's right to one half of a master key."""

    def __init__(self, ring: bs.Keyring) -> None:
        self._ring = ring
        self.may_unwrap = False
        self.unwrapped = 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.unwrapped += 1
        if not self.may_unwrap:
            raise KmsAccessError.because(Problem.DENIED, master_key_identifier)
        return self._ring.unwrap_key(wrapped_key, master_key_identifier)


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return ring


def sealed(kms: Any, **more: Any) -> bs.EncryptionSpec:
    return bs.EncryptionSpec(keys=bs.KeyTools(kms, attempts=1, **more), **KEYS)


def read(path: Path, ring: bs.Keyring) -> pa.Table:
    return bs.read_table(path, columns=["ssn"], decryption=bs.DecryptionSpec(bs.KeyTools(ring)))


@pytest.mark.parametrize("internal", [True, False])
def test_who_may_only_wrap_writes_new_files_and_replaces_none(tmp_path: Path, ring: bs.Keyring, internal: bool) -> None:
    kms, path = OnlyWraps(ring), tmp_path / "t.parquet"
    bs.write_table(ROWS.slice(0, 1), path, encryption=sealed(kms, internal=internal))
    assert kms.unwrapped == 0
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(bs.KeyAccessError, match="before a file is replaced") as caught:
        bs.write_table(ROWS, path, encryption=sealed(kms, internal=internal))
    assert caught.value.file == str(path)
    assert caught.value.column is None
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == before
    bs.write_table(ROWS, path, encryption=sealed(kms, internal=internal), check_keys=False)
    assert read(path, ring).num_rows == 2


def test_who_may_only_wrap_fills_and_appends_to_a_folder(tmp_path: Path, ring: bs.Keyring) -> None:
    kms, folder = OnlyWraps(ring), tmp_path / "t"
    for existing in ("overwrite", "append"):  # there is nothing to overwrite
        bs.write_dataset(ROWS, folder, encryption=sealed(kms), mode=existing)  # type: ignore[arg-type]
    assert kms.unwrapped == 0
    before = {one: one.read_bytes() for one in folder.iterdir()}
    with pytest.raises(bs.KeyAccessError, match="before a file is replaced"):
        bs.write_dataset(ROWS, folder, encryption=sealed(kms), mode="overwrite")
    assert {one: one.read_bytes() for one in folder.iterdir()} == before
    bs.write_dataset(ROWS, folder, encryption=sealed(kms), mode="overwrite", check_keys=False)
    assert read(folder, ring).num_rows == 2


def test_the_kms_is_asked_once_for_each_wrapping(tmp_path: Path, ring: bs.Keyring) -> None:
    """Not once for each file: under double wrapping all of a process share two."""
    kms, folder = OnlyWraps(ring), tmp_path / "t"
    kms.may_unwrap = True
    encryption = sealed(kms)
    rows = pa.concat_tables([ROWS] * 10)
    for asked in (0, 2, 2):
        bs.write_dataset(rows, folder, encryption=encryption, rows_per_file=2, mode="overwrite")
        assert kms.unwrapped == asked
    assert read(folder, ring).num_rows == 20


def test_a_file_object_replaces_nothing(tmp_path: Path, ring: bs.Keyring) -> None:
    kms = OnlyWraps(ring)
    with (tmp_path / "t.parquet").open("w+b") as file:
        bs.write_table(ROWS, file, encryption=sealed(kms))
    assert kms.unwrapped == 0
    assert read(tmp_path / "t.parquet", ring).num_rows == 2


def test_the_command_line_asks_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KMS that wraps something else, under `write`."""
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    (tmp_path / "rows.csv").write_text("ssn\n078-05-1120\n")
    wrap = bs.Keyring.wrap_key
    monkeypatch.setattr(bs.Keyring, "wrap_key", lambda self, key, name: wrap(self, bytes(len(key)), name))
    keys = ["--keyring", str(tmp_path / "keys.json"), "--footer-key", "footer"]
    line = ["write", str(tmp_path / "rows.csv"), str(tmp_path / "t.parquet"), *keys]
    assert main([*line, "--check-keys"]) != 0
    assert not (tmp_path / "t.parquet").exists()
    assert main(line) == 0
    before = (tmp_path / "t.parquet").read_bytes()
    assert main(line) != 0
    assert (tmp_path / "t.parquet").read_bytes() == before
    assert main([*line, "--no-check-keys"]) == 0
    assert (tmp_path / "t.parquet").read_bytes() != before
