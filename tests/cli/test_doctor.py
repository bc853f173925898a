"""`bloomseal doctor`: what it says of a healthy place, and of each thing that can be wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomseal import Keyring
from bloomseal.keytools import register_kms
from bloomseal.keytools.kms import registry
from support.outcome import Outcome

from .conftest import Run, bloomseal

POLICY = """
version = 1
kms = "{kms}"
[tables.customers]
footer_key = "footer"
complete = true
[tables.customers.columns.ssn]
key = "pii"
filter = true
[tables.other]
footer_key = "footer"
"""
SEALED = ("--footer-key", "footer", "--complete", "--bloom-filter", "ssn")


@pytest.fixture
def table(run: Run, folder: Path) -> Run:
    """`run`, with a keyring, a policy, and a table of three files that are as the policy wants them."""
    assert run("keyring", "create", "--keyring", "ring.json", "footer", "pii", "other").code == 0
    (folder / "policy.toml").write_text(POLICY.format(kms=f"keyring://{folder}/ring.json"))
    (folder / "customers").mkdir()
    for name in "abc":
        assert write(run, f"customers/{name}.parquet", "ssn=pii").code == 0
    return run


def write(run: Run, path: str, column_key: str) -> Outcome:
    return run("write", "people.csv", path, "--keyring", "ring.json", "--column-key", column_key, *SEALED)


def told(outcome: Outcome, part: str) -> dict[str, tuple[str, str]]:
    return {
        check["name"]: (check["state"], check["found"]) for check in outcome.json["checks"] if check["part"] == part
    }


def test_a_place_without_keys_is_well_and_uses_no_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    outcome = run("doctor", "--format", "json")
    assert outcome.code == 0
    assert outcome.json["ok"] is True
    assert {"bloomseal", "libraries", "Spark"} <= told(outcome, "software").keys()
    assert "pyarrow" in told(outcome, "software")["libraries"][1]
    assert "nothing is wrong in what was looked at" in run("doctor").out


def test_missing_extras_and_old_libraries_have_their_pip_lines(folder: Path) -> None:
    described = folder / "site" / "bloomseal-0.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: bloomseal\nVersion: 0.0\nRequires-Dist: pyarrow>=9999\nRequires-Dist: click>=1\n"
        "Requires-Dist: no-such-library-at-all>=1 ; extra == 'vault'\nRequires-Dist: click>=1 ; extra == 'aws'\n"
    )
    path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    done = bloomseal("doctor", "--format", "json", env={**os.environ, "PYTHONPATH": path})
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    found = told(outcome, "software")
    assert outcome.code == 1
    assert found["pyarrow"][0] == "problem"
    assert found["extras not there"] == ("note", "vault")
    assert found["extras"][1].startswith("aws")
    hints = {check["name"]: check["hint"] for check in outcome.json["checks"]}
    assert hints["pyarrow"] == "pip install 'pyarrow>=9999'"
    assert hints["extras not there"] == "pip install 'bloomseal[vault]'"


def test_a_table_as_its_policy_wants_it_is_well(table: Run) -> None:
    for more in [("--table", "customers"), (), ("--keyring", "ring.json")]:
        outcome = table("doctor", "customers", "--policy", "policy.toml", *more, "--format", "json")
        assert outcome.code == 0, outcome.out
        assert told(outcome, "policy")["policy.toml"] == ("ok", "valid; tables: customers, other")
        assert told(outcome, "keys")["footer in the keyring"] == ("ok", "wraps and unwraps")
        assert told(outcome, "table")["files"] == ("ok", "3 of 3 looked at")
    cut = table("doctor", "customers", "--policy", "policy.toml", "--sample", "2", "--format", "json")
    assert (cut.code, told(cut, "table")["files"]) == (0, ("ok", "2 of 3 looked at"))


def test_files_that_are_not_as_the_policy_wants_them_are_found(table: Run) -> None:
    assert table("write", "people.csv", "customers/b.parquet", "--plaintext").code == 0
    assert write(table, "customers/c.parquet", "ssn=other").code == 0
    outcome = table("doctor", "customers", "--policy", "policy.toml", "--format", "json")
    found = told(outcome, "table")
    assert outcome.code == 1
    assert found["BS111 plaintext-file"][0] == "problem"
    assert "customers/b.parquet" in found["BS111 plaintext-file"][1]
    assert "customers/c.parquet" in found["BS303 unexpected-master-key"][1]
    assert "need a look" in table("doctor", "customers", "--policy", "policy.toml").out


def test_a_file_whose_key_is_gone_is_no_healthy_one(table: Run) -> None:
    Keyring("ring.json").destroy("pii")
    outcome = table("doctor", "customers", "--policy", "policy.toml", "--format", "json")
    assert outcome.code == 1
    assert told(outcome, "keys")["pii in the keyring"][1].startswith("wrap: destroyed")
    assert any(state in ("problem", "unknown") for state, _ in told(outcome, "table").values())


def test_what_could_not_be_found_out_is_not_well(table: Run, folder: Path) -> None:
    (folder / "empty").mkdir()
    empty = table("doctor", "empty", "--format", "json")
    assert (empty.code, told(empty, "table")["files"][0]) == (1, "unknown")
    (folder / "elsewhere").mkdir()
    assert write(table, "elsewhere/a.parquet", "ssn=pii").code == 0
    strange = table("doctor", "elsewhere", "--policy", "policy.toml", "--format", "json")
    assert (strange.code, told(strange, "table")["policy"][0]) == (1, "unknown")


@pytest.fixture
def foreign() -> Iterator[None]:
    """A KMS that refuses one key, does not know one, can't be reached for one, and mixes one up."""

    class Client:
        kms_name = "the KMS"

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
            match master_key_identifier:
                case "refused":
                    raise PermissionError("hvs.secret")
                case "unheard-of":
                    raise KeyError("hvs.secret")
                case "far":
                    raise ConnectionError("hvs.secret")
                case "mixed":
                    return (b"\0" * 16).hex()
                case _:
                    return key_bytes.hex()

        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            if master_key_identifier == "write-only":
                raise PermissionError("hvs.secret")
            return bytes.fromhex(wrapped_key)

    register_kms("doctored", lambda uri: Client())  # noqa: ARG005
    yield
    del registry._registered["doctored"]
    registry._clients.clear()


