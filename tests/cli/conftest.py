"""A folder with a keyring and a sealed file, and a way to run the command line in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from bloomseal.cli.main import cli, main
from support.outcome import Outcome

PEOPLE = """\
name,ssn,born,balance,score,seen,token
Ada,078-05-1120,1984-03-07,12.50,0.25,2025-01-02T03:04:05Z,a1
Bob,219-09-9999,1990-12-01,7.25,1.5,2025-02-03T04:05:06Z,b2
Eve,457-55-5462,1977-07-07,-3.00,,2025-03-04T05:06:07Z,c3
Zoë,987-65-4321,1999-09-09,0.00,-0.0,,d4
"""
TYPES = ("--type", "balance=decimal(12,2)", "--type", "score=float", "--type", "seen=timestamp[us, UTC]")


Run = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and an environment without keys."""
    for name in [name for name in os.environ if name.startswith("BLOOMSEAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        seen = capsys.readouterr()
        assert strange_options(arguments, seen.err) == []
        return Outcome(code, seen.out, seen.err)

    return run


@pytest.fixture
def sealed(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run`, in a folder with keys.json (in the environment too) and people.parquet: two row groups, sealed filters."""
    assert run("keyring", "create", "--keyring", "keys.json", "footer", "pii", "health").code == 0
    monkeypatch.setenv("BLOOMSEAL_KEYRING", "keys.json")
    done = run(
        "write", "people.csv", "people.parquet", *TYPES, "--footer-key", "footer",
        "--column-key", "ssn=pii", "--column-key", "name=pii", "--row-group-size", "2", "--complete",
        "--bloom-filter", "ssn:fpp=0.0001", *(f"--bloom-filter={name}" for name in ("name", "born", "balance", "score", "seen")),
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    return run


def strange_options(arguments: Sequence[str], err: str) -> list[str]:
    """The options that a hint names, and the command has not; another command's stand behind its name."""
    command: click.Command | None = cli
    for word in map(str, arguments):
        if not isinstance(command, click.Group) or (found := command.get_command(None, word)) is None:  # type: ignore[arg-type]
            break
        command = found
    hints = re.findall(r'Try: (.*)|"hint": "([^"]*)"', err)
    named = {
        word
        for hint in map("".join, hints)
        for word in re.findall(r"--[a-z][a-z0-9-]+", hint.partition("bloomseal ")[0])
    }
    assert command is not None
    commands = [command, *getattr(command, "commands", {}).values()]
    return sorted(
        named
        - {name for one in commands for option in one.params for name in (*option.opts, *option.secondary_opts)}
        - {"--help"}
    )


def bloomseal(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a process of its own."""
    program = Path(sys.executable).with_name("bloomseal")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, **options)
