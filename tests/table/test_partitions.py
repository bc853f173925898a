"""Columns that stand in folders' names: their types and values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
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
        assert len(values) - 1 in table.read(where=[("p", "==", values[-1])])["n"].to_pylist()


def test_types_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "zip=07495").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "zip=07495" / "a.parquet")
    table = bs.open_table(tmp_path, partition_types=pa.schema([("zip", pa.string())]))
    assert table.read(where=[("zip", "==", "07495")]).to_pylist() == [{"n": 1, "zip": "07495"}]
    with pytest.raises(bs.UsageError, match="holds no date32"):
        bs.open_table(tmp_path, partition_types=pa.schema([("zip", pa.date32())]))


POLARS = pl.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "zip": ["07495", "10115", None, "07495"],
        "n": [7, -7, None, 7],
        "flag": [True, False, None, True],
        "half": pl.Series([0.1, 2.0, None, 0.1], dtype=pl.Float32),
        "day": [dt.date(2024, 1, 2), dt.date(2024, 1, 3), None, dt.date(2024, 1, 2)],
        "at": [dt.datetime(2024, 1, 2, 3, 4, 5, 6), dt.datetime(2024, 1, 3), None, dt.datetime(2024, 1, 2, 3, 4, 5, 6)],
        "kind": pl.Series(["x", "2024-01-02", None, "x"], dtype=pl.Categorical),
    }
)


@pytest.mark.parametrize("column", POLARS.columns[1:])
def test_polars_leaves_columns_in_the_files_and_their_values_count(tmp_path: Path, column: str) -> None:
    """Whatever their folders' names look like: ``zip=07495`` is no number there."""
    POLARS.write_parquet(tmp_path / "t", partition_by=[column])
    table = bs.open_table(tmp_path / "t")
    assert pl.DataFrame(table.read()).sort("id").equals(POLARS)
    for value in {POLARS[column][0], POLARS[column][1]}:
        wanted = POLARS.filter(pl.col(column) == value)["id"].to_list()
        for filters in ([(column, "==", value)], pc.field(column) == value):
            assert sorted(table.read(["id"], filters)["id"].to_pylist()) == wanted
            assert table.read([column], filters).num_rows == len(wanted)
    assert table.read(["id"], pc.field(column).is_null())["id"].to_pylist() == [3]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_folder_that_tells_other_values_is_refused(tmp_path: Path, sealed: bool) -> None:
    rows = pa.table({"id": [1, 2], "country": ["DE", "FR"]})
    keyring = bs.Keyring(tmp_path / "keys.json", create=True)
    keyring.create("k")
    encryption = bs.EncryptionSpec("k", {"country": "k"}, keys=keyring) if sealed else None
    decryption = bs.DecryptionSpec(keyring, partition_by=["country"]) if sealed else None
    for name in ("country=DE", "country=FR"):
        (tmp_path / "t" / name).mkdir(parents=True)
        bs.write_table(rows.slice(0, 1), tmp_path / "t" / name / "a.parquet", encryption=encryption)
    table = bs.open_table(tmp_path / "t", decryption=decryption)
    for asked in ({}, {"columns": ["country"]}, {"columns": ["id"], "where": pc.field("country") == "DE"}):
        with pytest.raises(bs.UsageError, match="in the name of its folder"):
            table.read(**asked)
    if sealed:  # never from the folder's name, be it the same
        with pytest.raises(bs.UsageError, match=r"in the name of its folder \(.*country=DE"):
            table.read(["id"])
    else:
        assert table.read(["id"]).num_rows == 2
        with pytest.raises(bs.UsageError, match=r"with another value \(.*country=FR"):
            table.read(where=[("country", "==", "FR")])


def test_two_columns_of_one_name_are_left_out_or_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    pq.write_table(twice, tmp_path / "a.parquet")
    for path in (tmp_path, tmp_path / "a.parquet"):
        assert bs.read_table(path, columns=["b"]).to_pylist() == [{"b": 3}]
        with pytest.raises(bs.UnsupportedError, match=r"same name.*columns=\[...\] without it"):
            bs.read_table(path)
