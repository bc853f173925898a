"""The bridge on a standalone cluster: a master and two workers as processes, executors in JVMs of their own."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.keytools import FileRef

from .cluster_job import CLUSTER_SECRET, LITERAL
from .conftest import PASSPHRASE, need_spark

# Seven JVMs at once: beside other tests on a small machine they run out of time.
pytestmark = [pytest.mark.jvm, pytest.mark.torture, pytest.mark.xdist_group("spark")]
POLICY = """\
version = 1
kms = "keyring://{ring}"

[tables.people]
footer_key = "footer"
complete = true

[tables.people.columns.ssn]
key = "pii"
sensitivity = "restricted"
filter = {{ fpp = 0.001, ndv = 1000 }}
"""
DEADLINE = 120


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


def alive(pid: int) -> bool:
    """A process that still runs; a dead one that nobody has waited for doesn't."""
    try:
        state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    except OSError:
        return False
    return bool(state) and not state.startswith("Z")


@dataclass
class Run:
    """What the driver said, where everything lies, and what must not lie there."""

    said: dict[str, list[Any]]
    folder: Path
    leaks: dict[str, list[str]]
    searched: dict[str, int]


def secrets_of(ring: bs.Keyring, file: str) -> dict[str, list[bytes]]:
    """Passphrase, master keys, and the KEKs and data keys of one file, raw and in the usual spellings."""
    keys = {
        f"master {key.name}": version.key.reveal() for key in ring.list() for version in key.versions if version.key
    }
    retriever = bs.KeyTools(ring).for_file(FileRef(file))
    with bs.open_file(file, decryption=bs.DecryptionSpec(ring)) as opened:
        crypto = opened.walk.footer.crypto
        assert crypto is not None
        metadata = {"footer": crypto.footer_key_metadata}
        metadata |= {chunk.leaf.name: chunk.key_metadata for chunk in opened.walk.chunks(0) if chunk.key_metadata}
    assert set(metadata) == {"footer", "ssn"}
    for name, raw in metadata.items():
        keys[f"data key {name}"] = retriever.retrieve_key(raw, None if name == "footer" else name).reveal()
        material = json.loads(raw)
        keys[f"KEK {name}"] = ring.unwrap_key(material["wrappedKEK"], material["masterKeyID"])
    found = {"passphrase": [PASSPHRASE.encode()]}
    for name, key in keys.items():
        found[name] = [
            key,
            key.hex().encode(),
            key.hex().upper().encode(),
            base64.b64encode(key),
            repr(list(key)).encode(),
        ]
    return found


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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = need_spark()
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("events", "rest", "logs", "work 1", "work 2", "local 1", "local 2", "driver local"):
        (folder / name).mkdir()
    ring = bs.Keyring(folder / "keys.json", passphrase=PASSPHRASE, create=True)
    ring.create("footer")
    ring.create("pii")
    (folder / "policy.toml").write_text(POLICY.format(ring=ring.path))
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
        stack.enter_context(
            server(clean, log, f"{package}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        )
        master = awaited(log, r"spark://127\.0\.0\.1:\d+")
        for number in ("1", "2"):
            # A second attempt goes to another host only; elsewhere than on Linux there is but one, and the first attempt fails in the end.
            host = f"127.0.0.{number}" if sys.platform == "linux" else "127.0.0.1"
            options = [
                "--host",
                host,
                "--webui-port",
                "0",
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(folder / f"work {number}"),
            ]
            log = folder / "logs" / f"worker{number}.txt"
            place = {**keyed, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(folder / f"local {number}")}
            stack.enter_context(server(place, log, f"{package}.worker.Worker", *options, master))
            awaited(log, "Successfully registered with master")
        script = Path(__file__).with_name("cluster_job.py")
        with open(folder / "logs" / "driver.txt", "w") as errors:
            driver = subprocess.Popen(
                [sys.executable, str(script), master, str(folder)],
                env=keyed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        stack.callback(driver.kill)
        assert driver.stdout is not None
        assert driver.stdin is not None
        said: dict[str, list[Any]] = {}
        leaks: dict[str, list[str]] = {}
        searched: dict[str, int] = {}
        for line in driver.stdout:
            if not line.startswith("{"):
                continue
            for name, value in json.loads(line).items():
                said.setdefault(name, []).append(value)
            if "ready" in line:
                file = said["written"][0]["files"][0]
                wanted = {**secrets_of(ring, file), "probed value": [LITERAL.encode()]}
                places = ["events", "rest", "logs", "work 1", "work 2", "local 1", "local 2", "driver local"]
                leaks, searched = search({name: folder / name for name in places}, wanted)
                driver.stdin.write("\n")
                driver.stdin.flush()
        if driver.wait(60) != 0:
            pytest.fail((folder / "logs" / "driver.txt").read_text()[-3000:])
        yield Run(said, folder, leaks, searched)


def test_two_executors_write_and_read_sealed_files(run: Run) -> None:
    written = run.said["written"][0]
    assert (written["rows"], written["row_groups"], written["filters"], len(written["files"])) == (40_000, 40, 40, 4)
    assert run.said["same"] == [True]
    (advice,) = run.said["advice"]
    assert len(advice) == 1
    assert "event log" in advice[0]


def test_a_look_up_prunes_on_the_executors(run: Run) -> None:
    assert run.said["found"] == [[4321]]
    assert run.said["scanned"][0] <= 3_000


def test_each_executor_has_one_helper(run: Run) -> None:
    first = run.said["helpers"][0]
    assert len(first) == 2
    assert len({jvm for jvm, _ in first}) == 2


def test_killed_helpers_come_back(run: Run) -> None:
    assert run.said["again"] == [40_000]
    assert run.said["killed"][0] == run.said["helpers"][0]
    after = run.said["helpers"][1]
    assert {jvm for jvm, _ in after} == {jvm for jvm, _ in run.said["killed"][0]}
    assert {pid for _, pid in after}.isdisjoint(pid for _, pid in run.said["killed"][0])


def test_a_write_outlives_an_executor(run: Run) -> None:
    assert run.said["died"] == [True]
    assert run.said["rescued"][0]["rows"] == run.said["count"][0] == 2_000


@pytest.mark.parametrize("trouble", ["failed", "killed", "overtaken"])
def test_no_row_is_lost_or_doubled_by_the_source_when_a_task_is(run: Run, trouble: str) -> None:
    """The first attempt had complete files aside when it failed, lost its executor, or was overtaken by a speculative one."""
    (told,) = run.said[f"source {trouble}"]
    assert told["staged"] >= 2
    assert told["again"]
    assert (told["rows"], told["distinct"], told["files"]) == (40_000, 40_000, 40)
    assert told["beside"] == ["_SUCCESS"]


def test_no_helper_outlives_its_executor_killed_or_ended(run: Run) -> None:
    pids = {pid for listed in run.said["helpers"] for _, pid in listed}
    assert len(pids) >= 4
    end = time.monotonic() + DEADLINE
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.2)
    assert not [pid for pid in pids if alive(pid)]


def test_no_key_and_no_passphrase_is_in_any_log_plan_page_or_spill(run: Run) -> None:
    for place in ("events", "rest", "logs", "work 1", "work 2", "local 1", "local 2"):
        assert run.searched[place] > 1000, f"nothing was searched in {place}"
    assert run.leaks.keys() <= {"probed value"}


def test_a_probed_value_is_in_plans_only(run: Run) -> None:
    """Spark shows the literals of filters in plans, and docs/spark.md says so; executors' logs and disks are ours to keep clean."""
    assert {Path(file).parts[0] for file in run.leaks["probed value"]} == {"events", "rest"}


def test_the_search_would_have_found_them(run: Run, tmp_path: Path) -> None:
    """A search that finds nothing proves something only if it can find."""
    ring = bs.Keyring(run.folder / "keys.json", passphrase=PASSPHRASE)
    wanted = secrets_of(ring, run.said["written"][0]["files"][0])
    assert len(wanted) == 7
    for number, (name, forms) in enumerate(wanted.items()):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "log.txt").write_bytes(b"before " + forms[-1] + b" after")
        assert search({"log": place}, wanted)[0] == {name: [f"{number}/log.txt"]}


def test_executor_logs_tell_of_the_helper(run: Run) -> None:
    logs = [
        path.read_text(errors="replace") for number in "12" for path in (run.folder / f"work {number}").rglob("stderr")
    ]
    assert any("started the key helper" in text for text in logs)
    assert any("the key helper has ended" in text for text in logs)
