"""Rows are compared exactly: bounds finer or wider than the column's type, nulls, NaN, zeros, and every Arrow
layout.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomseal as bs

_NS = 1_000_000_000_000_000_001


def rows(tmp_path: Path, column: pa.Array, *terms: tuple[str, Any]) -> list[int]:
    """Indexes of the rows that a read finds for all of these terms."""
    path = tmp_path / "rows.parquet"
    table = pa.table({"a": column, "row": pa.array(range(len(column)), pa.int32())})
    bs.write_table(table, path, write_statistics=False)
    found = bs.read_table(path, columns=["row"], where=[("a", op, value) for op, value in terms])
    return found.column("row").to_pylist()


@pytest.mark.parametrize(
    ("column", "op", "value", "expected"),
    [
        # Times and timestamps with more digits than the column: 1.000 s is less than 1.0005 s.
        (pa.array([1000, 1001, None], pa.time32("ms")), "<", dt.time(0, 0, 1, 500), [0]),
        (pa.array([1000, 1001, None], pa.time32("ms")), ">=", dt.time(0, 0, 1, 500), [1]),
        (pa.array([1, 2], pa.timestamp("ms")), ">", dt.datetime(1970, 1, 1, 0, 0, 0, 1500), [1]),
        # Nanoseconds, which Python's own types cannot hold.
        (pa.array([1, _NS, None], pa.timestamp("ns")), "==", pa.scalar(_NS, pa.timestamp("ns")), [1]),
        (pa.array([1, _NS, None], pa.timestamp("ns")), "in", [pa.scalar(_NS, pa.timestamp("ns")), np.datetime64(1, "ns")], [0, 1]),
        (pa.array([1, _NS, None], pa.timestamp("ns")), "<", pa.scalar(_NS, pa.timestamp("ns")), [0]),
        (pa.array([1, 7], pa.time64("ns")), "in", [pa.scalar(7, pa.time64("ns")), dt.time(0)], [1]),
        # Moments that the column's unit cannot reach.
        (pa.array([1, _NS, None], pa.timestamp("ns")), "<", dt.datetime(9999, 1, 1), [0, 1]),
        (pa.array([1, _NS, None], pa.timestamp("ns")), "<", dt.datetime(1, 1, 1), []),
        (pa.array([10**17], pa.timestamp("us")), ">", pa.scalar(_NS, pa.timestamp("ns")), [0]),
        (pa.array([1, None], pa.timestamp("ns")), "<", np.datetime64("NaT"), []),
        (pa.array([1, None], pa.timestamp("ns")), "!=", np.datetime64("NaT"), []),
        # Integers beyond the column's range, and unsigned ones beyond int64.
        (pa.array([1, -128, None], pa.int8()), "<", 2**70, [0, 1]),
        (pa.array([1, -128, None], pa.int8()), ">", 300, []),
        (pa.array([1, -1, None], pa.int64()), "<", 2**63, [0, 1]),
        (pa.array([1, 2**64 - 1, None], pa.uint64()), ">", 1, [1]),
        (pa.array([1, 2**64 - 1, None], pa.uint64()), ">", -1, [0, 1]),
        (pa.array([1, 2**64 - 1, None], pa.uint64()), "in", [2**64 - 1, 2**64], [1]),
        # Decimals finer or wider than the column, infinite, and NaN.
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), "<", Decimal("1.255"), [0]),
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), "<=", Decimal("1.245"), []),
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), "<", Decimal("1E+99999999"), [0]),
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), ">", Decimal("1E-99999999"), [0]),
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), ">", Decimal("-Infinity"), [0]),
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), "!=", Decimal("NaN"), [0]),
        (pa.array([Decimal("1.25"), None], pa.decimal256(70, 2)), "in", [Decimal("1.2500"), 7], [0]),
        # Floats: one width, NaN, both zeros, integers without a double.
        (pa.array([0.1, float("nan"), None], pa.float32()), "==", 0.1, [0]),
        (pa.array([0.0, -0.0, 1.0], pa.float32()), "in", [0.0, 7.0], [0, 1]),
        (pa.array([0.0, float("nan")], pa.float64()), "!=", float("nan"), [0, 1]),
        (pa.array([0.0, float("nan")], pa.float64()), "in", [float("nan"), 1.0], []),
        (pa.array([0.0, float("inf")], pa.float32()), "<", 10**400, [0]),
        (pa.array(np.array([0.5, -0.0], np.float16)), "<=", 0.0, [1]),
        # Layouts that Arrow has few kernels for.
        (pa.array(["a", "b", None], pa.string_view()), "in", ["b", "c"], [1]),
        (pa.array(["a", "b", None], pa.string_view()), ">=", "b", [1]),
        (pa.array([b"a", b"\xff", None], pa.binary_view()), "!=", b"a", [1]),
        (pa.array([b"a", b"\xff", None], pa.binary(1)), "<", b"ab", [0]),
        (pa.array(["a", "b", None]).dictionary_encode(), "not in", ["a"], [1]),
        (pa.array([86_400_000, None], pa.date64()), "<", dt.date(1970, 1, 3), [0]),
        (pa.nulls(2), "==", 1, []),
        (pa.nulls(2), "!=", 1, []),
        (pa.array([1, None]), "not in", [], [0]),
        (pa.array([1, None]), "not in", [None, 2], []),
        (pa.array([1, None]), "in", [None], []),
        (pa.array([1, None]), "==", None, []),
    ],
    ids=lambda value: str(getattr(value, "type", type(value).__name__ if not isinstance(value, str) else value)),
)  # fmt: skip
def test_one_term(tmp_path: Path, column: pa.Array, op: str, value: Any, expected: list[int]) -> None:
    assert rows(tmp_path, column, (op, value)) == expected


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.list_(pa.string_view())], ids=str)
def test_view_columns_are_filtered_with_the_rest(tmp_path: Path, kind: pa.DataType) -> None:
    values: list[Any] = ["x", "y", None, "z", "w"]
    if kind == pa.binary_view():
        values = [value and value.encode() for value in values]
    if pa.types.is_list(kind):
        values = [[value] for value in values]
    table = pa.table({"a": pa.array(values, kind), "b": [1, 2, 1, 1, 2]})
    bs.write_table(table, tmp_path / "views.parquet")
    found = bs.read_table(tmp_path / "views.parquet", where=[("b", "==", 1)])
    assert found.schema.field("a").type == kind
    assert found.column("a").to_pylist() == [values[0], values[2], values[3]]


@pytest.mark.parametrize("operator", ["~", None, ["=="], 3], ids=str)
def test_an_unknown_operator_is_a_usage_error(tmp_path: Path, operator: Any) -> None:
    with pytest.raises(bs.UsageError, match="operator"):
        rows(tmp_path, pa.array([1]), (operator, 1))


_HELD = {
    "==": lambda cell, value: cell == value,
    "!=": lambda cell, value: cell != value,
    "<": lambda cell, value: cell < value,
    "<=": lambda cell, value: cell <= value,
    ">": lambda cell, value: cell > value,
    ">=": lambda cell, value: cell >= value,
    "in": lambda cell, value: cell in value,
    "not in": lambda cell, value: cell not in value,
}


@pytest.mark.parametrize("one", _HELD)
@pytest.mark.parametrize("other", _HELD)
def test_a_null_in_one_column_hides_no_row_that_another_column_keeps(tmp_path: Path, one: str, other: str) -> None:
    cells = [(a, b) for a in (None, 1, 2, 3) for b in (None, 1, 2, 3)]
    path = tmp_path / "a.parquet"
    bs.write_table(pa.table({"a": [a for a, _ in cells], "b": [b for _, b in cells]}), path, write_statistics=False)
    sought = {op: [2, 9] if op.endswith("in") else 2 for op in (one, other)}
    kept = [
        (a is not None and _HELD[one](a, sought[one]), b is not None and _HELD[other](b, sought[other]))
        for a, b in cells
    ]
    for filters, keeps in (
        ([[("a", one, sought[one])], [("b", other, sought[other])]], any),
        ([("a", one, sought[one]), ("b", other, sought[other])], all),
    ):
        found = bs.read_table(path, where=filters).to_pylist()
        assert [(row["a"], row["b"]) for row in found] == [
            cell for cell, both in zip(cells, kept, strict=True) if keeps(both)
        ]
