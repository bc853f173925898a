"""One folder, opened once: the ways to it, who has a say in it, and its locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import multiprocessing
import os
import pwd
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import bloomseal as bs
from bloomseal._ownership import exposure, home
from bloomseal.core.storage.ref import FileRef
from bloomseal.evidence.rotations import default_journals
from bloomseal.rotation.journal import default_journal
from bloomseal.storage.atomic import AtomicFile
from bloomseal.storage.folder import Folder
from bloomseal.storage.replacement import Replacement, remove_leftovers, replace, target_of, temporaries

NOBODY = 65534
_fork = multiprocessing.get_context("fork")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with Folder.at(tmp_path) as opened:
        yield opened


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Ways


@pytest.mark.parametrize("link", ["a", "a/b"])
def test_below_a_folder_no_link_is_followed(tmp_path: Path, folder: Folder, link: str) -> None:
    (tmp_path / "real" / "b").mkdir(parents=True)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "real")
    for make in (False, True):
        with pytest.raises(OSError, match="link") as caught:
            folder.below("a/b", make=make)
        assert caught.value.errno == errno.ELOOP
        assert caught.value.filename == str(tmp_path / link)
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["b"]


def test_a_new_file_of_a_table_is_made_through_no_link(tmp_path: Path) -> None:
    """Whoever writes to the table's folder put a link in the place of a folder in it, after it was looked at."""
    (tmp_path / "table").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "table" / "day=1").symlink_to(tmp_path / "elsewhere")
    ref = FileRef(str(tmp_path / "table" / "day=1" / "a.parquet"), root=str(tmp_path / "table"))
    with pytest.raises(bs.UsageError, match="there is a link on the way"):
        AtomicFile(ref)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_link_of_ours_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "second").symlink_to("real/file")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    found, name = Folder.of(tmp_path / "first")
    with found:
        assert (os.path.samestat(os.fstat(found.fd), (tmp_path / "real").stat()), name) == (True, "file")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        Folder.of(tmp_path / "round")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives links away")
def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    with pytest.raises(bs.UsageError, match="somebody else's link"):
        Folder.of(tmp_path / "link")
    found, name = Folder.of(tmp_path / "link", anyones_links=True)
    with found:
        assert name == "real"


# Who has a say in it


def test_what_is_missing_is_made_for_us_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with Folder.own(tmp_path / "a" / "b") as made:
            assert os.path.samestat(os.fstat(made.fd), (tmp_path / "a" / "b").stat())
    finally:
        os.umask(mask)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")] == [0o700, 0o700]
    with pytest.raises(FileNotFoundError):
        Folder.own(tmp_path / "none", make=False)


@pytest.mark.parametrize(("mode", "shared", "closed"), [
    (0o755, False, True), (0o777, False, False), (0o777, True, False),
    (0o1777, False, False), (0o1777, True, True),
])  # fmt: skip
def test_the_folder_itself(tmp_path: Path, mode: int, shared: bool, closed: bool) -> None:
    place = tmp_path / "f"
    place.mkdir()
    place.chmod(mode)
    assert (exposure(place, shared=shared) is None) == closed
    assert stat.S_IMODE(place.stat().st_mode) == mode, "no mode is changed"


