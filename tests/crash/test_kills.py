"""Killed at any instant, a file is the old one or the new one, and the next run clears away what was left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs

_KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
_SPEC = bs.EncryptionSpec(footer_key=b"f" * 16)
ROWS = 4000

# The child says when it has imported everything, so that a random moment falls into the work and not into the imports.
_CHILD = """
import sys
import pyarrow as pa
import bloomseal as bs
job, path = sys.argv[1:3]
spec = bs.EncryptionSpec(footer_key=b"f" * 16)
keys = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
table = pa.table({"ssn": [f"new-{i}" for i in range(4000)], "n": list(range(4000))})
print("ready", flush=True)
sys.stdin.readline()
if job == "write":
    bs.write_table(table, path, encryption=spec, bloom_filters={"ssn": True}, row_group_size=1000)
else:
    bs.attach_filters(path, {"ssn": True, "n": True}, decryption=keys)
print("done", flush=True)
"""


def table(version: str) -> pa.Table:
    return pa.table({"ssn": [f"{version}-{i}" for i in range(ROWS)], "n": list(range(ROWS))})


def start(job: str, path: Path, fault: str = "") -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, job, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"BLOOMSEAL_FAULT_POINT": fault},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "ready\n"
    child.stdin.write("go\n")
    child.stdin.flush()
    return child


def which(path: Path, job: str) -> str:
    """``old`` or ``new``, after the file has opened, verified and given all its rows."""
    with bs.open_file(path, decryption=_KEYS) as file:
        report = file.verify()
        assert report.ok, report.failures
        assert report.complete
        found = file.read()
        if job == "write":
            names = {version for version in ("old", "new") if found.equals(table(version))}
            assert len(names) == 1
            return names.pop()
        assert found.equals(table("old"))
        filters = {file.filter(group, "ssn") is not None for group in range(file.num_row_groups)}
        assert len(filters) == 1, "some row groups have filters and others do not"
        if filters == {True}:
            verdicts = file.probe("ssn", found["ssn"])
            assert all(bs.Verdict.MAYBE_PRESENT in answers for answers in zip(*verdicts, strict=True))
        return "new" if filters == {True} else "old"


def others(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir() if entry != path)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "people.parquet"
    bs.write_table(table("old"), path, encryption=_SPEC, row_group_size=1000)
    return path


@pytest.mark.parametrize(
    ("job", "fault", "expected"),
    [
        ("write", "written", "old"),
        ("write", "synced", "old"),
        ("write", "checked", "old"),
        ("write", "renamed", "new"),
        ("attach", "copied", "old"),
        *(("attach", f"row group {i}", "old") for i in range(4)),
        ("attach", "written", "old"),
        ("attach", "synced", "old"),
        ("attach", "checked", "old"),
        ("attach", "renamed", "new"),
    ],
)
def test_killed_at_a_fault_point(old: Path, job: str, fault: str, expected: str) -> None:
    child = start(job, old, fault)
    assert child.wait(60) == -signal.SIGKILL, child.stderr and child.stderr.read()
    assert which(old, job) == expected
    left = others(old)
    assert len(left) == (expected == "old")
    assert all(name.startswith(".people.parquet.") and name.endswith(".bloomseal-tmp") for name in left)
    bs.attach_filters(old, {"ssn": True}, decryption=_KEYS)
    assert others(old) == []
    assert which(old, "attach" if job == "attach" or expected == "old" else "write") == "new"


@pytest.mark.parametrize("job", ["write", "attach"])
@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(10, 100))]
)
def test_killed_at_a_random_moment(old: Path, job: str, seed: int) -> None:
    child = start(job, old)
    time.sleep(random.Random(seed).uniform(0, 0.12))
    child.kill()
    child.wait(60)
    which(old, job)
    bs.write_table(table("new"), old, encryption=_SPEC)
    assert others(old) == []
    assert which(old, "write") == "new"


def test_killed_before_there_was_a_file(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    child = start("write", path, "checked")
    assert child.wait(60) == -signal.SIGKILL
    assert not path.exists()
    bs.write_table(table("new"), path, encryption=_SPEC)
    assert others(path) == []


def test_leftovers_of_other_files_and_of_living_writers_stay(old: Path) -> None:
    """Two writers of one path: the second one must not take the first one's file aside for a leftover."""
    neighbour = old.parent / ".other.parquet.00000000.bloomseal-tmp"
    neighbour.write_bytes(b"somebody else's")
    with bs.SealedWriter(old, table("new").schema, encryption=_SPEC) as first:
        first.write_table(table("new"))
        bs.write_table(table("old"), old, encryption=_SPEC)
        assert which(old, "write") == "old"
    assert which(old, "write") == "new"
    assert others(old) == [neighbour.name]


def test_two_processes_write_the_same_path(old: Path) -> None:
    children = [start("write", old) for _ in range(3)]
    assert [child.wait(120) for child in children] == [0, 0, 0]
    assert which(old, "write") == "new"
    assert others(old) == []


def test_attaching_to_a_file_that_changes_meanwhile_leaves_the_newer_one(old: Path) -> None:
    def somebody_else(done: int, total: int) -> None:
        if done == 1:
            bs.write_table(table("new"), old, encryption=_SPEC)

    with pytest.raises(bs.BloomsealError, match="changed by someone else"):
        bs.attach_filters(old, {"ssn": True}, decryption=_KEYS, progress=somebody_else)
    assert which(old, "write") == "new"
    assert others(old) == []
