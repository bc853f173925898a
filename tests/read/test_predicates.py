"""A read with a predicate gives the rows that Python itself would pick, whatever statistics and filters rule out
before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bloomseal as bs
from support.flat_tables import FLAT

_OPERATORS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
_NAMES = sorted(FLAT.keys() - {"decimal256"})
_KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))


def rounded(value: Any, name: str) -> Any:
    """A value as the column can hold it; floats are rounded, all else is compared as it is."""
    if value is None or not name.startswith("float"):
        return value
    with np.errstate(over="ignore"):
        return float({"float16": np.float16, "float32": np.float32, "float64": np.float64}[name](value))


def comparable(value: Any) -> Any:
    if isinstance(value, pa.TimestampScalar | pa.Time32Scalar | pa.Time64Scalar):
        return value.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[value.type.unit]
    return value.as_py() if isinstance(value, pa.Scalar) else value


def holds(cell: Any, op: str, asked: list[Any]) -> bool:
    """``cell op value`` in Python: null is compared with nothing, ``in`` is ``==`` any."""
    if cell is None:
        return False
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    }  # fmt: skip
    match op:
        case "==" | "in":
            return any(value is not None and cell == value for value in asked)
        case "!=" | "not in":
            return None not in asked and all(cell != value for value in asked)
        case _:
            return asked[0] is not None and compare[op](cell, asked[0])


def as_scalar(value: Any, kind: pa.DataType) -> Any:
    """A time or moment as a pyarrow scalar, since Python's own lose nanoseconds."""
    timely = pa.types.is_timestamp(kind) or pa.types.is_time(kind)
    return pa.scalar(value, kind) if timely and value is not None else value


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Any], list[tuple[str, Any]], bool]:
    name = draw(st.sampled_from(_NAMES))
    kind, values = FLAT[name]
    rows = draw(st.lists(st.none() | values, min_size=1, max_size=25))
    drawn = st.none() | values | st.sampled_from(rows)
    terms = []
    for _ in range(draw(st.integers(1, 2))):
        op = draw(st.sampled_from(_OPERATORS))
        many = op.endswith("in")
        asked = draw(st.lists(drawn, max_size=4)) if many else draw(drawn)
        asked = [as_scalar(v, kind) for v in asked] if many else as_scalar(asked, kind)
        terms.append((op, asked))
    return name, rows, terms, draw(st.booleans())


@given(
    case=cases(),
    statistics=st.booleans(),
    filters=st.booleans(),
    row_group_size=st.sampled_from([1, 3, 50]),
    dictionary=st.booleans(),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_rows_that_python_would_pick(
    tmp_path: Path, case: Any, statistics: bool, filters: bool, row_group_size: int, dictionary: bool
) -> None:
    name, rows, terms, any_of = case
    kind, _ = FLAT[name]
    column = pa.array([v.bytes if name == "uuid" and v is not None else v for v in rows], kind)
    table = pa.table({"a": column, "row": pa.array(range(len(rows)))})
    path = tmp_path / "rows.parquet"
    bs.write_table(
        table, path, encryption=bs.EncryptionSpec(footer_key=b"f" * 16), row_group_size=row_group_size,
        bloom_filters={"a": bs.FilterSpec(fpp=0.3)} if filters else None, write_statistics=statistics,
        use_dictionary=dictionary,
    )  # fmt: skip
    predicate: Any = [("a", op, value) for op, value in terms]
    found = bs.read_table(
        path, columns=["row"], where=[[term] for term in predicate] if any_of else predicate, decryption=_KEYS
    )
    expected = []
    for row, cell in enumerate(column):
        left = comparable(cell) if cell.is_valid else None
        verdicts = []
        for op, value in terms:
            asked = value if isinstance(value, list) else [value]
            verdicts.append(holds(left, op, [rounded(comparable(one), name) for one in asked]))
        if any(verdicts) if any_of else all(verdicts):
            expected.append(row)
    assert found.column("row").to_pylist() == expected


@given(
    values=st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=60),
    asked=st.lists(st.integers(0, 45), min_size=1, max_size=3),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pruning_loses_no_row(tmp_path: Path, values: list[Any], asked: list[int]) -> None:
    """The same question to a file with statistics and filters, and to one with neither."""
    table = pa.table({"a": pa.array(values, pa.int32()), "b": [str(v) for v in values]})
    answers = []
    for name, options in (
        ("bare", {"write_statistics": False}),
        ("rich", {"bloom_filters": {"a": True, "b": True}, "write_page_index": True}),
    ):
        bs.write_table(table, tmp_path / name, row_group_size=5, **options)  # type: ignore[arg-type]
        question = [("a", "in", asked), ("b", "in", [str(one) for one in asked])]
        answers.append(bs.read_table(tmp_path / name, where=question))
    assert answers[0].equals(answers[1])
    assert answers[0].column("a").to_pylist() == [v for v in values if v in asked]


def test_what_a_read_rules_out_is_counted(tmp_path: Path) -> None:
    """Statistics first, then filters: the properties above would also hold for a reader that prunes nothing."""
    path = tmp_path / "ordered.parquet"
    table = pa.table({"a": list(range(100)), "b": [f"{i * 7919 % 100:02d}" for i in range(100)]})
    bs.write_table(table, path, row_group_size=10, bloom_filters={"b": bs.FilterSpec(fpp=1e-6)})
    with bs.open_file(path) as file:
        assert file.read(where=[("a", "==", 55)]).num_rows == 1
        assert (file.stats.pruned_by_statistics, file.stats.decoded) == (9, 1)
        assert file.read(where=[("b", "==", "37")]).num_rows == 1
        assert file.stats.pruned_by_filter > 0
        assert file.stats.decoded == 1


def test_typed_values_of_python(tmp_path: Path) -> None:
    """Decimals, aware datetimes and floats as users write them."""
    path = tmp_path / "typed.parquet"
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    table = pa.table(
        {
            "d": pa.array([Decimal("1.10"), Decimal("2.20")], pa.decimal128(9, 2)),
            "t": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "f": pa.array([0.1, math.nan], pa.float32()),
        }
    )
    bs.write_table(table, path, bloom_filters={"d": True, "t": True, "f": True})
    for question in (("d", "==", Decimal("1.1")), ("t", "==", moment), ("f", "==", 0.1), ("f", "in", [0.1, math.nan])):
        assert bs.read_table(path, where=[question]).num_rows == 1, question
