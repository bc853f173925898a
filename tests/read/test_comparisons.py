"""The comparison of decoded rows by itself: every width at its ends, against Python's own numbers."""

from __future__ import annotations

import datetime as dt
import math
import operator
import warnings
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bloomseal.core.errors import UsageError
from bloomseal.core.parquet.schema import Leaf
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType
from bloomseal.read.predicate.compare import all_plain, comparable, equal_any, is_null, ordered, wanted
from bloomseal.read.predicate.values import Values

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def leaf(physical: str, kind: str = "", length: int | None = None, **rest: Any) -> Leaf:
    logical = LogicalType(kind, **rest) if kind else None
    return Leaf(0, ("a",), ColumnType(PhysicalType[physical], length, logical), 0, 1)


def integers(bits: int, signed: bool) -> tuple[pa.DataType, Leaf]:
    kind = getattr(pa, f"{'' if signed else 'u'}int{bits}")()
    return kind, leaf("INT64" if bits == 64 else "INT32", "int", bit_width=bits, signed=signed)


def decimals(bits: int, precision: int, scale: int) -> tuple[pa.DataType, Leaf]:
    kind = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[bits](precision, scale)
    return kind, leaf("FIXED_LEN_BYTE_ARRAY", "decimal", bits // 8, precision=precision, scale=scale)


def kept(column: pa.Array, op: str, value: Any, of: Leaf) -> list[bool]:
    mask = ordered(comparable(pa.chunked_array([column])), op, value, of)
    assert (mask.type, mask.null_count) == (pa.bool_(), 0)
    return mask.to_pylist()


def equals(column: pa.Array, values: list[Any], of: Leaf) -> list[bool]:
    rows = comparable(pa.chunked_array([column]))
    mask = equal_any(rows, wanted(rows.type, Values(values), of))
    assert (mask.type, mask.null_count) == (pa.bool_(), 0)
    return mask.to_pylist()


def check(column: pa.Array, rows: list[Any], values: list[Any], of: Leaf) -> None:
    """Every operator with every value, and all values at once, as Python has it; no null is ever kept."""
    for value in values:
        for op, holds in OPERATORS.items():
            assert kept(column, op, value, of) == [row is not None and holds(row, value) for row in rows], (op, value)
        assert equals(column, [value], of) == [row is not None and row == value for row in rows], value
        other = next(one for one in values if one != value)
        both = [row is not None and row in (value, other) for row in rows]
        assert equals(column, [value, other], of) == both, (value, other)
    assert equals(column, values, of) == [row is not None and row in values for row in rows]
    assert equals(column, [], of) == [False] * len(rows)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers_at_their_ends(bits: int, signed: bool) -> None:
    kind, of = integers(bits, signed)
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    rows = [least, least + 1, 1, 2, (greatest >> 1) + 1, greatest - 1, greatest, None]
    beyond = [least - 1, least - 2, greatest + 1, greatest + 2, greatest + 3, -(2**70), 2**70, -1, 0]
    check(pa.array(rows, kind), rows, [*(row for row in rows if row is not None), *beyond], of)
    number = np.dtype(kind.to_pandas_dtype()).type
    for value in (least, greatest):  # not of Python's own kind, so looked at one by one
        assert equals(pa.array(rows, kind), [number(value)], of) == [row == value for row in rows]


def test_moments_at_their_ends() -> None:
    kind, of = pa.timestamp("ns"), leaf("INT64", "timestamp", unit="ns")
    rows = [-(2**63), 0, 2**63 - 1]
    for place, value in enumerate(rows):
        assert equals(pa.array(rows, kind), [pa.scalar(value, kind)], of) == [one == place for one in range(3)]


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
def test_decimals_at_their_ends(bits: int) -> None:
    precision = {32: 9, 64: 18, 128: 38, 256: 76}[bits]
    kind, of = decimals(bits, precision, 2)
    most = Decimal(10**precision - 1).scaleb(-2, Context(prec=80))
    rows = [
        most.copy_negate(),
        Decimal("-1.25"),
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("0.01"),
        Decimal("1.25"),
        Decimal("2.00"),
        most,
        None,
    ]
    finer = [Decimal("1.245"), Decimal("1.255"), Decimal("-1.245"), Decimal("-1.255"), -2, 0, 2, 3]
    far = [Decimal("1E+299"), Decimal("1E+300"), Decimal("1E+301"), Decimal("-1E+301"), Decimal("Infinity")]
    near = [Decimal("1E-301"), Decimal("-1E-301"), Decimal("1E-300"), Decimal("-Infinity")]
    check(pa.array(rows, kind), rows, [*(row for row in rows if row is not None), *finer, *far, *near], of)
    for op in OPERATORS:
        assert kept(pa.array(rows, kind), op, Decimal("NaN"), of) == [False] * len(rows)
    assert not any(equals(pa.array(rows, kind), [Decimal("NaN")], of))


def test_decimals_beyond_their_precision() -> None:
    """Columns hold such; of the widest precision, all of them are compared."""
    kind, of = decimals(128, 38, 0)
    small = pa.decimal128(3, 0)
    rows = pa.array([Decimal(5), Decimal(99_999)], kind)
    narrow = pa.Array.from_buffers(small, 2, rows.buffers())
    of = Leaf(0, ("a",), ColumnType(PhysicalType.FIXED_LEN_BYTE_ARRAY, 16, LogicalType("decimal", precision=3)), 0, 1)
    assert kept(narrow, ">", 1_000, of) == [False, True]
    assert comparable(pa.chunked_array([narrow])).type == pa.decimal128(38, 0)
    assert comparable(pa.chunked_array([], small)).type == pa.decimal128(38, 0)


def test_dates_in_days_and_in_milliseconds() -> None:
    rows = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1970, 1, 3), dt.date(9999, 12, 31), None]
    values = [*rows[:-1], dt.date(1, 1, 1), dt.date(1970, 1, 2)]
    for kind in (pa.date32(), pa.date64()):
        check(pa.array(rows, kind), rows, values, leaf("INT32", "date"))


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_and_moments_of_every_unit(unit: str) -> None:
    times = [dt.time(0), dt.time(12, 34, 56, 789_000), dt.time(23, 59, 59, 999_000), None]
    kind = pa.time32("ms") if unit == "ms" else pa.time64(unit)
    of = leaf("INT32" if unit == "ms" else "INT64", "time", unit=unit)
    check(pa.array(times, kind), times, [*times[:-1], dt.time(12, 34, 56, 789_001)], of)
    day = dt.datetime(1970, 1, 2)
    moments = [day, day + dt.timedelta(milliseconds=1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), None]
    of = leaf("INT64", "timestamp", unit=unit)
    values = [*moments[:-1], day + dt.timedelta(microseconds=1), dt.datetime(2200, 1, 1)]
    check(pa.array(moments, pa.timestamp(unit)), moments, values, of)


