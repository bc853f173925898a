"""Honest files of other writers that are unlike ours: they are read as pyarrow reads them, before and after `seal`."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.surgery import add_group, change_chunk, change_element, change_pages, created_by, written

import bloomseal as bs
from bloomseal.core.parquet.layout import Meta
from bloomseal.core.parquet.page import Page
from bloomseal.core.thrift import Struct

TABLE = pa.table({"k": [1, 2, 3, None], "t": ["abcabcabcabcabcabcabc" * 9, "b", None, "b"]})
KEYS = bs.ExplicitKeys(footer_key=b"f" * 16)
SPEC = bs.EncryptionSpec(footer_key=b"f" * 16)


def _read_alike(folder: Path, data: bytes) -> bs.SealedFile:
    """As pyarrow reads it: the file, and what `seal` and `unseal` make of it."""
    (folder / "t.parquet").write_bytes(data)
    bs.seal_file(folder / "t.parquet", folder / "s.parquet", encryption=SPEC)
    bs.unseal_file(folder / "s.parquet", folder / "u.parquet", decryption=bs.DecryptionSpec(KEYS))
    expected = pq.read_table(io.BytesIO(data))
    for name, keys in (("t", None), ("s", bs.DecryptionSpec(KEYS)), ("u", None)):
        with bs.open_file(folder / f"{name}.parquet", decryption=keys) as file:
            found = file.read()
            assert found == expected.select(found.column_names)
            assert file.verify().ok
        assert bs.open_table(folder / f"{name}.parquet", decryption=keys).scan().read_all() == found
    return bs.open_file(folder / "t.parquet")


def _pages(data: bytes, column: int) -> list[Page]:
    with bs.open_file(data) as opened:
        return list(opened.walk.pages(opened.walk.chunk(0, column)))


def _not_compressed(header: Struct) -> None:
    inner = header.struct(8)
    assert inner is not None
    inner.set_boolean(7, False)
    header.set_struct(8, inner)


def test_pages_v2_that_say_they_are_not_compressed(tmp_path: Path) -> None:
    long = pa.concat_tables([TABLE] * 50)  # of a short one the writer of today stores the smaller form
    raw = written(long, compression="snappy", data_page_version="2.0", use_dictionary=False)
    for column in range(2):
        raw = change_pages(raw, _not_compressed, column)
    with _read_alike(tmp_path, created_by(raw, "parquet-cpp version 1.5.1-SNAPSHOT")) as file:
        assert file.read(where=[("t", "==", "b")]).column("k").to_pylist() == [2, None] * 50
    (tmp_path / "t.parquet").write_bytes(raw)
    with pytest.raises(bs.FormatError):
        bs.read_table(tmp_path / "t.parquet")  # whoever is not known for it means what he says


@pytest.mark.parametrize("rows", [4, 0])
def test_chunks_whose_size_leaves_out_the_dictionary_pages_header(tmp_path: Path, rows: int) -> None:
    data = created_by(written(TABLE.slice(0, rows)), "parquet-mr version 1.2.8 (build unknown)")
    for column in range(2):
        for page in _pages(data, column)[:1]:

            def shorten(meta: Struct, left_out: int = len(page.header)) -> None:
                meta.set_i64(Meta.COMPRESSED, (meta.integer(Meta.COMPRESSED) or 0) - left_out)

            data = change_chunk(data, shorten, column)
    with _read_alike(tmp_path, data) as file:
        assert file.read(where=[("t", "==", "b")]).num_rows == (2 if rows else 0)
    if rows:
        (tmp_path / "t.parquet").write_bytes(created_by(data, "parquet-mr version 1.2.9"))
        with pytest.raises(bs.FormatError):
            bs.read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("kind", [0, 1, 6])
def test_a_root_with_a_type(tmp_path: Path, kind: int) -> None:
    nested = TABLE.append_column("s", pa.array([{"x": 1}] * 4))
    _read_alike(tmp_path, change_element(written(nested), lambda root: root.set_i32(1, kind), 0)).close()


@pytest.mark.parametrize("first", [True, False])
def test_a_group_without_fields(tmp_path: Path, first: bool) -> None:
    data = add_group(written(TABLE, store_schema=True), "nested", first=first)
    with _read_alike(tmp_path, data) as file:
        assert file.columns == ["k", "t"]
        assert file.read().column_names == ["k", "t"]
        assert file.read(["t"], where=[("k", ">", 1)]).column("t").to_pylist() == ["b", None]
        with pytest.raises(bs.UsageError, match="no such column"):
            file.read(["nested"])


@pytest.mark.parametrize("rows", [0, 3])
def test_a_file_without_columns(tmp_path: Path, rows: int) -> None:
    table = pa.table({"k": range(rows)}).select([])
    data = written(table)
    with _read_alike(tmp_path, data) as file:
        assert file.columns == file.read().column_names == []
    if rows:
        with pytest.raises(bs.UsageError, match="rows without columns"):
            bs.write_table(table, tmp_path / "ours.parquet", encryption=SPEC)
        return
    bs.write_table(table, tmp_path / "ours.parquet", encryption=SPEC)
    keys = bs.DecryptionSpec(KEYS)
    assert bs.read_table(tmp_path / "ours.parquet", decryption=keys).column_names == []


def test_objects_of_python_are_refused(tmp_path: Path) -> None:
    """Polars hands out their addresses."""
    frame = pl.DataFrame({"k": [1], "o": pl.Series([object()], dtype=pl.Object)})
    for rows in (frame, iter([frame])):
        with pytest.raises(bs.UsageError, match="Python objects"):
            bs.write_table(rows, tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())
