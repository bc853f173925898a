"""Hashes straight from pages are those of the decoded values, whoever wrote the pages, and however."""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal.core.parquet.page import read_page
from bloomseal.core.thrift import Struct
from bloomseal.format.hashes import chunk_hashes as hashing
from bloomseal.format.pages import inflate
from support.flat_tables import FLAT, NESTED, columns, layouts

_KEY = b"f" * 16
_NAMES = sorted((FLAT | NESTED).keys() - {"boolean", "null"})


def _hashes(file: bs.SealedFile) -> list[list[int]]:
    leaves = file.walk.footer.schema.leaves
    return [sorted(set(hashing.chunk_hashes(file.walk, 0, leaf).tolist())) for leaf in leaves]


@given(
    case=st.sampled_from(_NAMES).flatmap(lambda name: st.integers(1, 60).flatmap(lambda rows: columns(name, rows))),
    required=st.booleans(), layout=layouts(), sealed=st.booleans(),
)  # fmt: skip
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hashes_of_pages_are_those_of_values(
    tmp_path: Path, case: pa.Array, required: bool, layout: dict[str, Any], sealed: bool
) -> None:
    required &= case.null_count == 0
    schema = pa.schema([pa.field("a", case.type, nullable=not required)])
    plain = path = tmp_path / "plain.parquet"
    pq.write_table(pa.Table.from_arrays([case], schema=schema), plain, **layout)
    keys = None
    if sealed:
        keys = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=_KEY))
        path = tmp_path / "sealed.parquet"
        bs.seal_file(plain, path, encryption=bs.EncryptionSpec(footer_key=(_KEY, b"f"), column_keys={}))
    with bs.open_file(path, decryption=keys) as file, pytest.MonkeyPatch.context() as patch:
        found = _hashes(file)
        patch.setattr(hashing.PageHashes, "take", lambda *_: False)
        assert found == _hashes(file)


