"""Storage that refuses: a full disk, a read-only folder, links. An error of ours, the old file, and nothing left
behind.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

import bloomseal as bs

_KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
_SPEC = bs.EncryptionSpec(footer_key=b"f" * 16)
SMALL = pa.table({"a": list(range(100))})

_FULL = """
import resource, signal, sys
import os
import pyarrow as pa
import bloomseal as bs
job, path = sys.argv[1:3]
big = pa.table({"a": [os.urandom(50).hex() for _ in range(30_000)]})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit then fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    if job == "write":
        bs.write_table(big, path, encryption=bs.EncryptionSpec(footer_key=b"f" * 16), bloom_filters={"a": True}, row_group_size=5000)
    else:
        keys = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
        bs.attach_filters(path, {"a": bs.FilterSpec(num_bytes=1 << 20)}, decryption=keys)
except bs.BloomsealError as error:
    print(type(error).__name__, error)
else:
    print("no error")
"""


@pytest.mark.parametrize("limit", [0, 100, 4096, 200_000])
@pytest.mark.parametrize("job", ["write", "attach"])
def test_a_full_disk(tmp_path: Path, job: str, limit: int) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(SMALL, path, encryption=_SPEC)
    before = path.read_bytes()
    run = subprocess.run(
        [sys.executable, "-c", _FULL, job, path, str(limit)], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "File too large" in run.stdout
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_for_filters_that_wait(tmp_path: Path) -> None:
    """With all filters at the end, they spill into a temporary file: that may fail as well."""
    path = tmp_path / "t.parquet"
    code = _FULL.replace("row_group_size=5000", 'row_group_size=5000, filter_layout="end"').replace(
        '{"a": True}', '{"a": bs.FilterSpec(num_bytes=16 << 20)}'
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "write", path, str(8 << 20)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-1500:]
    assert run.stdout.startswith("BloomsealError"), run.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(bs.BloomsealError, match="No such file"):
        bs.write_table(SMALL, tmp_path / "none" / "t.parquet")


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").mkdir()
    with pytest.raises(bs.BloomsealError):
        bs.write_table(SMALL, tmp_path / "t.parquet")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]
    with pytest.raises(bs.BloomsealError):
        bs.read_table(tmp_path / "t.parquet", columns=["a"])


_UNPRIVILEGED = """
import os, sys, tempfile
import pyarrow as pa
import bloomseal as bs
with tempfile.TemporaryDirectory() as warm:  # what is imported late may not be readable later
    bs.write_table(pa.table({"a": [1]}), os.path.join(warm, "t.parquet"))
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    bs.write_table(pa.table({"a": [1]}), os.path.join(sys.argv[1], "t.parquet"))
except bs.UsageError as error:
    print(error)
"""


def test_a_read_only_folder() -> None:
    with TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        run = subprocess.run([sys.executable, "-c", _UNPRIVILEGED, name], capture_output=True, text=True, check=True)
        assert "can't write beside the file: Permission denied" in run.stdout


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "t.parquet", tmp_path / "link.parquet"
    real.parent.mkdir()
    bs.write_table(SMALL, real, encryption=_SPEC)
    real.chmod(0o640)
    link.symlink_to(real)
    bs.attach_filters(link, {"a": True}, decryption=_KEYS)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert bs.probe(real, "a", [5], decryption=_KEYS) == [[bs.Verdict.MAYBE_PRESENT]]
    bs.write_table(SMALL.slice(0, 3), link, encryption=_SPEC)
    assert link.is_symlink()
    assert bs.read_table(real, decryption=_KEYS).num_rows == 3


def test_a_link_to_nowhere_is_filled_where_it_points(tmp_path: Path) -> None:
    link = tmp_path / "link.parquet"
    link.symlink_to(tmp_path / "target.parquet")
    bs.write_table(SMALL, link)
    assert link.is_symlink()
    assert (tmp_path / "target.parquet").is_file()


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a streamed write."""
    path = tmp_path / "t.parquet"

    def batches() -> object:
        yield SMALL.to_batches()[0]
        signal.raise_signal(signal.SIGINT)
        yield SMALL.to_batches()[0]

    with pytest.raises(KeyboardInterrupt), bs.SealedWriter(path, SMALL.schema, row_group_size=10) as writer:
        writer.write_batches(batches())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["write", "rekey"])
@pytest.mark.parametrize("refusal", ["folder", "material"])
def test_a_file_that_has_its_name_keeps_its_key_material(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, refusal: str
) -> None:
    """What fails after the rename must not take away what the new file is opened with: the old one is gone."""
    data = tmp_path / "data"
    data.mkdir()
    path, material = data / "t.parquet", data / "_KEY_MATERIAL_FOR_t.parquet.json"
    keyring = bs.Keyring(tmp_path / "keyring.json", create=True)
    keyring.create("master")
    tools = bs.KeyTools(keyring, internal=False)
    spec, keys = bs.EncryptionSpec(footer_key="master", keys=tools), bs.DecryptionSpec(tools)
    bs.write_table(SMALL, path, encryption=spec)
    before = path.stat().st_ino
    sync, rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        if refusal == "folder" and stat.S_ISDIR(os.fstat(fd).st_mode) and path.stat().st_ino != before:
            refuse()
        sync(fd)

    def renamed(aside: str, target: str, **folders: int) -> None:
        if refusal == "material" and target == material.name and path.stat().st_ino != before:
            refuse()
        rename(aside, target, **folders)

    def refuse() -> None:
        monkeypatch.undo()  # once: what tidies up afterwards finds a storage that works
        raise OSError(5, "refused")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", renamed)

    def run() -> None:
        if job == "write":
            bs.write_table(SMALL.slice(50), path, encryption=spec)
        else:
            bs.rekey(path, decryption=keys, encryption=spec)

    with pytest.raises(bs.BloomsealError, match="refused"):
        run()
    assert path.stat().st_ino != before
    assert bs.read_table(path, decryption=keys).num_rows == (50 if job == "write" else 100)
