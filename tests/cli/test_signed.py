"""A table with signers by the command line: `--signer`, and what `doctor` says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Run
from .test_doctor import told

POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.people]
footer_key = "footer"
root = "people"
columns.ssn = {{ key = "pii", filter = true, index = true }}
signers.collector = "{line}"
[tables.others]
footer_key = "footer"
root = "others"
"""
SIGNER = ("--signer", "keyring:collector.json#collector")


@pytest.fixture
def table(run: Run, folder: Path) -> Run:
    assert run("keyring", "create", "--keyring", "keys.json", "footer", "pii").code == 0
    assert run("keyring", "create", "--keyring", "collector.json", "--kind", "ed25519", "collector").code == 0
    line = run("keyring", "signer", "--keyring", "collector.json", "collector").out.strip()
    (folder / "policy.toml").write_text(POLICY.format(line=line))
    (folder / "people").mkdir()
    return run


def test_each_command_that_writes_signs_by_the_option(table: Run, folder: Path) -> None:
    file, policy = "people/a.parquet", ("--policy", "policy.toml")
    refused = table("write", "people.csv", file, *policy)
    assert (refused.code, list((folder / "people").iterdir())) == (2, [])
    assert "signed by collector" in refused.err
    assert "--signer KEY" in refused.err
    for command in (
        ("write", "people.csv", file),
        ("attach", file, "--bloom-filter", "name"),
        ("index", "build", "people", "--column", "ssn"),
        ("rekey", "people"),
        ("erase", "people", "--where", "name = 'Bob'"),
        ("write", "people.csv", "people/b.parquet"),
        ("compact", "people"),
    ):
        assert table(*command, *policy).code != 0, command
        done = table(*command, *policy, *SIGNER)
        assert done.code == 0, (command, done.err)
    (made,) = (folder / "people").glob("*.parquet")
    next((folder / "people").glob("_SIGNATURE_*")).unlink()
    assert table("read", "people", *policy).code != 0
    assert re.search("signed by +collector: 1; unsigned: 1", table("audit", "people", *policy).out)
    assert table("sign", "people", *policy, *SIGNER).code == 0
    shown = table("verify", made.relative_to(folder), *policy, "--format", "json").json
    assert shown["signed_by"] == "collector"
    assert len(table("read", "people", *policy, "--format", "csv").out.splitlines()) == 1 + 3 + 4


def test_a_signer_of_nothing_is_refused(table: Run) -> None:
    bare = table("write", "people.csv", "a.parquet", "--keyring", "keys.json", "--footer-key", "footer", *SIGNER)
    assert "for a policy" in bare.err
    other = table("write", "people.csv", "others.parquet", "--policy", "policy.toml", "--table", "others", *SIGNER)
    assert "table others has no signers" in other.err
    assert (bare.code, other.code) == (2, 2)


def test_doctor_tells_who_signs_and_what_no_index_covers(table: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ("--policy", "policy.toml", "--table", "people")
    for name in ("a", "b"):
        assert table("write", "people.csv", f"people/{name}.parquet", *policy, *SIGNER).code == 0
        if name == "a":
            assert table("index", "build", "people", "--column", "ssn", *policy, *SIGNER).code == 0
    outcome = table("doctor", "people", *policy, "--format", "json")
    assert told(outcome, "table")["index of ssn"] == ("note", "1 file not covered, so that look-ups open them")
    state, found = told(outcome, "keys")["signers of people"]
    assert (state, "no key to sign with" in found) == ("note", True)
    monkeypatch.setenv("BLOOMSEAL_SIGNER", SIGNER[1])
    assert table("index", "update", "people", "--column", "ssn", *policy).code == 0
    outcome = table("doctor", "people", *policy, "--format", "json")
    assert "index of ssn" not in told(outcome, "table")
    assert told(outcome, "keys")["signers of people"] == ("ok", "signs here as collector")


def test_doctor_tells_that_no_index_covers_what_is_written_for_recipients(run: Run, folder: Path) -> None:
    assert run("keyring", "create", "--keyring", "reader.json", "--kind", "hpke", "pii").code == 0
    line = run("keyring", "recipient", "--keyring", "reader.json", "pii").out.strip()
    (folder / "policy.toml").write_text(
        f'version = 1\n[keys.pii]\nrecipients = ["{line}"]\n[tables.people]\nfooter_key = "pii"\n'
    )
    outcome = run("doctor", "--policy", "policy.toml", "--format", "json")
    (found,) = (found for name, found in told(outcome, "keys").items() if name.startswith("pii"))
    assert (found[0], "no sealed index covers" in found[1]) == ("ok", True)
