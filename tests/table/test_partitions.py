"""Columns that stand in folders' names: their types and values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs


@pytest.mark.parametrize(
    ("raws", "kind", "values"),
    [
        (["1", "-2"], pa.int32(), [1, -2]),
        (["1", "3000000000"], pa.int64(), [1, 3_000_000_000]),
        (["1", "1" * 20], pa.decimal128(20, 0), [Decimal(1), Decimal("1" * 20)]),
        (["1", "1.5"], pa.float64(), [1.0, 1.5]),
        (["1", "x"], pa.string(), ["1", "x"]),
        (["2024-02-29", "2024-03-01"], pa.date32(), [dt.date(2024, 2, 29), dt.date(2024, 3, 1)]),
        (["2023-02-29", "2024-03-01"], pa.string(), ["2023-02-29", "2024-03-01"]),
        (["2024-02-29 01:02:03", "2024-03-01"], pa.timestamp("us"), [dt.datetime(2024, 2, 29, 1, 2, 3), dt.datetime(2024, 3, 1)]),
        (["true", "false"], pa.string(), ["true", "false"]),
        (["%C3%A9%3D", "é="], pa.string(), ["é=", "é="]),
        (["__HIVE_DEFAULT_PARTITION__", "7"], pa.int32(), [None, 7]),
        (["__HIVE_DEFAULT_PARTITION__"], pa.null(), [None]),
        ([""], pa.null(), [None]),
        (["", "7"], pa.int32(), [None, 7]),
    ],
)  # fmt: skip
def test_types_of_partition_columns(tmp_path: Path, raws: list[str], kind: pa.DataType, values: list[Any]) -> None:
    for number, raw in enumerate(raws):
        place = tmp_path / f"p={raw}"
        place.mkdir()
        pq.write_table(pa.table({"n": [number]}), place / f"{number}.parquet")
    table = bs.open_table(tmp_path)
    assert table.schema.field("p").type == kind
    found = table.read()
    assert dict(zip(found["n"].to_pylist(), found["p"].to_pylist(), strict=True)) == dict(enumerate(values))
    if values[-1] is not None:
        assert len(values) - 1 in table.read(filters=[("p", "==", values[-1])])["n"].to_pylist()


def test_types_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "zip=07495").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "zip=07495" / "a.parquet")
    table = bs.open_table(tmp_path, partition_types=pa.schema([("zip", pa.string())]))
    assert table.read(filters=[("zip", "==", "07495")]).to_pylist() == [{"n": 1, "zip": "07495"}]
    with pytest.raises(bs.UsageError, match="holds no date32"):
        bs.open_table(tmp_path, partition_types=pa.schema([("zip", pa.date32())]))
