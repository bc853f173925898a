"""Many values asked for at once: of each row group those that bounds and filter leave are compared, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.parquet.walk import Walk
from bloomseal.sbbf import batch

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
    ("form", "options"),
    [
        ("plain", {"use_dictionary": False}),
        ("required", {"use_dictionary": False}),
        ("large", {"use_dictionary": False}),
        ("view", {"use_dictionary": False}),
        ("categories", {"use_dictionary": False}),
        ("small pages", {"use_dictionary": False, "data_page_size": 4096, "write_batch_size": 64}),
        ("bare", {"use_dictionary": False, "compression": "none"}),
        ("zstd", {"use_dictionary": False, "compression": "zstd"}),
        ("nulls", {"use_dictionary": False}),
        ("repeated", {}),
        ("delta", {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}),
    ],
)
@pytest.mark.parametrize("columns", [["id"], ["n"], None])
def test_the_rows_are_those_that_hold_one(tmp_path: Path, form: str, options: dict[str, Any], columns: Any) -> None:
    table = texts(form)
    path = write(tmp_path / "a.parquet", table, **options)
    # Some in every row group, some nowhere, and the last row group full of them.
    asked = [f"v{i}" for i in range(0, ROWS, 40)] + [f"none{i}" for i in range(1500)]
    asked += [f"v{i}" for i in range(ROWS - GROUP, ROWS)]
    wanted = set(asked)
    with bs.open_file(path, decryption=SPEC) as file:
        found = file.read(columns, [("id", "in", asked)])
    assert found.schema.equals(table.schema if columns is None else table.select(columns).schema)
    rows = [i for i, one in enumerate(table["id"].to_pylist()) if one in wanted]
    expected = table.cast(pa.schema([pa.field("id", pa.string()), table.schema.field("n")])).take(rows)
    assert found.to_pylist() == (expected if columns is None else expected.select(columns)).to_pylist()


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint64(), pa.string()])
def test_rows_among_are_those_that_arrow_finds(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = [None if i % 11 == 0 else i * 3 for i in range(5000)]
    column = pa.array(numbers, pa.int64()).cast(kind)
    asked = pa.array(range(0, 15_000, 5), pa.int64()).cast(kind)
    bs.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    found = bs.read_table(tmp_path / "a.parquet", filters=[("x", "in", asked.to_pylist())])
    assert found["x"].to_pylist() == [one.as_py() for one in column if one.as_py() in set(asked.to_pylist())]
    others = bs.read_table(tmp_path / "a.parquet", filters=[("x", "not in", asked.to_pylist())])
    assert others["x"].to_pylist() == [one.as_py() for one in column.drop_null() if one not in set(asked)]
    assert not bs.read_table(tmp_path / "a.parquet", filters=[("x", "not in", [*asked.to_pylist(), None])]).num_rows


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


def test_each_filter_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.parquet", texts("plain"), use_dictionary=False)
    opened: list[int] = []
    ask = Walk.filter
    monkeypatch.setattr(Walk, "filter", lambda self, *given: opened.append(1) or ask(self, *given))
    sealed = bs.open_table(tmp_path, decryption=SPEC)
    everywhere = [f"v{i}" for i in range(0, ROWS, 20)]
    assert sealed.read(["id"], [("id", "in", everywhere)], threads=1)["id"].to_pylist() == everywhere * 2
    assert len(opened) == 10
    absent = [f"v{i}x" for i in range(0, ROWS, 20)]
    assert sealed.read(["id"], [("id", "in", absent)], threads=1).num_rows == 0
    assert (len(opened), sealed.stats.decoded) == (20, 0)
