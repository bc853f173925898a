"""The bridge on a standalone cluster: a master and two workers as processes, executors in JVMs of their own."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.signatures.keys import PublicKey
from support.watch import forms

from .cluster import DEADLINE, PLACES, driver, keyring, search
from .cluster_job import LITERAL
from .conftest import PASSPHRASE

# Seven JVMs at once: beside other tests on a small machine they run out of time.
pytestmark = [pytest.mark.jvm, pytest.mark.torture, pytest.mark.xdist_group("spark")]


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
        found[name] = [key, *(form.encode() for form in forms(key) if form.isascii())]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cluster")
    ring, author = keyring(folder), bs.Keyring(folder / "author.json", passphrase=PASSPHRASE, create=True)
    author.create("author", kind="ed25519")
    secret = author.list()[0].versions[0].key
    assert secret is not None
    line = PublicKey(author.public_key("author")).line
    with (folder / "policy.toml").open("a") as text:
        text.write(
            f'[tables.signed]\nfooter_key = "footer"\ncomplete = true\nroot = "signed"\nsigners.author = "{line}"\n'
        )
    said: dict[str, list[Any]] = {}
    leaks: dict[str, list[str]] = {}
    searched: dict[str, int] = {}
    signer = f"keyring://{author.path}#author"
    with driver(folder, "cluster_job.py", BLOOMSEAL_SIGNER=signer) as lines:
        for line in lines:
            for name, value in json.loads(line).items():
                said.setdefault(name, []).append(value)
            if "ready" in line:
                file = said["written"][0]["files"][0]
                wanted = {**secrets_of(ring, file), "probed value": [LITERAL.encode()]}
                wanted |= {
                    "signer's key": [
                        secret.reveal(),
                        *(form.encode() for form in forms(secret.reveal()) if form.isascii()),
                    ]
                }
                wanted["signer"] = [signer.encode()]
                leaks, searched = search({name: folder / name for name in PLACES}, wanted)
    return Run(said, folder, leaks, searched)


def test_two_executors_write_and_read_sealed_files(run: Run) -> None:
    written = run.said["written"][0]
    assert (written["rows"], written["row_groups"], written["filters"], len(written["files"])) == (40_000, 40, 40, 4)
    assert run.said["same"] == [True]
    (advice,) = run.said["advice"]
    assert len(advice) == 1
    assert "event log" in advice[0]


def test_executors_check_what_the_driver_signs(run: Run) -> None:
    assert run.said["signed"] == [3_000]
    assert len(list((run.folder / "signed").glob("_SIGNATURE_*"))) == len(list((run.folder / "signed").glob("part-*")))


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
def test_no_row_is_lost_or_doubled_when_a_task_is(run: Run, trouble: str) -> None:
    """The first attempt had complete files aside when it failed, lost its executor, or was overtaken by a speculative
    one.
    """
    (told,) = run.said[f"trouble {trouble}"]
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
    """Spark shows the literals of filters in plans, and docs/spark.md says so; executors' logs and disks are ours to
    keep clean.
    """
    assert {Path(file).parts[0] for file in run.leaks["probed value"]} == {"events", "rest"}


def test_the_search_would_have_found_them(run: Run, tmp_path: Path) -> None:
    """A search that finds nothing proves something only if it can find."""
    ring = bs.Keyring(run.folder / "keys.json", passphrase=PASSPHRASE)
    wanted = secrets_of(ring, run.said["written"][0]["files"][0])
    assert len(wanted) == 7
    for number, (name, spellings) in enumerate(wanted.items()):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "log.txt").write_bytes(b"before " + spellings[-1] + b" after")
        assert search({"log": place}, wanted)[0] == {name: [f"{number}/log.txt"]}


def test_executor_logs_tell_of_the_helper(run: Run) -> None:
    logs = [
        path.read_text(errors="replace") for number in "12" for path in (run.folder / f"work {number}").rglob("stderr")
    ]
    assert any("started the key helper" in text for text in logs)
    assert any("the key helper has ended" in text for text in logs)
