"""A writer for recipients whose machine is seized: its policy, disk, temporary files and state, whole files and those
that it was writing; not its live memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.core.parquet.footer import peek
from bloomseal.keytools.recipients.recipient import parse_sealed
from bloomseal.storage.places import open_source
from games.seized import keys_of, shapes_of

SCRIPT = """
import sys, pyarrow as pa, bloomseal as bs
rows = pa.table({"ssn": [f"000-00-{i:04}" for i in range(500)], "n": list(range(500))})
policy = bs.Policy.load("writer.toml")
for double in ("a", "b"):
    bs.write_table(rows, f"lake/{double}.parquet", policy=policy)
bs.write_dataset(rows, "lake/more", policy=policy)
writer = bs.SealedWriter("lake/c.parquet", rows.schema, policy=policy, row_group_size=100)
writer.write_table(rows)
print("up", flush=True)
sys.stdin.read()
"""
POLICY = """
version = 1
[keys.pii]
recipients = ["{line}"]
[tables.people]
footer_key = "pii"
complete = true
columns.ssn = {{ key = "pii", filter = true, index = true }}
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> bs.Keyring:
    ring = bs.Keyring(tmp_path_factory.mktemp("elsewhere") / "reader.json", create=True)
    ring.create("pii", kind="hpke")
    return ring


@pytest.fixture(scope="module")
def seized(reader: bs.Keyring, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The machine, after a kill."""
    home = tmp_path_factory.mktemp("writer")
    (home / "writer.toml").write_text(POLICY.format(line=reader.recipient("pii")))
    (home / "lake").mkdir()
    (home / "tmp").mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOMSEAL")}
    environment = {**clean, "HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_STATE_HOME": str(home / "state")}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=home,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGKILL)
    return home


def placed(home: Path) -> list[Path]:
    return sorted(home.rglob("*.parquet"))


def test_a_seized_writer_opens_none_of_its_files(seized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(seized)
    monkeypatch.delenv("BLOOMSEAL_KEYRING", raising=False)
    files = placed(seized)
    assert len(files) >= 3
    for file in files:
        for ask in (
            lambda file=file: bs.read_table(file, policy="writer.toml"),
            lambda file=file: bs.probe(file, "ssn", ["000-00-0001"], policy="writer.toml"),
            lambda file=file: bs.open_file(file, policy="writer.toml").verify(),
            lambda file=file: bs.rewrap(file, policy="writer.toml"),
            lambda file=file: bs.unseal_file(file, "clear.parquet", policy="writer.toml"),
        ):
            with pytest.raises(bs.KeyAccessError):
                ask()
    assert not Path("clear.parquet").exists()


def test_no_key_and_no_row_lies_about_a_seized_writer(seized: Path, reader: bs.Keyring) -> None:
    keys = {key for file in placed(seized) for key in keys_of(file, reader)}
    assert len(keys) >= 9, "the game knows the keys that it looks for"
    shapes = {shape for key in keys for shape in shapes_of(key)}
    there = [path for path in seized.rglob("*") if path.is_file()]
    assert any(path.suffix != ".parquet" and path.parent.name == "lake" for path in there), "a file that was not done"
    for path in there:
        data = path.read_bytes()
        assert not any(shape in data for shape in shapes), path
        assert b"000-00-0" not in data, path
    with open_source(str(placed(seized)[0])) as source:
        named = json.loads(peek(source).key_metadata)
    assert parse_sealed(named["wrappedKEK"]) is not None


def test_readers_open_what_a_seized_writer_wrote(seized: Path, reader: bs.Keyring) -> None:
    """The game's files are whole: they open with the key that was never there."""
    for file in placed(seized):
        assert bs.read_table(file, decryption=bs.DecryptionSpec(keys=reader)).num_rows == 500


def test_limit_who_has_the_line_writes_what_opens(seized: Path, reader: bs.Keyring, tmp_path: Path) -> None:
    """A recipient's line is public, and HPKE's base mode has no sender."""
    import pyarrow as pa

    bs.write_table(pa.table({"ssn": ["forged"]}), tmp_path / "forged.parquet", policy=seized / "writer.toml")
    forged = bs.read_table(tmp_path / "forged.parquet", decryption=bs.DecryptionSpec(keys=reader))
    assert forged["ssn"].to_pylist() == ["forged"]
