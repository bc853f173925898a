"""Files of the writers at hand: equal to pyarrow, and nothing absent that is there, before and after `seal`."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.read.differential import compare

ROWS = 600


def _table(rng: random.Random) -> pa.Table:
    def some(values: list[Any], nulls: float = 0.1) -> list[Any]:
        return [None if rng.random() < nulls else rng.choice(values) for _ in range(ROWS)]

    floats = [0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 1e-40]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "i": pa.array(some(list(range(-50, 50))), pa.int32()),
            "u": pa.array(some([0, 1, 200, 255]), pa.uint8()),
            "d": pa.array(some(floats)),
            "f": pa.array(some(floats), pa.float32()),
            "t": pa.array(some(["", "a", "b" * 70, "é", "zz"])),
            "few": pa.array(some(["x", "y"], 0.5)),
            "none": pa.array([None] * ROWS, pa.string()),
            "b": pa.array(some([b"", b"\xff\x00", b"abc"])),
            "day": pa.array(some([dt.date(1969, 1, 1), dt.date(2024, 2, 29)])),
            "at": pa.array(some([dt.datetime(1960, 1, 1), dt.datetime(2030, 5, 6, 7, 8, 9, 12)]), pa.timestamp("us")),
            "dec": pa.array(some([Decimal("-1.50"), Decimal("0.00"), Decimal("99.99")]), pa.decimal128(9, 2)),
        }
    )


def _pyarrow(**options: Any) -> Callable[[pa.Table, Path], None]:
    return lambda table, path: pq.write_table(table, path, row_group_size=150, **options)


def _dictionaries(table: pa.Table, path: Path) -> None:
    table = table.set_column(5, "t", table.column("t").dictionary_encode())
    pq.write_table(table, path, row_group_size=150)


def _duckdb(table: pa.Table, path: Path) -> None:
    duckdb.from_arrow(table).write_parquet(str(path), row_group_size=2048)


def _polars(table: pa.Table, path: Path) -> None:
    frame = pl.DataFrame(table).with_columns(pl.col("few").cast(pl.Categorical))
    frame.write_parquet(path, row_group_size=150, data_page_size=512)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "pyarrow": _pyarrow(),
    "pages V2": _pyarrow(data_page_version="2.0", use_dictionary=False, write_page_index=True, max_rows_per_page=40),
    "page index": _pyarrow(write_page_index=True, write_batch_size=30, max_rows_per_page=30, compression="zstd"),
    "filters": _pyarrow(bloom_filter_options={"t": True, "id": True, "i": True}),
    "dictionaries": _dictionaries,
    "duckdb": _duckdb,
    "polars": _polars,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_as_pyarrow_reads_it(tmp_path: Path, writer: str) -> None:
    rng = random.Random(writer)
    WRITERS[writer](_table(rng), tmp_path / "t.parquet")
    assert compare(tmp_path / "t.parquet", 20, rng) > 100
