"""A hundred thousand files: no report of them is ever held as a whole."""

from __future__ import annotations

import copy
import gc
import json
import tracemalloc
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from bloomseal.audit import audit
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
