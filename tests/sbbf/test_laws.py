"""What must hold for every filter: nothing inserted goes missing, and folding is inserting into fewer blocks."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bloomseal.core.sbbf import (
    ColumnType,
    LogicalType,
    PhysicalType,
    ProbeSet,
    SplitBlockBloomFilter,
    encode_value,
    hash_array,
    hash_bytes,
)
from bloomseal.sbbf import FilterSpec, num_bytes

HASHES = st.lists(st.integers(0, (1 << 64) - 1), max_size=50)


def column(physical: str, length: int | None = None, kind: str = "", **rest: Any) -> ColumnType:
    return ColumnType(PhysicalType[physical], length, LogicalType(kind, **rest) if kind else None)


def whole(bits: int, signed: bool) -> Any:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def decimals(precision: int, scale: int) -> Any:
    limit = 10**precision - 1
    digits = st.integers(-limit, limit)
    return digits.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))


NAIVE = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
AWARE = st.datetimes(
    dt.datetime(1700, 1, 1),
    dt.datetime(2200, 1, 1),
    timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=9))]),
)
MILLIS = st.builds(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000), NAIVE)

# Per type: lawful values, the column's type, and the Arrow type in which a writer hands them over.
KINDS = {
    **{
        f"{'' if signed else 'u'}int{bits}": (
            whole(bits, signed),
            column("INT64" if bits == 64 else "INT32", None, "int", bit_width=bits, signed=signed),
            getattr(pa, f"{'' if signed else 'u'}int{bits}")(),
        )
        for bits in (8, 16, 32, 64)
        for signed in (True, False)
    },
    "float": (st.floats(width=32), column("FLOAT"), pa.float32()),
    "double": (st.floats(), column("DOUBLE"), pa.float64()),
    "float16": (st.floats(width=16), column("FIXED_LEN_BYTE_ARRAY", 2, "float16"), pa.float16()),
    "string": (st.text(), column("BYTE_ARRAY", None, "string"), pa.string()),
    "string view": (st.text(), column("BYTE_ARRAY", None, "json"), pa.string_view()),
    "binary": (st.binary(), column("BYTE_ARRAY"), pa.large_binary()),
    "fixed": (st.binary(min_size=7, max_size=7), column("FIXED_LEN_BYTE_ARRAY", 7), pa.binary(7)),
    "uuid": (st.uuids().map(lambda one: one.bytes), column("FIXED_LEN_BYTE_ARRAY", 16, "uuid"), pa.binary(16)),
    "date": (st.dates(), column("INT32", None, "date"), pa.date32()),
    "time": (st.times(), column("INT64", None, "time", unit="us"), pa.time64("us")),
    "timestamp": (NAIVE, column("INT64", None, "timestamp", unit="us"), pa.timestamp("us")),
    "coarse timestamp": (MILLIS, column("INT64", None, "timestamp", unit="ms"), pa.timestamp("ms")),
    "fine timestamp": (NAIVE, column("INT64", None, "timestamp", unit="ns"), pa.timestamp("ns")),
    "UTC timestamp": (AWARE, column("INT64", None, "timestamp", unit="us", utc=True), pa.timestamp("us", "UTC")),
    "decimal32": (decimals(9, 3), column("INT32", None, "decimal", precision=9, scale=3), pa.decimal128(9, 3)),
    "decimal64": (decimals(18, 0), column("INT64", None, "decimal", precision=18, scale=0), pa.decimal128(18, 0)),
    "decimal128": (
        decimals(38, 38),
        column("FIXED_LEN_BYTE_ARRAY", 16, "decimal", precision=38, scale=38),
        pa.decimal128(38, 38),
    ),
    "narrow decimal": (
        decimals(11, 2),
        column("FIXED_LEN_BYTE_ARRAY", 5, "decimal", precision=11, scale=2),
        pa.decimal128(11, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_no_value_goes_missing(kind: str, data: st.DataObject) -> None:
    """Inserted from Arrow memory, as a writer does; asked as Python values, Arrow scalars and whole arrays."""
    strategy, column_type, arrow = KINDS[kind]
    values = data.draw(st.lists(st.one_of(st.none(), strategy), max_size=80))
    array = pa.array([None, *values], type=arrow)[1:]
    made = FilterSpec(fpp=0.001).build(hash_array(array, column_type))
    assert all(made.check(value, column_type) for value in values)
    for asked in (values, array, list(array), pa.chunked_array([array])):
        assert ProbeSet.of(asked, column_type).check(made).all()


@given(decimals(12, 4), st.integers(0, 3))
def test_decimals_as_bytes_of_any_lawful_width(value: Decimal, padding: int) -> None:
    column_type = column("BYTE_ARRAY", None, "decimal", precision=12, scale=4)
    number = int(value.scaleb(4))
    width = min(6, ((number if number >= 0 else ~number).bit_length() // 8 + 1) + padding)
    encodings = encode_value(value, column_type)
    assert encodings is not None
    assert number.to_bytes(width, "big", signed=True) in encodings
    # Up to the widest, not to that of the precision: writers pad, and store more digits than they declare.
    assert len(encodings[0]) <= len(encodings[-1]) == 16
    assert {int.from_bytes(data, "big", signed=True) for data in encodings} == {number}


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False))
@example(0.1, 0.0)
@example(float(np.float32(0.1)), 0.0)
def test_equal_floats_are_never_absent(wide: float, narrow: float) -> None:
    """Whatever is equal to a stored float32, before or after it is narrowed, has its bytes among the encodings."""
    for asked in (wide, narrow):
        encodings = encode_value(asked, column("FLOAT"))
        assert encodings is not None
        with np.errstate(over="ignore", under="ignore"):
            stored = {np.float32(asked).tobytes()}
        for value in (narrow, -0.0, 0.0):
            if value == asked:
                stored.add(np.float32(value).tobytes())
        assert stored <= set(encodings)


@given(st.integers(-(1 << 70), 1 << 70))
@example((1 << 60) + (1 << 36) + 1)
def test_equal_ints_are_never_absent_from_floats(number: int) -> None:
    assert {np.float64(number).tobytes()} <= set(encode_value(number, column("DOUBLE")) or ())
    assert {np.float32(float(number)).tobytes()} <= set(encode_value(number, column("FLOAT")) or ())
    if -(1 << 63) <= number < 1 << 63:
        assert {np.int64(number).astype(np.float32).tobytes()} <= set(encode_value(number, column("FLOAT")) or ())


@given(st.integers(1, 40), st.integers(1, 8), HASHES)
def test_folding_is_inserting_into_fewer_blocks(blocks: int, factor: int, hashes: list[int]) -> None:
    values = np.array(hashes, dtype=np.uint64)
    large, small = SplitBlockBloomFilter(32 * blocks * factor), SplitBlockBloomFilter(32 * blocks)
    large.insert_hashes(values)
    small.insert_hashes(values)
    assert large.fold(factor) == small


@given(st.integers(1, 40), HASHES, HASHES)
def test_merging_is_inserting_both(blocks: int, left: list[int], right: list[int]) -> None:
    one, other, both = (SplitBlockBloomFilter(32 * blocks) for _ in range(3))
    one.insert_hashes(np.array(left, dtype=np.uint64))
    other.insert_hashes(np.array(right, dtype=np.uint64))
    both.insert_hashes(np.array([*left, *right], dtype=np.uint64))
    one.merge(other)
    assert one == both


@given(st.binary(min_size=32, max_size=400))
def test_any_bytes_are_a_filter(stored: bytes) -> None:
    read = SplitBlockBloomFilter.from_bitset(stored)
    assert read.num_blocks == len(stored) // 32
    assert bytes(read.bitset) == stored
    assert 0 <= read.false_positive_probability() <= 1
    assert read.estimated_ndv() >= 0
    assert read.is_empty == (not any(stored[: read.num_blocks * 32]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("asked", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("ndv", [1_000, 20_000, 200_000])
def test_measured_false_positives(asked: float, ndv: int, seed: int) -> None:
    """Real keys through the whole way, strangers counted: at most 1.1 times the asked rate, and sampling error.

    The size is the exact one, not the next power of two, so that the rate is also not much lower than asked.
    """
    strangers = 200_000
    text = column("BYTE_ARRAY", None, "string")
    keys = pa.array([f"{seed}-{i:09d}" for i in range(ndv + strangers)])
    made = FilterSpec(num_bytes=num_bytes(ndv, asked)).build(hash_array(keys[:ndv], text))
    assert ProbeSet.of(keys[:ndv], text).check(made).all()
    found = np.count_nonzero(ProbeSet.of(keys[ndv:], text).check(made))
    expected = 1.1 * asked * strangers
    assert found <= expected + 4 * math.sqrt(expected)
    assert found >= expected / 1.4 - 4 * math.sqrt(expected)


@given(st.binary(max_size=200))
def test_one_value_and_an_array_of_one(value: bytes) -> None:
    assert hash_array(pa.array([value]), column("BYTE_ARRAY")).tolist() == [hash_bytes(value)]
