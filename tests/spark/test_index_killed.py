"""A sealed index whose compaction by Spark is killed: the old index is there, or the new one, and it is right."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.policy import Policy

from .cluster import DEADLINE, keyring
from .conftest import PASSPHRASE
from .indexed_tables import two_runs, whole_and_right
from .lives import answer, driver, ended

pytestmark = [pytest.mark.jvm, pytest.mark.torture, pytest.mark.xdist_group("spark")]


def test_the_old_index_or_the_new_one_is_there_whenever_the_driver_was_killed(tmp_path: Path) -> None:
    keyring(tmp_path)
    ring = bs.Keyring(tmp_path / "keys.json", passphrase=PASSPHRASE)
    policy = Policy.load(tmp_path / "policy.toml", kms=ring).for_table("people")
    table = tmp_path / "people"
    index = two_runs(table, policy).index("ssn")
    folder = Path(index.folder.path)

    def shards() -> set[str]:
        return {path.name for path in folder.glob("run-*")}

    before, manifest = shards(), (folder / "manifest.parquet").read_bytes()
    # Some tasks have written their shards, others have not.
    with driver(tmp_path, "compaction_job.py") as process:
        end = time.monotonic() + DEADLINE
        while len(shards() - before) < 3:
            if process.poll() is not None:
                raise ended(tmp_path, process)
            assert time.monotonic() < end
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert 3 <= len(shards() - before) < 20
    assert (folder / "manifest.parquet").read_bytes() == manifest
    whole_and_right(table, policy, 2)
    # All shards are there, and the manifest is still the old one.
    already = shards()
    with driver(tmp_path, "compaction_job.py", BLOOMSEAL_FAULT_POINT="index before manifest") as process:
        assert process.wait(DEADLINE) == -signal.SIGKILL
    assert len(shards() - already) >= 20
    assert (folder / "manifest.parquet").read_bytes() == manifest
    whole_and_right(table, policy, 2)
    # The manifest is the new one, and nothing was cleared away yet.
    with driver(tmp_path, "compaction_job.py", BLOOMSEAL_FAULT_POINT="index manifest") as process:
        assert process.wait(DEADLINE) == -signal.SIGKILL
    assert before < shards()
    whole_and_right(table, policy, 1)
    # Nobody dies. What is left of those that did goes when it is a day old.
    for path in folder.glob("run-*"):
        os.utime(path, (time.time() - 2 * 24 * 3600,) * 2)
    with driver(tmp_path, "compaction_job.py") as process:
        told = json.loads(answer(tmp_path, process, "{"))
        assert process.wait(DEADLINE) == 0
    assert (told["merged"], told["runs"], told["entries_before"]) == (1, 1, told["entries"])
    whole_and_right(table, policy, 1)
    now = index.manifest()
    assert shards() == now.files | set(now.retired)
