"""The filters that Arrow C++ writes, as an independent parent: every type, value by value and array by array."""

from __future__ import annotations

import datetime as dt
import io
import re
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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

UTC = dt.UTC
HEADER = re.compile(rb"\x15([\x80-\xff]{0,4}[\x00-\x7f])\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00", re.S)


@dataclass(frozen=True)
class Case:
    name: str
    arrow: pa.DataType
    values: list[Any]
    column_type: ColumnType
    options: dict[str, Any] = field(default_factory=dict)


def column(physical: str, length: int | None = None, kind: str = "", **rest: Any) -> ColumnType:
    return ColumnType(PhysicalType[physical], length, LogicalType(kind, **rest) if kind else None)


def ints(bits: int, signed: bool) -> list[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return [low, low + 1, 0, 1, 77, high - 1, high]


MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(1970, 1, 1), dt.datetime(2026, 7, 8, 9, 10, 11)]
DECIMALS = [Decimal(text) for text in ("0.00", "-0.01", "1.5", "327.67", "-327.68", "1234567.89", "-1234567.89")]
FLOATS = [0.0, -0.0, 1.5, -2.25, 0.1, 1e-40, 65504.0, float("inf"), float("-inf")]

CASES = [
    *(
        Case(
            f"{'' if signed else 'u'}int{bits}",
            getattr(pa, f"{'' if signed else 'u'}int{bits}")(),
            ints(bits, signed),
            column("INT64" if bits == 64 else "INT32", None, "int", bit_width=bits, signed=signed),
        )
        for bits in (8, 16, 32, 64)
        for signed in (True, False)
    ),
    Case("bare int32", pa.int32(), ints(32, True), column("INT32")),
    Case("bare int64", pa.int64(), ints(64, True), column("INT64")),
    Case("float", pa.float32(), FLOATS, column("FLOAT")),
    Case("double", pa.float64(), FLOATS, column("DOUBLE")),
    Case("float16", pa.float16(), FLOATS, column("FIXED_LEN_BYTE_ARRAY", 2, "float16")),
    Case("binary", pa.binary(), [b"", b"\x00", b"a" * 100], column("BYTE_ARRAY")),
    *(
        Case(str(arrow), arrow, ["", "a", "Ünïcödé", "x" * 12, "y" * 13, "z" * 1000], column("BYTE_ARRAY", None, "string"))
        for arrow in (pa.string(), pa.large_string(), pa.string_view())
    ),
    Case("fixed", pa.binary(5), [b"12345", b"\x00" * 5], column("FIXED_LEN_BYTE_ARRAY", 5)),
    Case("uuid", pa.uuid(), [uuid.UUID(int=i << 90) for i in range(5)], column("FIXED_LEN_BYTE_ARRAY", 16, "uuid")),
    Case("date32", pa.date32(), [dt.date.min, dt.date(1970, 1, 1), dt.date.max], column("INT32", None, "date")),
    Case("date64", pa.date64(), [dt.date.min, dt.date(1969, 12, 31), dt.date.max], column("INT32", None, "date")),
    *(
        Case(
            f"time[{unit}]",
            (pa.time32 if unit in ("s", "ms") else pa.time64)(unit),
            [dt.time(0), dt.time(1, 2, 3), dt.time(23, 59, 59)],
            column("INT32" if unit in ("s", "ms") else "INT64", None, "time", unit="ms" if unit == "s" else unit, utc=True),
        )
        for unit in ("s", "ms", "us", "ns")
    ),
    *(
        Case(
            f"timestamp[{unit}, {zone}]",
            pa.timestamp(unit, zone),
            [moment.replace(microsecond=0, tzinfo=UTC if zone else None) for moment in MOMENTS]
            if unit == "s"
            else [moment.replace(tzinfo=UTC if zone else None) for moment in MOMENTS],
            column("INT64", None, "timestamp", unit="ms" if unit == "s" else unit, utc=zone is not None),
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "America/New_York")
    ),
    Case("decimal as bytes", pa.decimal128(9, 2), DECIMALS, column("FIXED_LEN_BYTE_ARRAY", 4, "decimal", precision=9, scale=2)),
    Case(
        "wide decimal",
        pa.decimal128(38, 2),
        [*DECIMALS, Decimal((0, (9,) * 38, -2)), Decimal((1, (9,) * 38, -2))],
        column("FIXED_LEN_BYTE_ARRAY", 16, "decimal", precision=38, scale=2),
    ),
    Case(
        "decimal256", pa.decimal256(76, 2), DECIMALS, column("FIXED_LEN_BYTE_ARRAY", 32, "decimal", precision=76, scale=2)
    ),
    Case(
        "decimal as int32",
        pa.decimal128(9, 2),
        DECIMALS,
        column("INT32", None, "decimal", precision=9, scale=2),
        {"store_decimal_as_integer": True},
    ),
    Case(
        "decimal as int64",
        pa.decimal128(18, 2),
        DECIMALS,
        column("INT64", None, "decimal", precision=18, scale=2),
        {"store_decimal_as_integer": True},
    ),
]  # fmt: skip


