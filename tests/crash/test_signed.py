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
from bloomseal.keytools.signatures.keys import PublicKey

_CHILD = """
import sys
import pyarrow as pa
import bloomseal as bs
bs.write_table(pa.table({"ssn": ["new"]}), sys.argv[1], policy=sys.argv[2])
"""


_OVERWRITE = """
import sys
import pyarrow as pa
import bloomseal as bs
bs.write_dataset(pa.table({"ssn": ["new"]}), sys.argv[1].rpartition("/")[0], policy=sys.argv[2], mode="overwrite")
"""


def kill(folder: Path, fault: str, child: str = _CHILD) -> None:
    command = [sys.executable, "-c", child, folder / "people/a.parquet", folder / "policy.toml"]
    done = subprocess.run(command, env=os.environ | {"BLOOMSEAL_FAULT_POINT": fault}, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of a signed file, its policy beside it."""
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    ring.create("author", kind="ed25519")
    line = PublicKey(ring.public_key("author")).line
    (tmp_path / "policy.toml").write_text(
        f'version = 1\nkms = "keyring:keys.json"\n[tables.people]\nfooter_key = "footer"\nroot = "people"\n'
        f'signers.author = "{line}"\n'
    )
    (tmp_path / "people").mkdir()
    monkeypatch.setenv("BLOOMSEAL_SIGNER", "author")
    bs.write_table(pa.table({"ssn": ["old"]}), tmp_path / "people/a.parquet", policy=tmp_path / "policy.toml")
    return tmp_path / "people"


@pytest.mark.parametrize(
    ("fault", "value", "left"), [("checked", "old", 1), ("signed", "old", 2), ("renamed", "new", 2)]
)
def test_a_file_in_its_place_is_signed(people: Path, fault: str, value: str, left: int) -> None:
    policy = people.parent / "policy.toml"
    kill(people.parent, fault)
    assert bs.read_table(people, policy=policy)["ssn"].to_pylist() == [value]
    assert len(list(people.glob("_SIGNATURE_*"))) == left
    tidy(people)
    assert len(list(people.iterdir())) == 2
    assert bs.read_table(people, policy=policy)["ssn"].to_pylist() == [value]


def test_a_file_that_is_about_to_go_is_signed(people: Path) -> None:
    policy = people.parent / "policy.toml"
    kill(people.parent, "removing", _OVERWRITE)
    assert sorted(bs.read_table(people, policy=policy)["ssn"].to_pylist()) == ["new", "old"]
    bs.write_dataset(pa.table({"ssn": ["newer"]}), people, policy=policy, mode="overwrite")
    assert bs.read_table(people, policy=policy)["ssn"].to_pylist() == ["newer"]
    tidy(people)
    assert len(list(people.iterdir())) == 2


def test_the_signature_of_a_file_that_cannot_be_read_stays(people: Path) -> None:
    """Somebody may be about to put it back, piece by piece."""
    file = people / "a.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:-4])
    tidy(people)
    file.write_bytes(data)
    assert bs.read_table(people, policy=people.parent / "policy.toml")["ssn"].to_pylist() == ["old"]


def test_a_signature_comes_before_its_file(people: Path) -> None:
    """As Spark's commit has it, which signs a file and then moves it."""
    file, aside = people / "a.parquet", people.parent / "a.parquet"
    file.rename(aside)
    tidy(people)
    aside.rename(file)
    assert bs.read_table(people, policy=people.parent / "policy.toml")["ssn"].to_pylist() == ["old"]
    (signature,) = people.glob("_SIGNATURE_*")
    os.utime(signature, (1e9, 1e9))
    file.unlink()
    tidy(people)
    assert not list(people.iterdir())
    kill(people.parent, "signed")
    assert list(people.glob("_SIGNATURE_*"))
    tidy(people)
    assert not list(people.iterdir())
