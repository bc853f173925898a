"""INT96 moments are read as they are, or refused; none is wrapped around, and no row with one is hidden."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from operator import eq, ge, lt, ne
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.int96_files import EPOCH_DAY, FAR, NEAR, OLD, file_of, int96, of

import bloomseal as bs


@pytest.fixture
def place(tmp_path: Path) -> Callable[[bytes], Path]:
    def put(data: bytes) -> Path:
        path = tmp_path / "t.parquet"
        path.write_bytes(data)
        return path

    return put


OPERATORS = {"==": eq, "in": eq, "!=": ne, "<": lt, ">=": ge}
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "data_page_version": "2.0"},
    {"compression": "snappy", "max_rows_per_page": 2, "write_page_index": True, "write_batch_size": 1},
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("far", [FAR, OLD, dt.datetime(1677, 9, 21), dt.datetime(2262, 4, 12)])
def test_moments_beyond_nanoseconds(place: Callable[[bytes], Path], layout: dict[str, Any], far: dt.datetime) -> None:
    path = place(file_of([of(NEAR), None, of(far), of(NEAR), of(far), None], **layout))
    for filters in (None, [("t", "==", far)], [("t", "<", dt.datetime(3000, 1, 1))], [("id", ">=", 0)]):
        with pytest.raises(bs.UnsupportedError, match="1677 to 2262") as caught:
            bs.read_table(path, where=filters)
        assert (caught.value.row_group, caught.value.column) == (0, "t")
        assert "int96_unit" in (caught.value.hint or "")
    whole = bs.read_table(path, int96_unit="us")
    assert whole.column("t").to_pylist() == [NEAR, None, far, NEAR, far, None]
    assert whole.schema.field("t").type == pa.timestamp("us")
    values = whole.column("t").to_pylist()
    for op, holds in OPERATORS.items():
        found = bs.read_table(path, where=[("t", op, [far] if op == "in" else far)], int96_unit="us").column("id")
        assert found.to_pylist() == [i for i, one in enumerate(values) if one is not None and holds(one, far)]
    assert bs.read_table(path, columns=["id"]).num_rows == 6


def test_the_last_moments_that_nanoseconds_hold(place: Callable[[bytes], Path]) -> None:
    least, greatest = (divmod(number, 86_400 * 10**9) for number in (-(1 << 63), (1 << 63) - 1))
    held = [int96(day + EPOCH_DAY, nanos) for day, nanos in (least, greatest)]
    column = bs.read_table(place(file_of(held))).column("t")
    assert column.cast(pa.int64()).to_pylist() == [-(1 << 63), (1 << 63) - 1]
    for day, nanos in ((least[0], least[1] - 1), (greatest[0], greatest[1] + 1)):
        with pytest.raises(bs.UnsupportedError, match="1677 to 2262"):
            bs.read_table(place(file_of([int96(day + EPOCH_DAY, nanos)])))


def test_units_do_not_depend_on_the_moments(place: Callable[[bytes], Path]) -> None:
    for values in ([of(NEAR)], [], [None]):
        for unit in ("ns", "us"):
            path = place(file_of(values))
            assert bs.read_table(path, int96_unit=unit).schema.field("t").type == pa.timestamp(unit)
            none = bs.read_table(path, where=[("id", "==", 77)], int96_unit=unit)
            assert none.schema.field("t").type == pa.timestamp(unit)
    with pytest.raises(bs.UsageError, match="int96_unit"):
        bs.read_table(path, int96_unit="ms")


def test_what_microseconds_can_not_hold_is_refused(place: Callable[[bytes], Path]) -> None:
    path = place(file_of([of(NEAR, 1)]))
    with pytest.raises(bs.UnsupportedError, match="finer than a microsecond"):
        bs.read_table(path, int96_unit="us")
    assert bs.read_table(path).column("t").cast(pa.int64()).to_pylist() == [np.datetime64(NEAR, "ns").astype(int) + 1]
    for value in (int96(1 << 31, 0), int96((1 << 32) - 1, 0), int96(2_000_000_000, 0), int96(EPOCH_DAY, -1)):
        with pytest.raises(bs.UnsupportedError, match="microseconds can't hold"):
            bs.read_table(place(file_of([value])), int96_unit="us")


@pytest.mark.parametrize("shape", ["list", "struct"])
def test_moments_inside_lists_and_structs(place: Callable[[bytes], Path], shape: str) -> None:
    def wrap(array: pa.Array) -> pa.Array:
        if shape == "list":
            return pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), array)
        return pa.StructArray.from_arrays([pa.StructArray.from_arrays([array], ["x"])], ["y"])

    path = place(file_of([of(NEAR), of(FAR), of(NEAR)], wrap))
    with pytest.raises(bs.UnsupportedError, match="1677 to 2262"):
        bs.read_table(path)
    found = bs.read_table(path, int96_unit="us").column("t").to_pylist()
    if shape == "list":
        assert found == [[NEAR, FAR], [], [NEAR]]
    else:
        assert found == [{"y": {"x": one}} for one in (NEAR, FAR, NEAR)]
    near = bs.read_table(place(file_of([of(NEAR), None, of(NEAR)], wrap))).column("t")
    assert str(near.type).count("timestamp[ns]") == 1
