"""Spark itself: writes encrypted columns by a Hadoop KMS, reads the repaired file by it, and prunes; and its jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bloomseal.spark.runtime import java_home


def _told(script: str, folder: Path) -> dict[str, Any]:
    pytest.importorskip("pyspark")
    if java_home() is None:
        pytest.skip("no Java")
    path, tests = Path(__file__).with_name(script), str(Path(__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    command = [sys.executable, str(path), str(folder / "table")]
    run = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr[-3000:]
    told: dict[str, Any] = json.loads(run.stdout.partition("TOLD ")[2])
    return told


@pytest.mark.jvm
@pytest.mark.torture
def test_spark_prunes_by_repaired_filters(tmp_path: Path) -> None:
    told = _told("spark_reads.py", tmp_path)
    assert told["clear"] == 1
    assert told["same"]
    assert told["before"][1] > 0
    assert told["present"] == [1, 10_000]
    assert told["absent"] == [0, 0]
    assert told["masked"] == 30_000
    assert told["masked present"] == [0, 0]


@pytest.mark.jvm
@pytest.mark.torture
def test_jobs_over_a_table_that_spark_wrote(tmp_path: Path) -> None:
    """Hive partitions, several stripes, AES-128 and AES-256, keys of a Hadoop KMS over REST."""
    told = _told("spark_jobs.py", tmp_path)
    assert told["algorithms"] == [1, 2]
    assert told["stripes"] > 1
    # The Java writer leaves the filters of `name` in clear; of those of `num`, which the policy wants, there are none.
    assert told["leaks"] == [["BS102", "name"], ["BS403", "num"]]
    assert told["mended"] == [["BS403", "num"]]
    assert told["attached"] == [[True, True, None]]
    assert (told["repaired"], told["rekeyed"]) == (["repaired"], ["rekeyed"])
    assert "rekey" in told["rewrapped"][0]
    assert told["versions"] == [[["name", 1], ["num", 0]]]
    for step in ("read", "read again", "Spark reads", "verified", "verified again", "pruned"):
        assert told[step] is True, step
    assert told["found"] == told["table"] == [1]
    assert told["destroy"] == "no"
    assert told["destroy the old one"] == "unknown"
