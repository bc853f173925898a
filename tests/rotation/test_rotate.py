"""Many files: plan, journal, report; what others change meanwhile is left whole, and one bad file stops nothing."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.audit.facts import places
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.rotation import Rekey, Rewrap, Unseal, plan, rotate
from bloomseal.rotation.files import find_files, in_turn
from bloomseal.rotation.journal import Journal
from bloomseal.rotation.outcome import RotationReport, Status
from support.rotation_tables import TO_FIRST, TO_SECOND, keyring, masters, opened, opens, reading, rows, write

FILES = 6


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    return keyring(tmp_path)


@pytest.fixture
def table(tmp_path: Path, ring: bs.Keyring) -> Path:
    """Half of the files keep their key material beside them; one is in a Hive folder."""
    folder = tmp_path / "table"
    (folder / "day=1").mkdir(parents=True)
    for index in range(FILES):
        path = folder / ("day=1" if index == 5 else "") / f"{index}.parquet"
        write(path, bs.KeyTools(ring, internal=index % 2 == 0), index)
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "1.checkpoint.parquet").write_bytes(b"not ours")
    (folder / "notes.txt").write_bytes(b"not ours")
    return folder


def paths(table: Path) -> list[Path]:
    return sorted(path for path in table.rglob("*.parquet") if "_temporary" not in path.parts)


def statuses(report: RotationReport) -> list[Status]:
    return [file.status for file in report.files]


def test_a_plan_writes_nothing_and_foretells_what_happens(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    for job in (Rewrap(reading(ring), TO_SECOND), Rekey(reading(ring)), Unseal(reading(ring), str(tmp_path / "out"))):
        planned = plan(table, job)
        assert planned.ok
        assert len(planned.files) == FILES
        assert {file.action for file in planned.files} == {job.operation}
        assert planned.seconds > 0
        json.dumps(planned.to_dict())
    assert {path: path.read_bytes() for path in table.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()

    tools = bs.KeyTools(ring)
    planned = plan(table, Rewrap(reading(ring), TO_SECOND))
    report = rotate(table, Rewrap(bs.DecryptionSpec(tools), TO_SECOND))
    assert sum(file.bytes_written for file in report.files) == pytest.approx(planned.bytes_to_write, rel=0.05)
    asked = tools.counters.wraps + tools.counters.unwraps
    assert asked <= planned.kms_calls
    assert planned.kms_calls <= 3 * asked, "and not by far"
    assert report.kms["wraps"] == tools.counters.wraps


def test_a_kek_is_rewrapped_once_whatever_the_number_of_files(ring: bs.Keyring, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    tools = bs.KeyTools(ring)
    for index in range(20):
        write(table / f"{index:02d}.parquet", tools, index)
    own = bs.KeyTools(ring)
    assert rotate(table, Rewrap(bs.DecryptionSpec(own), TO_SECOND)).ok
    assert own.counters.wraps == 3
    assert own.counters.unwraps == 2, "the footer's KEK, before and after"
    for index in range(20):
        opens(table / f"{index:02d}.parquet", reading(ring), index)


def test_a_finished_run_does_nothing(ring: bs.Keyring, table: Path) -> None:
    first = rotate(table, Rekey(reading(ring)))
    assert statuses(first) == [Status.REKEYED] * FILES
    before = {path: path.stat().st_mtime_ns for path in table.rglob("*")}
    again = rotate(table, Rekey(reading(ring)))
    assert statuses(again) == [Status.DONE_BEFORE] * FILES
    assert again.resumed
    assert {path: path.stat().st_mtime_ns for path in table.rglob("*")} == before
    # What came afterwards is no business of that run, and left over: nobody may take the table for done.
    write(table / "9.parquet", bs.KeyTools(ring), 9)
    late = rotate(table, Rekey(reading(ring)))
    assert statuses(late).count(Status.SINCE) == 1
    assert not late.ok
    assert [file.path for file in late.problems] == [str(table / "9.parquet")]
    assert statuses(rotate(table, Rekey(reading(ring)), restart=True)) == [Status.REKEYED] * (FILES + 1)


def test_what_an_audit_counts_is_never_skipped_silently(ring: bs.Keyring, table: Path) -> None:
    hidden = table / "_archive" / "old.parquet"
    hidden.parent.mkdir()
    write(hidden, bs.KeyTools(ring), 7)
    mark = hidden.read_bytes()
    report = rotate(table, Rewrap(reading(ring)))
    (told,) = [file for file in report.files if file.path == str(hidden)]
    assert told.status is Status.DEAD
    assert "hidden" in (told.why or "")
    assert hidden.read_bytes() == mark
    assert {file.path for file in report.files} == {one.path for one in places.find_files(table, history=True).files}


def test_rewrapping_again_after_the_next_rotation_of_the_master_key(ring: bs.Keyring, table: Path) -> None:
    ring.rotate("pii")
    assert statuses(rotate(table, Rewrap(reading(ring)))) == [Status.REWRAPPED] * FILES
    assert statuses(rotate(table, Rewrap(reading(ring)))) == [Status.DONE_BEFORE] * FILES
    ring.rotate("pii")
    assert statuses(rotate(table, Rewrap(reading(ring)))) == [Status.REWRAPPED] * FILES
    ring.destroy("pii", 1)
    ring.destroy("pii", 2)
    for index, path in enumerate(find_files(table)):
        assert masters(Path(path.ref.path), reading(ring)) == {"footer", "pii", "health"}, index


def test_one_bad_file_does_not_stop_the_rest(ring: bs.Keyring, table: Path) -> None:
    (table / "0.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")
    pq.write_table(rows(), table / "1.parquet")
    walk = opened(table / "2.parquet", reading(ring))
    damaged = bytearray((table / "2.parquet").read_bytes())
    damaged[walk.extent(walk.chunk(0, 1))[0] + 200] ^= 1
    (table / "2.parquet").write_bytes(damaged)
    kept = {name: (table / name).read_bytes() for name in ("0.parquet", "1.parquet", "2.parquet")}
    report = rotate(table, Rekey(reading(ring)))
    assert not report.ok
    assert statuses(report) == [Status.FAILED] * 3 + [Status.REKEYED] * 3
    assert [file.error and file.error["error"] for file in report.problems] == [
        "FormatError", "PolicyError", "IntegrityError",
    ]  # fmt: skip
    assert {name: (table / name).read_bytes() for name in kept} == kept
    assert not list(table.glob(".*"))
    json.dumps(report.to_dict())
    # Mended, the failed ones are done by the same call, and only they.
    for index in range(3):
        write(table / f"{index}.parquet", bs.KeyTools(ring), index)
    assert statuses(rotate(table, Rekey(reading(ring)))) == [Status.REKEYED] * 3 + [Status.DONE_BEFORE] * 3


def test_what_cannot_be_wrapped_anew_is_told_with_its_reason(ring: bs.Keyring, table: Path) -> None:
    ring.disable("health")
    report = rotate(table, Rewrap(reading(ring), TO_SECOND))
    assert statuses(report) == [Status.PARTLY] * FILES
    assert {left["column"] for file in report.files for left in file.left} <= {"illness", ""}
    ring.enable("health")
    report = rotate(table, Rewrap(reading(ring), TO_SECOND))
    assert statuses(report) == [Status.REWRAPPED] * FILES
    assert statuses(rotate(table, Rewrap(reading(ring), TO_SECOND))) == [Status.DONE_BEFORE] * FILES


def test_a_file_changed_meanwhile_is_left_whole(ring: bs.Keyring, table: Path) -> None:
    """The other writer strikes when two thirds of the file are done."""
    theirs = pa.table({"somebody": ["else"] * 1000})
    for job in (Rekey(reading(ring)), Rewrap(reading(ring), TO_SECOND)):
        victim = table / "0.parquet"
        struck = False

        def strike(done: int, total: int, victim: Path = victim) -> None:
            nonlocal struck
            if not struck and 0 < done < total:
                struck = True
                pq.write_table(theirs, victim.with_suffix(".new"))
                victim.with_suffix(".new").replace(victim)

        if isinstance(job, Rewrap):
            # Re-wrapping has no steps inside a file: the change comes while the KMS is asked.
            victim = table / "2.parquet"

            class Slow(bs.Keyring):
                def wrap_key(self, key_bytes: bytes, master_key_identifier: str, victim: Path = victim) -> str:
                    strike(1, 2, victim)
                    return super().wrap_key(key_bytes, master_key_identifier)

            job = Rewrap(bs.DecryptionSpec(bs.KeyTools(Slow(ring.path))), TO_SECOND)
            report = rotate(victim, job)
        else:
            report = rotate(victim, job, progress=strike)
        assert struck
        assert statuses(report) == [Status.CHANGED]
        assert not report.ok
        assert pq.read_table(victim).equals(theirs)
        assert not list(table.glob(".*"))


def test_two_rotations_keep_out_of_each_others_way(ring: bs.Keyring, table: Path) -> None:
    name = find_files(table)[0].ref
    with in_turn(name):
        report = rotate(table, Rekey(reading(ring)))
    assert statuses(report) == [Status.CHANGED] + [Status.REKEYED] * (FILES - 1)
    assert "another rotation" in str(report.files[0].why)
    assert statuses(rotate(table, Rekey(reading(ring)))) == [Status.REKEYED] + [Status.DONE_BEFORE] * (FILES - 1)


def test_two_processes_rotate_one_table_at_the_same_time(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    script = f"""
import sys, bloomseal as bs
from bloomseal.rotation import Rekey, rotate
decryption = bs.DecryptionSpec(bs.KeyTools(bs.Keyring({str(ring.path)!r})))
for _ in range(5):
    rotate({str(table)!r}, Rekey(decryption), journal=sys.argv[1], restart=True)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / f"{number}.jsonl")]) for number in range(2)
    ]
    assert [process.wait() for process in running] == [0, 0]
    for index, path in enumerate(paths(table)):
        opens(path, reading(ring), index)
    assert not list(table.rglob(".*"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_unreachable_kms_ends_the_trying(ring: bs.Keyring, table: Path, jobs: int) -> None:
    calls = []

    class Away(bs.Keyring):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
            calls.append(master_key_identifier)
            raise KmsAccessError.because(Problem.UNREACHABLE, master_key_identifier)

    away = bs.DecryptionSpec(bs.KeyTools(Away(ring.path), attempts=1))
    report = rotate(table, Rekey(away), jobs=jobs)
    assert statuses(report) == [Status.FAILED] * FILES
    assert 3 <= len(calls) <= 2 + jobs, "those that were asked at the same time"
    assert "not tried" in str(report.files[-1].why)
    assert rotate(table, Rekey(reading(ring)), restart=True).ok


def test_progress_counts_bytes_up_to_all(ring: bs.Keyring, table: Path) -> None:
    told: list[tuple[int, int]] = []
    total = sum(file.size for file in find_files(table))
    rotate(table, Rekey(reading(ring)), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) > FILES


def test_no_later_run_replaces_what_stood_in_the_output_before(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    there = tmp_path / "out" / "1.parquet"
    there.parent.mkdir()
    there.write_bytes(b"somebody's")
    for _ in range(3):
        report = rotate(table, Unseal(reading(ring), str(there.parent)))
        assert [str(file.status) for file in report.files if file.path.endswith("/1.parquet")] == [Status.FAILED]
        assert there.read_bytes() == b"somebody's"


def test_a_file_and_links_to_it_are_one(ring: bs.Keyring, table: Path) -> None:
    (table / "+.parquet").symlink_to(table / "0.parquet")
    (table / "day=1" / "a.parquet").symlink_to("../1.parquet")
    (table / "again").symlink_to(table)
    job = Rekey(reading(ring))
    assert statuses(rotate([table / "again", table], job)) == [Status.REKEYED] * FILES
    assert statuses(rotate([table / "again", table], job)) == [Status.DONE_BEFORE] * FILES
    for index, path in enumerate(path for path in paths(table) if not path.is_symlink()):
        opens(path, reading(ring), index)


def test_links_to_folders_are_followed_once(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(other / "z.parquet", bs.KeyTools(ring, internal=True), 9)
    (other / "back").symlink_to(table)
    (table / "+link").symlink_to(other)
    (table / "+day").symlink_to(table / "day=1")
    job = Rekey(reading(ring))
    report = rotate(table, job, follow_links=True)
    assert statuses(report) == [Status.REKEYED] * (FILES + 1)
    assert {Path(one.path).parent for one in report.files} == {table, table / "day=1", table / "+link"}
    opens(other / "z.parquet", reading(ring), 9)


@pytest.mark.parametrize("kind", ["file", "folder", "dangling"])
def test_a_link_out_of_the_folder_is_told_and_not_followed(
    ring: bs.Keyring, table: Path, tmp_path: Path, kind: str
) -> None:
    """Whoever can write to the table would choose which files of the caller's are rewritten."""
    other = tmp_path / "other"
    other.mkdir()
    outside = other / "z.parquet"
    if kind != "dangling":
        write(outside, bs.KeyTools(ring), 9)
    link = table / ("link" if kind == "folder" else "link.parquet")
    link.symlink_to(other if kind == "folder" else outside)
    before = {path: path.read_bytes() for path in other.iterdir()}
    job = Rekey(reading(ring))
    planned = plan(table, job)
    assert not planned.ok
    assert {one.action for one in planned.files if one.path == str(link)} == {"fail"}
    for restart in (False, True):
        report = rotate(table, job, restart=restart)
        assert not report.ok
        assert [(one.path, one.status) for one in report.problems] == [(str(link), Status.FAILED)]
        assert ("leads nowhere" if kind == "dangling" else "leads out") in str(report.problems[0].why)
    assert {path: path.read_bytes() for path in other.iterdir()} == before
    if kind != "dangling":
        # The caller names the other place too, or says that links may lead anywhere.
        assert statuses(rotate([table, other], job)) == [Status.REKEYED] * (FILES + 1)
        assert rotate(table, job, follow_links=True, restart=True).ok


def test_a_pipe_is_not_waited_for(ring: bs.Keyring, table: Path) -> None:
    os.mkfifo(table / "pipe.parquet")
    report = rotate(table, Rekey(reading(ring)))
    assert statuses(report) == [*[Status.REKEYED] * FILES, Status.FAILED]


def test_names_that_are_no_text(ring: bs.Keyring, table: Path) -> None:
    odd = os.fsdecode(os.fsencode(table) + b"/odd\xff.parquet")
    (table / "0.parquet").rename(odd)
    for _ in range(2):  # the journal knows it again
        report = rotate(table, Rekey(reading(ring)))
        assert report.ok
        assert odd in [one.path for one in report.files]
    assert statuses(report) == [Status.DONE_BEFORE] * FILES


def test_what_is_no_journal_is_left_whole(ring: bs.Keyring, table: Path) -> None:
    path = table / "0.parquet"
    before = path.read_bytes()
    for content in (before, b"a note\nand no end of line", b"no line at all", b'{"event": "some", "log": 1}\n{'):
        path.write_bytes(content)
        with pytest.raises(bs.FormatError, match="not a rotation's journal"):
            rotate(table, Rekey(reading(ring)), journal=path)
        assert path.read_bytes() == content


def test_two_files_of_one_place_are_refused_before_either_is_touched(ring: bs.Keyring, tmp_path: Path) -> None:
    for index, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "x.parquet", bs.KeyTools(ring, internal=True), index)
    folders, job = [tmp_path / "a", tmp_path / "b"], Unseal(reading(ring), str(tmp_path / "out"))
    for call in (plan, rotate):
        with pytest.raises(bs.UsageError, match="same place"):
            call(folders, job)
    assert not (tmp_path / "out").exists()
    assert rotate(folders, Rekey(reading(ring))).ok


def test_a_journal_is_one_jobs_and_one_process_at_a_time(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    rotate(table, Rewrap(reading(ring), TO_SECOND), journal=journal)
    with pytest.raises(bs.UsageError, match="another job"):
        rotate(table, Rewrap(reading(ring), TO_FIRST), journal=journal)
    with pytest.raises(bs.UsageError, match="another job"):
        rotate(table / "0.parquet", Rewrap(reading(ring), TO_SECOND), journal=journal)
    with Journal(tmp_path / "k.jsonl", "x", "y"), pytest.raises(bs.UsageError, match="open"):
        Journal(tmp_path / "k.jsonl", "x", "y")
    (tmp_path / "l.jsonl").write_text("something else\n")
    with pytest.raises(bs.FormatError):
        rotate(table, Rewrap(reading(ring), TO_SECOND), journal=tmp_path / "l.jsonl")
    assert (tmp_path / "l.jsonl").read_text() == "something else\n"


def test_a_run_that_begins_anew_leaves_the_journal_of_one_at_work_alone(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    with Journal(journal, "x", "y") as log:
        log.begin("a", (1,))
        with pytest.raises(bs.UsageError, match="open"):
            Journal(journal, "x", "y", restart=True)
        log.settle("a", "rewrapped", (2,), {})
    assert list(tmp_path.iterdir()) == [journal]
    with Journal(journal, "x", "y") as log:
        assert log.done == {"a": ([2], {})}
    with Journal(journal, "x", "y", restart=True) as log:
        assert (log.done, log.resumed) == ({}, False)
    assert len(list(tmp_path.iterdir())) == 2, "the earlier one, aside"


def test_a_disk_that_is_full_for_a_while_leaves_no_half_a_line_in_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    with Journal(journal, "x", "y") as log:
        log.begin("a", (1,))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 10, before[1]))
        try:
            with pytest.raises(bs.BloomsealError, match="can't be written"):
                log.settle("a", "rewrapped", (2,), {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.fail("a", "the journal could not be written")
    with Journal(journal, "x", "y") as log:
        assert log.begun == {"a": [1]}


def test_a_journal_cut_off_in_a_line_is_read_up_to_it(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    rotate(table, Rekey(reading(ring)), journal=journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    for cut in range(len(lines[2])):
        # After the second file's begin: its done and all that follows never reached the disk.
        journal.write_bytes(b"".join(lines[:4]) + lines[4][:cut])
        with Journal(journal, "rekey", json.loads(lines[0])["job"]) as log:
            assert len(log.done) == 1
            assert len(log.begun) == 1
        assert journal.read_bytes() == b"".join(lines[:4])
    assert statuses(rotate(table, Rekey(reading(ring)), journal=journal)).count(Status.DONE_BEFORE) == 1
    for index, path in enumerate(paths(table)):
        opens(path, reading(ring), index)


def test_a_journal_that_is_too_long_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cut off behind the last line that was read."""
    journal = tmp_path / "j.jsonl"
    with Journal(journal, "x", "y") as log:
        for number in range(10):
            log.begin(str(number), (1,))
    before = journal.read_bytes()
    monkeypatch.setattr("bloomseal.rotation.journal._LONGEST", len(before) - 10)
    with pytest.raises(bs.FormatError, match="a journal of more than"):
        Journal(journal, "x", "y")
    assert journal.read_bytes() == before
    with Journal(journal, "x", "y", restart=True) as log:
        assert not log.begun


def test_neither_journal_nor_report_holds_a_key(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    secret, fresh = b"0123456789abcdef", b"fedcba9876543210"
    path = tmp_path / "x.parquet"
    bs.write_table(rows(), path, encryption=bs.EncryptionSpec((secret, "kf")))
    job = Rekey(bs.DecryptionSpec(bs.ExplicitKeys(secret)), bs.EncryptionSpec((fresh, "kg")))
    journal = tmp_path / "j.jsonl"
    told = json.dumps(plan(path, job).to_dict()) + json.dumps(rotate(path, job, journal=journal).to_dict())
    told += journal.read_text() + repr(job)
    material = (table / "_KEY_MATERIAL_FOR_1.parquet.json").read_text()
    job2 = Rewrap(reading(ring), TO_SECOND)
    told += repr(plan(table, job2)) + json.dumps(rotate(table, job2, journal=tmp_path / "k.jsonl").to_dict())
    told += (tmp_path / "k.jsonl").read_text()
    for key in (secret, fresh):
        assert key.decode() not in told
        assert key.hex() not in told
    for entry in json.loads(material).values():
        assert json.loads(entry)["wrappedDEK"] not in told
        assert json.loads(json.loads(entry)["wrappedKEK"])["encryptedKey"] not in told


def test_other_file_systems(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    """A file system that is not local, as far as the code can see: no lock, no rename, one upload."""
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    decryption = reading(ring)
    report = rotate("table", Rewrap(decryption, TO_SECOND), filesystem=remote)
    assert statuses(report) == [Status.REWRAPPED] * FILES
    assert statuses(rotate("table", Rewrap(decryption, TO_SECOND), filesystem=remote)) == [Status.DONE_BEFORE] * FILES
    assert statuses(rotate("table", Rekey(decryption), filesystem=remote)) == [Status.REKEYED] * FILES
    for index, path in enumerate(paths(table)):
        opens(path, reading(ring), index)
    refused = rotate("table", Unseal(decryption, in_place=True), filesystem=remote)
    assert statuses(refused) == [Status.FAILED] * FILES
    assert rotate("table", Unseal(decryption, output="plain"), filesystem=remote).ok
    assert pq.read_table(tmp_path / "plain" / "day=1" / "5.parquet", partitioning=None).equals(rows(5))


def test_a_change_on_another_file_system_is_seen_before_the_upload(
    ring: bs.Keyring, table: Path, tmp_path: Path
) -> None:
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    theirs = pa.table({"somebody": ["else"] * 1000})

    def strike(done: int, total: int) -> None:
        if 0 < done < total:
            pq.write_table(theirs, table / "0.parquet")

    report = rotate("table/0.parquet", Rekey(reading(ring)), filesystem=remote, progress=strike)
    assert statuses(report) == [Status.CHANGED]
    assert pq.read_table(table / "0.parquet").equals(theirs)


def test_which_files(table: Path, tmp_path: Path) -> None:
    named = [Path(file.ref.path).relative_to(table) for file in find_files([table, table / "0.parquet"])]
    assert sorted(map(str, named)) == [
        "0.parquet",
        "1.parquet",
        "2.parquet",
        "3.parquet",
        "4.parquet",
        "day=1/5.parquet",
    ]
    assert [file.ref.path for file in find_files(table / "notes.txt")] == [str(table / "notes.txt")]
    with pytest.raises(bs.UsageError):
        find_files(tmp_path / "nowhere")
    assert [file.ref.path for file in find_files(f"file://{table}")] == [file.ref.path for file in find_files(table)]


def test_pyarrows_local_file_system_is_local(ring: bs.Keyring, table: Path) -> None:
    before = (table / "0.parquet").stat().st_ino
    assert rotate(str(table), Rekey(reading(ring)), filesystem=pafs.LocalFileSystem()).ok
    assert (table / "0.parquet").stat().st_ino != before, "a new file took its name; none was written over"
    assert not bs.rewrap(table / "0.parquet", decryption=reading(ring), filesystem=pafs.LocalFileSystem()).keys


def test_a_kms_that_knows_the_keys_no_more_ends_no_run(ring: bs.Keyring, table: Path, tmp_path: Path) -> None:
    assert rotate(table, Rewrap(reading(ring), TO_SECOND)).ok
    empty = bs.Keyring(tmp_path / "other.json", create=True)
    # Whether the files are still done can't be told, so each is looked at again, and each says why it can't be opened.
    report = rotate(table, Rewrap(reading(empty), TO_SECOND))
    assert not report.ok
    assert all("knows no master key" in str(file.why) + str(file.left) for file in report.files)
    assert set(statuses(rotate(table, Rewrap(reading(ring), TO_SECOND)))) == {Status.DONE_BEFORE}


@pytest.mark.parametrize("what", ["key material", "file"])
def test_nothing_but_our_errors_comes_of_damaged_bytes(ring: bs.Keyring, tmp_path: Path, what: str) -> None:
    """Bytes of the store, or of the file's end where footer and key metadata are, exchanged at random."""
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring, internal=what == "file"), plaintext_footer=True)
    victim = path if what == "file" else tmp_path / "_KEY_MATERIAL_FOR_t.parquet.json"
    whole = victim.read_bytes()
    chance = random.Random(7)
    outcomes = set()
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(max(len(whole) - 3000, 0), len(whole))] = chance.randrange(256)
        victim.write_bytes(damaged)
        for job in (Rewrap(reading(ring), TO_SECOND), Rekey(reading(ring))):
            # With the data keys that are cached nothing could go wrong, so each job has key tools of its own.
            outcomes |= set(statuses(rotate(path, job, journal=tmp_path / "j.jsonl", restart=True)))
            if what == "file" and path.read_bytes() != damaged:
                path.write_bytes(damaged)
        for left in tmp_path.glob("j.jsonl*"):
            left.unlink()
        if what == "key material":
            path.unlink()
            victim.unlink(missing_ok=True)
            write(path, bs.KeyTools(ring, internal=False), plaintext_footer=True)
            whole = victim.read_bytes()
    assert Status.FAILED in outcomes


class Unmarked:
    """A keyring that does not tell when its keys change, as no KMS in a cloud does."""

    def __init__(self, ring: bs.Keyring) -> None:
        self.wrap_key, self.unwrap_key = ring.wrap_key, ring.unwrap_key
        self.describe, self.opened_by = ring.describe, ring.opened_by


@pytest.mark.parametrize("job", [Rekey, Rewrap])
def test_a_run_knows_the_versions_of_its_own_time(ring: bs.Keyring, tmp_path: Path, job: type[Rekey | Rewrap]) -> None:
    """Also under key tools, and by a job, that were in use before a master key got another one."""
    tools = bs.KeyTools(Unmarked(ring))
    again = job(bs.DecryptionSpec(tools))
    write(path := tmp_path / "t.parquet", tools)
    for turn in range(3):
        ring.rotate("pii")
        assert [one.action for one in plan(path, Rewrap(reading(ring))).files] == ["rewrap"]
        if job is Rewrap:
            assert [one.action for one in plan(path, again).files] == ["rewrap"]
        assert statuses(rotate(path, again, journal=tmp_path / f"{turn}.jsonl")) == [job.done]
        assert [one.action for one in plan(path, Rewrap(reading(ring))).files] == ["none"]
    opens(path, reading(ring))
