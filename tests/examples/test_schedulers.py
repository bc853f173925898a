"""The tasks of Airflow and the model of dbt run, in their order, without either."""

from __future__ import annotations

import ast
import runpy
import shlex
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bloomseal.cli.main import main

SCHEDULERS = Path(__file__).parents[2] / "examples" / "schedulers"
POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.customers]
footer_key = "footer"
aad_prefix = "{table}/{path}/"
[tables.customers.columns.ssn]
key = "pii"
filter = true
index = true
"""


def commands_of(path: Path) -> dict[str, str]:
    """Its commands, as its f-strings make them: without Airflow the file can't be imported."""
    assigned = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
    names: dict[str, Any] = {"datetime": datetime}
    exec(compile(ast.Module(assigned, []), str(path), "exec"), names)  # noqa: S102 - it is ours
    return {name: text.replace("{{ ds }}", "2026-01-31") for name, text in names.items() if isinstance(text, str)}


def run(command: str) -> int:
    """As a shell would, but in this process."""
    _, *words = shlex.split(command)
    return main([one for word in words for one in (map(str, sorted(Path().glob(word))) if "*" in word else [word])])


@pytest.fixture
def landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    for folder in ("landing/2026-01-31", "lake/customers"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "landing/2026-01-31/a.csv").write_text("ssn,country\n078-05-1120,DE\n219-09-9999,DE\n", "utf-8")
    assert run("bloomseal keyring create --keyring keys.json footer pii") == 0
    return tmp_path


def test_each_task_runs_twice_and_the_gate_holds(landed: Path) -> None:
    commands = commands_of(SCHEDULERS / "customers_dag.py")
    tasks = [commands[name] for name in ("SEAL", "INDEX", "GATE", "REWRAP")]
    assert run(commands["SEAL"]) == 0
    assert run(commands["INDEX"].replace("update", "build")) == 0
    assert [run(task) for task in tasks] == [0, 0, 0, 0]
    assert run("bloomseal keyring rotate --keyring keys.json pii footer") == 0
    assert [run(task) for task in tasks] == [0, 0, 0, 0]
    (landed / "lake/customers/stray.parquet").write_bytes(b"PAR1")
    assert run(commands["GATE"]) not in (0, 2)


def test_dbt_sees_the_rows_of_a_sealed_table(landed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    assert run(commands_of(SCHEDULERS / "customers_dag.py")["SEAL"]) == 0
    monkeypatch.setenv("BLOOMSEAL_POLICY", "policy.toml")
    monkeypatch.setenv("CUSTOMERS", "lake/customers")
    model = runpy.run_path(str(SCHEDULERS / "people_by_country.py"))["model"]
    assert model(SimpleNamespace(config=dict), duckdb.connect()).fetchall() == [("DE", 2)]
