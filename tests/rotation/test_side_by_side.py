"""Several files at a time: the same results as one after the other, one KMS call for a shared KEK, patience with a busy
KMS.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.rotation import Rekey, Rewrap, rotate
from bloomseal.rotation.files import DataFile
from bloomseal.rotation.journal import Journal
from bloomseal.rotation.outcome import FileOutcome
from bloomseal.rotation.run import Run
from support.orc_files import orc_file, orc_ring
from support.rotation_tables import keyring, opens, reading, write

FILES = 12


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bs.Keyring:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return keyring(tmp_path)


@pytest.fixture
def table(tmp_path: Path, ring: bs.Keyring) -> Path:
    folder = tmp_path / "table"
    folder.mkdir()
    tools = bs.KeyTools(ring, internal=False)
    for index in range(FILES):
        write(folder / f"{index:02d}.parquet", tools, index)
    return folder


class _Slow(bs.Keyring):
    """Takes its time, so that questions overlap."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        time.sleep(0.05)
        return super().wrap_key(key_bytes, master_key_identifier)


@pytest.mark.parametrize("jobs", [1, 4])
def test_the_same_comes_of_any_number_of_jobs(ring: bs.Keyring, table: Path, tmp_path: Path, jobs: int) -> None:
    for name in ("footer", "pii", "health"):
        ring.rotate(name)
    told: list[tuple[int, int]] = []
    job = Rewrap(reading(_Slow(ring.path)))
    report = rotate(table, job, journal=tmp_path / "j", jobs=jobs, progress=lambda *now: told.append(now))
    assert [Path(one.path).name for one in report.files] == [f"{index:02d}.parquet" for index in range(FILES)]
    assert report.counts == {"rewrapped": FILES}
    assert report.kms["wraps"] == 3, "files of one KEK cost one call for each master key"
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (sum(one.old_size for one in report.files),) * 2
    for index in range(FILES):
        opens(table / f"{index:02d}.parquet", reading(ring), index)
    assert rotate(table, job, journal=tmp_path / "j", jobs=jobs).counts == {"done before": FILES}


def test_files_are_really_done_at_the_same_time(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=30)
    real = Rekey.run

    def meet(self: Rekey, *arguments: Any, **options: Any) -> Any:
        together.wait()
        return real(self, *arguments, **options)

    monkeypatch.setattr(Rekey, "run", meet)
    assert rotate(table, Rekey(reading(ring)), journal=tmp_path / "j", jobs=3).ok


def test_a_file_is_booked_before_it_is_touched(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread syncs, what is begun is on the disk first; nothing is booked twice or torn."""
    synced: set[str] = set()
    real, journal = Rewrap.run, tmp_path / "j"
    sync = os.fsync

    def fsync(fd: int) -> None:
        lines = journal.read_bytes() if journal.exists() else b""
        sync(fd)
        synced.update(json.loads(line).get("file", "") for line in lines.splitlines() if b'"begin"' in line)

    def check(self: Rewrap, file: Any, *arguments: Any, **options: Any) -> Any:
        assert file.name in synced
        return real(self, file, *arguments, **options)

    monkeypatch.setattr("bloomseal.rotation.journal.os.fsync", fsync)
    monkeypatch.setattr(Rewrap, "run", check)
    ring.rotate("pii")
    assert rotate(table, Rewrap(reading(ring)), journal=journal, jobs=4).ok
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    for kind in ("begin", "done"):
        assert sorted(event["file"] for event in events if event["event"] == kind) == sorted(
            map(str, table.glob("*.parquet"))
        )


def test_no_file_is_opened_more_often_than_it_must(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data file to read, its key material to read and to change; the keyring is only looked at."""
    opened: Counter[str] = Counter()
    real = os.open

    def count(path: Any, *arguments: Any, **options: Any) -> int:
        opened[Path(path).name] += 1
        return real(path, *arguments, **options)

    ring.rotate("pii")
    monkeypatch.setattr(os, "open", count)
    assert rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=1).ok
    listing = 1  # its end says whether it is data
    for index in range(FILES):
        assert opened[f"{index:02d}.parquet"] == 1
        # Read with the file, and again in its turn; its rights are looked at twice.
        assert opened[f"_KEY_MATERIAL_FOR_{index:02d}.parquet.json"] == listing + 2 + 2
    assert opened[ring.path.name] <= 2


