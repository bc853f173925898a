"""The pipeline of `examples/` runs as its README says, and its gate holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bloomseal as bs

from .conftest import need_spark

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline" / "pipeline.py"


def test_the_pipeline_runs_and_its_gate_holds(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(need_spark()), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PIPELINE), *words, "--kms", f"keyring://{ring.path}", "--to", "people"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
        )

    done = run("all", "--evidence", "audit.json")
    assert done.returncode == 0, done.stderr[-2000:]
    told = {step["step"]: step["result"] for step in map(json.loads, done.stdout.splitlines())}
    assert told["seal"].startswith("5 rows")
    assert told["look-up"].startswith("1 found")
    assert json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    next((tmp_path / "people").rglob("*.parquet")).with_name("stray.parquet").write_bytes(b"PAR1 PAR1")
    done = run("check")
    assert done.returncode == 1
    assert "stray.parquet" in done.stderr
