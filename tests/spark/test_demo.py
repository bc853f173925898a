"""The demonstration's Spark part, as its user starts it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import need_spark

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


def test_the_demonstration_goes_through_spark() -> None:
    command = [
        sys.executable,
        "-m",
        "bloomseal.cli.main",
        "demo",
        "--rows",
        "8000",
        "--row-groups",
        "4",
        "--format",
        "json",
    ]
    environment = {**os.environ, "JAVA_HOME": str(need_spark())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    spark = json.loads(done.stdout)["spark"]
    assert spark["write"]["rows"] == 8000
    # It compares the rows that each door finds with those that there are.
    assert spark["bridge"]["present_seconds"] > 0
    source = spark["data_source"]
    assert source["decoded"] + source["pruned_by_filter"] == source["row_groups"] == spark["write"]["row_groups"]
    assert source["pruned_by_filter"] > 0
