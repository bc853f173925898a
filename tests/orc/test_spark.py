"""Spark itself: writes encrypted columns by a Hadoop KMS, reads the repaired file by it, and prunes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bloomseal.spark.runtime import java_home


@pytest.mark.jvm
@pytest.mark.torture
def test_spark_prunes_by_repaired_filters(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if java_home() is None:
        pytest.skip("no Java")
    script, tests = Path(__file__).with_name("spark_reads.py"), str(Path(__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    command = [sys.executable, str(script), str(tmp_path / "table")]
    run = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.partition("TOLD ")[2])
    assert told["clear"] == 1
    assert told["same"]
    assert told["before"][1] > 0
    assert told["present"] == [1, 10_000]
    assert told["absent"] == [0, 0]
    assert told["masked"] == 30_000
    assert told["masked present"] == [0, 0]
