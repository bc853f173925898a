"""Whoever writes to a table's folder puts links where the index's jobs write and remove."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.index.place import columns_in
from bloomseal.index.sealed import SealedIndex
from bloomseal.rotation.files import find_files

KEYS = {"footer_key": b"f" * 16, "column_keys": {"k": b"c" * 16}}
ENCRYPTION = bs.EncryptionSpec(**KEYS)  # type: ignore[arg-type]
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))  # type: ignore[arg-type]


def sealed_table(root: Path) -> Path:
    root.mkdir()
    for number in range(3):
        add_file(root, number)
    index_of(root).build()
    return root


def add_file(root: Path, number: int) -> None:
    bs.write_table(pa.table({"k": [number, number + 1000]}), root / f"{number}.parquet", encryption=ENCRYPTION)


def index_of(root: Path) -> SealedIndex:
    return bs.open_table(root, decryption=DECRYPTION).index("k", encryption=ENCRYPTION)


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("link", ["_bloomseal_index", "_bloomseal_index/k"])
def test_no_link_in_the_place_of_the_folder_is_followed(tmp_path: Path, link: str) -> None:
    """The index's next job would remove files elsewhere, or write there."""
    root, other = sealed_table(tmp_path / "t"), sealed_table(tmp_path / "other")
    (other / "_bloomseal_index" / "k" / "precious.txt").write_text("precious")
    before = bytes_in(other)
    shutil.rmtree(root / link)
    (root / link).symlink_to(other / link)
    add_file(root, 9)
    for job in ("drop", "update", "compact", "rebuild"):
        arguments = {"everything": True} if job == "compact" else {}
        with pytest.raises(bs.UsageError, match="a link lies in the place"):
            getattr(index_of(root), job)(**arguments)
        assert bytes_in(other) == before, job
    assert bs.read_table(root, where=[("k", "==", 9)], decryption=DECRYPTION).num_rows == 1


def test_a_link_in_the_manifests_place_is_replaced_not_followed(tmp_path: Path) -> None:
    """The manifest's name is known beforehand: a link there would have any file replaced that the victim may write."""
    root, precious = sealed_table(tmp_path / "t"), tmp_path / "precious.txt"
    precious.write_text("precious")
    manifest = root / "_bloomseal_index" / "k" / "manifest.parquet"
    manifest.unlink()
    manifest.symlink_to(precious)
    index_of(root).rebuild()
    assert precious.read_text() == "precious"
    assert not manifest.is_symlink()
    assert index_of(root).check().files == 3


@pytest.mark.parametrize("left", [".k.lock.bloomseal-tmp", "k/.manifest.parquet.00000000.bloomseal-tmp"])
def test_a_temporary_file_among_an_indexs_files_stops_no_rotation(tmp_path: Path, left: str) -> None:
    """It was taken for a file of the index, and the run failed on it; a living job's may be gone a moment later."""
    root = sealed_table(tmp_path / "t")
    (root / "_bloomseal_index" / left).write_bytes(b"")
    names = [file.relative for file in find_files([root], indexes=True)]
    assert not [name for name in names if name.endswith("bloomseal-tmp")]
    assert "_bloomseal_index/k/manifest.parquet" in names
    assert columns_in(str(root)) == ["k"], "a lock is no column"
