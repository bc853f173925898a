"""Spark Connect: the data source reads over it; what needs a JVM says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

from .conftest import need_spark

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.mark.skipif(
    find_spec("pandas") is None,
    reason="Spark Connect's client needs pandas, which slows every start of pyarrow: not among the development tools",
)
def test_over_connect(tmp_path: Path) -> None:
    home = need_spark()
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'version = 1\nkms = "keyring://{ring.path}"\n[tables.t]\nfooter_key = "footer"\ncomplete = true\n'
        '[tables.t.columns.ssn]\nkey = "pii"\nfilter = true\n'
    )
    (tmp_path / "t").mkdir()
    for part in range(3):
        rows = {"ssn": [f"{part}-{i}" for i in range(100)], "id": [part * 100 + i for i in range(100)]}
        bs.write_table(
            pa.table(rows), tmp_path / "t" / f"{part}.parquet", encryption=bs.Policy.load(policy).for_table("t")
        )
    environment = {
        **os.environ,
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(Path(__file__).with_name("connect_job.py")), str(policy), str(tmp_path / "t")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["found"] == [["1-7", 107]]
    assert told["rows"] == 300
    assert "a classic session with bloomseal.spark.write" in told["advice"]
    assert len(told["refused"]) == 7
    assert all("Spark Connect" in text for text in told["refused"].values())