def test_the_way_to_it(tmp_path: Path) -> None:
    """Links on the way are gone along, and looked at themselves."""
    (tmp_path / "open" / "deep").mkdir(parents=True)
    (tmp_path / "fine" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("fine/../open")
    assert exposure(tmp_path / "link" / "deep") is None
    (tmp_path / "open").chmod(0o777)
    for way in ("open/deep", "link/deep", "fine/../link/deep"):
        assert exposure(tmp_path / way) == f"others can write to {tmp_path / 'open'}"
    (tmp_path / "open").chmod(0o1777)
    assert exposure(tmp_path / "open" / "deep") is None
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        exposure(tmp_path / "round" / "deep")


class _Group(NamedTuple):
    gr_name: str
    gr_gid: int
    gr_mem: list[str]


def test_a_group_of_ones_own_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems that give each user a group of his own have folders that it may write to."""
    place, user = tmp_path / "f", pwd.getpwuid(os.geteuid())
    place.mkdir()
    place.chmod(0o775)
    for members, closed in (([], True), ([user.pw_name], True), ([user.pw_name, "eve"], False)):
        group = _Group(user.pw_name, user.pw_gid, members)
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        assert (exposure(place) is None) == closed, members
    monkeypatch.setattr(grp, "getgrgid", lambda gid: _Group("staff", gid, ["eve"]))
    assert exposure(place) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_roots_group_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that run as any user give homes to root's group, in which that user is."""
    place = tmp_path / "f"
    place.mkdir()
    place.chmod(0o775)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert exposure(place) is None
    os.chown(place, -1, 12345)
    assert exposure(place) is not None
    os.chown(place, -1, 0)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: _Group("root", gid, ["root", "eve"]))
    assert exposure(place) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_another_users_home_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In many containers of CI root finds the home of whoever the machine belongs to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path
    os.chown(tmp_path, 12345, 12345)
    assert home() == Path(pwd.getpwuid(0).pw_dir)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(OSError, match="no home"):
        home()
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(bs.UsageError, match="no home"):
        default_journal("rekey", "0" * 12)
    assert default_journals() == []


def test_a_file_that_is_believed(tmp_path: Path, folder: Folder) -> None:
    path = tmp_path / "own"
    os.close(folder.open_own("own", os.O_RDWR | os.O_CREAT))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    with pytest.raises(bs.PolicyError, match="others can write"):
        folder.open_own("own")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        folder.open_own("link")


# Locks


def test_one_at_a_time_has_a_name(tmp_path: Path, folder: Folder) -> None:
    with folder.locked("a"), Folder.at(tmp_path) as other:
        with pytest.raises(TimeoutError), other.locked("a", patience=0.01):
            pass
        with other.locked("b", patience=0):
            assert names(tmp_path) == [".a.lock.bloomseal-tmp", ".b.lock.bloomseal-tmp"]
    with folder.locked("a", patience=0):
        pass
    assert not names(tmp_path)


