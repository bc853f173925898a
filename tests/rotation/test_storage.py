"""Storage that fails: full disks, folders that can't be written to. Clear errors, and nothing lost."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.rotation import Rekey, Rewrap, Seal, Unseal, rotate
from bloomseal.rotation.outcome import Status
from support.rotation_tables import TO_SECOND, keyring, masters, opens, reading, write


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    return keyring(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system takes rights that this user lacks")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(folder: Path) -> None:
    with open(folder / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "ballast"}


@pytest.mark.parametrize("internal", [True, False])
def test_a_full_disk(ring: bs.Keyring, small_disk: Path, internal: bool) -> None:
    path = small_disk / "t.parquet"
    write(path, bs.KeyTools(ring, internal=internal))
    fill(small_disk)
    before = contents(small_disk)
    for job in (Rewrap(reading(ring), TO_SECOND), Rekey(reading(ring)), Unseal(reading(ring), in_place=True)):
        report = rotate(path, job)
        assert [file.status for file in report.files] == [Status.FAILED]
        assert "No space left" in str(report.files[0].why)
        assert contents(small_disk) == before
        opens(path, reading(ring))
    with pytest.raises(bs.BloomsealError, match="No space left"):
        bs.rewrap(path, decryption=reading(ring), master_keys=TO_SECOND)
    (small_disk / "ballast").unlink()
    assert rotate(path, Rekey(reading(ring))).ok
    assert rotate(path, Rewrap(reading(ring), TO_SECOND)).ok
    assert masters(path, reading(ring)) == set(TO_SECOND.values())
    opens(path, reading(ring))


def test_a_full_disk_under_the_journal(ring: bs.Keyring, small_disk: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring))
    fill(small_disk)
    before = path.read_bytes()
    with pytest.raises(bs.BloomsealError, match="journal can't be written: No space left"):
        rotate(path, Rekey(reading(ring)), journal=small_disk / "j.jsonl")
    assert path.read_bytes() == before


@pytest.mark.parametrize("room", [1000, 5000])
def test_a_limit_on_the_size_of_files(ring: bs.Keyring, tmp_path: Path, room: int) -> None:
    """Any user can have this one: writes fail at some byte of the new file, in its first page or at its end."""
    path = tmp_path / "t.parquet"
    write(path, bs.KeyTools(ring))
    assert path.stat().st_size > room
    before, (_, most) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    for job in (Rewrap(reading(ring), TO_SECOND), Rekey(reading(ring)), Unseal(reading(ring), in_place=True)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
        try:
            report = rotate(path, job)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        assert [file.status for file in report.files] == [Status.FAILED]
        assert "File too large" in str(report.files[0].why)
        assert path.read_bytes() == before
        assert not list(tmp_path.glob(".t*"))
    opens(path, reading(ring))


@pytest.fixture
def read_only(tmp_path: Path, ring: bs.Keyring) -> Iterator[Path]:
    """A folder with two files in which nothing can be made."""
    folder = tmp_path / "table"
    folder.mkdir()
    root = os.geteuid() == 0
    if root and subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("root may write anywhere, and this one may not mount")
    for index in range(2):
        write(folder / f"{index}.parquet", bs.KeyTools(ring, internal=index == 0), index)
    if root:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    else:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        yield folder
    finally:
        if root:
            subprocess.run(["umount", str(folder)], check=True)
        else:
            folder.chmod(0o700)


def test_a_read_only_folder(ring: bs.Keyring, read_only: Path, tmp_path: Path) -> None:
    before = contents(read_only)
    for job in (Rewrap(reading(ring), TO_SECOND), Rekey(reading(ring)), Unseal(reading(ring), in_place=True)):
        report = rotate(read_only, job)
        assert [file.status for file in report.files] == [Status.FAILED] * 2
        for file in report.files:
            assert "can't" in str(file.why)
            assert "Read-only" in str(file.why) or "Permission" in str(file.why)
        assert contents(read_only) == before
    assert rotate(read_only, Unseal(reading(ring), output=str(tmp_path / "out"))).ok
    spec = bs.EncryptionSpec("footer", keys=ring)
    assert rotate(tmp_path / "out", Seal(spec)).ok
    with pytest.raises(bs.UsageError, match="journal can't be opened"):
        rotate(read_only, Rekey(reading(ring)), journal=read_only / "j.jsonl")
