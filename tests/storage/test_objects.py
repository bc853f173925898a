"""File objects, bytes and the file systems of fsspec, in every place where a path may stand."""

from __future__ import annotations

import gc
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.policy import TablePolicy
from bloomseal.storage.places import resolve_path
from support.forks import holds_in_a_child

ROWS = pa.table({"id": list(range(1000)), "ssn": [f"s{i}" for i in range(1000)]})
ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16})
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16}))


def sealed() -> io.BytesIO:
    out = io.BytesIO()
    bs.write_table(ROWS, out, encryption=ENCRYPTION, bloom_filters=["ssn"], row_group_size=100)
    return out


def test_a_buffer_is_written_and_read() -> None:
    out = sealed()
    for place in (
        out,
        out.getvalue(),
        bytearray(out.getvalue()),
        memoryview(out.getvalue()),
        pa.py_buffer(out.getvalue()),
    ):
        assert bs.read_table(place, decryption=DECRYPTION).equals(ROWS)
        with bs.open_file(place, decryption=DECRYPTION) as file:
            assert file.probe("ssn", ["s5"])[:2] == [[bs.Verdict.MAYBE_PRESENT], [bs.Verdict.ABSENT]]
        assert bs.verify(place, decryption=DECRYPTION).ok
        assert bs.inspect(place).to_dict()
    assert not out.closed
    assert b"s999" not in out.getvalue()


def test_an_open_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with open(path, "wb") as out:
        bs.write_table(ROWS, out, encryption=ENCRYPTION)
        assert not out.closed
    assert bs.read_table(path, decryption=DECRYPTION).equals(ROWS)
    with open(path, "rb", buffering=0) as file:
        file.seek(10)
        assert bs.read_table(file, decryption=DECRYPTION).equals(ROWS)
    with tempfile.SpooledTemporaryFile() as spooled:
        bs.write_table(ROWS, spooled)
        assert pq.read_table(spooled).equals(ROWS)


def test_what_can_not_seek_can_be_written_to(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, archive.open("a.parquet", "w") as out:
        bs.write_table(ROWS, out, encryption=ENCRYPTION)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, archive.open("a.parquet") as file:
        assert bs.read_table(file, decryption=DECRYPTION).equals(ROWS)


class Slow(io.RawIOBase):
    """Takes a few bytes at a time, as a socket may, and in the end none."""

    def __init__(self, most: int) -> None:
        self.taken = bytearray()
        self.most = most

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if len(self.taken) >= self.most:
            raise OSError(28, "No space left on device")
        self.taken += data[:1000]
        return min(len(data), 1000)


def test_short_writes_are_carried_on_and_failures_told() -> None:
    slow = Slow(1 << 30)
    bs.write_table(ROWS, slow)
    assert bs.read_table(slow.taken).equals(ROWS)
    with pytest.raises(bs.BloomsealError, match="No space left"):
        bs.write_table(ROWS, Slow(2000))


def test_nothing_is_written_before_all_is_checked() -> None:
    def batches() -> Iterator[pa.Table]:
        yield ROWS
        assert out.getvalue() == b""
        raise RuntimeError

    out = io.BytesIO()
    with pytest.raises(RuntimeError):
        bs.write_table(batches(), out, row_group_size=10)
    assert out.getvalue() == b""


def test_an_object_that_holds_bytes_is_left_as_it_is() -> None:
    """A file that does not begin where the object does can't be read, and a longer old one leaves its end behind."""
    out = sealed()
    before = out.getvalue()
    for position in (0, 4, len(before)):
        out.seek(position)
        for change in (
            lambda: bs.write_table(ROWS, out),
            lambda: bs.attach_filters(out, ["id"], decryption=DECRYPTION),  # type: ignore[arg-type]
            lambda: bs.rekey(out, encryption=ENCRYPTION, decryption=DECRYPTION),  # type: ignore[arg-type]
        ):
            with pytest.raises(bs.UsageError, match="holds bytes already"):
                change()
    assert out.getvalue() == before


@pytest.mark.parametrize("place", [io.StringIO(), 5, None, object(), b"bytes", io.BufferedReader(io.BytesIO())])  # type: ignore[type-var]
def test_what_takes_no_bytes_is_refused(place: Any) -> None:
    with pytest.raises(bs.UsageError):
        bs.write_table(ROWS, place)


def test_a_closed_object_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    out.close()
    with pytest.raises(bs.UsageError, match="closed"):
        bs.write_table(ROWS, out)
    with open(tmp_path / "a", "wb") as written, pytest.raises(bs.UsageError):
        bs.read_table(written)
    with pytest.raises(bs.UsageError, match="no file system"):
        bs.read_table(io.BytesIO(), filesystem=fsspec.filesystem("memory"))


def test_an_object_is_a_table_of_one_file() -> None:
    out = sealed()
    table = bs.open_table(out, decryption=DECRYPTION)  # type: ignore[arg-type]
    assert table.read(where=[("ssn", "==", "s7")]).num_rows == 1
    assert table.scan().read_all().equals(ROWS)
    with pytest.raises(bs.UsageError, match="one by one"):
        bs.read_table([out, sealed()], decryption=DECRYPTION)  # type: ignore[list-item]


def test_two_readers_share_an_object() -> None:
    """To seek and to read are two steps: between them the other one must not move the position."""
    out = sealed()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: bs.read_table(out, decryption=DECRYPTION), range(40)))
    assert all(table.equals(ROWS) for table in found)


