"""Another user of the machine who may write where we keep logs, reports, journals or caches, or may only read a table's
folder.

His steps are taken by processes of another user id, so only root can run them; who is not is told so.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal import evidence
from bloomseal.audit import audit
from bloomseal.rotation import Rekey, Rewrap, rotate
from bloomseal.rotation.outcome import Status
from games.world import NOBODY, CoTenant, World

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="another user's processes can be started by root alone")
BLOOMSEAL = Path(sys.executable).with_name("bloomseal")
PREFIX = ("--aad-prefix", "people/tenant=a/part-0.parquet/")


@pytest.fixture
def victim(here: World) -> Iterator[Path]:
    """A file of ours that he names in his links: whatever is done, it stays as it is."""
    path = here.home / ".bashrc"
    path.write_text("mine\n")
    before = path.stat()
    yield path
    assert path.read_text() == "mine\n"
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)


def run(here: World, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BLOOMSEAL, *arguments, "--keyring", here.ring.path], capture_output=True, text=True, timeout=120
    )


# The default journal folder


def forged_journal(here: World) -> str:
    """A whole and chained journal that says another user has rotated all files."""
    lines, last = b"", "0" * 64
    file = str(here.root / "tenant=a" / "part-0.parquet")
    for event in (
        {"event": "start", "version": 1, "operation": "rekey", "job": "0" * 32, "user": "mallory", "host": "h"},
        {"event": "begin", "file": file, "mark": None},
        {"event": "done", "file": file, "status": "rotated", "mark": None, "stamp": {}, "keys": []},
        {"event": "end"},
    ):
        line = json.dumps(event | {"at": "2026-01-01T00:00:00+00:00", "chain": last}).encode() + b"\n"
        lines, last = lines + line, hashlib.sha256(line).hexdigest()
    return lines.decode()


@pytest.mark.parametrize("whose", ["his", "everybody's"])
def test_what_he_puts_into_the_journal_folder_gets_into_no_bundle(
    here: World, shared: Path, me: CoTenant, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """A link to the keyring had its keys copied into the signed bundle; a journal of his was told as complete."""
    state = shared / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    folder = state / "bloomseal" / "rotation"
    if whose == "his":
        assert me.run("mkdir", "-p", folder).returncode == 0
    else:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    me.writes(folder / "rekey-000000000000.jsonl", forged_journal(here).strip())
    assert me.run("ln", "-s", here.ring.path, folder / "rewrap-000000000000.jsonl").returncode == 0
    made = evidence.make(here.root, here.home / "bundle.zip", keys=bs.KeyTools(here.ring), policy=here.policy())
    assert all(one["complete"]["standing"] == "not seen" for one in made.told["rotations"])
    assert "mallory" not in json.dumps(made.told)
    assert made.told["rotations"], "that journals could not be trusted is told"
    keys = here.ring.path.read_bytes()
    with zipfile.ZipFile(here.home / "bundle.zip") as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert not [name for name, data in held.items() if name.startswith("rotation/") or keys[:200] in data]


def test_a_file_that_is_no_journal_is_not_copied(here: World, tmp_path: Path) -> None:
    """Named by mistake, or through a link of ours, a keyring stays out of the bundle."""
    (tmp_path / "journal.jsonl").symlink_to(here.ring.path)
    made = evidence.make(here.root, tmp_path / "bundle.zip", journals=[tmp_path / "journal.jsonl"])
    assert [one["chain"] for one in made.told["rotations"]] == ["broken"]
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        assert not [name for name in archive.namelist() if name.startswith("rotation/")]


def test_a_rotation_keeps_no_journal_where_he_may_exchange_it(here: World, shared: Path, me: CoTenant) -> None:
    folder = shared / "open"
    folder.mkdir()
    folder.chmod(0o777)
    job = Rekey(here.policy(), here.policy())
    with pytest.raises(bs.UsageError, match="others can write to"):
        rotate(here.root, job, journal=folder / "journal.jsonl")
    assert me.run("mkdir", shared / "his").returncode == 0
    with pytest.raises(bs.UsageError, match="belongs to others"):
        rotate(here.root, job, journal=shared / "his" / "journal.jsonl")
    assert not list(folder.iterdir())
    assert rotate(here.root, job, journal=here.home / "new" / "journal.jsonl").ok
    assert (here.home / "new").stat().st_mode & 0o777 == 0o700


# Logs, reports and rows


def test_his_link_at_the_access_logs_name_has_no_line_written(
    here: World, shared: Path, me: CoTenant, victim: Path
) -> None:
    log = shared / "access.jsonl"

    def read() -> object:
        return bs.read_table(here.root, decryption=here.policy(access_log=str(log)))

    assert me.run("ln", "-s", victim, log).returncode == 0
    with pytest.raises(bs.KeyAccessError, match="somebody else's link"):
        read()
    log.unlink()
    os.link(victim, log)  # as he could where the system does not protect hard links
    with pytest.raises(bs.KeyAccessError, match="another name"):
        read()
    log.unlink()
    assert me.run("mkfifo", log).returncode == 0
    with pytest.raises(bs.KeyAccessError, match="can't be written"):
        read()
    log.unlink()
    me.writes(log, "")
    with pytest.raises(bs.KeyAccessError, match="somebody else's file"):
        read()
    log.unlink()
    read()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("made", ["link", "pipe"])
@pytest.mark.parametrize("folder", ["sticky", "open"])
def test_reports_and_rows_go_where_they_were_meant_to(
    here: World, shared: Path, me: CoTenant, victim: Path, made: str, folder: str
) -> None:
    """A report followed his link, rows were written through it; a pipe kept the gate waiting for ever."""
    place = shared / "place"
    place.mkdir()
    place.chmod(0o1777 if folder == "sticky" else 0o777)
    for name, arguments in {
        "report.json": ("audit", here.root, "--report", f"json={place}/report.json"),
        "rows.csv": ("read", here.root / "tenant=a" / "part-0.parquet", *PREFIX, "-o", place / "rows.csv"),
    }.items():
        plant = ("ln", "-s", victim, place / name) if made == "link" else ("mkfifo", place / name)
        assert me.run(*plant).returncode == 0
        done = run(here, *arguments)
        assert done.returncode == 2, done.stderr
        assert ("somebody else's link" if made == "link" else "no regular file") in done.stderr
    assert sorted(path.name for path in place.iterdir()) == ["report.json", "rows.csv"]


def test_a_killed_read_leaves_rows_that_the_audit_sees(here: World) -> None:
    """Decrypted rows lay there under a name that nobody knew."""
    out = here.root / "rows.csv"
    script = (
        "import os, pathlib, signal\nkill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.rename = os.replace = pathlib.Path.replace = kill\n"
        "from bloomseal.cli.main import main\nimport sys\nmain(sys.argv[1:])\n"
    )
    file = here.root / "tenant=a" / "part-0.parquet"
    line = [sys.executable, "-c", script, "read", file, *PREFIX, "-o", out, "--keyring", here.ring.path]
    assert subprocess.run(line, timeout=120).returncode == -signal.SIGKILL
    left, *_ = sorted(here.root.glob(".rows.csv.*"))
    assert "45-6789" in left.read_text()
    assert left.stat().st_mode & 0o777 == 0o600
    found = [one.to_dict() for one in audit(here.root, policy=here.policy(), keys=here.policy().keys).findings]
    assert [one for one in found if str(left) in json.dumps(one)], "the audit tells of the rows"
    assert not [one for one in found if "lock" in json.dumps(one)], "an empty lock is no finding"
    assert run(here, "read", file, *PREFIX, "-o", out).returncode == 0
    assert not list(here.root.glob(".rows.csv.*"))


# Caches


@pytest.mark.parametrize("how", ["he owns the folder above", "everybody may write above", "a link of his leads there"])
def test_no_code_is_kept_below_a_folder_of_his(
    shared: Path, me: CoTenant, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """He could put another folder in the place of ours, with a jar in it that runs beside the keys."""
    from bloomseal.spark.jar import cache_folder

    above = shared / "above"
    if how == "he owns the folder above":
        assert me.run("mkdir", "-m", "755", above).returncode == 0
    elif how == "everybody may write above":
        above.mkdir()
        above.chmod(0o777)
    else:
        (shared / "real").mkdir()
        assert me.run("ln", "-s", shared / "real", above).returncode == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(above / "cache"))
    with pytest.raises(bs.PolicyError, match=r"(others can write to|belongs to others)"):
        cache_folder()


def test_a_home_that_a_group_may_write_to_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes are such in images for notebooks. Nothing is kept there, and Spark runs all the same."""
    from bloomseal.spark.jar import kept_file

    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for place, mode in (home, 0o777), (temporary, 0o1777):
        place.mkdir()
        place.chmod(mode)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path = kept_file("a.json", b"{}")
    assert path.parent == temporary / f"bloomseal-spark-{os.getuid()}"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not list(home.iterdir())


