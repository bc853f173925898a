"""Equality looks for the value's bytes in inflate pages: no row is lost by it, whoever wrote the pages, and however."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal.core.parquet.schema import Leaf
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType
from bloomseal.format.pages import inflate
from bloomseal.read import page_search, rows
from bloomseal.read.predicate.predicate import Term
from read.test_predicates import as_scalar, comparable, holds, rounded
from support.flat_tables import FLAT, layouts

_KEY = b"f" * 16
_NAMES = sorted(FLAT.keys() - {"decimal256"})
_PATTERNS = [0, 1, 255, 256, 1 << 8, 1 << 16, 1 << 31, 1 << 32, 1 << 56, -1]
"""Integers whose bytes appear by accident across neighbours."""


@st.composite
def _columns(draw: st.DrawFn) -> tuple[str, pa.Array, list[Any]]:
    """A column of many rows and few values, and values to ask for."""
    name = draw(st.sampled_from([*_NAMES, "int64", "string"]))
    kind, values = FLAT[name]
    if name == "int64":
        values = values | st.sampled_from(_PATTERNS)
    pool = draw(st.lists(st.none() | values, min_size=1, max_size=12))
    rng = random.Random(draw(st.integers(0, 1 << 16)))
    drawn = [rng.choice(pool) for _ in range(draw(st.integers(1, 150)))]
    asked = draw(st.lists(st.sampled_from(pool) | values | st.none(), min_size=1, max_size=3))
    return name, pa.array([v.bytes if name == "uuid" and v is not None else v for v in drawn], kind), asked


def _expected(name: str, column: pa.Array, asked: list[Any]) -> list[int]:
    cells = [comparable(cell) if cell.is_valid else None for cell in column]
    wanted = [rounded(comparable(value), name) for value in asked]
    return [row for row, cell in enumerate(cells) if holds(cell, "in", wanted)]


@given(case=_columns(), layout=layouts(), nested=st.booleans(), sealed=st.booleans(), two=st.booleans())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_row_is_lost(tmp_path: Path, case: Any, layout: Any, nested: bool, sealed: bool, two: bool) -> None:
    name, column, asked = case
    kind = column.type
    nested = nested and not name.endswith("view") and name != "uuid"  # pyarrow itself can't slice these in structs
    asked = [as_scalar(value, kind) for value in asked]
    held = pa.StructArray.from_arrays([column], ["x"]) if nested else column
    table = pa.table({"a": held, "row": pa.array(range(len(column))), "same": held})
    table = table.append_column("text", [[f"row {row}" for row in range(len(column))]])
    path, column_name = tmp_path / "rows.parquet", "a.x" if nested else "a"
    keys = None
    if sealed:
        keys = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=_KEY))
        layout = {**layout, "data_page_version": "1.0"}
        bs.write_table(table, path, encryption=bs.EncryptionSpec(footer_key=_KEY), **layout)
    else:
        pq.write_table(table, path, **layout)
    terms: Any = [(column_name, "in", asked)]
    if two:  # the same question in two disjuncts, one of them with a second column
        other = "same.x" if nested else "same"
        terms = [[(column_name, "==", asked[0])], [(column_name, "in", asked), (other, "in", asked)]]
    found = bs.read_table(path, where=terms, decryption=keys)
    expected = _expected(name, column, asked)
    assert found.column("row").to_pylist() == expected
    assert found.column("text").to_pylist() == [f"row {row}" for row in expected]


_FEW_BYTES = st.lists(st.sampled_from([b"\x00", b"\x01", b"a", b"ab", b"\xff"]), max_size=40).map(b"".join)


@given(data=_FEW_BYTES, sought=_FEW_BYTES.filter(len))
@example(data=b"", sought=b"\x00")
@example(data=bytes(200_000) + b"\x01", sought=b"\x00\x01")
@example(data=b"\x01" + bytes(200_000), sought=b"\x01\x00")
def test_both_searches_find_what_is_there(data: bytes, sought: bytes) -> None:
    assert page_search._in_text(data, sought) is page_search._in_numbers(data, sought) is (sought in data)
    assert page_search._in_text(bytearray(data), sought) is (sought in data)


def test_without_memmem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert page_search._memmem() is not None or sys.platform == "win32"
    monkeypatch.setattr(page_search, "_memmem", lambda: None)
    assert page_search._in_text(b"some text", b"text")
    assert not page_search._in_text(b"some text", b"test")


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_encodings_that_do_not_hold_a_value_whole(tmp_path: Path, encoding: str, compression: str) -> None:
    values = [f"prefix-{n:05d}" for n in range(2_000)]
    pq.write_table(
        pa.table({"a": values}), tmp_path / "t", use_dictionary=False, column_encoding={"a": encoding},
        compression=compression, data_page_size=500, write_batch_size=20,
    )  # fmt: skip
    assert bs.read_table(tmp_path / "t", where=[("a", "==", values[777])]).column("a").to_pylist() == [values[777]]


@pytest.mark.parametrize("encoding", ["BYTE_STREAM_SPLIT", "DELTA_BINARY_PACKED"])
def test_encodings_of_integers(tmp_path: Path, encoding: str) -> None:
    pq.write_table(
        pa.table({"a": range(5_000)}), tmp_path / "t", use_dictionary=False, column_encoding={"a": encoding},
        data_page_size=500, write_batch_size=20,
    )  # fmt: skip
    assert bs.read_table(tmp_path / "t", where=[("a", "==", 4_321)]).column("a").to_pylist() == [4_321]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that each decoding of pages was asked for; −1 for a whole row group."""
    seen: list[int] = []
    by_pages, whole = rows.read_pages, rows.read_row_group
    monkeypatch.setattr(
        rows, "read_pages", lambda w, g, pages, **k: (seen.append(pages.num_rows), by_pages(w, g, pages, **k))[1]
    )
    monkeypatch.setattr(rows, "read_row_group", lambda *a, **k: (seen.append(-1), whole(*a, **k))[1])
    return seen


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("dictionary", [True, False])
def test_only_the_page_with_the_value_is_decoded(
    tmp_path: Path, decoded: list[int], index: bool, dictionary: bool
) -> None:
    rng = np.random.default_rng(3)
    values = [f"{n:010d}" for n in rng.permutation(50_000)]
    pq.write_table(
        pa.table({"a": values, "b": range(50_000)}), tmp_path / "t", use_dictionary=["a"] if dictionary else False,
        write_page_index=index, data_page_size=10_000, write_batch_size=500, dictionary_pagesize_limit=5_000,
    )  # fmt: skip
    with bs.open_file(tmp_path / "t") as file:
        assert file.read(["a"], [("a", "==", values[40_000])]).column("a").to_pylist() == [values[40_000]]
        assert decoded
        assert all(0 < count <= 5_000 for count in decoded)
        decoded.clear()
        assert file.read(["a"], [("a", "==", "0000000000x")]).num_rows == 0
        assert decoded == []


