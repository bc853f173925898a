"""What runs that failed used to leave, or to raise: each found by `test_faults` or `test_all_at_once`."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.rotation import Rekey, rotate
from bloomseal.rotation.outcome import Status
from crash import verbs
from crash.verbs import leftovers, make, table

_fork = multiprocessing.get_context("fork")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path)
    return tmp_path


def _killed(root: Path, point: str) -> None:
    os.environ["BLOOMSEAL_FAULT_POINT"] = point
    verbs.append(root)


@pytest.mark.parametrize("existing", ["append", "overwrite"])
def test_a_killed_dataset_is_tidied_by_the_next_one(root: Path, existing: str) -> None:
    """Its files have names of their own: nobody came by to remove the file aside, nor its key material."""
    process = _fork.Process(target=_killed, args=(root, "checked"))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert [Path(name).name[:8] for name in leftovers(root)] == [".part-0-", "_KEY_MAT"]
    verbs.append(root) if existing == "append" else verbs.overwrite(root)
    assert leftovers(root) == []
    assert verbs.state(root) == ("between" if existing == "append" else "new")


def _killed_while_it_removes(root: Path) -> None:
    real = os.unlink

    def unlink(path: str, **options: object) -> None:
        real(path, **options)  # type: ignore[arg-type]
        # Not one of the new files, whose names may end so, too.
        os.kill(os.getpid(), signal.SIGKILL) if path.endswith("_1.parquet.json") or ".1.parquet" in path else None

    os.unlink = unlink  # type: ignore[assignment]
    verbs.overwrite(root)


def test_an_overwrite_killed_while_it_removes_leaves_no_key_material(root: Path) -> None:
    process = _fork.Process(target=_killed_while_it_removes, args=(root,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert verbs.state(root) in ("between", "new")
    verbs.append(root)
    assert leftovers(root) == []


def test_a_living_writers_file_and_key_material_stay(root: Path) -> None:
    with bs.SealedWriter(table(root) / "9.parquet", verbs.rows(9).schema, encryption=verbs.encryption(root)) as writer:
        writer.write_table(verbs.rows(9))
        material = table(root) / "_KEY_MATERIAL_FOR_9.parquet.json"
        material.write_text("{}")
        verbs.append(root)
        assert [Path(name).name for name in leftovers(root)][1:] == [material.name]
    assert bs.read_table(table(root) / "9.parquet", decryption=verbs.decryption(root)).num_rows > 0


def test_a_name_that_was_not_taken_is_not_called_placed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error named a new file that was not there, and its key material stayed."""

    def rename(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    real = os.rename
    monkeypatch.setattr(
        os, "rename", lambda old, new, **folders: (rename if "KEY" not in new else real)(old, new, **folders)
    )
    with pytest.raises(bs.BloomsealError, match="Input/output error") as told:
        verbs.append(root)
    monkeypatch.undo()
    assert "placed" not in str(told.value)
    assert leftovers(root) == []
    assert verbs.state(root) == "old"


def test_a_disk_that_dies_is_reported_for_each_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at a file that had failed raised an OSError, and the report of all files was lost."""
    real, broken = os.stat, str(table(root) / "0.parquet")
    looks = 0

    def stat(path: object, **options: object) -> os.stat_result:
        nonlocal looks
        looks += str(path) == broken
        if str(path) == broken and looks > 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat)
    report = rotate(table(root), Rekey(verbs.decryption(root)), journal=root / "journal.jsonl")
    monkeypatch.undo()
    assert looks > 4
    assert [file.status for file in report.files] == [Status.FAILED, Status.REKEYED]
    assert "Input/output error" in str(report.files[0].why)
    assert verbs.kind(root) == "encrypted"


def test_a_file_that_goes_while_the_folder_is_listed_stops_nobody(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file aside of another writer, which had just taken its name."""
    (table(root) / "gone.parquet").write_bytes(b"")
    real = os.lstat

    def lstat(path: object, **options: object) -> os.stat_result:
        Path(str(path)).unlink() if str(path).endswith("gone.parquet") else None
        return real(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", lstat)
    verbs.append(root)
    assert verbs.state(root) == "between"
