"""Many values asked for at once: looked for by their hashes, in undecoded pages where that is possible, and exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal.core.parquet.walk import Walk
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType
from bloomseal.read import rows as rows_module
from bloomseal.read import undecoded as undecoded_pages
from bloomseal.read.predicate.term import FilterYield
from bloomseal.sbbf import KeySet, batch, keyset

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"id": b"c" * 16}}
SPEC = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
ROWS, GROUP = 40_000, 8_000


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    assert batch.worthwhile(10**9)


def texts(form: str) -> pa.Table:
    """Row i holds ``v{i}``, but for nulls and repeats where the form has them."""
    ids = [f"v{i}" for i in range(ROWS)]
    if form == "nulls":
        ids = [None if i % 7 == 0 else text for i, text in enumerate(ids)]
    if form == "repeated":
        ids = [f"v{i % 100}" for i in range(ROWS)]
    kind = {"large": pa.large_string(), "view": pa.string_view()}.get(form, pa.string())
    if form == "categories":
        kind = pa.dictionary(pa.int32(), pa.string())
    field = pa.field("id", kind, nullable=form != "required")
    return pa.table([pa.array(ids, kind), np.arange(ROWS)], schema=pa.schema([field, pa.field("n", pa.int64())]))


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    bs.write_table(
        table,
        path,
        encryption=bs.EncryptionSpec(**KEYS),
        row_group_size=GROUP,
        bloom_filters={"id": bs.FilterSpec(fpp=1e-6)},
        **options,
    )
    return path


@pytest.mark.parametrize(
    ("form", "options", "undecoded"),
    [
        ("plain", {"use_dictionary": False}, True),
        ("required", {"use_dictionary": False}, True),
        ("large", {"use_dictionary": False}, True),
        ("view", {"use_dictionary": False}, True),
        ("categories", {"use_dictionary": False}, True),
        ("small pages", {"use_dictionary": False, "data_page_size": 4096, "write_batch_size": 64}, True),
        ("bare", {"use_dictionary": False, "compression": "none"}, True),
        ("zstd", {"use_dictionary": False, "compression": "zstd"}, True),
        ("nulls", {"use_dictionary": False}, False),
        ("repeated", {}, False),
        ("delta", {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}, False),
    ],
)
@pytest.mark.parametrize("columns", [["id"], ["n"], None])
def test_the_rows_are_those_that_hold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, options: dict[str, Any], undecoded: bool, columns: Any
) -> None:
    table = texts(form)
    path = write(tmp_path / "a.parquet", table, **options)
    # Some in every row group, some nowhere, and the last row group full of them.
    asked = [f"v{i}" for i in range(0, ROWS, 40)] + [f"none{i}" for i in range(1500)]
    asked += [f"v{i}" for i in range(ROWS - GROUP, ROWS)]
    wanted = set(asked)
    made: list[bool] = []

    def counting(*given: Any) -> Any:
        made.append((found := undecoded_pages.find_rows(*given)) is not None)
        return found

    monkeypatch.setattr(rows_module, "find_rows", counting)
    with bs.open_file(path, decryption=SPEC) as file:
        found = file.read(columns, [("id", "in", asked)])
    assert found.schema.equals(table.schema if columns is None else table.select(columns).schema)
    rows = [i for i, one in enumerate(table["id"].to_pylist()) if one in wanted]
    expected = table.cast(pa.schema([pa.field("id", pa.string()), table.schema.field("n")])).take(rows)
    assert found.to_pylist() == (expected if columns is None else expected.select(columns)).to_pylist()
    assert made == [undecoded] * len(made)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint64(), pa.string()])
def test_rows_among_are_those_that_arrow_finds(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = [None if i % 11 == 0 else i * 3 for i in range(5000)]
    column = pa.array(numbers, pa.int64()).cast(kind)
    asked = pa.array(range(0, 15_000, 5), pa.int64()).cast(kind)
    bs.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    found = bs.read_table(tmp_path / "a.parquet", where=[("x", "in", asked.to_pylist())])
    values, wanted = column.to_pylist(), set(asked.to_pylist())
    assert found["x"].to_pylist() == [one for one in values if one in wanted]
    others = bs.read_table(tmp_path / "a.parquet", where=[("x", "not in", asked.to_pylist())])
    assert others["x"].to_pylist() == [one for one in values if one is not None and one not in wanted]
    assert not bs.read_table(tmp_path / "a.parquet", where=[("x", "not in", [*asked.to_pylist(), None])]).num_rows


def test_texts_beyond_narrow_offsets_are_left_to_the_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", texts("plain"), use_dictionary=False)
    asked = [f"v{i}" for i in range(0, ROWS, 20)]
    monkeypatch.setattr(keyset, "_NARROW", 100)
    with bs.open_file(path, decryption=SPEC) as file:
        assert file.read(where=[("id", "in", asked)]).column("n").to_pylist() == list(range(0, ROWS, 20))
        assert file.read(["id"], [("id", "in", asked)])["id"].to_pylist() == asked


TEXT = ColumnType(PhysicalType.BYTE_ARRAY, logical=LogicalType("string"))


def prefixed(values: list[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(len(value).to_bytes(4, "little") + value for value in values) or b"", np.uint8)


def test_equal_hashes_decide_nothing() -> None:
    values = [f"v{i}" for i in range(2000)]
    keys, there = KeySet.of(values, TEXT), prefixed([b"v3", b"x", b"v7", b"v70", b"v1999"])
    rows, owners = keys.find_prefixed(there, 5)  # type: ignore[misc]
    assert (rows.tolist(), pa.array(keys.taken(owners, pa.string())).to_pylist()) == (
        [0, 2, 3, 4],
        ["v3", "v7", "v70", "v1999"],
    )
    # As if each value's hash were that of its neighbour, shorter or longer or of its length.
    assert keys._among is not None
    known = keys._among.known.copy()
    known[1] = (known[1] + 1) % len(values)
    keys._among = keys._among._replace(known=known)
    rows, _ = keys.find_prefixed(there, 5)  # type: ignore[misc]
    assert rows.tolist() == []


def test_values_of_one_hash_leave_it_to_arrow() -> None:
    values = [f"v{i}" for i in range(2000)]
    there = prefixed([b"v3", b"x", b"v7"])
    keys = KeySet.of(values, TEXT)
    assert keys.find_prefixed(there, 3) is not None
    keys = KeySet.of(values, TEXT)
    keys._hashes[5] = keys._hashes[6]
    assert keys.find_prefixed(there, 3) is None


@given(
    asked=st.sets(st.text(max_size=40), max_size=60),
    stored=st.lists(st.text(max_size=40), max_size=40),
    cut=st.integers(-3, 3),
    more=st.integers(-1, 1),
)
@settings(deadline=None)
def test_texts_behind_their_lengths_are_found(asked: set[str], stored: list[str], cut: int, more: int) -> None:
    """Each that is asked for, no other; and nothing where they are not exactly so many."""
    values = [*asked, *(f"filler {i}" for i in range(1024))]
    there = [*stored, *sorted(asked)[::2], "filler 7"]
    data = prefixed([one.encode() for one in there])
    data = data[:cut] if cut < 0 else np.concatenate([data, np.zeros(cut, np.uint8)])
    keys = KeySet.of(values, TEXT)
    found = keys.find_prefixed(data, len(there) + more)
    if cut or more:
        assert found is None
        return
    rows, owners = found  # type: ignore[misc]
    assert rows.tolist() == [i for i, one in enumerate(there) if one in set(values)]
    assert pa.array(keys.taken(owners, pa.string())).to_pylist() == [there[i] for i in rows]


def test_altered_pages_are_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", texts("plain"), use_dictionary=False)
    with bs.open_file(path, decryption=SPEC) as file:
        page = next(iter(file.walk.pages(file.walk.chunk(1, 0))))
    data = bytearray(path.read_bytes())
    data[page.offset + page.length - 20] ^= 1
    path.write_bytes(data)
    asked = [f"v{i}" for i in range(0, ROWS, 20)]
    with (
        bs.open_file(path, decryption=SPEC) as file,
        pytest.raises(bs.IntegrityError, match=r"row group 1.*column id|column id.*row group 1"),
    ):
        file.read(["id"], [("id", "in", asked)])


def test_filters_that_rule_nothing_out_are_asked_now_and_then_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = texts("plain")
    for number in range(10):
        write(tmp_path / f"{number}.parquet", table, use_dictionary=False)
    opened: list[int] = []
    ask = Walk.filter
    monkeypatch.setattr(Walk, "filter", lambda self, *given: opened.append(1) or ask(self, *given))
    sealed = bs.open_table(tmp_path, decryption=SPEC)
    everywhere = [f"v{i}" for i in range(0, ROWS, 20)]
    assert sealed.read(["id"], [("id", "in", everywhere)], threads=1)["id"].to_pylist() == everywhere * 10
    worth = 1 + ROWS // 5 // 2000  # to read such a row group takes so many times as long as to ask its filter
    assert len(opened) <= 8 * worth + 50 // 16 + 1 < 50
    opened.clear()
    # Of few values, and where filters rule row groups out, each is asked.
    absent = [f"v{i}x" for i in range(0, ROWS, 20)]
    assert sealed.read(["id"], [("id", "in", absent)], threads=1).num_rows == 0
    assert (len(opened), sealed.stats.decoded) == (50, 0)


def test_what_is_in_vain_is_tried_again() -> None:
    filters = FilterYield()
    for _ in range(8):
        assert filters.due
        filters.add(ruled_out=False)
    due = [filters.due for _ in range(32)]
    assert sum(due) == 2
    filters.add(ruled_out=True)
    assert filters.due
    for _ in range(8 * 3):
        assert filters.due
        filters.add(ruled_out=False, worth=1000)
