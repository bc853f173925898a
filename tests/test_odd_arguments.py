"""Arguments of another kind than the documentation says: an error of ours that says what to try, and no row is lost."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pytest

import bloomseal as bs
import bloomseal.duckdb
import bloomseal.polars

ROWS = pa.table({"ssn": ["1", "2", "3"], "n": [1, 2, 3], "country": ["DE", "FR", "DE"]})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    bs.write_table(ROWS, "p.parquet", bloom_filters=["ssn"])
    bs.write_dataset(ROWS, "lake", partition_by=["country"])
    return tmp_path


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bs.write_table(ROWS, "a\0b"), "NUL"),
        (lambda: bs.write_table(ROWS, "new/"), "the output is a folder"),
        (lambda: bs.write_table(ROWS, "lake"), "a file's name in it"),
        (lambda: bs.write_table(ROWS, fsspec.open("memory://x", "wb")), "with fsspec.open"),
        (lambda: bs.write_table(pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), "x"), "can't become Arrow"),
        (lambda: bs.read_table(open("new", "wb")), "open(path, 'rb')"),  # noqa: SIM115
        (lambda: bs.read_table(io.StringIO()), "'rb'"),
        (lambda: bs.read_table("zzz://x"), "scheme zzz"),
        (lambda: bs.read_table(bs.open_table("lake")), "table.read"),
        (lambda: bs.read_table("p.parquet", threads=0), "threads= of at least 1"),
        (lambda: bs.read_table("lake", threads="2"), "threads= of at least 1"),
        (lambda: bs.probe("p.parquet", ["ssn"], ["1"]), "dotted path is a str"),
        (lambda: bs.probe("lake", ["ssn"], ["1"]), "dotted path is a str"),
        (lambda: bs.open_table("lake").maybe_present(None, ["1"]), "dotted path is a str"),
        (lambda: bs.open_table("lake", partition_types=pa.schema({"contry": "string"})), "one of country"),
        (lambda: bs.open_table("p.parquet", partition_types=pa.schema({"n": "string"})), "no folder gives"),
        (lambda: bloomseal.duckdb.register(None, "x", "lake"), "duckdb.connect"),
        (lambda: bloomseal.duckdb.lookup("x.db", "lake", "n", [1]), "duckdb.connect"),
        (lambda: bs.Keyring(None), "not NoneType"),
        (lambda: bs.Policy.load(None), "not NoneType"),
    ],
)
def test_the_error_is_ours_and_says_what_to_try(folder: Path, call: Callable[[], Any], said: str) -> None:
    with pytest.raises(bs.BloomsealError) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        "12",
        b"12",
        1,
        None,
        pd.DataFrame({"1": ["2"]}),
        pl.DataFrame({"1": ["2"]}),
        pa.table({"1": ["2"]}),
        np.array("1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_text_is_no_list_of_its_letters_nor_a_frame_of_its_names(folder: Path, values: Any) -> None:
    """Of "12" a table answered for "1" and "2": absent, where "12" is there."""
    pa.orc.write_table(ROWS, "rows.orc")
    for place in ("p.parquet", "rows.orc"):
        with bs.open_file(place) as file:
            asked = [file.probe, file.maybe_present, bs.open_table([place]).probe, bs.open_table([place]).maybe_present]
            for ask in [*asked, *([file.key_set] if place == "p.parquet" else [])]:
                with pytest.raises(bs.UsageError, match="a list, also for a single value"):
                    ask("ssn", values)
        for door in (bs.probe, bs.read_table):
            with pytest.raises(bs.UsageError):
                door(place, "ssn", values) if door is bs.probe else door(place, where=[("ssn", "in", values)])


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_nanoseconds_of_a_series_of_polars(folder: Path, kind: str) -> None:
    """Polars gives Python's datetimes one by one, which end at microseconds: absent, of every one that is there."""
    moments = pa.array([1, 1_700_000_000_000_000_001, None], pa.timestamp("ns"))
    if kind == "parquet":
        bs.write_table(pa.table({"t": moments}), "t.parquet", bloom_filters=["t"])
    else:
        pa.orc.write_table(pa.table({"t": moments}), "t.orc", bloom_filter_columns=[0])
    series = pl.from_arrow(moments)
    with bs.open_file(f"t.{kind}") as file:
        assert file.maybe_present("t", series).all()
        assert bs.open_table([f"t.{kind}"]).maybe_present("t", series).all()
        if kind == "parquet":
            assert file.survivors("t", file.key_set("t", series[:1])).row_groups
    assert bs.read_table(f"t.{kind}", where=[("t", "in", series)]).num_rows == 2


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["1", "2", "9"])])
def test_categories_of_polars(folder: Path, kind: Any) -> None:
    series = pl.Series(["1", None, "9"], dtype=kind)
    column = pa.chunked_array(series)
    for values in (series, column, column.chunk(0)):
        with bs.open_file("p.parquet") as file:
            assert file.maybe_present("ssn", values).tolist() == [[True, True, False]]
            assert file.survivors("ssn", file.key_set("ssn", values)).row_groups == (0,)
        assert bs.read_table("p.parquet", where=[("ssn", "in", values)]).num_rows == 1


def test_nanoseconds_of_a_relation_of_duckdb(folder: Path) -> None:
    moments = {"t": pa.array([1, 1_001], pa.timestamp("ns")), "tm": pa.array([1, 1_001], pa.time64("ns"))}
    bs.write_table(pa.table(moments), "t.parquet", bloom_filters=["t", "tm"])
    connection = duckdb.connect()
    connection.register("moments", bs.read_table("t.parquet"))
    for column in moments:
        wanted = connection.table("moments").select(column)
        assert len(bloomseal.duckdb.lookup(connection, "t.parquet", column, wanted).fetchall()) == 2


def test_values_that_come_once_are_asked_of_every_file(folder: Path) -> None:
    assert bs.open_table("lake").maybe_present("ssn", (one for one in ["1"])).shape == (2, 1)
    with bs.open_file("p.parquet") as file:
        assert file.maybe_present("ssn", (one for one in ["1", "9"])).tolist() == [[True, False]]


def test_columns_of_folders_above_the_named_places_are_told_of(folder: Path) -> None:
    """A shell makes a list of a pattern, and the list has no folder in common."""
    with pytest.warns(bs.BloomsealWarning, match="country in the names of folders"):
        assert bs.read_table(sorted(map(str, Path("lake").rglob("*.parquet")))).column_names == ["ssn", "n"]
    with pytest.warns(bs.BloomsealWarning, match="a pattern in quotes"):
        bs.open_table(["lake/country=DE", "lake/country=FR"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in ("lake", "lake/*/*.parquet", ["lake"], "lake/country=DE", ["lake/country=DE", "p.parquet"]):
            bs.open_table(same)
        assert duckdb.sql("select 1").fetchall() == [(1,)]


def test_days_that_python_has_not_are_asked_for(folder: Path) -> None:
    days = pa.array([0, 2**30, None], pa.date32())
    bs.write_table(pa.table({"d": days}), "d.parquet", bloom_filters=["d"])
    assert bs.read_table("d.parquet", where=[("d", "in", days)]).num_rows == 2
    assert bs.read_table("d.parquet", where=pc.field("d").isin(days.drop_null())).num_rows == 2
    assert bs.open_table("d.parquet").maybe_present("d", days).all()