def test_a_jar_that_is_not_ours_is_not_run(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.spark.jar import kept_file

    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    path = kept_file("a.json", b"{}")
    assert [one.stat().st_mode & 0o777 for one in (path.parent, path.parent.parent, shared / "cache")] == [0o700] * 3
    os.chown(path, NOBODY, NOBODY)  # put there while the folder was open to him
    with pytest.raises(bs.PolicyError, match="belongs to others"):
        kept_file("a.json", b"{}")


class Payload:
    """A pickle that runs code where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self._mark),)


def test_machine_code_is_not_taken_from_where_he_may_put_it(shared: Path, tmp_path: Path) -> None:
    """numba's cache is made of pickles: those of a folder that he may write to ran as us."""
    script = "import bloomseal.orc.kernels"

    def compiled(cache: Path) -> None:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=300)

    compiled(tmp_path / "own")
    indexes = list((tmp_path / "own").rglob("*.nbi"))
    assert indexes, "in a folder of ours it is kept"
    shutil.copytree(tmp_path / "own", shared / "his")
    for path in (shared / "his").rglob("*.nbi"):
        path.write_bytes(pickle.dumps(Payload(shared / "has run")))
    for path in (shared / "his", *(shared / "his").rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    compiled(shared / "his")
    assert not (shared / "has run").exists()


# Locks


def test_who_may_only_read_keeps_no_writer_out(here: World, me: CoTenant) -> None:
    """A lock on a folder or a data file needs no more than the right to read it: writers waited for a minute, and
    failed.
    """
    here.home.chmod(0o755)
    for path in (here.root, *here.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    file = here.root / "tenant=a" / "part-0.parquet"
    places = [here.root, file.parent, file]
    script = (
        "import fcntl, os, sys\n"
        "held = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]\n"
        "for one in held: fcntl.flock(one, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        ["/usr/bin/python3", "-c", script, *map(str, places)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        bs.attach_filters(file, {"n": bs.FilterSpec(fpp=0.1)}, decryption=here.policy())
        here.ring.rotate("footer")
        report = rotate(here.root, Rewrap(here.policy()), journal=here.home / "journal.jsonl")
        assert {one.status for one in report.files} == {Status.REWRAPPED}
        holder.stdin.close()
    assert not list(here.root.rglob(".*")), "no lock lies about"