def test_int96_is_ordered_and_found_by_instants() -> None:
    day = dt.datetime(2020, 2, 2)
    rows, of = pa.array([day, day + dt.timedelta(days=1), None], pa.timestamp("ns")), leaf("INT96")
    assert kept(rows, ">", day, of) == [False, True, False]
    assert equals(rows, [day], of) == [True, False, False]
    assert equals(rows, [dt.datetime(1, 1, 1), day], of) == [True, False, False]


@pytest.mark.parametrize(("kind", "name"), [(pa.float16(), "half"), (pa.float32(), "FLOAT"), (pa.float64(), "DOUBLE")])
def test_floats_are_rounded_to_their_width(kind: pa.DataType, name: str) -> None:
    of = leaf("FIXED_LEN_BYTE_ARRAY", "float16", 2) if name == "half" else leaf(name)
    width = {"half": np.float16, "FLOAT": np.float32, "DOUBLE": np.float64}[name]
    given = [-math.inf, -1.5, -0.0, 0.0, 0.1, 0.30000001, math.inf]
    rows = [width(one) for one in given]
    column = pa.array([*rows, math.nan, None], kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a value that the width can't hold is nobody's mistake
        for value in [*given, 1, -1, 10**30, -(10**400), 10**400, 1e300, -1e300, 1e-300, 0.5]:
            wide = (
                float(value)
                if isinstance(value, float) or abs(value) < 10**300
                else (math.inf if value > 0 else -math.inf)
            )
            with np.errstate(all="ignore"):
                rounded = width(wide)
            for op, holds in OPERATORS.items():
                assert kept(column, op, value, of) == [*(bool(holds(row, rounded)) for row in rows), False, False], (
                    op,
                    value,
                )
            for values in ([value], [value, 77.0]):
                assert equals(column, values, of) == [*(bool(row == rounded) for row in rows), False, False], value
    assert not any(equals(column, [math.nan], of))
    assert not any(equals(column, [math.nan, 77.0], of)), "not in a set either, where Arrow has NaN equal itself"


def test_texts_bytes_and_booleans() -> None:
    texts = ["", "a", "ab", "é", "z", None]
    string = leaf("BYTE_ARRAY", "string")
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        check(pa.array(texts, kind), texts, ["", "a", "ab", "b", "é", "zz"], string)
    check(pa.array(texts).dictionary_encode(), texts, ["a", "b"], string)
    data = [b"", b"a", b"\xff", None]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        check(pa.array(data, kind), data, [b"", b"a", b"b", b"\xff\x00"], leaf("BYTE_ARRAY"))
    fixed = [b"ab", b"cd", None]
    assert kept(pa.array(fixed, pa.binary(2)), "<", b"abc", leaf("FIXED_LEN_BYTE_ARRAY", length=2)) == [
        True,
        False,
        False,
    ]
    booleans = [False, True, None]
    check(pa.array(booleans), booleans, [False, True], leaf("BOOLEAN"))
    check(pa.array(booleans), booleans, [np.False_, np.True_], leaf("BOOLEAN"))


def test_extension_types_are_compared_by_their_storage() -> None:
    class Money(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.int64(), "bloomseal.tests.money")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    storage = pa.array([1, 5, None], pa.int64())
    column = pa.ExtensionArray.from_storage(Money(), storage)
    assert kept(column, ">=", 5, leaf("INT64")) == [False, True, False]
    assert equals(column, [1, 2], leaf("INT64")) == [True, False, False]
    assert comparable(pa.chunked_array([], Money())).type == pa.int64()
    small = pa.ExtensionArray.from_storage(_Half(), pa.array(np.array([0.5, 1.5], np.float16)))
    assert comparable(pa.chunked_array([small])).type == pa.float32()


class _Half(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.float16(), "bloomseal.tests.half")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


@pytest.mark.parametrize("op", OPERATORS)
def test_null_orders_nothing(op: str) -> None:
    assert kept(pa.array([1, None]), op, None, leaf("INT64")) == [False, False]
    assert kept(pa.nulls(2), op, 1, leaf("INT64")) == [False, False]
    assert equals(pa.array([1, None]), [None, 1], leaf("INT64")) == [True, False]
    assert equals(pa.nulls(2), [1], leaf("INT64")) == [False, False]
    assert wanted(pa.date32(), Values([None]), leaf("INT32", "date")).type == pa.date32()
    assert is_null(pa.scalar(None, pa.int64()))
    assert not is_null(0)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    ("column", "value", "of"),
    [
        (pa.array([1]), "1", leaf("INT64")),
        (pa.array([1]), 1.5, leaf("INT64")),
        (pa.array(["a"]), 1, leaf("BYTE_ARRAY", "string")),
        (pa.array([True]), 1, leaf("BOOLEAN")),
        (pa.array([1.5]), True, leaf("DOUBLE")),
        (pa.array([dt.date(2020, 1, 1)]), dt.datetime(2020, 1, 1), leaf("INT32", "date")),
        (pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us", "UTC")), dt.datetime(2020, 1, 1), leaf("INT64", "timestamp", unit="us", utc=True)),
    ],
)  # fmt: skip
def test_values_of_another_kind_are_refused(column: pa.Array, value: Any, of: Leaf, op: str) -> None:
    with pytest.raises(UsageError):
        kept(column, op, value, of)
    with pytest.raises(UsageError):
        equals(column, [value], of)


@pytest.mark.parametrize(
    ("values", "of", "plain"),
    [
        ([1, 2], leaf("INT32"), True),
        ([1, 2], leaf("INT64"), True),
        ([1], leaf("INT64", "int", bit_width=8, signed=False), True),
        ([1], leaf("INT32", "date"), False),
        ([1], leaf("INT64", "decimal", precision=3), False),
        ([1], leaf("DOUBLE"), False),
        ([1], leaf("BYTE_ARRAY", "int", bit_width=8, signed=True), False),
        ([1], leaf("BYTE_ARRAY"), False),
        ([1], leaf("BYTE_ARRAY", "string"), False),
        ([1, True], leaf("INT64"), False),
        ([True], leaf("INT64"), False),
        ([1, None], leaf("INT64"), False),
        ([1.0], leaf("INT64"), False),
        (["a"], leaf("BYTE_ARRAY", "string"), True),
        (["a"], leaf("BYTE_ARRAY", "enum"), True),
        (["a"], leaf("BYTE_ARRAY", "json"), True),
        (["a"], leaf("BYTE_ARRAY", "bson"), False),
        (["a"], leaf("BYTE_ARRAY"), False),
        (["a"], leaf("INT64"), False),
        (["a"], leaf("FIXED_LEN_BYTE_ARRAY", "string", 1), False),
        (["a", "\ud800"], leaf("BYTE_ARRAY", "string"), False),
        (["a", b"a"], leaf("BYTE_ARRAY", "string"), False),
        ([], leaf("INT64"), False),
    ],
)
def test_plain_values_need_no_look_one_by_one(values: list[Any], of: Leaf, plain: bool) -> None:
    assert all_plain(Values(values), of) is plain


def test_many_integers_are_cut_to_what_column_and_type_can_hold() -> None:
    """A column of 8 bits in Arrow's 32, as some writers' files are read."""
    of = leaf("INT32", "int", bit_width=8, signed=True)
    found = wanted(pa.int32(), Values([-129, -128, 127, 128, 2**40]), of)
    assert (found.type, found.to_pylist()) == (pa.int32(), [-128, 127])
    odd = leaf("INT32", "int", bit_width=24, signed=True)  # no such width: only Arrow's own type bounds it
    assert wanted(pa.int32(), Values([-(2**31), 2**31 - 1, 2**31]), odd).to_pylist() == [-(2**31), 2**31 - 1]
