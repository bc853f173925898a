"""The recipe for CI: its own lines run here, and each gate stops what it is there for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import bloomseal as bs

RECIPE = Path(__file__).parents[2] / "examples" / "ci" / "data-protection.yml"
POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.customers]
footer_key = "footer"
[tables.customers.columns.ssn]
key = "pii"
sensitivity = "restricted"
"""


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return yaml.safe_load(RECIPE.read_text(encoding="utf-8"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    (tmp_path / "lake/customers").mkdir(parents=True)
    table = bs.Policy.load(tmp_path / "policy.toml", kms=ring).for_table("customers")
    bs.write_table(pa.table({"ssn": ["078-05-1120"]}), tmp_path / "lake/customers/a.parquet", encryption=table)
    return tmp_path


def run(recipe: dict[str, Any], job: str, step: str, place: Path) -> int:
    (line,) = (one["run"] for one in recipe["jobs"][job]["steps"] if one.get("name") == step)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **recipe["env"], "PATH": path}
    return subprocess.run(["bash", "-e", "-c", line], cwd=place, env=environment, capture_output=True).returncode


def test_the_policy_is_checked_without_a_key(recipe: dict[str, Any], place: Path) -> None:
    (place / "keys.json").unlink()
    assert run(recipe, "policy", "policy", place) == 0
    (place / "policy.toml").write_text(POLICY.replace("restricted", "secret"), encoding="utf-8")
    assert run(recipe, "policy", "policy", place) != 0


def test_the_audit_is_a_gate_and_its_findings_are_uploaded(recipe: dict[str, Any], place: Path) -> None:
    assert run(recipe, "table", "audit", place) == 0
    pq.write_table(pa.table({"ssn": ["219-09-9999"]}), place / "lake/customers/b.parquet")
    assert run(recipe, "table", "audit", place) == 1
    steps = {one["name"]: one for one in recipe["jobs"]["table"]["steps"] if "name" in one}
    sarif = json.loads((place / steps["findings"]["with"]["sarif_file"]).read_text(encoding="utf-8"))
    assert {one["level"] for one in sarif["runs"][0]["results"]} >= {"error"}
    assert json.loads((place / steps["report"]["with"]["path"]).read_text(encoding="utf-8"))["ok"] is False
    assert steps["findings"]["if"] == steps["report"]["if"] == "always()"


def test_no_secret_stands_in_the_recipe_and_strangers_get_no_key(recipe: dict[str, Any]) -> None:
    assert recipe["jobs"]["table"]["if"] == "github.event_name == 'schedule'"
    assert "secrets" not in str(recipe["jobs"]["policy"])
    assert recipe["permissions"] == {"contents": "read", "security-events": "write"}
