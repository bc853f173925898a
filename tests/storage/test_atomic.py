"""The file aside: who may read it, and what becomes of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from bloomseal.core.keys.protocols import FileRef
from bloomseal.keytools.material.store import MaterialStore
from bloomseal.storage.atomic import AtomicFile
from bloomseal.storage.objects import put_in_place
from bloomseal.storage.places import open_source


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_file_aside_is_never_more_open_than_the_one_it_replaces(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"old")
    path.chmod(mode)
    with AtomicFile(FileRef(str(path))) as out:
        out.write(b"new")
        (aside,) = [entry for entry in tmp_path.iterdir() if entry != path]
        assert aside.stat().st_mode & 0o777 & ~mode == 0
        out.commit(lambda _: None)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_mode_that_the_user_asks_of_new_files(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        with AtomicFile(FileRef(str(tmp_path / "a.parquet"))) as out:
            out.commit(lambda _: None)
    finally:
        os.umask(mask)
    assert (tmp_path / "a.parquet").stat().st_mode & 0o777 == 0o640


def test_stale_checksums_of_hadoop_go_with_the_old_file(tmp_path: Path) -> None:
    path, checksums, other = (tmp_path / name for name in ("a.parquet", ".a.parquet.crc", ".b.parquet.crc"))
    for file in (path, checksums, other):
        file.write_bytes(b"old")
    with AtomicFile(FileRef(str(path))) as out:
        assert checksums.exists()
        out.commit(lambda _: None)
    assert not checksums.exists()
    assert other.exists()


def test_stale_checksums_of_key_material_go_too(tmp_path: Path) -> None:
    """Hadoop has written both, we wrap the keys anew: with the old checksums it would refuse the new material."""
    store = MaterialStore(FileRef(str(tmp_path / "a.parquet")))
    store.change(lambda entries: entries.update(footerKey="old"))
    checksums = tmp_path / "._KEY_MATERIAL_FOR_a.parquet.json.crc"
    checksums.write_bytes(b"of the old")
    store.change(lambda entries: entries.update(footerKey="new"))
    assert not checksums.exists()
    assert store.read() == {"footerKey": "new"}


@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_every_size_stand_in_their_order(tmp_path: Path, seed: int) -> None:
    path, expected, random = tmp_path / "a.parquet", b"", Random(seed)
    sizes = [10, 1 << 20, 0, 700_000, 700_000, 3 << 20, 5, (9 << 20) + 1, 1]
    if seed:
        sizes = [random.randrange(1 << random.randrange(1, 22)) for _ in range(60)]
    with AtomicFile(FileRef(str(path))) as out:
        for size in (3 << 20, *sizes):
            piece = random.randbytes(size)
            expected += piece
            if random.random() < 0.4:
                out.write(piece)
            else:
                out.take(size)[:] = piece
        out.zero(5, (2 << 20) + 1)
        out.write(b"end")
        out.commit(lambda _: None)
    expected = expected[:5] + bytes((2 << 20) + 1) + expected[(2 << 20) + 6 :] + b"end"
    assert path.read_bytes() == expected


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no such advice")
def test_the_disk_begins_with_a_copy_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Random(7).randbytes(20 << 20)
    (tmp_path / "old").write_bytes(content)
    begun: list[tuple[int, int]] = []

    def noted(fd: int, offset: int, length: int, _: int) -> None:
        assert os.fstat(fd).st_size <= offset + length
        begun.append((offset, length))

    monkeypatch.setattr(os, "posix_fadvise", noted)
    with open_source(str(tmp_path / "old")) as source, AtomicFile(FileRef(str(tmp_path / "new"))) as out:
        out.copy_from(source, len(content) - 5)
        out.write(b"end")
        out.commit(lambda _: None)
    assert (tmp_path / "new").read_bytes() == content[:-5] + b"end"
    assert begun[:2] == [(0, 8 << 20), (8 << 20, 8 << 20)]


def test_nothing_stays_beside_a_place_that_could_not_be_taken(tmp_path: Path) -> None:
    class Failing(FSSpecHandler):  # type: ignore[misc]
        def move(self, src: str, dest: str) -> None:
            raise PermissionError(errno.EACCES, f"{src} to {dest}")

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(PermissionError):
        put_in_place(PyFileSystem(Failing(LocalFileSystem())), str(tmp_path / "a"), b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"old"]
    put_in_place(PyFileSystem(FSSpecHandler(LocalFileSystem())), str(tmp_path / "a"), b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"new"]
