"""No output of any failing command holds a key, a passphrase or a value that was looked for."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bloomseal import Keyring
from bloomseal.keytools.keyring.keyfile import MasterKey
from support.watch import Secrets

from .conftest import TYPES, Outcome, Run, bloomseal

KEY = bytes(range(0x40, 0x50))
VALUE = "078-05-1120"
PASSPHRASE = "a passphrase that nobody prints"


@pytest.fixture
def secrets(sealed: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes | str]:
    """What must never be seen: master keys, wrapped keys' ring, explicit keys, passphrases."""
    keys: tuple[MasterKey, ...] = Keyring("keys.json").list()
    stored = [version.key.reveal() for key in keys for version in key.versions if version.key is not None]
    assert len(stored) == 3
    (folder / "explicit.key").write_text(KEY.hex())
    (folder / "bad.key").write_text(KEY.hex() + "0")
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    monkeypatch.setenv("EXPLICIT", base64.b64encode(KEY).decode())
    monkeypatch.setenv("BAD", KEY.hex()[:-1])
    assert sealed("keyring", "create", "k", "--keyring", "locked.json", "--passphrase-file", "passphrase").code == 0
    (folder / "wrong").write_text("another " + PASSPHRASE)
    (folder / "garbage.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    (folder / "wrong types.csv").write_text("ssn,born\n" + "1,1984-03-07\n" * 10 + f"{VALUE},never\n")
    whole = (folder / "people.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2] + whole[-200:])
    return [KEY, *stored, PASSPHRASE, VALUE]


FAILURES = [
    ["probe", "people.parquet", "born", VALUE],
    ["probe", "people.parquet", "born", "--values-from", "people.csv"],
    ["probe", "people.parquet", "nowhere", VALUE],
    ["probe", "garbage.parquet", "ssn", VALUE],
    ["probe", "cut.parquet", "ssn", VALUE],
    ["probe", "missing.parquet", "ssn", VALUE],
    ["read", "people.parquet", "--where", f"born = {VALUE}"],
    ["read", "people.parquet", "--where", f"nowhere = {VALUE}"],
    ["read", "people.parquet", "--where", VALUE],
    ["read", "people.parquet", "--output", "/nowhere/at/all.csv"],
    ["verify", "people.parquet", "--keyring", "locked.json"],
    ["verify", "people.parquet", "--keyring", "locked.json", "--passphrase-file", "passphrase"],
    ["verify", "people.parquet", "--keyring", "locked.json", "--passphrase-file", "wrong"],
    ["verify", "people.parquet", "--passphrase-file", "missing"],
    ["verify", "cut.parquet"],
    # A key given in place of a file's or a variable's name, and files and variables that hold none.
    ["verify", "people.parquet", "--key-file", f"footer={KEY.hex()}"],
    ["verify", "people.parquet", "--key-env", f"footer={KEY.hex()}"],
    ["verify", "people.parquet", "--key-file", KEY.hex()],
    ["verify", "people.parquet", "--key-env", base64.b64encode(KEY).decode()],
    ["verify", "people.parquet", "--key-file", "footer=bad.key"],
    ["verify", "people.parquet", "--key-env", "footer=BAD"],
    ["verify", "people.parquet", "--key-file", "footer=explicit.key"],
    ["verify", "people.parquet", "--key-env", "footer=EXPLICIT"],
    ["verify", "people.parquet", "--key-env", "footer=EXPLICIT", "--keyring", "keys.json"],
    ["write", "wrong types.csv", "out.parquet", "--footer-key", "footer", "--type", "ssn=int64"],
    ["write", "wrong types.csv", "out.parquet", "--footer-key", "footer", "--type", "born=date32"],
    ["write", "people.csv", "out.parquet", "--footer-key", "missing"],
    ["write", "people.csv", "/nowhere/at/all.parquet", "--footer-key", "footer"],
    ["write", "people.csv", "out.parquet", "--key-env", "footer=EXPLICIT", "--column-key", "ssn=pii"],
    ["write", "people.csv", "out.parquet", "--key-env", "ssn=EXPLICIT"],
    ["attach", "people.parquet", "--bloom-filter", "ssn:fpp=2"],
    ["attach", "people.parquet", "--bloom-filter", "ssn", "--key-env", "footer=EXPLICIT"],
    ["attach", "cut.parquet", "--bloom-filter", "ssn"],
    ["show", "garbage.parquet"],
    ["keyring", "create", "pii"],
    ["keyring", "add", "pii"],
    ["keyring", "rotate", "missing"],
    ["keyring", "destroy", "missing", "--yes", "--without-evidence"],
    ["keyring", "list", "--keyring", "people.parquet"],
]  # fmt: skip


def clean(outcome: Outcome, secrets: list[bytes | str]) -> None:
    Secrets(*secrets).clean(outcome.out + outcome.err, "the output")


@pytest.mark.parametrize("style", ["table", "json"])
@pytest.mark.parametrize("arguments", FAILURES, ids=lambda arguments: " ".join(arguments[:4])[:60].replace("/", "."))
def test_failures_keep_secrets(sealed: Run, secrets: list[bytes | str], arguments: list[str], style: str) -> None:
    outcome = sealed(*arguments, "--format", style, "--verbose")
    assert outcome.code == 2
    assert outcome.out == ""
    clean(outcome, secrets)
    lines = outcome.err.strip().splitlines()
    assert "Traceback" not in outcome.err
    if style == "json":
        error = json.loads(lines[0])
        assert error["what"]
        assert error["error"].endswith("Error")
    else:
        assert lines[0].startswith("bloomseal: ")


@pytest.mark.parametrize("arguments", [FAILURES[i] for i in (0, 6, 12, 19, 20, 22, 24)], ids=str)
def test_tracebacks_keep_secrets_too(sealed: Run, secrets: list[bytes | str], arguments: list[str]) -> None:
    done = bloomseal(*arguments, "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    # The interpreter shows source lines, never values; arguments stand there only where the caller typed them.
    clean(Outcome(done.returncode, done.stdout, done.stderr), secrets)


def test_successes_keep_keys(sealed: Run, secrets: list[bytes | str]) -> None:
    keys = [secret for secret in secrets if secret != VALUE]
    for arguments in (
        ["keyring", "list"],
        ["keyring", "rotate", "pii"],
        ["show", "people.parquet"],
        ["verify", "people.parquet"],
        ["probe", "people.parquet", "ssn", VALUE],
        ["attach", "people.parquet", "--bloom-filter", "ssn"],
        ["write", "people.csv", "more.parquet", *TYPES, "--footer-key", "footer", "--plaintext-footer"],
        ["show", "more.parquet"],
    ):
        for style in ("table", "json"):
            outcome = sealed(*arguments, "--format", style, "--verbose")
            assert outcome.code == 0
            clean(outcome, keys)


def test_an_unexpected_error_tells_its_type_only(
    sealed: Run, secrets: list[bytes | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import bloomseal.cli.commands.show as command

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"while working on {VALUE}")

    monkeypatch.setattr(command, "inspect_file", broken)
    outcome = sealed("show", "people.parquet")
    assert outcome.code == 2
    assert "RuntimeError" in outcome.err
    clean(outcome, secrets)


def test_values_from_a_file_stay_out_of_the_list_of_processes(sealed: Run, folder: Path) -> None:
    (folder / "wanted.txt").write_text(VALUE)
    script = (
        "import sys, pathlib; from bloomseal.cli.main import main\n"
        "code = main(['probe', 'people.parquet', 'ssn', '--values-from', 'wanted.txt', '-q'])\n"
        "seen = pathlib.Path('/proc/self/cmdline'); sys.stdout.write(seen.read_text() if seen.exists() else '')\n"
        "raise SystemExit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert VALUE not in done.stdout