def arrow_array(case: Case, nulls: bool = True) -> pa.Array:
    values = [value.bytes if isinstance(value, uuid.UUID) else value for value in case.values]
    return pa.array([*values, None] if nulls else values, type=case.arrow)


def arrow_filter(case: Case) -> SplitBlockBloomFilter:
    """The filter in a file that Arrow C++ writes, found by its header's bytes: no Parquet reader takes part."""
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"c": arrow_array(case)}), sink, bloom_filter_options={"c": {"ndv": 200, "fpp": 0.01}}, **case.options
    )
    schema = pq.ParquetFile(sink).schema.column(0)
    assert schema.physical_type == case.column_type.physical.name
    (found,) = HEADER.finditer(sink.getvalue())
    size = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(found[1])) >> 1
    return SplitBlockBloomFilter.from_bitset(sink.getvalue()[found.end() : found.end() + size])


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def test_the_same_values_make_the_same_bits(case: Case) -> None:
    theirs = arrow_filter(case)
    one_by_one = SplitBlockBloomFilter(theirs.num_bytes)
    for value in case.values:
        one_by_one.insert(value, case.column_type)
    assert one_by_one == theirs
    at_once = SplitBlockBloomFilter(theirs.num_bytes)
    at_once.insert_hashes(hash_array(arrow_array(case), case.column_type))
    assert at_once == theirs


def test_arrow_scalars_and_python_values_are_found(case: Case) -> None:
    theirs = arrow_filter(case)
    scalars = list(arrow_array(case))
    assert all(theirs.check(value, case.column_type) for value in [*case.values, *scalars])
    for values in (case.values, scalars, arrow_array(case), pa.chunked_array([arrow_array(case)])):
        assert ProbeSet.of(values, case.column_type).check(theirs).all()


def test_other_values_are_absent(case: Case) -> None:
    """The oracle can say no: as many strangers of the same type are mostly not found."""
    theirs = arrow_filter(case)
    strangers = hash_array(arrow_array(case, nulls=False), case.column_type) ^ np.uint64(0x5DEECE66D1234567)
    assert theirs.check_hashes(strangers).mean() < 0.5


def test_slices_chunks_and_dictionaries_hash_the_same(case: Case) -> None:
    array = arrow_array(case)
    whole = hash_array(array, case.column_type)
    expected = [hash_bytes(encode_value(value, case.column_type)[0]) for value in case.values]
    assert whole.tolist() == expected
    assert hash_array(array[1:], case.column_type).tolist() == expected[1:]
    assert hash_array(array[1:3], case.column_type).tolist() == expected[1:3]
    chunks = pa.chunked_array([array[:2], array[2:2], array[2:]])
    assert hash_array(chunks, case.column_type).tolist() == expected
    if isinstance(array, pa.ExtensionArray) or pa.types.is_string_view(array.type) or pa.types.is_float16(array.type):
        return  # pyarrow has no dictionary_encode for these
    repeated = pa.concat_arrays([array, array])[1:]
    encoded = repeated.dictionary_encode()
    assert sorted(set(hash_array(encoded, case.column_type).tolist())) == sorted(set(expected))
    assert len(hash_array(encoded[: len(case.values) - 1], case.column_type)) <= len(case.values)
