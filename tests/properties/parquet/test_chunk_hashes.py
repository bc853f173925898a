"""Hashes straight from pages are those of the decoded values, whoever wrote the pages, and however."""

from __future__ import annotations

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
from bloomseal.parquet import hashing
from properties.parquet.tables import FLAT, NESTED, columns

_KEY = b"f" * 16
_NAMES = sorted((FLAT | NESTED).keys() - {"boolean", "null"})


@st.composite
def _layouts(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "brotli", "zstd", "lz4"])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([1, 20, 1 << 20])),  # beyond it, plain pages follow
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([1, 40, 300, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([1, 3, 10])),
    }


def _hashes(file: bs.SealedFile) -> list[list[int]]:
    leaves = file.walk.footer.schema.leaves
    return [sorted(set(hashing.chunk_hashes(file.walk, 0, leaf).tolist())) for leaf in leaves]


@given(
    case=st.sampled_from(_NAMES).flatmap(lambda name: st.integers(1, 60).flatmap(lambda rows: columns(name, rows))),
    required=st.booleans(), layout=_layouts(), sealed=st.booleans(),
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
        patch.setattr(hashing, "plain_hashes", lambda *_: None)
        assert found == _hashes(file)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nullable", [True, False])
def test_plain_pages_need_no_decoder(
    tmp_path: Path, version: str, nullable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {i}" for i in range(1000)]
    lists = pa.list_(pa.field("item", pa.int32(), nullable))
    fields = {"t": pa.string(), "n": pa.int64(), "l": lists}
    schema = pa.schema([pa.field(name, kind, nullable) for name, kind in fields.items()])
    path = tmp_path / "a.parquet"
    table = pa.table(
        {"t": texts, "n": list(range(1000)), "l": [list(range(i, i + i % 3)) for i in range(1000)]}, schema=schema
    )
    pq.write_table(table, path, use_dictionary=False, data_page_size=500, data_page_version=version)
    monkeypatch.setattr(hashing, "decode_batches", None)
    with bs.open_file(path) as file:
        expected = [
            sorted(xxhash.xxh64_intdigest(text.encode()) for text in texts),
            sorted(xxhash.xxh64_intdigest(np.int64(n).tobytes()) for n in range(1000)),
            sorted(xxhash.xxh64_intdigest(np.int32(n).tobytes()) for n in range(1, 1000)),
        ]
        assert _hashes(file) == expected


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
