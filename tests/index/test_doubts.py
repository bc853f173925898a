"""Files that an index leaves to their own filters, since a fact about them would not be safe or would hide an error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

import bloomseal as bs
from index import test_stores as stores
from index.test_index import ENCRYPTION, KEYS, opened, part, write


def test_a_file_that_calls_the_column_otherwise_is_told_as_without_an_index(tmp_path: Path) -> None:
    """Some readers take K for k: to be silent about the file would be to hide its rows."""
    write(tmp_path / "a.parquet", part(1))
    spec = bs.EncryptionSpec(footer_key=KEYS["footer_key"], column_keys={"K": KEYS["column_keys"]["k"]})
    bs.write_table(part(2).select(["k"]).rename_columns(["K"]), tmp_path / "b.parquet", encryption=spec)
    report = opened(tmp_path).index("k", encryption=ENCRYPTION).build()
    assert [*report.left] == ["b.parquet"]
    for use in ("never", "auto"):
        with pytest.raises(bs.PolicyError, match="in its case"):
            opened(tmp_path, use).read(where=[("k", "==", -1)])


def test_times_of_change_that_anybody_sets_are_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT has one time for both. A file put back by rsync with its time would be the old one by everything it tells."""
    write(tmp_path / "a.parquet", part(1))
    plain = os.fstat

    def as_fat(fd: int) -> os.stat_result:
        told = plain(fd)
        return os.stat_result(
            tuple(told), {**{name: getattr(told, name) for name in dir(told) if name.startswith("st_")},
                          "st_ctime_ns": told.st_mtime_ns, "st_ctime": told.st_mtime}
        )  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", as_fat)
        report = opened(tmp_path).index("k", encryption=ENCRYPTION).build()
    assert report.left == {"a.parquet": "whoever sets a file's time there sets its time of change"}
    assert opened(tmp_path).index("k", encryption=ENCRYPTION).update().ok


def test_a_sample_is_of_one_file_at_least(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.parquet", part(number))
    index = opened(tmp_path).index("k", encryption=ENCRYPTION)
    index.build()
    checked: list[Any] = [index.check(sample=share, seed=1).files for share in (0.001, 0.2, 0.21, 1)]
    assert checked == [1, 1, 2, 5]
    assert {index.check(sample=0.2).files for _ in range(3)} == {1}
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(bs.UsageError, match="in 0 to 1"):
            index.check(sample=share)


def test_bytes_written_into_an_object_in_memory_make_another_one(tmp_path: Path) -> None:
    """It bears the times of the old one."""
    filesystem, place = fsspec.filesystem("memory"), "memory://doubts/t"
    turned = pa.table({"k": part(1).column("k").to_pylist()[::-1], "n": range(30)})
    other = turned.set_column(0, "k", pc.add(turned.column("k"), 1))
    try:
        for number in range(3):
            stores.write(f"{place}/{number}.parquet", turned, compression="NONE", use_dictionary=False)
        stores.opened(place).index("k", encryption=ENCRYPTION).build()
        stores.write("memory://doubts/other", other, compression="NONE", use_dictionary=False)
        new, old = (filesystem.cat_file(f"/doubts/{name}") for name in ("other", "t/1.parquet"))
        assert len(new) == len(old)
        with filesystem.open("/doubts/t/1.parquet", "r+b") as file:
            file.write(new)
        table = stores.opened(place)
        assert table.read(where=[("k", "==", other.column("k")[3].as_py())]).num_rows == 1
        assert table.stats.files_not_covered == 1
    finally:
        filesystem.rm("/doubts", recursive=True)


@pytest.mark.parametrize(("protocol", "tagged"), [("webdav", False), (("s3", "s3a"), True), (("http", "https"), False)])
def test_only_the_tags_of_clients_that_are_known_count(protocol: Any, tagged: bool) -> None:
    """nginx makes one of size and second."""

    class Client(MemoryFileSystem):
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        def info(self, path: str, **options: Any) -> Any:
            return {**super().info(path, **options), "ETag": "673f-1a2b"}

        def find(self, path: str, **options: Any) -> Any:
            found = super().find(path, **{**options, "detail": True})
            return {name: {**one, "ETag": "673f-1a2b"} for name, one in found.items()}

    Client.protocol = protocol
    filesystem = PyFileSystem(FSSpecHandler(Client(skip_instance_cache=True)))
    stores.write("lake/t/0.parquet", part(0), filesystem)
    table = stores.opened("lake/t", filesystem=filesystem)
    table.index("k", encryption=ENCRYPTION).build()
    table.read(where=[("k", "==", -1)])
    assert table.stats.files_not_covered == (0 if tagged else 1)
