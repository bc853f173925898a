"""Another user of the same machine: reads what modes let him read, sees the list of processes, writes to shared
folders.

His steps are taken by processes of another user id, so only root can run them; who is not is told so.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.rotation import Rekey, rotate
from bloomseal.rotation.outcome import Status
from games.world import CoTenant, World

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="another user's processes can be started by root alone")
VALUE = "000-45-6789"


def test_what_holds_keys_or_plaintext_is_its_owners_alone(here: World, shared: Path, me: CoTenant) -> None:
    file = here.root / "tenant=a/part-0.parquet"
    for path in (file, *here.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert me.reads(file), "the sealed file is open to all, and may be"
    assert not me.reads(here.ring.path)
    file.chmod(0o600)
    bs.unseal_file(file, shared / "clear.parquet", decryption=here.policy())
    assert not me.reads(shared / "clear.parquet")
    rotate(file, Rekey(here.policy(), here.policy()), journal=shared / "journal.jsonl")
    assert not me.reads(shared / "journal.jsonl")
    for name in ("rows.csv", "rows.parquet"):
        done = subprocess.run(
            [Path(sys.executable).with_name("bloomseal"), "read", file, "--keyring", here.ring.path, "--aad-prefix",
             "people/tenant=a/part-0.parquet/", "-o", shared / name],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not me.reads(shared / name)
    assert stat.S_IMODE((shared / "rows.csv").stat().st_mode) == 0o600


def test_the_list_of_processes_tells_no_secret(here: World, me: CoTenant) -> None:
    """Another user sees arguments, never the environment: keys and passphrases are not taken as arguments at all."""
    script = (
        "import sys; from bloomseal import Keyring; Keyring(sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    )
    secret = "a passphrase of the game"
    ring = bs.Keyring(here.home / "locked.json", passphrase=secret, create=True)
    with subprocess.Popen(
        [sys.executable, "-c", script, ring.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "BLOOMSEAL_KEYRING_PASSPHRASE": secret},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        seen = me.run("cat", f"/proc/{process.pid}/cmdline")
        assert str(ring.path) in seen.stdout
        assert secret not in seen.stdout
        assert me.run("cat", f"/proc/{process.pid}/environ").returncode != 0
        assert me.run("cat", f"/proc/{process.pid}/mem").returncode != 0
        process.stdin.close()


def test_a_journal_of_somebody_else_is_refused(here: World, shared: Path, me: CoTenant) -> None:
    """A planted journal says that the files were done: a rotation would leave them as they are, and say that all is
    well.
    """
    job = Rekey(here.policy(), here.policy())
    place = shared / "journal.jsonl"
    honest = shared / "honest.jsonl"
    rotate(here.root, job, journal=honest)
    me.writes(place, honest.read_text().strip())
    before = {path: path.read_bytes() for path in here.root.rglob("*.parquet")}
    with pytest.raises(bs.UsageError, match="others"):
        rotate(here.root, job, journal=place)
    assert {path: path.read_bytes() for path in before} == before
    honest.chmod(0o666)
    with pytest.raises(bs.UsageError, match="others"):
        rotate(here.root, job, journal=honest)
    honest.chmod(0o600)
    assert {one.status for one in rotate(here.root, job, journal=honest).files} == {Status.DONE_BEFORE}


def test_a_folder_for_the_key_bridge_that_he_made_is_refused(
    shared: Path, me: CoTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in it gets to run beside the keys."""
    from bloomseal.spark.jar import cache_folder

    (shared / "no folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "no folder"))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    place = shared / f"bloomseal-spark-{os.getuid()}"
    assert me.run("mkdir", place).returncode == 0
    with pytest.raises(bs.PolicyError, match="belongs to others"):
        cache_folder()


def test_links_that_he_plants_lead_nowhere(here: World, shared: Path, me: CoTenant) -> None:
    """In a shared folder: at the names that a keyring, its lock and a new file will have. The victim's file stays what
    it is.
    """
    victim = here.home / "victim.txt"
    victim.write_text("mine")
    victim.chmod(0o644)
    mark = victim.stat()
    for name in (".keys.json.lock.bloomseal-tmp", ".out.parquet.lock.bloomseal-tmp", "out.parquet", "clear.parquet"):
        assert me.run("ln", "-s", victim, shared / name).returncode == 0
    actions = (
        lambda: bs.Keyring(shared / "keys.json", create=True).create("footer"),
        lambda: bs.write_table(pa.table({"a": [1]}), shared / "out.parquet"),
        lambda: bs.unseal_file(
            here.root / "tenant=a/part-0.parquet", shared / "clear.parquet", decryption=here.policy()
        ),
    )
    for action in actions:
        with contextlib.suppress(bs.BloomsealError):
            action()
        assert victim.read_text() == "mine"
        assert (victim.stat().st_mode, victim.stat().st_ino) == (mark.st_mode, mark.st_ino)


def test_limit_the_owner_of_a_keyrings_file_is_trusted(shared: Path, me: CoTenant) -> None:
    """A keyring that he made, mode 0600, is closed to all but him and root; root is not told whose it is."""
    ring = bs.Keyring(shared / "mine.json", create=True)
    ring.create("footer")
    me.writes(shared / "his.json", ring.path.read_text())
    with pytest.raises(bs.PolicyError, match="others than its owner"):
        bs.Keyring(shared / "his.json")
    assert me.run("chmod", "600", shared / "his.json").returncode == 0
    assert [key.name for key in bs.Keyring(shared / "his.json").list()] == ["footer"]
    assert json.loads((shared / "his.json").read_text())["keys"]
