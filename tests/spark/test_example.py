"""The pipeline of `examples/` runs as its README says, and its gate holds."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss

from .cluster import driver, keyring
from .cluster_job import CLUSTER_SECRET
from .conftest import PASSPHRASE, need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline" / "pipeline.py"


def test_the_pipeline_runs_and_its_gate_holds(
    spark: SparkSession, ring: bs.Keyring, work: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "JAVA_HOME": str(need_spark()), "XDG_CACHE_HOME": str(work / "cache")}
    kms = f"keyring://{ring.path}"
    command = [sys.executable, str(PIPELINE), "all", "--kms", kms, "--to", "people", "--evidence", "audit.json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = {step["step"]: step["result"] for step in map(json.loads, done.stdout.splitlines())}
    assert told["seal"].startswith("5 rows")
    assert told["look-up"].startswith("1 found")
    assert json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    # The gate, in this session: another one would take as long to start as all the rest.
    check = runpy.run_path(str(PIPELINE))["check"]
    bss.enable(spark, kms=kms, policy=PIPELINE.with_name("policy.toml"))
    arguments = argparse.Namespace(to=str(tmp_path / "people"))
    assert check(spark, arguments).startswith("5 rows")
    next((tmp_path / "people").rglob("*.parquet")).with_name("stray.parquet").write_bytes(b"PAR1 PAR1")
    with pytest.raises(bs.PolicyError, match=r"stray\.parquet"):
        check(spark, arguments)


@pytest.mark.torture
def test_the_pipeline_runs_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    keyring(tmp_path)
    with driver(tmp_path, "cluster_pipeline_job.py", CLUSTER_SECRET) as lines:
        told = {step["step"]: step["result"] for step in map(json.loads, lines)}
    assert list(told) == ["seal", "check", "look-up", "audit", "rotate"]
    assert told["seal"].startswith("5 rows")
    assert told["check"].startswith("5 rows")
    assert told["look-up"].startswith("1 found")
    # Both workers had executors.
    assert all(list((tmp_path / f"work {number}").glob("app-*/*/stderr")) for number in (1, 2))
    ring = bs.Keyring(tmp_path / "keys.json", passphrase=PASSPHRASE)
    policy = bs.Policy.load(PIPELINE.with_name("policy.toml"), kms=ring).for_table("people")
    assert bs.read_table(tmp_path / "people", decryption=policy).num_rows == 5
