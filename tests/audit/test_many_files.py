"""A hundred thousand files: several processes look at them, and no report of them is ever held as a whole."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from bloomseal import KeyTools
from bloomseal.audit import audit
from bloomseal.audit.facts import processes
from bloomseal.audit.facts.auditor import Auditor
from bloomseal.audit.facts.places import Places, find_files
from bloomseal.audit.report import Report, judged
from bloomseal.core.storage.ref import FileRef
from bloomseal.evidence.collect import Beside, finished, gather
from bloomseal.evidence.rotations import read_journal
from support.lab import Lab, people

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FEW, MANY = 2_000, 10_000
MOST_BYTES_A_FILE = 1_000
"""Of 200 MiB for 100,000 files there are 2,097 bytes for each."""


@pytest.fixture
def folder(lab: Lab) -> Path:
    """Files of every kind: external material, prefixes, leaks, copies, broken ones."""
    lab.write("t/inside.parquet", bloom_filters={"ssn": True})
    lab.signed("t/signed.parquet", bloom_filters={"ssn": True})
    lab.write("t/beside.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    lab.write("t/prefix.parquet", encryption={"aad_prefix": b"a table", "store_aad_prefix": False})
    (lab.folder / "t" / "broken.parquet").write_bytes(b"PAR1 and no more")
    data = (lab.folder / "t" / "signed.parquet").read_bytes()
    for number in range(30):
        (lab.folder / "t" / f"{number:03d}.parquet").write_bytes(data)
    return lab.folder / "t"


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Few files are many, cores are two; each command line of a process that is started."""
    started: list[list[str]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: object) -> None:
            started.append(command)
            super().__init__(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(processes, "FEW_FILES", 2)
    monkeypatch.setattr(processes, "_BATCH", 4)
    monkeypatch.setattr(processes, "_cores", lambda: 2)
    monkeypatch.setattr(processes.subprocess, "Popen", Popen)
    return started


def test_several_processes_say_what_one_says(
    lab: Lab, folder: Path, several: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = lab.policy(aad_prefix="a table")
    by_several = audit(folder, policy=policy, with_keys=False, now=NOW)
    assert len(several) == 2
    monkeypatch.setattr(processes, "FEW_FILES", 1_000)
    by_one = audit(folder, policy=policy, with_keys=False, now=NOW)
    assert len(several) == 2
    assert by_several.to_json(inventory=True) == by_one.to_json(inventory=True)
    assert by_one.files == 35
    assert {finding.rule.id for finding in by_one.findings} >= {"BS201"}


def test_keys_stay_in_one_process(lab: Lab, folder: Path, several: list[list[str]]) -> None:
    audit(folder, keys=KeyTools(lab.keyring))
    audit(folder, deep=True)
    assert several == []


def test_what_a_dead_process_leaves_is_looked_at_all_the_same(
    folder: Path, several: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = audit(folder, now=NOW).to_json(inventory=True)
    monkeypatch.setattr(processes, "_COMMAND", "import sys; sys.stdin.buffer.read(20)")
    assert audit(folder, now=NOW).to_json(inventory=True) == whole
    monkeypatch.setattr(sys, "executable", str(folder / "no such program"))
    assert audit(folder, now=NOW).to_json(inventory=True) == whole
    assert len(several) == 6


def test_no_process_outlives_its_audit(folder: Path, several: list[list[str]]) -> None:
    places = find_files(folder)

    class EnoughError(Exception):
        pass

    def stop(done: int, _: int) -> None:
        if done == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        Auditor().look(places, progress=stop)
    gc.collect()
    children = Path(f"/proc/self/task/{Path('/proc/thread-self').resolve().name}/children")
    if children.exists():
        commands = [Path(f"/proc/{one}/cmdline").read_bytes() for one in children.read_text().split()]
        assert not any(b"facts.processes" in one for one in commands)


def test_a_callers_script_runs_once(folder: Path, tmp_path: Path) -> None:
    """`multiprocessing` would run it in every process again."""
    script = tmp_path / "look.py"
    script.write_text(
        "import sys\nprint('once')\n"
        "from bloomseal.audit import audit\nfrom bloomseal.audit.facts import processes\n"
        "processes.FEW_FILES, processes._cores = 2, lambda: 2\nprint(audit(sys.argv[1]).files)\n"
    )
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["once", "35"]


# Memory


def report_of(lab: Lab, count: int) -> tuple[Report, Places]:
    """An audit of so many files, each with a finding."""
    path = lab.folder / "seed.parquet"
    if not path.exists():
        lab.signed("seed.parquet", table=people(9).select(["ssn"]), encryption={"column_keys": {"ssn": "pii"}})
    seed = Auditor().scanner().scan(FileRef(str(path)))
    files = []
    for number in range(count):
        one = copy.copy(seed)
        one.ref = FileRef(f"/lake/people/day={number // 1000:03d}/part-{number:08d}.parquet")
        one.error = "the footer is broken"
        files.append(one)
    places = Places(files=[one.ref for one in files])
    found = judged(Auditor(), places, files, now=NOW)
    assert len(found.findings) >= count
    return found, places


def peak(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def growth(few: Callable[[], object], many: Callable[[], object], more: int) -> float:
    """Bytes of memory for each of so many files that `many` has more than `few`."""
    before = peak(few)
    return (peak(many) - before) / more


def drained(pieces: Iterable[object]) -> None:
    for _ in pieces:
        pass


def test_a_bundle_about_many_files_takes_little_memory(lab: Lab, tmp_path: Path) -> None:
    def bundle(found: tuple[Report, Places]) -> None:
        report, places = found
        made = gather(Auditor(), report, places, Beside(journals=[]), paths=["/lake/people"], now=NOW)
        finished(made, tmp_path / "bundle.zip", [], NOW, overwrite=True)

    bundle(report_of(lab, 10))  # what is loaded on first use stays
    few, many = report_of(lab, FEW), report_of(lab, MANY)
    assert growth(lambda: bundle(few), lambda: bundle(many), MANY - FEW) < MOST_BYTES_A_FILE
    # The findings are in it, all of them.
    assert (tmp_path / "bundle.zip").stat().st_size > MANY * MOST_BYTES_A_FILE


def test_the_inventory_as_json_takes_little_memory(lab: Lab) -> None:
    few, many = report_of(lab, 1_200)[0], report_of(lab, 2_400)[0]
    assert growth(lambda: drained(few.json_pieces()), lambda: drained(many.json_pieces()), 1_200) < MOST_BYTES_A_FILE


def test_a_journal_of_many_files_takes_little_memory(tmp_path: Path) -> None:
    def journal(count: int) -> Path:
        path, before = tmp_path / f"{count}.jsonl", "0" * 64
        events = [{"event": "start", "operation": "rewrap", "user": "etl", "host": "etl-3", "at": "2026-01-01"}]
        keys = [{"column": "ssn", "master_key": "pii", "version": "1", "new_master_key": "pii", "new_version": "2"}]
        for number in range(count):
            file = f"/lake/people/day={number // 1000:03d}/part-{number:08d}.parquet"
            events.append({"event": "begin", "file": file})
            events.append({"event": "done", "file": file, "status": "rotated", "keys": keys})  # type: ignore[dict-item]
        with path.open("wb") as file:
            for event in [*events, {"event": "end", "at": "2026-01-02"}]:
                line = json.dumps(event | ({"chain": before} if before.strip("0") else {})).encode() + b"\n"
                before = sha256(line).hexdigest()
                file.write(line)
        return path

    small, large = journal(FEW), journal(MANY)
    read_journal(small)
    assert growth(lambda: read_journal(small), lambda: read_journal(large), MANY - FEW) < MOST_BYTES_A_FILE
    found, data, named = read_journal(large)
    assert (found.files, len(named), len(data)) == ({"rotated": MANY}, MANY, large.stat().st_size)
    assert found.keys == [{"before": "pii:1", "after": "pii:2", "files": MANY}]
    assert (found.ended, found.by, found.chain) == ("2026-01-02", ["etl@etl-3"], "whole from line 2 on")


def test_an_audit_keeps_little_of_each_file(lab: Lab) -> None:
    """A file of few columns: no more than 5 KB, with inventory and findings."""
    lab.signed("t/seed.parquet", bloom_filters={"ssn": True}, row_group_size=400)
    data = (lab.folder / "t" / "seed.parquet").read_bytes()
    for number in range(330):
        (lab.folder / "t" / f"{number:03d}.parquet").write_bytes(data)
    audit(lab.folder / "t")
    refs = find_files(lab.folder / "t").files

    def some(count: int) -> None:
        audit([ref.path for ref in refs[:count]])

    assert growth(lambda: some(30), lambda: some(330), 300) < 5_000
