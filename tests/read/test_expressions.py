"""A read with a pyarrow expression gives the rows that pyarrow itself keeps, whatever is ruled out before."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomseal as bs

_ROWS = 300
_KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
_DAY, _MOMENT = dt.date(2020, 5, 6), dt.datetime(2024, 1, 2, 3, 4, 5)


def _table() -> pa.Table:
    source = random.Random(11)

    def some(values: list[Any], *, ordered: bool = False) -> list[Any]:
        drawn = [source.choice(values) for _ in range(_ROWS)]
        return [None if source.random() < 0.1 else value for value in (sorted(drawn) if ordered else drawn)]

    return pa.table(
        {
            "row": range(_ROWS),
            "i": pa.array(some(list(range(-9, 9)), ordered=True), pa.int32()),
            "u": pa.array(some([0, 1, 200, 255]), pa.uint8()),
            "s": some(["", "a", "ab", "é", "b", "zz"], ordered=True),
            "x": pa.array(some([0.0, -0.0, 0.1, 1.5, math.nan, -math.inf]), pa.float64()),
            "y": pa.array(some([0.0, -0.0, 0.1, 1.5, math.nan]), pa.float32()),
            "d": pa.array(some([_DAY + dt.timedelta(n) for n in range(30)], ordered=True), pa.date32()),
            "t": pa.array(some([_MOMENT + dt.timedelta(hours=n) for n in range(30)], ordered=True), pa.timestamp("us")),
            "m": pa.array(some([Decimal(n) / 4 for n in range(-9, 9)]), pa.decimal128(9, 2)),
            "b": some([True, False]),
            "n": pa.array([v if v is None else {"k": v, "l": [v]} for v in some([1, 2, 3], ordered=True)]),
            "dots.in.name": pa.array(some([1, 2, 3], ordered=True), pa.int64()),
            "kind": pa.array(some(["p", "q"])).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[bs.SealedFile, pa.Table]:
    table, path = _table(), tmp_path_factory.mktemp("expressions") / "t"
    filters: Any = dict.fromkeys(
        ["i", "u", "s", "x", "y", "d", "t", "m", "n.k", "dots.in.name", "kind"], bs.FilterSpec(fpp=0.1)
    )
    bs.write_table(
        table, path, encryption=bs.EncryptionSpec(footer_key=b"f" * 16), bloom_filters=filters, row_group_size=40,
        write_page_index=True, data_page_size=60, write_batch_size=8,
    )  # fmt: skip
    return bs.open_file(path, decryption=_KEYS), table


_LITERALS: dict[str, list[Any]] = {
    "i": [-9, 0, 7, 100, pa.scalar(3, pa.int64()), pa.scalar(2**40), None, 1.5],
    "u": [0, 200, -1, 256, None],
    "s": ["", "a", "é", "nowhere", None],
    "x": [0.0, 0.1, 1.5, math.nan, math.inf, 1, pa.scalar(0.1, pa.float32())],
    "y": [0.0, 0.1, 1.5, math.nan, pa.scalar(0.1, pa.float32())],
    "d": [_DAY, _DAY + dt.timedelta(9), dt.date(1900, 1, 1), None],
    "t": [_MOMENT, _MOMENT + dt.timedelta(hours=3), pa.scalar(1_704_164_645_000_000_001, pa.timestamp("ns"))],
    "m": [Decimal("1.25"), Decimal("1.255"), 2, None],
    "b": [True, False],
    "n.k": [1, 3, 9, None],
    "dots.in.name": [1, 3, 9],
    "kind": ["p", "r"],
}


def _field(name: str) -> pc.Expression:
    return pc.field("n", "k") if name == "n.k" else pc.field(name)


@st.composite
def _leaves(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(list(_LITERALS)))
    column, literal = _field(name), st.sampled_from(_LITERALS[name])
    shape = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "isin", "null", "valid", "nan", "other", "flip"]))
    match shape:
        case "isin":
            values = draw(st.lists(literal, min_size=1, max_size=4))
            return column.isin([one.as_py() if isinstance(one, pa.Scalar) else one for one in values])
        case "null" | "nan":
            return column.is_null(nan_is_null=shape == "nan" and name in "xy")
        case "valid":
            return column.is_valid()
        case "other":
            return draw(
                st.sampled_from(
                    [
                        pc.match_like(pc.field("s"), "a%"),
                        pc.field("i") + 1 == 3,
                        pc.field("n").is_null(),
                        pc.list_value_length(pc.field("n", "l")) == 1,
                        pc.field("i") == pc.field("n", "k"),
                        pc.is_nan(pc.field("x")),
                        pc.if_else(pc.field("b"), pc.field("i") == 1, pc.field("i") == 2),
                        pc.scalar(True) | (pc.field("i") == 1),
                    ]
                )
            )
    value = draw(literal)
    value = pc.scalar(value)
    left, right = (value, column) if shape == "flip" else (column, value)
    operators: dict[str, Any] = {
        "==": left.__eq__, "flip": left.__lt__, "!=": left.__ne__, "<": left.__lt__, "<=": left.__le__,
        ">": left.__gt__, ">=": left.__ge__,
    }  # fmt: skip
    found: pc.Expression = operators[shape](right)
    return found


_EXPRESSIONS = st.recursive(
    _leaves(),
    lambda inner: (
        st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(lambda a, b: a | b, inner, inner)
        | inner.map(lambda a: ~a)
    ),
    max_leaves=5,
)


@given(expression=_EXPRESSIONS)
@settings(max_examples=400, deadline=None)
def test_the_rows_that_pyarrow_would_pick(opened: tuple[bs.SealedFile, pa.Table], expression: pc.Expression) -> None:
    file, table = opened
    try:
        expected = table.filter(expression).column("row").to_pylist()
    except pa.ArrowException:
        return  # types that pyarrow does not compare; such reads are refused below
    assert file.read(["row"], expression).column("row").to_pylist() == expected


@pytest.mark.parametrize(
    ("expression", "decoded"),
    [
        (pc.field("i") == -8, 2),
        (pc.scalar(-8) == pc.field("i"), 2),
        (pc.field("i").isin([-8]) | (pc.field("s") == "zz"), 5),
        ((pc.field("i") < -7) & ~pc.match_like(pc.field("s"), "z%"), 3),
        (pc.field("n", "k") > 3, 0),
        (pc.field("dots.in.name") == 9, 0),
        (pc.field("row").is_null(), 0),
        (~pc.field("row").is_valid(), 0),
    ],
)
def test_expressions_rule_row_groups_out(
    opened: tuple[bs.SealedFile, pa.Table], expression: pc.Expression, decoded: int
) -> None:
    file, table = opened
    assert file.read(["row"], expression).num_rows == table.filter(expression).num_rows
    assert file.stats.decoded <= decoded


@pytest.mark.parametrize(
    "expression",
    [
        pc.field(1) == 5,
        pc.scalar(True),
        pc.field("nowhere") == 5,
        pc.field("n.k") == 5,
        pc.field("s") == 5,
        pc.field("i") + 1,
        pc.field("s").cast("int64") == 5,
    ],
)
def test_what_pyarrow_can_not_say_is_our_error(
    opened: tuple[bs.SealedFile, pa.Table], expression: pc.Expression
) -> None:
    with pytest.raises(bs.UsageError):
        opened[0].read(["row"], expression)


def test_only_the_columns_of_the_expression_need_keys(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "secret": ["x", "y"], "s": [{"k": 1, "l": 5}, {"k": 2, "l": 6}]})
    spec = bs.EncryptionSpec(footer_key=b"f" * 16, column_keys={"secret": b"s" * 16, "s.l": b"l" * 16})
    bs.write_table(table, tmp_path / "t", encryption=spec)
    found = bs.read_table(
        tmp_path / "t", columns=["a"], where=(pc.field("a") + 0 == 2) & (pc.field("s", "k") == 2), decryption=_KEYS
    )
    assert found.to_pydict() == {"a": [2]}
    with pytest.raises(bs.KeyAccessError):
        bs.read_table(tmp_path / "t", columns=["a"], where=pc.field("secret") == "x", decryption=_KEYS)


def test_no_literal_in_a_repr() -> None:
    from bloomseal.read.predicate.condition import shared

    for filters in (
        pc.field("ssn").isin(["078-05-1120"]),
        [("ssn", "in", ["078-05-1120"])],
        [("ssn", "==", "078-05-1120")],
    ):
        assert "078-05-1120" not in repr(shared(filters))


# Values in arrays and Series ----------------------------------------------------------------------------------------


def _holders(values: list[Any]) -> dict[str, Any]:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    array = pa.array(values)
    known = [value for value in values if value is not None]
    return {
        "tuple": tuple(values),
        "set": set(values),
        "iterator": iter(values),
        "numpy": np.array(known),
        "numpy objects": np.array(values, dtype=object),
        "Arrow": array,
        "chunks": pa.chunked_array([array[:1], array[1:]]),
        "dictionary": array.dictionary_encode() if not pa.types.is_timestamp(array.type) else array,
        "pandas": pandas.Series(known, index=range(7, 7 + len(known))),
        "pandas Arrow": pandas.Series(array.to_pandas(types_mapper=pandas.ArrowDtype)),
        "pandas Index": pandas.Index(known),
        "Polars": polars.Series(values),
    }


@pytest.mark.parametrize(
    "values",
    [[1, 5, None, 77], ["a", "é", None], [0.5, -0.0, None], [dt.date(2020, 5, 7), None], [_MOMENT, None], [True]],
    ids=lambda values: type(values[0]).__name__,
)
def test_values_come_in_anything(tmp_path: Path, values: list[Any]) -> None:
    known = [value for value in values if value is not None]
    table = pa.table({"a": pa.array([*known, None, *known[:1]])})
    bs.write_table(table, tmp_path / "t", bloom_filters=None if values == [True] else {"a": True}, row_group_size=1)
    for op in ("in", "not in"):
        for name, held in _holders(known if op == "not in" else values).items():
            if (
                name in ("numpy", "pandas", "pandas Index")
                and isinstance(known[0], dt.date)
                and not isinstance(known[0], dt.datetime)
            ):
                continue  # objects there, as in the list
            found = bs.read_table(tmp_path / "t", where=[("a", op, held)])
            assert found.num_rows == (len(known) + 1 if op == "in" else 0), (op, name)


def test_missing_and_masked_values_are_nulls(tmp_path: Path) -> None:
    bs.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "t", bloom_filters={"a": True})
    masked = np.ma.masked_array([1, 2], mask=[False, True])  # type: ignore[no-untyped-call]
    assert bs.read_table(tmp_path / "t", where=[("a", "in", masked)]).column("a").to_pylist() == [1]
    assert bs.read_table(tmp_path / "t", where=[("a", "not in", masked)]).num_rows == 0


@pytest.mark.parametrize("held", [5, "abc", b"abc", np.array([[1]]), np.array(5), pa.table({"x": [1]}), None])
def test_what_holds_no_values_is_refused(tmp_path: Path, held: Any) -> None:
    bs.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "t")
    with pytest.raises(bs.UsageError):
        bs.read_table(tmp_path / "t", where=[("a", "in", held)])


def test_values_are_hashed_once_for_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.core.sbbf import ProbeSet

    ids = list(range(0, 4000, 2))
    for part in range(6):
        bs.write_table(pa.table({"a": [part, 5000]}), tmp_path / f"{part}.parquet", bloom_filters={"a": True})
    asked: list[int] = []
    genuine = ProbeSet.of

    def counted(*arguments: Any, **options: Any) -> ProbeSet:
        asked.append(1)
        return genuine(*arguments, **options)

    monkeypatch.setattr(ProbeSet, "of", counted)
    questions: list[Any] = [[("a", "in", held)] for name, held in _holders(ids).items() if name != "iterator"]
    for question in [*questions, pc.field("a").isin(ids)]:
        asked.clear()
        assert bs.read_table(tmp_path, where=question).column("a").to_pylist() == [0, 2, 4]
        assert 1 <= len(asked) <= 2  # for filters, and in the order of the values for bounds
