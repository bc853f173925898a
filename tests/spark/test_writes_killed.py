"""Drivers, their JVMs and Python workers that are killed while they write to a table and build its index: no row is
lost, nothing is in clear, the index rules out no value that is there, and whoever writes next can do it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bloomseal as bs
import bloomseal.spark as bss

from .cluster import DEADLINE, keyring
from .conftest import PASSPHRASE
from .lives import answer, driver, ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]
ROWS = 6
"""Of a round, each in a partition of its own."""
VICTIMS = ("driver", "jvm", "worker")


def long(kind: str) -> object:
    return pytest.param(kind, VICTIMS * 5, marks=pytest.mark.torture)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "victims"),
    [
        ("append", ["worker"]), ("static", ["driver"]), ("dynamic", ["jvm"]),
        *map(long, ("append", "static", "dynamic", "index")),
    ],
)  # fmt: skip
def test_a_killed_writer_harms_no_row(
    spark: SparkSession,
    author: str,
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    victims: list[str],
) -> None:
    keyring(tmp_path)
    policy = tmp_path / "policy.toml"
    # Each file that a reader finds in its place is signed, whenever a writer was killed.
    signed = policy.read_text().replace("[tables.people]\n", '[tables.people]\nroot = "t"\n')
    policy.write_text(f'{signed}index = true\n\n[tables.people.signers]\nauthor = "{author}"\n')
    signer = f"keyring://{work / 'author.json'}#author"
    monkeypatch.setenv("BLOOMSEAL_SIGNER", signer)
    bss.enable(spark, policy=str(tmp_path / "policy.toml"))
    chance, table, first = random.Random(len(victims)), tmp_path / "t", 1
    fresh(spark, table)
    for victim in victims:
        if kind != "append":
            fresh(spark, table)
        with driver(tmp_path, "write_job.py", kind, str(first), BLOOMSEAL_SIGNER=signer) as process:
            answer(tmp_path, process, "ready")
            wait_for_work(tmp_path, process, kind, commits=chance.random() < 0.5)
            time.sleep(chance.uniform(0, 0.3))
            kill(process, victim)
            if victim == "worker":
                answer(tmp_path, process, "done", "failed")  # it was killed in this round, if in any
                assert answer(tmp_path, process, "done", "failed").startswith("done")
        first = check(spark, tmp_path, kind)
    after(spark, tmp_path)


def fresh(spark: SparkSession, table: Path) -> None:
    rows = spark.range(ROWS).selectExpr("id", "concat('ssn-', id) AS ssn", "id AS k").coalesce(1)
    bss.write(rows, table, mode="overwrite", partition_by=["k"])


def wait_for_work(folder: Path, process: subprocess.Popen[str], kind: str, *, commits: bool) -> None:
    """Until the driver is within a round.

    Args:
        commits: an overwrite has moved a file.
    """
    table, end = folder / "t", time.monotonic() + DEADLINE
    runs = set(table.glob("_bloomseal_index/ssn/run-*"))

    def works() -> bool:
        if kind == "index":
            return bool(set(table.glob("_bloomseal_index/ssn/run-*")) - runs)
        if commits and kind != "append":
            return not (table / "_SUCCESS").exists()
        return bool(list(table.glob(".spark-staging-*")))

    while not works():
        if process.poll() is not None:
            raise ended(folder, process)
        assert time.monotonic() < end


def kill(process: subprocess.Popen[str], victim: str) -> None:
    """End a driver with all that it has started, or one of those."""
    if victim == "driver":
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE)
        return
    end = time.monotonic() + DEADLINE
    while not (found := started(process.pid, victim)):
        assert time.monotonic() < end
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def started(pid: int, victim: str) -> list[int]:
    """The JVM of a driver, or the Python workers below that."""
    lines = subprocess.run(["ps", "-axwwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    split = [line.split(None, 2) for line in lines.splitlines()]
    every = [(int(one[0]), int(one[1]), one[2]) for one in split if len(one) == 3]
    jvms = [own for own, parent, words in every if parent == pid and "org.apache.spark.deploy.SparkSubmit" in words]
    daemons = [own for own, parent, words in every if parent in jvms and "pyspark.daemon" in words]
    return jvms if victim == "jvm" else [own for own, parent, _ in every if parent in daemons]


def check(spark: SparkSession, folder: Path, kind: str) -> int:
    """Hold a table against what may be there, whenever its writer was killed; the number of a round after all."""
    table = folder / "t"
    for path in table.rglob("*"):
        stored = path.read_bytes() if path.is_file() else b""
        assert not stored.startswith(b"PAR1"), f"{path} is in clear"
        assert b"ssn-" not in stored, f"{path} shows a value"
    rows = spark.read.parquet(str(table)).selectExpr("id", "ssn", "input_file_name() AS file").collect()
    rounds = {int(row.id) // 1000 for row in rows}
    for number in range(ROWS):
        assert [row for row in rows if row.id % 1000 == number], f"row {number} is lost"
    told = (folder / "done").read_text().split() if (folder / "done").exists() else []
    if kind == "append":
        assert len({row.id for row in rows}) == len(rows)
        for number in [0, *map(int, told)]:
            assert {row.id for row in rows if row.id // 1000 == number} == {1000 * number + one for one in range(ROWS)}
    else:
        try:
            found = sorted(row.id for row in bss.read(spark, table, columns=["id"]).collect())
        except bs.BloomsealError as error:
            refused = str(error)
        else:
            refused = "cut off: no"
            assert len(rounds) == 1
            assert [one % 1000 for one in found] == list(range(ROWS))
        assert "cut off" in refused
    index_is_right(folder, [(row.file, row.ssn) for row in rows])
    return max(rounds) + 1


def index_is_right(folder: Path, rows: list[tuple[str, str]]) -> None:
    """Of each file that the table's index covers, it knows all values."""
    ring = bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE)
    policy = bs.Policy.load(folder / "policy.toml", kms=ring).for_table("people")
    table = bs.open_table(folder / "t", decryption=policy)
    values = sorted({ssn for _, ssn in rows})
    maybe = table.maybe_present("ssn", values)
    place = {str(path): number for number, path in enumerate(table.files)}
    for file, ssn in rows:
        assert maybe[place[file.removeprefix("file://")], values.index(ssn)], f"{ssn} is ruled out of {file}"