def test_a_prefix_made_of_a_place_needs_one(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    ring.create("k")
    for template in ("{table}/{path}/", "{table}/{file}"):
        policy = TablePolicy("t", ring, "k", aad_prefix=template, store_aad_prefix=False, root=str(tmp_path))
        with pytest.raises(bs.PolicyError, match="file object"):
            bs.write_table(ROWS, io.BytesIO(), encryption=policy)
    out = io.BytesIO()
    policy = TablePolicy("t", ring, "k", aad_prefix="{table}", store_aad_prefix=False)
    bs.write_table(ROWS, out, encryption=policy)
    assert bs.read_table(out, decryption=policy).equals(ROWS)


def test_key_material_has_no_place_beside_an_object(tmp_path: Path) -> None:
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    ring.create("k")
    out = io.BytesIO()
    with pytest.raises(bs.KeyAccessError, match="no folder"):
        bs.write_table(ROWS, out, encryption=TablePolicy("t", ring, "k", internal=False))
    assert out.getvalue() == b""


@pytest.fixture
def memory() -> Any:
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.makedirs("/people", exist_ok=True)
    return filesystem


def test_a_file_system_of_fsspec(memory: Any) -> None:
    bs.write_table(ROWS, "/people/a.parquet", filesystem=memory, encryption=ENCRYPTION, bloom_filters=["ssn"])
    bs.write_table(ROWS, "memory://people/b.parquet", encryption=ENCRYPTION)
    for place, filesystem, rows in (
        ("/people/a.parquet", memory, 1000),
        ("memory://people/a.parquet", None, 1000),
        ("/people", memory, 2000),
        ("memory://people", None, 2000),
    ):
        assert bs.read_table(place, filesystem=filesystem, decryption=DECRYPTION).num_rows == rows
    bs.attach_filters("memory://people/b.parquet", ["ssn"], decryption=DECRYPTION)
    with bs.open_file("/people/b.parquet", filesystem=memory, decryption=DECRYPTION) as file:
        assert file.probe("ssn", ["no"]) == [[bs.Verdict.ABSENT]]


def test_a_failure_on_fsspec_leaves_the_old_file(memory: Any) -> None:
    bs.write_table(ROWS, "/people/a.parquet", filesystem=memory)
    with pytest.raises(bs.UsageError):
        bs.write_table([ROWS, pa.table({"x": [1]})], "/people/a.parquet", filesystem=memory)
    assert bs.read_table("/people/a.parquet", filesystem=memory).equals(ROWS)
    with pytest.raises(bs.UsageError, match="No such file"):
        bs.read_table("memory://people/no.parquet")
    with pytest.raises(bs.UsageError, match="scheme nobody"):
        bs.read_table("nobody://people/no.parquet")
    with pytest.raises(bs.UsageError, match="fsspec"):
        bs.read_table("x", filesystem="memory")  # type: ignore[arg-type]


def test_local_files_through_fsspec_are_replaced_as_local_ones(tmp_path: Path) -> None:
    local = fsspec.filesystem("file")
    assert resolve_path(str(tmp_path / "a.parquet"), local).filesystem is None
    bs.write_table(ROWS, str(tmp_path / "a.parquet"), filesystem=local)
    assert bs.read_table(tmp_path / "a.parquet").equals(ROWS)


class _Store(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Shows an object when its upload is closed, as stores of objects do; the second piece of a long one fails."""

    protocol = "store"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, bytes] = {}
        self.discarded = 0

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        assert mode == "wb"
        return _Upload(self, path)


class _Upload(fsspec.spec.AbstractBufferedFile):  # type: ignore[misc]
    def __init__(self, store: _Store, path: str) -> None:
        super().__init__(store, path, mode="wb", block_size=1 << 20)
        self.got = bytearray()

    def _initiate_upload(self) -> None: ...

    def _upload_chunk(self, final: bool = False) -> bool:
        if self.got and not final:
            raise OSError(5, "no")
        self.got += self.buffer.getvalue()
        if final:
            self.fs.shown[self.path] = bytes(self.got)
        return True

    def discard(self) -> None:
        self.fs.discarded += 1


def test_an_upload_of_fsspec_that_fails_shows_nothing() -> None:
    """A file of fsspec completes its object when it is closed, and closes itself when it is dropped."""
    store = _Store()
    bs.write_table(ROWS, "t.parquet", filesystem=store)
    old = store.shown["t.parquet"]
    long = pa.table({"x": [os.urandom(1000) for _ in range(4000)]})
    with pytest.raises(bs.BloomsealError, match="can't upload"):
        bs.write_table(long, "t.parquet", filesystem=store)
    gc.collect()
    assert store.shown == {"t.parquet": old}
    assert store.discarded == 1


def test_a_forked_child_shares_no_position(tmp_path: Path) -> None:
    """What it takes for a filter could else be bytes where its parent reads."""
    path = tmp_path / "a.parquet"
    path.write_bytes(sealed().getvalue())

    def reads(file: bs.SealedFile) -> bool:
        return file.read(where=[("ssn", "==", "s777")]).num_rows == 1

    def refused(file: bs.SealedFile) -> bool:
        with pytest.raises(bs.UsageError, match="also the parent process's"):
            reads(file)
        return True

    for mode in ("rb", "r+b"):
        with path.open(mode) as given:
            file = bs.open_file(given, decryption=DECRYPTION)
            os.lseek(given.fileno(), 7, os.SEEK_SET)
            assert reads(file)
            assert (os.lseek(given.fileno(), 0, os.SEEK_CUR) == 7) is (mode == "rb")
            if mode == "rb":
                assert holds_in_a_child(lambda file=file: reads(file))
            else:
                assert holds_in_a_child(lambda file=file: refused(file))
            assert reads(file)
