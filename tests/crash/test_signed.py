"""Killed at any instant, a file that is in its place is signed; what a killed writer leaves goes with the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.keytools.material.store import tidy

_CHILD = """
import sys
import pyarrow as pa
import bloomseal as bs
bs.write_table(pa.table({"ssn": ["new"]}), sys.argv[1], policy=sys.argv[2])
"""


def kill(folder: Path, fault: str) -> None:
    command = [sys.executable, "-c", _CHILD, folder / "people/a.parquet", folder / "policy.toml"]
    done = subprocess.run(command, env=os.environ | {"BLOOMSEAL_FAULT_POINT": fault}, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("fault", "value", "left"), [("checked", "old", 1), ("signed", "old", 2), ("renamed", "new", 2)]
)
def test_a_file_in_its_place_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, value: str, left: int
) -> None:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    ring.create("author", kind="ed25519")
    from bloomseal.keytools.signatures.keys import PublicKey

    line = PublicKey(ring.public_key("author")).line
    (tmp_path / "policy.toml").write_text(
        f'version = 1\nkms = "keyring:keys.json"\n[tables.people]\nfooter_key = "footer"\nroot = "people"\n'
        f'signers.author = "{line}"\n'
    )
    people, policy = tmp_path / "people", tmp_path / "policy.toml"
    people.mkdir()
    monkeypatch.setenv("BLOOMSEAL_SIGNER", "author")
    bs.write_table(pa.table({"ssn": ["old"]}), people / "a.parquet", policy=policy)
    kill(tmp_path, fault)
    assert bs.read_table(people, policy=policy)["ssn"].to_pylist() == [value]
    assert len(list(people.glob("_SIGNATURE_*"))) == left
    tidy(people)
    assert len(list(people.iterdir())) == 2
    assert bs.read_table(people, policy=policy)["ssn"].to_pylist() == [value]
