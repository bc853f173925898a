"""Pages that are read a window at a time are those that are read at once, and so are the errors about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.parquet import walk
from bloomseal.core.storage.source import Source
from bloomseal.storage.places import open_source

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"id": b"c" * 16}}
SPEC = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
ROWS = 3000


@pytest.fixture(params=[True, False], ids=["sealed", "plaintext"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A column of long texts in many pages, one of numbers with a dictionary, one of lists."""
    table = pa.table(
        {
            "id": [f"{i:>{i % 400}}" for i in range(ROWS)],
            "kind": [i % 5 for i in range(ROWS)],
            "list": [list(range(i % 7)) for i in range(ROWS)],
        }
    )
    made = tmp_path / "a.parquet"
    encryption = bs.EncryptionSpec(**KEYS) if request.param else None
    bs.write_table(table, made, encryption=encryption, data_page_size=2048, write_batch_size=16, compression="none")
    return made


def opened(path: Path) -> bs.SealedFile:
    with open_source(str(path)) as source:
        sealed = bytes(source.read(source.size - 4, 4)) == b"PARE"
    return bs.open_file(path, decryption=SPEC if sealed else None)


@pytest.mark.parametrize("window", [1, 100, 5000, 1 << 20])
def test_the_pages_are_the_same(path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(walk, "_WINDOW", window)
    with opened(path) as file:
        for leaf in range(3):
            chunk = file.walk.chunk(0, leaf)
            at_once = [(p.offset, p.length, p.ordinal, bytes(p.body())) for p in file.walk.pages(chunk)]
            passing = [(p.offset, p.length, p.ordinal, bytes(p.body())) for p in file.walk.pages(chunk, passing=True)]
            assert passing == at_once
            assert len(at_once) > 1
        assert file.read().num_rows == ROWS


def test_no_more_than_a_window_is_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_WINDOW", 8192)
    most: list[int] = []
    read = Source.read_into

    def counting(self: Source, scratch: Any, offset: int, length: int) -> memoryview:
        found = read(self, scratch, offset, length)
        most.append(len(scratch._buffer))
        return found

    monkeypatch.setattr(Source, "read_into", counting)
    with opened(path) as file:
        chunk = file.walk.chunk(0, 0)
        assert file.walk.extent(chunk)[1] > 500_000
        for _ in file.walk.pages(chunk, passing=True):
            pass
    assert max(most) == 8192


@pytest.mark.parametrize("path", [True], ids=["sealed"], indirect=True)
@pytest.mark.parametrize("window", [100, 5000, 1 << 20])
def test_an_altered_page_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(walk, "_WINDOW", window)
    with opened(path) as file:
        page = [*file.walk.pages(file.walk.chunk(0, 0))][20]
    data = bytearray(path.read_bytes())
    data[page.offset + page.length - 20] ^= 1
    path.write_bytes(data)
    with opened(path) as file, pytest.raises(bs.IntegrityError, match="column id, module Data page"):
        file.read(["id"])
    data[page.offset + 3] ^= 0x40  # the length of its header, which then reaches past the chunk
    path.write_bytes(data)
    with opened(path) as file, pytest.raises(bs.FormatError, match="row group 0, column id"):
        file.read(["id"])
