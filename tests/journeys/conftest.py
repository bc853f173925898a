"""An empty folder, the command line in it, and made-up customers as three writers leave them.

A journey is what somebody does in a day, by the public interface alone; it asserts rows and exit codes.
"""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

from bloomseal.cli.main import main
from support.outcome import Outcome

Rows = list[dict[str, Any]]


class Shell:
    """Runs command lines. `policy` stands for the options of the customers' policy."""

    policy = "--policy policy.toml --table customers"

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, command: str, *more: str, code: int = 0) -> Outcome:
        """Run ``bloomseal COMMAND MORE...`` and insist on its exit code."""
        self._capsys.readouterr()
        ended = main([*command.replace("POLICY", self.policy).split(), *more])
        seen = self._capsys.readouterr()
        outcome = Outcome(ended, seen.out, seen.err)
        assert ended == code, f"{command} ended with {ended}\n{seen.out}{seen.err}"
        return outcome

    def read(self, command: str, where: str, code: int = 0) -> Rows:
        """The rows that ``bloomseal read`` prints."""
        return self(f"read {command} --format json", "--where", where, code=code).rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without keys or settings in the environment."""
    for name in [name for name in os.environ if name.startswith("BLOOMSEAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def shell(folder: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def people(start: int, rows: int) -> dict[str, list[Any]]:
    """Columns of made-up customers; every fourth has no IBAN."""
    numbers = range(start, start + rows)
    return {
        "customer_id": list(numbers),
        "email": [f"person{i}@mail.example" for i in numbers],
        "iban": [None if i % 4 == 0 else f"DE{98 - int(f'{i:018}131400') % 97:02}{i:018}" for i in numbers],
        "born": [date(1940, 1, 1) + timedelta(days=i * 7919 % 24_000) for i in numbers],
        "plan": ["free" if i % 3 else "pro" for i in numbers],
    }


def email(number: int) -> str:
    return f"email = 'person{number}@mail.example'"


@pytest.fixture
def customers(folder: Path) -> Path:
    """600 customers: a file each of pandas, Polars and DuckDB."""
    place = folder / "customers"
    place.mkdir()
    pd.DataFrame(people(0, 200)).to_parquet(place / "pandas.parquet")
    pl.DataFrame(people(200, 200)).write_parquet(place / "polars.parquet")
    frame = pl.DataFrame(people(400, 200))  # noqa: F841 - DuckDB finds it
    duckdb.sql(f"copy (from frame) to '{place}/duckdb.parquet'")
    return place


@pytest.fixture
def sealed(customers: Path, shell: Shell) -> Path:
    """The same, sealed as `policy init` proposes: policy.toml, and keys.json with footer, pii and payment."""
    commands = shell("policy init customers --format json").json["next"]
    for command in commands:
        shell(command.removeprefix("bloomseal "))
    return customers