def test_a_page_that_claims_too_much_is_left_to_the_decoder(
    tmp_path: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "MAX_INFLATED_PAGE_BYTES", 1_000)
    pq.write_table(pa.table({"a": range(5_000)}), tmp_path / "t", use_dictionary=False, data_page_size=8_000)
    assert bs.read_table(tmp_path / "t", where=[("a", "==", 4_321)]).num_rows == 1
    assert decoded == [-1]


def test_decimals_of_variable_length_are_not_searched_for() -> None:
    """Two encodings of one number may differ in how often they repeat the sign."""
    decimal = ColumnType(PhysicalType.BYTE_ARRAY, None, LogicalType("decimal", precision=9, scale=2))
    assert page_search.needles(Term(Leaf(0, ("a",), decimal, repetition=0, definition=0), "==", (1,), False)) is None


def test_zeros_of_both_signs_are_found(tmp_path: Path) -> None:
    column = pa.array([1.5] * 3_000 + [-0.0] + [1.5] * 3_000 + [0.0], pa.float32())
    pq.write_table(
        pa.table({"a": column}), tmp_path / "t", use_dictionary=False, data_page_size=1_000, write_batch_size=100
    )
    assert bs.read_table(tmp_path / "t", where=[("a", "==", 0)]).num_rows == 2


@pytest.mark.parametrize("indexed", [True, False])
def test_a_row_group_without_rows(tmp_path: Path, indexed: bool) -> None:
    """pyarrow writes an empty table as one row group of no pages: there is nothing to search in, and no error."""
    full = pa.table({"a": pa.array([1, 2, None], pa.int32()), "b": ["x", None, "y"]})
    pq.write_table(full.slice(0, 0), tmp_path / "0.parquet", write_page_index=indexed, write_statistics=indexed)
    assert pq.ParquetFile(tmp_path / "0.parquet").num_row_groups == 1
    pq.write_table(full, tmp_path / "1.parquet", write_page_index=indexed)
    some, none = pc.field("a") == 1, pc.field("b").is_null()
    for condition, left in ((some | none, 2), (some & none, 0), (some | (pc.field("b") == "y"), 2), (~some | none, 1)):
        assert bs.read_table(tmp_path / "0.parquet", where=condition).num_rows == 0
        assert bs.read_table(tmp_path, where=condition).num_rows == left
        assert bs.open_table(tmp_path).scan(where=condition).read_all().num_rows == left