def test_rights_that_are_narrowed_meanwhile_stay_narrow(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are given once, and looked at again before the new file takes its name."""
    real, material = os.fsync, table / "_KEY_MATERIAL_FOR_00.parquet.json"
    material.chmod(0o644)

    def narrow(fd: int) -> None:
        material.chmod(0o600)
        real(fd)

    ring.rotate("pii")
    monkeypatch.setattr(os, "fsync", narrow)
    before = material.read_bytes()
    assert rotate(table / "00.parquet", Rewrap(reading(ring)), journal=tmp_path / "j", jobs=1).ok
    assert material.read_bytes() != before
    assert stat.S_IMODE(material.stat().st_mode) == 0o600


@pytest.mark.parametrize("jobs", [1, 4])
def test_what_is_not_sure_to_be_on_the_disk_is_not_done(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    real = os.fsync

    def refused(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    ring.rotate("pii")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refused)
        report = rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=jobs)
    assert report.counts == {"failed": FILES}
    assert "Input/output error" in (report.files[0].why or "")
    assert b'"done"' not in (tmp_path / "j").read_bytes()
    assert b'"end"' not in (tmp_path / "j").read_bytes()
    again = rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=jobs)
    assert again.ok
    assert again.resumed
    for index in range(FILES):
        opens(table / f"{index:02d}.parquet", reading(ring), index)


def test_an_interrupted_run_books_what_it_has_done(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = Rewrap.run, [0]

    def stop(self: Rewrap, *arguments: Any, **options: Any) -> Any:
        seen[0] += 1
        if seen[0] == 4:
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    monkeypatch.setattr(Rewrap, "run", stop)
    ring.rotate("pii")
    with pytest.raises(KeyboardInterrupt):
        rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=1)
    assert (tmp_path / "j").read_bytes().count(b'"done"') == 3
    monkeypatch.setattr(Rewrap, "run", real)
    report = rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=1)
    assert report.counts == {"done before": 3, "rewrapped": FILES - 3}


def test_a_journal_that_can_not_be_written_ends_all_jobs(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Journal, *_: Any) -> None:
        raise bs.BloomsealError("the journal can't be written: No space left on device", file=str(self.path))

    monkeypatch.setattr(Journal, "settle", full)
    monkeypatch.setattr(Journal, "fail", full)
    ring.rotate("pii")
    with pytest.raises(bs.BloomsealError, match="journal"):
        rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=4)
    for index in range(FILES):
        opens(table / f"{index:02d}.parquet", reading(ring), index)


# Throttling


class _Busy(bs.Keyring):
    """Refuses so many calls for now, after the first."""

    refusals, asked = 0, 0

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        type(self).asked += 1
        if type(self).asked <= self.refusals:
            raise KmsAccessError.because(Problem.THROTTLED, master_key_identifier)
        return super().unwrap_key(wrapped_key, master_key_identifier)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited, in a time that passes by waiting only."""
    from bloomseal.keytools.kms import calls

    waited: list[float] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return sum(waited)

    monkeypatch.setattr(calls, "time", Clock)
    monkeypatch.setattr(calls.KmsCalls, "_wait", lambda _, seconds: waited.append(seconds))
    return waited


def test_a_kms_that_throttles_is_waited_for(ring: bs.Keyring, table: Path, waits: list[float]) -> None:
    busy = type("Busy", (_Busy,), {"refusals": 20, "asked": 0})(ring.path)
    report = rotate(table, Rewrap(reading(busy)), jobs=1)
    assert report.counts == {"nothing to do": FILES}
    assert len(waits) == 20
    assert all(0 <= wait <= 30 for wait in waits)
    assert len(set(waits)) == 20, "at random"
    assert sum(waits[10:]) > sum(waits[:5]), "longer and longer"


def test_a_kms_that_throttles_is_waited_for_by_orc_files_too(tmp_path: Path, waits: list[float]) -> None:
    ring = orc_ring(tmp_path / "keys.json")
    path = orc_file(tmp_path / "t" / "a.orc", ring)

    class Busy(bs.Keyring):
        left = 20

        def open_local_key(self, encrypted_key: bytes, master_key_identifier: str, version: int) -> bytes:
            Busy.left -= 1
            if Busy.left >= 0:
                raise KmsAccessError.because(Problem.THROTTLED, master_key_identifier)
            return super().open_local_key(encrypted_key, master_key_identifier, version)

    spec = bs.DecryptionSpec(Busy(ring.path), allow_ctr=True)
    report = rotate(path.parent, Rekey(spec), jobs=1)
    assert report.counts == {"rekeyed": 1}
    assert len(waits) == 20


def test_patience_ends(ring: bs.Keyring, table: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not begun anew for each of a thousand files."""
    monkeypatch.setattr("bloomseal.keytools.kms.calls.random.uniform", lambda _, longest: longest)
    busy = type("Busy", (_Busy,), {"refusals": 10**9, "asked": 0})(ring.path)
    report = rotate(table, Rewrap(reading(busy)), jobs=1, patience=120.0)
    assert report.counts == {"failed": FILES}
    assert "too many requests" in str(report.files[0].why)
    # Two minutes, and the four attempts that two more files have; then no more are tried.
    assert sum(waits) == pytest.approx(120 + 2 * (0.1 + 0.2 + 0.4))


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_interrupt_ends_the_wait_for_a_kms_that_throttles(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """A wait that went on would outlast the test's time limit."""
    from bloomseal.keytools.kms.calls import KmsCalls

    real, waiting = KmsCalls._wait, threading.Semaphore(0)

    def wait(self: KmsCalls, seconds: float) -> None:
        waiting.release()
        # For ever, by pieces: a signal that comes just before the thread blocks is seen when it has blocked.
        while not self._given_up.is_set():
            real(self, seconds)

    def interrupt() -> None:
        waiting.acquire()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(KmsCalls, "_wait", wait)
    busy = type("Busy", (_Busy,), {"refusals": 10**9, "asked": 0})(ring.path)
    ring.rotate("pii")
    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        rotate(table, Rekey(reading(busy)), journal=tmp_path / "j", jobs=jobs, patience=86_400.0)
    sender.join()
    # And the next run is as patient as ever.
    monkeypatch.setattr(KmsCalls, "_wait", lambda *_: None)
    busy = type("Busy", (_Busy,), {"refusals": 3, "asked": 0})(ring.path)
    assert rotate(table, Rekey(reading(busy)), journal=tmp_path / "j", jobs=jobs).ok


def test_a_thread_that_was_starting_at_an_interrupt_is_waited_for(
    ring: bs.Keyring, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool knew nothing of it: it went on with files behind the run, whose journal was another's by then."""
    begun, ended = threading.Event(), list[str]()
    take, start = Run.take, threading.Thread.start

    def slowly(self: Run, file: DataFile) -> FileOutcome:
        begun.set()
        threading.Event().wait(0.2)
        found = take(self, file)
        ended.append(file.name)
        return found

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("bloomseal rotation"):
            begun.wait()
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "take", slowly)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rotate(table, Rewrap(reading(ring)), journal=tmp_path / "j", jobs=3)
    assert len(ended) == 1


def test_one_file_by_itself_is_not_waited_for(ring: bs.Keyring, table: Path) -> None:
    busy = type("Busy", (_Busy,), {"refusals": 10**9, "asked": 0})(ring.path)
    tools = bs.KeyTools(busy, attempts=2)
    with pytest.raises(bs.KeyAccessError, match="too many requests") as refused:
        bs.read_table(table / "00.parquet", decryption=bs.DecryptionSpec(tools))
    assert refused.value.retryable
