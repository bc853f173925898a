"""Jobs on a standalone cluster: an executor that is killed during a rekey, another one while the runs of an index are
merged, and keys that are to be nowhere.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import audit
from bloomseal.policy import Policy

from .cluster import PLACES, driver, keyring, search
from .cluster_job import CLUSTER_SECRET
from .cluster_jobs_job import WANTED
from .conftest import PASSPHRASE
from .indexed_tables import two_runs, whole_and_right

pytestmark = [pytest.mark.jvm, pytest.mark.torture, pytest.mark.xdist_group("spark")]
FILES, ROWS = 24, 1000
Said = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, Path, set[str]]:
    """What the driver said, where everything is, and the data keys that the files had."""
    folder = tmp_path_factory.mktemp("cluster jobs")
    (folder / "people").mkdir()
    ring = keyring(folder)
    policy = Policy.load(folder / "policy.toml", kms=ring).for_table("people")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": ids, "ssn": [f"wanted-{i:06}" for i in ids], "more": [os.urandom(500) for _ in ids]})
        bs.write_table(rows, folder / "people" / f"{number:02}.parquet", encryption=policy,
                       bloom_filters=policy.bloom_filters(), row_group_size=250)  # fmt: skip
    keys = data_keys(folder, policy)
    two_runs(folder / "indexed", policy)
    said: Said = {}
    with driver(folder, "cluster_jobs_job.py", CLUSTER_SECRET) as lines:
        for line in lines:
            said |= json.loads(line)
            if "ready" in line:
                forms = [form for one in WANTED[1:] for form in (one.encode(), repr(one.encode())[2:-1].encode())]
                said["leaks"], said["searched"] = search({name: folder / name for name in PLACES}, {"keys": forms})
    return said, folder, keys


def data_keys(folder: Path, policy: Any) -> set[str]:
    rows = audit.inventory(folder / "people", keys=policy.keys, policy=policy).to_pylist()
    return {row[name] for row in rows for name in ("data_key", "footer_data_key") if row[name] is not None}


def test_a_rekey_outlives_a_killed_executor(run: tuple[Said, Path, set[str]]) -> None:
    said, folder, old = run
    assert len(said["killed"]) == 1
    rows = said["rekeyed"]
    assert len(rows) == FILES
    assert {(row["status"], row["failure"]) for row in rows} == {("rekeyed", None)}
    policy = Policy.load(folder / "policy.toml", kms=bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE))
    table = policy.for_table("people")
    assert data_keys(folder, table).isdisjoint(old)
    files = sorted((folder / "people").glob("*.parquet"))
    assert len(files) == FILES
    assert all(bs.verify(file, decryption=table).complete for file in files)
    found = bs.read_table(folder / "people", columns=["id"], decryption=table)
    assert found["id"].to_pylist() == list(range(FILES * ROWS))
    assert set(said["again"]) == {"done before"}


def test_a_compaction_outlives_a_killed_executor(run: tuple[Said, Path, set[str]]) -> None:
    said, folder, _ = run
    ((_, written),) = said["killed_then"]
    assert 3 <= written < 40, "not while the job was under way"
    told = said["compacted"]
    assert (told["merged"], told["runs"], told["entries"]) == (2, 1, 10_000)
    policy = Policy.load(folder / "policy.toml", kms=bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE))
    whole_and_right(folder / "indexed", policy.for_table("people"), 1)


def test_keys_find_their_rows_and_stay_out_of_logs_plans_and_disks(run: tuple[Said, Path, set[str]]) -> None:
    said, _, _ = run
    assert said["found"] == list(range(0, 24_000, 500))
    assert said["pruned"]["left"] < said["pruned"]["row_groups"]
    for place in ("events", "logs", "work 1", "work 2"):
        assert said["searched"][place] > 1000
    assert said["leaks"] == {}