def test_many_threads_and_processes_count_together(tmp_path: Path) -> None:
    """Whatever they meet on the way: a lock that is just made, or just removed."""
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        with Folder.at(tmp_path) as mine:
            for _ in range(50):
                with mine.locked("counter"):
                    counter.write_text(str(int(counter.read_text()) + 1))

    def threads() -> None:
        running = [threading.Thread(target=count) for _ in range(3)]
        for one in running:
            one.start()
        for one in running:
            one.join()

    children = [_fork.Process(target=threads) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert counter.read_text() == "450"
    assert names(tmp_path) == ["counter"]


def _die_with_it(place: str) -> None:
    with Folder.at(place) as mine, mine.locked("a"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_lock_of_a_dead_process_is_nobodys(tmp_path: Path, folder: Folder) -> None:
    process = _fork.Process(target=_die_with_it, args=(str(tmp_path),))
    process.start()
    process.join(30)
    (left,) = names(tmp_path)
    assert (target_of(left), temporaries(folder)) == ("a", {left: "a"})
    with folder.locked("a", patience=0):
        remove_leftovers(folder)
        assert names(tmp_path) == [left], "a lock in use is no leftover"
    assert not names(tmp_path)


@pytest.mark.parametrize(("mode", "lock"), [(0o755, 0o600), (0o775, 0o660), (0o777, 0o666), (0o1777, 0o600)])
def test_only_writers_of_the_folder_can_open_the_lock(tmp_path: Path, mode: int, lock: int) -> None:
    place = tmp_path / "f"
    place.mkdir()
    place.chmod(mode)
    with Folder.at(place) as folder, folder.locked("a"):
        (made,) = place.iterdir()
        assert stat.S_IMODE(made.stat().st_mode) == lock
        assert (made.stat().st_uid, made.stat().st_gid) == (place.stat().st_uid, place.stat().st_gid)


@contextlib.contextmanager
def _somebody() -> Iterator[None]:
    """This process as a user who owns nothing, in a group of his own."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_where_no_file_can_be_made_is_told_first(tmp_path: Path, folder: Folder) -> None:
    folder.need_writable()
    with _somebody(), pytest.raises(PermissionError, match="can't be written to"):
        folder.need_writable()
    tmp_path.chmod(0o777)
    with _somebody():
        folder.need_writable()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_a_lock_that_goes_while_we_look_lets_nobody_in(
    tmp_path: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's lock, which we may not open, was gone a moment later: that was taken for a folder that we may not
    write to, where there is nothing to guard.
    """
    lock, real = tmp_path / ".a.lock.bloomseal-tmp", Folder.open
    lock.touch(0o600)
    tmp_path.chmod(0o1777)

    def opened(self: Folder, name: str, flags: int = os.O_RDONLY, *, mode: int = 0o666) -> int:
        try:
            return real(self, name, flags, mode=mode)
        except PermissionError:
            os.seteuid(0)
            os.unlink(name, dir_fd=self.fd)
            os.seteuid(NOBODY)
            raise

    monkeypatch.setattr(Folder, "open", opened)
    with _somebody(), folder.locked("a"):
        assert os.stat(lock.name, dir_fd=folder.fd).st_uid == NOBODY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_everybody_can_open_the_lock_in_a_folder_of_everybody(tmp_path: Path, folder: Folder) -> None:
    """Its maker could not give it to the folder's group, and so to nobody: killed, he left it locked for all others."""
    os.chown(tmp_path, 0, 12345)
    tmp_path.chmod(0o777)
    with _somebody(), folder.locked("a"):
        made = os.stat(".a.lock.bloomseal-tmp", dir_fd=folder.fd)
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (NOBODY, 0o666)


# File systems that lack something


@pytest.mark.parametrize("lacks", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_files_are_written_all_the_same(
    tmp_path: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    def refused(fd: int, operation: int) -> None:
        raise OSError(lacks, os.strerror(lacks))

    monkeypatch.setattr(fcntl, "flock", refused)
    replace(folder, "a", b"new")
    with Replacement(Folder.at(tmp_path), "a"):
        remove_leftovers(folder)
        assert len(names(tmp_path)) == 2, "it may be in use"
    assert (names(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"new")


@pytest.mark.parametrize("old", [False, True])
def test_where_there_is_one_mode_for_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """FAT, as it comes on sticks, refuses another mode than a mount has for all of its files."""
    create, change = Folder.open, os.fchmod

    def opened(self: Folder, name: str, flags: int = os.O_RDONLY, *, mode: int = 0o666) -> int:
        fd = create(self, name, flags, mode=mode)
        if flags & os.O_CREAT:
            change(fd, 0o755)
        return fd

    def refused(fd: int, mode: int) -> None:
        if mode != 0o755:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Folder, "open", opened)
    monkeypatch.setattr(os, "fchmod", refused)
    if old:
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(0o755)
    with Folder.at(tmp_path) as folder:
        replace(folder, "a", b"new")
    assert ((tmp_path / "a").read_bytes(), names(tmp_path)) == (b"new", ["a"])
    (tmp_path / "a").chmod(0o700)
    with pytest.raises(PermissionError), Replacement(Folder.at(tmp_path), "a"):
        pass
    with pytest.raises(PermissionError), Replacement(Folder.at(tmp_path), "rows.csv", private=True):
        pass
    assert names(tmp_path) == ["a"]


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path, folder: Folder) -> None:
    (tmp_path / ".a.lock.bloomseal-tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"), folder.locked("a"):
        pass
    assert not (tmp_path / "victim").exists()


def test_a_reader_who_locks_the_new_file_first_is_left_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer waited for the reader's lock, for ever."""
    held: list[int] = []
    real = Folder.open

    def opened(self: Folder, name: str, flags: int = os.O_RDONLY, *, mode: int = 0o666) -> int:
        fd = real(self, name, flags, mode=mode)
        if flags & os.O_CREAT and not held:
            held.append(os.open(tmp_path / name, os.O_RDONLY))
            fcntl.flock(held[0], fcntl.LOCK_SH)
        return fd

    monkeypatch.setattr(Folder, "open", opened)
    with Replacement(Folder.at(tmp_path), "a") as new:
        assert [path.stat().st_ino for path in tmp_path.iterdir()] == [os.fstat(new.fd).st_ino]
        os.write(new.fd, b"new")
        new.commit()
    assert (tmp_path / "a").read_bytes() == b"new"
    os.close(held[0])