@pytest.mark.parametrize("dictionary", [0, 3_000, 1 << 20], ids=["plain", "both", "dictionary"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nullable", [True, False])
def test_the_usual_encodings_need_no_decoder(
    tmp_path: Path, version: str, nullable: bool, dictionary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {i}" for i in range(1000)]
    lists = pa.list_(pa.field("item", pa.int32(), nullable))
    fields = {"t": pa.string(), "n": pa.int64(), "l": lists}
    schema = pa.schema([pa.field(name, kind, nullable) for name, kind in fields.items()])
    path = tmp_path / "a.parquet"
    table = pa.table(
        {"t": texts, "n": list(range(1000)), "l": [list(range(i, i + i % 3)) for i in range(1000)]}, schema=schema
    )
    pq.write_table(
        table, path, use_dictionary=bool(dictionary), dictionary_pagesize_limit=dictionary or 1, write_batch_size=50,
        data_page_size=500, data_page_version=version,
    )  # fmt: skip
    monkeypatch.setattr(hashing, "decode_batches", None)
    with bs.open_file(path) as file:
        encodings = {page.encoding for page in file.walk.pages(file.walk.chunk(0, 0)) if page.ordinal >= 0}
        assert encodings == {0: {0}, 3_000: {0, 8}, 1 << 20: {8}}[dictionary]
        expected = [
            sorted(xxhash.xxh64_intdigest(text.encode()) for text in texts),
            sorted(xxhash.xxh64_intdigest(np.int64(n).tobytes()) for n in range(1000)),
            sorted(xxhash.xxh64_intdigest(np.int32(n).tobytes()) for n in range(1, 1000)),
        ]
        assert _hashes(file) == expected


def test_entries_that_no_page_points_to_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow stores the whole dictionary of a categorical with each row group: a filter of it all would rule out
    nothing.
    """
    entries = pa.array([f"category {i}" for i in range(1000)])
    rows = pa.DictionaryArray.from_arrays(pa.array([7, None, 999, 7], pa.int32()), entries)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": rows}), path)
    monkeypatch.setattr(hashing, "decode_batches", None)
    with bs.open_file(path) as file:
        assert file.walk.meta(file.walk.chunk(0, 0)).total_uncompressed_size > 10_000
        assert _hashes(file) == [sorted(xxhash.xxh64_intdigest(f"category {i}".encode()) for i in (7, 999))]


def test_a_page_left_to_the_decoder_has_its_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [f"{i % 9}" for i in range(5_000)]}), path)
    monkeypatch.setattr(inflate, "MAX_INFLATED_PAGE_BYTES", 100)
    with bs.open_file(path) as file:
        sizes = [page.view.uncompressed_size or 0 for page in file.walk.pages(file.walk.chunk(0, 0))]
        assert sizes[0] <= 100 < sizes[1]
        assert _hashes(file) == [sorted(xxhash.xxh64_intdigest(str(i).encode()) for i in range(9))]


@pytest.mark.parametrize("direct", [True, False])
def test_equal_entries_of_a_dictionary(tmp_path: Path, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's `read_dictionary` keeps one of them, and its indices then point to other values: a false absent."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["aa", "bb", "cc", "dd", "cc"]}), path, compression="none", write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"bb", b"aa"))
    assert pq.read_table(path)["a"].to_pylist() == ["aa", "aa", "cc", "dd", "cc"]
    if not direct:
        monkeypatch.setattr(hashing.PageHashes, "take", lambda *_: False)
    with bs.open_file(path) as file:
        assert _hashes(file) == [sorted(xxhash.xxh64_intdigest(value) for value in (b"aa", b"cc", b"dd"))]


def test_levels_in_another_encoding_are_left_to_the_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BIT_PACKED levels have no length before them: taken for RLE, they would be read as anything."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"a": [None, 5, 6]}), path, use_dictionary=False, compression="none", write_statistics=False
    )
    data = path.read_bytes()
    header = bytes.fromhex("2c 1506 1500 1506 1506")  # DataPageHeader: 3 values, PLAIN, levels RLE and RLE
    path.write_bytes(data.replace(header, bytes.fromhex("2c 1506 1500 1508 1506")))
    taken: list[int] = []
    monkeypatch.setattr(hashing.batch, "tally", lambda *_: taken.append(1))
    with bs.open_file(path) as file:
        page = next(iter(file.walk.pages(file.walk.chunk(0, 0))))
        assert page.view.data is not None
        assert page.view.data.definition_encoding == 4
        direct = hashing.PageHashes(file.walk.meta(file.walk.chunk(0, 0)), file.walk.footer.schema.leaves[0])
        assert not direct.take(page)
    assert not taken


@pytest.mark.parametrize("codec", ["snappy", "gzip", "brotli", "zstd", "lz4_raw"])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_pages_that_inflate_to_another_size_are_left_to_the_decoder(codec: str, size: int) -> None:
    """pyarrow fills up what a codec leaves, with memory that held something else before: it must not get into a
    filter.
    """
    content = bytes(range(256)) * 4
    data = memoryview(pa.Codec(codec).compress(content[:size], asbytes=True))
    assert inflate._decompressed(pa.Codec(codec), data, size) == content[:size]
    refusals = (OSError, pa.ArrowException, zlib.error, bs.FormatError)  # as good: who asks takes them for None
    for claim in (size + 1, size + 80, size - 1, 0):
        with contextlib.suppress(*refusals):
            assert inflate._decompressed(pa.Codec(codec), data, claim) is None
    for broken in (b"", b"\xff" * 12, bytes(data[:-1])):
        with contextlib.suppress(*refusals):
            assert inflate._decompressed(pa.Codec(codec), memoryview(broken), size) is None


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd"])
def test_no_values_are_inflated_too(codec: str) -> None:
    """What a V2 page of nulls alone has besides its levels."""
    nothing = memoryview(pa.Codec(codec).compress(b"", asbytes=True))
    assert inflate._decompressed(pa.Codec(codec), nothing, 0) == b""
    assert inflate._decompressed(pa.Codec(codec), nothing[:0], 0) == b""


def test_a_header_of_both_kinds_counts_by_the_type_of_the_page() -> None:
    """Decoders go by the type; whoever counts by the other header hashes fewer values than they read."""
    one, two, header = Struct(), Struct(), Struct()
    one.set_i32(1, 1)
    two.set_i32(1, 1000)
    for v2, number, values in ((False, 0, 1), (True, 3, 1000)):
        header.set_i32(1, number)
        header.set_i32(2, 0)
        header.set_i32(3, 0)
        header.set_struct(5, one)
        header.set_struct(8, two)
        page, _ = read_page(memoryview(header.to_bytes()), 0, 0, 0, None, lambda *_: b"")
        assert page.num_values == values
        assert (page.v2 is not None) is v2


@pytest.mark.parametrize(
    ("at", "length"), [(0, 10), (50, 10), (99, 10), (50, 9 + 13)], ids=["first", "middle", "last", "swallows the next"]
)
def test_values_that_do_not_add_up_are_left_to_the_decoder(tmp_path: Path, at: int, length: int) -> None:
    """Lengths that leave the page, or leave a value out: no hash of what is no value, and no filter that lacks one."""
    texts = [f"text {i:04}" for i in range(100)]
    path = tmp_path / "a.parquet"
    schema = pa.schema([pa.field("t", pa.string(), nullable=False)])
    pq.write_table(pa.table({"t": texts}, schema=schema), path, use_dictionary=False, compression="none")
    data = bytearray(path.read_bytes())
    first = data.index(b"\x09\0\0\0text 0000")
    data[first + 13 * at : first + 13 * at + 4] = length.to_bytes(4, "little")
    path.write_bytes(data)
    before = path.read_bytes()
    with pytest.raises(bs.FormatError, match="column t"):
        bs.attach_filters(path, {"t": True})
    assert path.read_bytes() == before
