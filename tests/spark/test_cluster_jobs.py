"""Jobs on a standalone cluster: an executor that is killed during a rekey, and keys that are to be nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import audit
from bloomseal.policy import Policy

from .cluster_job import CLUSTER_SECRET
from .cluster_jobs_job import WANTED
from .conftest import PASSPHRASE, need_spark
from .test_cluster import POLICY, awaited, search, server

pytestmark = [pytest.mark.jvm, pytest.mark.torture, pytest.mark.xdist_group("spark")]
FILES, ROWS = 24, 1000
PLACES = ("events", "logs", "work 1", "work 2", "local 1", "local 2", "driver local")
Said = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, Path, set[str]]]:
    """What the driver said, where everything is, and the data keys that the files had."""
    home = need_spark()
    folder = tmp_path_factory.mktemp("cluster jobs")
    for name in (*PLACES, "people"):
        (folder / name).mkdir()
    ring = bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE, create=True)
    ring.create("footer")
    ring.create("pii")
    (folder / "policy.toml").write_text(POLICY.format(ring=ring.path))
    policy = Policy.load(folder / "policy.toml", kms=ring).for_table("people")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": ids, "ssn": [f"wanted-{i:06}" for i in ids], "more": [os.urandom(500) for _ in ids]})
        bs.write_table(rows, folder / "people" / f"{number:02}.parquet", encryption=policy,
                       bloom_filters=policy.bloom_filters(), row_group_size=250)  # fmt: skip
    keys = data_keys(folder, policy)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BLOOMSEAL_", "SPARK_"))}
    clean |= {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "SPARK_DAEMON_MEMORY": "300m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.authenticate=true -Dspark.authenticate.secret={CLUSTER_SECRET} -Dspark.network.crypto.enabled=true",
    }
    keyed = {**clean, "BLOOMSEAL_KEYRING_PASSPHRASE": PASSPHRASE}
    package = "org.apache.spark.deploy"
    local = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        log = folder / "logs" / "master.txt"
        stack.enter_context(server(clean, log, f"{package}.master.Master", *local, "--port", "0"))
        master = awaited(log, r"spark://127\.0\.0\.1:\d+")
        for number in ("1", "2"):
            log = folder / "logs" / f"worker{number}.txt"
            place = {**keyed, "SPARK_LOCAL_DIRS": str(folder / f"local {number}")}
            options = (*local, "-c", "1", "-m", "1g", "-d", str(folder / f"work {number}"))
            stack.enter_context(server(place, log, f"{package}.worker.Worker", *options, master))
            awaited(log, "Successfully registered with master")
        script = Path(__file__).with_name("cluster_jobs_job.py")
        with open(folder / "logs" / "driver.txt", "w") as errors:
            driver = subprocess.Popen(
                [sys.executable, str(script), master, str(folder), CLUSTER_SECRET],
                env=keyed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        stack.callback(driver.kill)
        assert driver.stdout is not None
        assert driver.stdin is not None
        said: Said = {}
        for line in driver.stdout:
            if line.startswith("{"):
                said |= json.loads(line)
            if "ready" in said:
                forms = [form for one in WANTED[1:] for form in (one.encode(), repr(one.encode())[2:-1].encode())]
                said["leaks"], said["searched"] = search({name: folder / name for name in PLACES}, {"keys": forms})
                driver.stdin.write("\n")
                driver.stdin.flush()
                break
        if driver.wait(120) != 0:
            pytest.fail((folder / "logs" / "driver.txt").read_text()[-3000:])
        yield said, folder, keys


def data_keys(folder: Path, policy: Any) -> set[str]:
    rows = audit.inventory(folder / "people", keys=policy.keys, policy=policy).to_pylist()
    return {row[name] for row in rows for name in ("data_key", "footer_data_key") if row[name] is not None}


def test_a_rekey_outlives_a_killed_executor(run: tuple[Said, Path, set[str]]) -> None:
    said, folder, old = run
    assert len(said["killed"]) == 1
    rows = said["rekeyed"]
    assert len(rows) == FILES
    assert {(row["status"], row["failure"]) for row in rows} == {("rotated", None)}
    policy = Policy.load(folder / "policy.toml", kms=bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE))
    table = policy.for_table("people")
    assert data_keys(folder, table).isdisjoint(old)
    files = sorted((folder / "people").glob("*.parquet"))
    assert len(files) == FILES
    assert all(bs.verify(file, decryption=table).complete for file in files)
    found = bs.read_table(folder / "people", columns=["id"], decryption=table)
    assert found["id"].to_pylist() == list(range(FILES * ROWS))
    assert set(said["again"]) == {"done before"}


def test_keys_find_their_rows_and_stay_out_of_logs_plans_and_disks(run: tuple[Said, Path, set[str]]) -> None:
    said, _, _ = run
    assert said["found"] == list(range(0, 24_000, 500))
    assert said["pruned"]["row_groups_left"] < said["pruned"]["row_groups"]
    for place in ("events", "logs", "work 1", "work 2"):
        assert said["searched"][place] > 1000
    assert said["leaks"] == {}