def after(spark: SparkSession, folder: Path) -> None:
    """The next writers succeed; what the dead have left goes when it is old."""
    table, old = folder / "t", time.time() - 8 * 24 * 3600
    (table / ".spark-staging-0").mkdir()  # of one that was killed while it cleared away its own
    for path in table.rglob("*"):
        if "run-" in path.name or any(part.startswith((".spark-staging-", "_temporary")) for part in path.parts):
            os.utime(path, (old, old))
    rows = spark.range(ROWS).selectExpr("id", "concat('ssn-', id) AS ssn", "id AS k").coalesce(1)
    for mode in ("append", "overwrite"):
        report = bss.write(rows, table, mode=mode, partition_by=["k"])
        assert (report.rows, [*report.indexes]) == (ROWS, ["ssn"])
    assert sorted(row.id for row in bss.read(spark, table, columns=["id"]).collect()) == list(range(ROWS))
    ring = bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE)
    policy = bs.Policy.load(folder / "policy.toml", kms=ring).for_table("people")
    index = bs.open_table(table, decryption=policy).index("ssn")
    assert (index.show().covered, index.check().ok) == (ROWS, True)
    now = index.manifest()
    assert {path.name for path in Path(index.folder.path).glob("run-*")} == now.files | set(now.retired)
    assert not [path for path in table.rglob("*") if "_temporary" in path.name or ".spark-staging" in path.name]
