"""A standalone cluster for tests: a master and two workers as processes, and a driver that tells what it sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import bloomseal as bs

from .cluster_job import CLUSTER_SECRET
from .conftest import PASSPHRASE, need_spark

__all__ = ["DEADLINE", "PLACES", "awaited", "driver", "keyring", "search"]

PLACES = ("events", "rest", "logs", "work 1", "work 2", "local 1", "local 2", "driver local")
"""Where a cluster's processes leave something, below its folder."""
DEADLINE = 240
"""Seconds that any of them may take to do what is waited for."""
POLICY = """\
version = 1
kms = "keyring://{ring}"

[tables.people]
footer_key = "footer"
complete = true
partition_by = ["k"]

[tables.people.columns.ssn]
key = "pii"
sensitivity = "restricted"
filter = {{ fpp = 0.001, ndv = 1000 }}
"""


def keyring(folder: Path) -> bs.Keyring:
    """A keyring behind a passphrase, and a policy file that names it."""
    ring = bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE, create=True)
    ring.create("footer")
    ring.create("pii")
    (folder / "policy.toml").write_text(POLICY.format(ring=ring.path))
    return ring


@contextmanager
def driver(folder: Path, script: str, *arguments: str, **more: str) -> Iterator[Iterator[str]]:
    """The lines of JSON that a driver prints, run on a cluster of its own.

    A line with "ready" in it waits for an answer: it gets one when the next line is asked for.

    Args:
        more: of the driver's environment, which no worker has.
    """
    home = need_spark()
    for name in PLACES:
        (folder / name).mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BLOOMSEAL_", "SPARK_"))}
    clean |= {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "SPARK_DAEMON_MEMORY": "300m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.authenticate=true -Dspark.authenticate.secret={CLUSTER_SECRET} -Dspark.network.crypto.enabled=true",
    }
    # The passphrase is in the environment of workers and driver, and nowhere in Spark's configuration.
    keyed = {**clean, "BLOOMSEAL_KEYRING_PASSPHRASE": PASSPHRASE}
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:
        log = folder / "logs" / "master.txt"
        local = ("--host", "127.0.0.1", "--webui-port", "0")
        stack.enter_context(server(clean, log, f"{package}.master.Master", *local, "--port", "0"))
        master = awaited(log, r"spark://127\.0\.0\.1:\d+")
        for number in ("1", "2"):
            # A second attempt goes to another host only; elsewhere than on Linux there is but one, and the first
            # attempt fails in the end.
            host = f"127.0.0.{number}" if sys.platform == "linux" else "127.0.0.1"
            options = ("--host", host, "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder / f"work {number}"))
            log = folder / "logs" / f"worker{number}.txt"
            place = {**keyed, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(folder / f"local {number}")}
            stack.enter_context(server(place, log, f"{package}.worker.Worker", *options, master))
            awaited(log, "Successfully registered with master")
        command = [sys.executable, str(Path(__file__).with_name(script)), master, str(folder), *arguments]
        with open(folder / "logs" / "driver.txt", "w") as errors:
            process = subprocess.Popen(
                command, env={**keyed, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        stack.callback(process.kill)
        yield said(process)
        status = process.wait(DEADLINE)
        assert status == 0, (folder / "logs" / "driver.txt").read_text()[-3000:]


def said(process: subprocess.Popen[str]) -> Iterator[str]:
    """Its lines of JSON."""
    assert process.stdout is not None
    assert process.stdin is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield line
            if "ready" in line:
                process.stdin.write("\n")
                process.stdin.flush()


@contextmanager
def server(environment: dict[str, str], log: Path, *arguments: str) -> Iterator[None]:
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    with open(log, "w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def awaited(log: Path, pattern: str) -> str:
    """The first match in a log that is being written."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"no {pattern} in {log}: {log.read_text(errors='replace')[-2000:]}")


def search(places: dict[str, Path], wanted: dict[str, list[bytes]]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Which of the wanted is in which files, and how many bytes were looked through in each place."""
    leaks: dict[str, list[str]] = {}
    searched: dict[str, int] = {}
    for place, root in places.items():
        searched[place] = 0
        for file in [path for path in root.rglob("*") if path.is_file()]:
            content = file.read_bytes()
            searched[place] += len(content)
            for name, forms in wanted.items():
                if any(form in content for form in forms):
                    leaks.setdefault(name, []).append(str(file.relative_to(root.parent)))
    return leaks, searched
