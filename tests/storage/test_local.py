"""Local files by their descriptors; small ones are read whole, bounded, and without memory for more than there is."""

from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.core.errors import BloomsealError
from bloomseal.core.storage.local import read_open, read_small
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.material.store import MAX_STORE_BYTES, MaterialStore
from bloomseal.rotation import Repair, rotate
from bloomseal.storage.places import open_source


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 9999, 10_000, 10_001, 30_000])
def test_all_of_it_or_one_byte_more_than_the_limit(tmp_path: Path, length: int) -> None:
    file = tmp_path / "small"
    file.write_bytes(data := os.urandom(length))
    assert read_small(file, 10_000) == data[:10_001]


def test_what_has_grown_meanwhile_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is asked for first: a writer that appends must not have its end cut off, nor go past the limit."""
    file, real = tmp_path / "small", os.pread
    file.write_bytes(b"begin")

    def pread(fd: int, length: int, offset: int) -> bytes:
        if not offset:
            with file.open("ab") as more:
                more.write(b"x" * 8000)
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert read_small(file, 10_000) == b"begin" + b"x" * 8000
    assert len(read_small(file, 10_000)) == 10_001


def test_an_open_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_bytes(b"0123456789")
    with file.open("rb") as opened:
        opened.seek(5)
        assert read_open(opened.fileno(), 100) == b"0123456789"
        assert opened.tell() == 5


def test_it_is_looked_at_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_bytes(b"secret")

    def refuse(status: os.stat_result) -> None:
        assert status.st_size == 6
        raise PermissionError

    with pytest.raises(PermissionError):
        read_small(file, 100, refuse)


def test_key_material_takes_as_much_memory_as_it_is_long(tmp_path: Path) -> None:
    """Asked for up to its limit, each reading mapped and unmapped 64 MiB."""
    store = MaterialStore(FileRef(str(tmp_path / "a.parquet")))
    store.change(lambda entries: entries.update(footerKey="x" * 1000))
    tracemalloc.start()
    store.read()
    store.change(lambda entries: entries.update(columnKey0="y"))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < MAX_STORE_BYTES / 64
    assert sorted(store.read()) == ["columnKey0", "footerKey"]


def test_the_kernel_hands_out_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux gives at most 2 GiB at a time: a longer chunk is no file that became shorter."""
    file, real = tmp_path / "large", os.pread
    file.write_bytes(data := os.urandom(10_000))
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 4096), offset))
    with open_source(file) as source:
        assert source.read(1, 9_999) == data[1:]


def test_a_closed_file_reads_no_other_ones_bytes(tmp_path: Path) -> None:
    """The next file that is opened gets the number of the descriptor that was closed."""
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(name.encode() * 10)
    source = open_source(tmp_path / "one")
    number = source.fd
    source.close()
    with open_source(tmp_path / "other") as other:
        assert other.fd == number
        with pytest.raises(BloomsealError, match="Bad file descriptor"):
            source.read(0, 10)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "a\0b/*.parquet", "p=\0/x", "\0.metadata.json", "~nobody\0"])
def test_names_that_the_system_does_not_take(tmp_path: Path, name: str) -> None:
    """Python says so by a ValueError, which is nobody's to see."""
    rows = pa.table({"a": [1]})
    bs.write_table(rows, tmp_path / "a.parquet")
    spec, repair = bs.EncryptionSpec(b"k" * 16), Repair(bs.DecryptionSpec(bs.ExplicitKeys(b"k" * 16), allow_ctr=True))
    asks: list[Callable[[str], object]] = [
        bs.open_file, bs.open_table, bs.read_table, bs.inspect, bs.verify, audit, bs.Keyring,
        lambda name: bs.probe(name, "a", [1]), lambda name: bs.write_table(rows, name),
        lambda name: bs.write_dataset(rows, name), lambda name: bs.Keyring(name, create=True),
        lambda name: bs.seal_file(tmp_path / "a.parquet", name, encryption=spec),
        lambda name: bs.attach_filters(name, {"a": True}), lambda name: rotate(name, repair),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(bs.UsageError, match="no name that a file can have"):
            ask(name)
    with pytest.raises(bs.PolicyError):
        bs.Policy.load(name)
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_homes_and_lengths_that_the_system_does_not_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`pathlib` raises where `os.path` doesn't."""
    monkeypatch.chdir(tmp_path)
    for name in ("~nobody-of-this-name/keys.json", "x" * 5000):
        with pytest.raises(bs.KeyAccessError):
            bs.Keyring(name)
    with pytest.raises(bs.KeyAccessError):
        bs.Keyring("x" * 5000, create=True)


def test_a_file_object_that_was_closed(tmp_path: Path) -> None:
    bs.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    held = io.BytesIO((tmp_path / "a.parquet").read_bytes())
    with bs.open_file(held) as file:
        held.close()
        with pytest.raises(BloomsealError, match="was closed"):
            file.read()