@pytest.mark.usefixtures("foreign")
def test_denied_unknown_and_unreachable_keys_are_told_apart(run: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text(
        'version = 1\nkms = "doctored:x"\n[tables.t]\nfooter_key = "good"\nprevious_footer_keys = ["refused"]\ncomplete = true\n'
        + "".join(
            f'[tables.t.columns.{name}]\nkey = "{key}"\n'
            for name, key in [("a", "unheard-of"), ("b", "far"), ("c", "mixed"), ("d", "write-only")]
        )
    )
    outcome = run("doctor", "--policy", "policy.toml", "--format", "json")
    found = {name.removesuffix(" in the KMS"): state for name, state in told(outcome, "keys").items()}
    assert outcome.code == 1
    assert found["good"] == ("ok", "wraps and unwraps")
    assert found["refused"][0] == "note"  # nothing new is sealed under it
    assert found["refused"][1].startswith("wrap: denied")
    assert found["unheard-of"][0] == "problem"
    assert found["unheard-of"][1].startswith("wrap: unknown")
    assert found["far"][0] == "unknown"
    assert found["far"][1].startswith("wrap: unreachable")
    assert found["mixed"] == ("problem", "another key came back than was wrapped")
    assert found["write-only"][1].startswith("unwrap: denied")
    assert "hvs.secret" not in outcome.out + outcome.err


def test_a_policy_or_keyring_that_is_broken_is_a_line_and_the_rest_is_told(table: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text("version = 1\n[tables.customers]\nfooter_kye = 'x'\n")
    outcome = table("doctor", "customers", "--policy", "policy.toml", "--format", "json")
    assert outcome.code == 1
    assert told(outcome, "policy")["policy.toml"][0] == "problem"
    assert "files" in told(outcome, "table")
    outcome = table("doctor", "--keyring", "gone.json", "--format", "json")
    assert (outcome.code, told(outcome, "keys")["keys given"][0]) == (1, "problem")
    (folder / "policy.toml").write_text(POLICY.format(kms="keyring:gone.json"))
    outcome = table("doctor", "--policy", "policy.toml", "--format", "json")
    assert (outcome.code, told(outcome, "keys")["KMS of table customers"][0]) == (1, "problem")


def test_a_wrong_call_is_an_error(run: Run) -> None:
    assert run("doctor", "--table", "customers").code == 2
    assert run("doctor", "--sample", "0").code == 2


def test_looking_at_software_loads_none_of_it() -> None:
    script = (
        "import sys; from bloomseal.cli.main import main\n"
        "main(['doctor', '--format', 'json'])\n"
        "print(sorted({'pyspark', 'numba', 'boto3', 'deltalake', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
