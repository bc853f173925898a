"""Many values asked for at once: looked for by their hashes, in undecoded pages where that is possible, and exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.format.walk import Walk
from bloomseal.read import rows as rows_module
from bloomseal.read import thin
from bloomseal.read.predicate.term import Worth
from bloomseal.sbbf import ColumnType, KeySet, LogicalType, PhysicalType, batch

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
    kind = pa.large_string() if form == "large" else pa.string()
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
    # Some in every row group, some nowhere, and the last row group full of them, which is decoded as a whole.
    asked = [f"v{i}" for i in range(0, ROWS, 40)] + [f"none{i}" for i in range(1500)]
    asked += [f"v{i}" for i in range(ROWS - GROUP, ROWS)]
    wanted = set(asked)
    made: list[bool] = []

    def counting(*given: Any) -> Any:
        made.append((found := thin.thinned(*given)) is not None)
        return found

    monkeypatch.setattr(rows_module, "thinned", counting)
    with bs.open_file(path, decryption=SPEC) as file:
        found = file.read(columns, [("id", "in", asked)])
    keep = pa.array([one in wanted for one in table["id"].to_pylist()])
    expected = table.filter(keep)
    assert found.to_pylist() == (expected if columns is None else expected.select(columns)).to_pylist()
    assert made == ([True] * 4 + [False] if undecoded else [False] * len(made))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint64(), pa.string()])
def test_rows_among_are_those_that_arrow_finds(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = [None if i % 11 == 0 else i * 3 for i in range(5000)]
    column = pa.array(numbers, pa.int64()).cast(kind)
    asked = pa.array(range(0, 15_000, 5), pa.int64()).cast(kind)
    bs.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    found = bs.read_table(tmp_path / "a.parquet", filters=[("x", "in", asked.to_pylist())])
    assert found["x"].to_pylist() == [one.as_py() for one in column if one.as_py() in set(asked.to_pylist())]


def test_equal_hashes_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", texts("plain"), use_dictionary=False)
    asked = [f"v{i}" for i in range(0, ROWS, 20)]
    find = KeySet.with_hash

    def more(self: KeySet, hashes: Any) -> Any:
        rows, owners = find(self, hashes)  # type: ignore[misc]
        # As if the hash of every tenth row were that of some value.
        every = np.union1d(rows, np.arange(0, len(hashes), 10))
        known = dict(zip(rows.tolist(), owners.tolist(), strict=True))
        return every, np.array([known.get(row, 0) for row in every.tolist()])

    monkeypatch.setattr(KeySet, "with_hash", more)
    with bs.open_file(path, decryption=SPEC) as file:
        assert file.read(["id"], [("id", "in", asked)])["id"].to_pylist() == asked


def test_values_of_one_hash_leave_it_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    values, kind = [f"v{i}" for i in range(2000)], ColumnType(PhysicalType.BYTE_ARRAY, logical=LogicalType("string"))
    column = pa.chunked_array([["v3", "x", "v7"]])
    keys = KeySet.of(values, kind)
    assert keys.rows_among(column) is not None
    keys = KeySet.of(values, kind)
    keys._hashes[5] = keys._hashes[6]
    assert keys.rows_among(column) is None
    assert keys.with_hash(keys._hashes) is None


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
    assert len(opened) <= 8 + 50 // 16 + 1
    opened.clear()
    # Of few values, and where filters rule row groups out, each is asked.
    absent = [f"v{i}x" for i in range(0, ROWS, 20)]
    assert sealed.read(["id"], [("id", "in", absent)], threads=1).num_rows == 0
    assert (len(opened), sealed.stats.decoded) == (50, 0)


def test_what_is_in_vain_is_tried_again() -> None:
    worth = Worth()
    for _ in range(8):
        assert worth.due
        worth.told(False)
    due = [worth.due for _ in range(32)]
    assert sum(due) == 2
    worth.told(True)
    assert worth.due
