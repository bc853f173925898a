"""What a probe value may be stored as, type by type."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
import warnings
from decimal import Decimal
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bloomseal.core.errors import UsageError
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, encode_value
from bloomseal.core.sbbf.encoding import int_range, stands_for_null, unwrap

UTC = dt.UTC
NEW_YORK = dt.timezone(dt.timedelta(hours=-5))


def column(physical: str, length: int | None = None, kind: str = "", **rest: Any) -> ColumnType:
    return ColumnType(PhysicalType[physical], length, LogicalType(kind, **rest) if kind else None)


INT32, INT64, INT96 = column("INT32"), column("INT64"), column("INT96")
FLOAT, DOUBLE, HALF = column("FLOAT"), column("DOUBLE"), column("FIXED_LEN_BYTE_ARRAY", 2, "float16")
BOOLEAN, BINARY, FIXED = column("BOOLEAN"), column("BYTE_ARRAY"), column("FIXED_LEN_BYTE_ARRAY", 4)
STRING, UUID = column("BYTE_ARRAY", None, "string"), column("FIXED_LEN_BYTE_ARRAY", 16, "uuid")
DATE = column("INT32", None, "date")


def sized(bits: int, signed: bool = True) -> ColumnType:
    return column("INT64" if bits == 64 else "INT32", None, "int", bit_width=bits, signed=signed)


def timestamp(unit: str, utc: bool = False) -> ColumnType:
    return column("INT64", None, "timestamp", unit=unit, utc=utc)


def time_of(unit: str) -> ColumnType:
    return column("INT32" if unit == "ms" else "INT64", None, "time", unit=unit)


def widths(number: int, least: int, most: int) -> tuple[bytes, ...]:
    return tuple(number.to_bytes(width, "big", signed=True) for width in range(least, most + 1))


def decimal(physical: str, precision: int, scale: int, length: int | None = None) -> ColumnType:
    return column(physical, length, "decimal", precision=precision, scale=scale)


def i32(*numbers: int) -> tuple[bytes, ...]:
    return tuple(struct.pack("<i", number) for number in numbers)


def i64(*numbers: int) -> tuple[bytes, ...]:
    return tuple(struct.pack("<q", number) for number in numbers)


class Level(IntEnum):
    HIGH = 3


NOON_NS = 1_783_512_000_000_000_000
NOON = dt.datetime(2026, 7, 8, 12)


@pytest.mark.parametrize(
    ("value", "column_type", "expected"),
    [
        # Integers: the type's range decides, not Python's
        (5, INT32, i32(5)),
        (Level.HIGH, INT32, i32(3)),
        (np.uint8(200), INT32, i32(200)),
        (pa.scalar(5, pa.int64()), INT32, i32(5)),
        (-(1 << 31), INT32, i32(-(1 << 31))),
        (1 << 31, INT32, ()),
        (-(1 << 31) - 1, INT32, ()),
        (10**400, INT64, ()),
        (np.uint64(1 << 63), INT64, ()),
        (-128, sized(8), i32(-128)),
        (128, sized(8), ()),
        (255, sized(8, signed=False), i32(255)),
        (-1, sized(8, signed=False), ()),
        (65535, sized(16, signed=False), i32(65535)),
        ((1 << 32) - 1, sized(32, signed=False), i32(-1)),
        (-1, sized(32, signed=False), ()),
        ((1 << 64) - 1, sized(64, signed=False), i64(-1)),
        (1 << 64, sized(64, signed=False), ()),
        # Dates and times
        (dt.date(1970, 1, 2), DATE, i32(1)),
        (dt.date.min, DATE, i32(-719162)),
        (np.datetime64("1969-12-31"), DATE, i32(-1)),
        (np.datetime64("1970-02"), DATE, i32(31)),
        (pa.scalar(dt.date(1970, 1, 2), pa.date64()), DATE, i32(1)),
        (dt.time(0, 0, 1, 5000), time_of("ms"), i32(1005)),
        (dt.time(0, 0, 1, 5001), time_of("ms"), ()),
        (dt.time(0, 0, 1, 5001), time_of("us"), i64(1_005_001)),
        (dt.time(0, 0, 1, 5001), time_of("ns"), i64(1_005_001_000)),
        (pa.scalar(7, pa.time64("ns")), time_of("ns"), i64(7)),
        (pa.scalar(7, pa.time64("ns")), time_of("us"), ()),
        (pa.scalar(7, pa.time32("s")), time_of("ms"), i32(7000)),
        (NOON, timestamp("ms"), i64(NOON_NS // 10**6)),
        (NOON.replace(microsecond=1), timestamp("us"), i64(NOON_NS // 1000 + 1)),
        (NOON.replace(microsecond=1), timestamp("ms"), ()),
        (NOON.replace(tzinfo=UTC), timestamp("us", utc=True), i64(NOON_NS // 1000)),
        (NOON.replace(hour=7, tzinfo=NEW_YORK), timestamp("us", utc=True), i64(NOON_NS // 1000)),
        (dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9))), timestamp("us", utc=True),
         i64(-62135596800 * 10**6 - 9 * 3600 * 10**6)),
        (dt.datetime(1, 1, 1), timestamp("ns"), ()),  # before the first nanosecond of int64
        (np.datetime64(NOON_NS + 1, "ns"), timestamp("ns"), i64(NOON_NS + 1)),
        (np.datetime64(NOON_NS + 1, "ns"), timestamp("us"), ()),
        (np.datetime64("2026-07-08T12"), timestamp("ms"), i64(NOON_NS // 10**6)),
        (np.datetime64("2026-07"), timestamp("ms"), i64(1_782_864_000_000)),
        (np.datetime64(1000, "ps"), timestamp("ns"), i64(1)),
        (np.datetime64(1001, "ps"), timestamp("ns"), ()),
        (np.datetime64(10, "25s"), timestamp("ms"), i64(250_000)),
        (pa.scalar(NOON_NS + 1, pa.timestamp("ns")), timestamp("ns"), i64(NOON_NS + 1)),
        (pa.scalar(7, pa.timestamp("s", "Asia/Tokyo")), timestamp("ms", utc=True), i64(7000)),
        # Floats are rounded to the column's width; both zeros; overflow is infinity
        (1.5, DOUBLE, (struct.pack("<d", 1.5),)),
        (np.float32(0.1), DOUBLE, (struct.pack("<d", float(np.float32(0.1))),)),
        (3, DOUBLE, (struct.pack("<d", 3.0),)),
        ((1 << 53) + 1, DOUBLE, (struct.pack("<d", float(1 << 53)),)),
        (10**400, DOUBLE, (struct.pack("<d", float("inf")),)),
        (0.1, FLOAT, (struct.pack("<f", 0.1),)),
        (1e39, FLOAT, (struct.pack("<f", float("inf")),)),
        (-(10**400), FLOAT, (struct.pack("<f", float("-inf")),)),
        (0.0, FLOAT, (b"\0\0\0\0", b"\0\0\0\x80")),
        (-0.0, FLOAT, (b"\0\0\0\x80", b"\0\0\0\0")),
        (-1e-60, FLOAT, (b"\0\0\0\x80", b"\0\0\0\0")),
        (0, DOUBLE, (bytes(8), bytes(7) + b"\x80")),
        (1.0, HALF, (b"\x00\x3c",)),
        (-0.0, HALF, (b"\x00\x80", b"\x00\x00")),
        (1e6, HALF, (b"\x00\x7c",)),
        (pa.scalar(1.0, pa.float16()), HALF, (b"\x00\x3c",)),
        # Decimals, in every physical form
        (Decimal("1.5"), decimal("INT32", 9, 2), i32(150)),
        (Decimal("-1.5"), decimal("INT64", 18, 2), i64(-150)),
        (Decimal("1.500"), decimal("INT32", 9, 2), i32(150)),
        (Decimal("1E+2"), decimal("INT32", 9, 2), i32(10000)),
        (Decimal("-0.00"), decimal("INT32", 9, 2), i32(0)),
        (7, decimal("INT32", 9, 2), i32(700)),
        (np.int64(7), decimal("INT32", 9, 2), i32(700)),
        (Decimal("1.505"), decimal("INT32", 9, 2), ()),
        (Decimal("10000000"), decimal("INT32", 9, 2), i32(10**9)),  # beyond the precision, not the width
        (Decimal("100000000"), decimal("INT32", 9, 2), ()),
        (Decimal("Infinity"), decimal("INT32", 9, 2), ()),
        (Decimal("1E+999999999"), decimal("INT64", 18, 2), ()),
        (Decimal("1E-999999999"), decimal("INT64", 18, 2), ()),
        (Decimal("0E-999999999"), decimal("INT64", 18, 2), i64(0)),
        (Decimal("1.5"), decimal("FIXED_LEN_BYTE_ARRAY", 9, 2, 5), (b"\0\0\0\0\x96",)),
        (Decimal("-1.5"), decimal("FIXED_LEN_BYTE_ARRAY", 9, 2, 5), (b"\xff\xff\xff\xff\x6a",)),
        (Decimal("327.68"), decimal("FIXED_LEN_BYTE_ARRAY", 9, 2, 2), ()),  # the length cannot hold the precision
        (Decimal("1.27"), decimal("BYTE_ARRAY", 5, 2), widths(127, 1, 16)),
        (Decimal("1.28"), decimal("BYTE_ARRAY", 5, 2), widths(128, 2, 16)),
        (Decimal("-1.28"), decimal("BYTE_ARRAY", 5, 2), widths(-128, 1, 16)),
        (Decimal(0), decimal("BYTE_ARRAY", 2, 0), widths(0, 1, 16)),
        (Decimal(0), decimal("BYTE_ARRAY", 39, 0), widths(0, 1, 32)),
        (Decimal(0), decimal("BYTE_ARRAY", 80, 0), widths(0, 1, 34)),
        (Decimal(10**30), decimal("BYTE_ARRAY", 2, 0), widths(10**30, 13, 16)),  # beyond the precision
        (Decimal("1E+999999999"), decimal("FIXED_LEN_BYTE_ARRAY", 900, 2, 512), ()),
        (pa.scalar(Decimal("1.5"), pa.decimal128(9, 4)), decimal("INT32", 9, 2), i32(150)),
        # Text, bytes, UUIDs
        ("ß", STRING, ("ß".encode(),)),
        (b"abc", STRING, (b"abc",)),
        (np.str_("abc"), column("BYTE_ARRAY", None, "enum"), (b"abc",)),
        ("{}", column("BYTE_ARRAY", None, "json"), (b"{}",)),
        ("", STRING, (b"",)),
        (pa.array(["a"]).dictionary_encode()[0], STRING, (b"a",)),
        (pa.scalar("a", pa.string_view()), STRING, (b"a",)),
        (bytearray(b"\xff"), BINARY, (b"\xff",)),
        (memoryview(b"12345678")[::2], BINARY, (b"1357",)),
        (pa.py_buffer(b"ab"), BINARY, (b"ab",)),
        (b"\x05", column("BYTE_ARRAY", None, "bson"), (b"\x05",)),
        (b"1234", FIXED, (b"1234",)),
        (b"123", FIXED, ()),
        (bytes(12), column("FIXED_LEN_BYTE_ARRAY", 12, "interval"), (bytes(12),)),
        (uuid.UUID(int=1), UUID, (bytes(15) + b"\x01",)),
        (bytes(16), UUID, (bytes(16),)),
        ("00000000-0000-0000-0000-000000000001", UUID, (bytes(15) + b"\x01",)),
    ],
)  # fmt: skip
def test_encodings(value: Any, column_type: ColumnType, expected: tuple[bytes, ...]) -> None:
    assert encode_value(value, column_type) == expected


@pytest.mark.parametrize(
    ("value", "column_type"),
    [
        *((None, column_type) for column_type in (INT32, INT64, INT96, FLOAT, DOUBLE, STRING, UUID, BOOLEAN)),
        (pa.scalar(None, pa.int32()), INT32),
        (pa.scalar(None, pa.timestamp("ns")), timestamp("ns")),
        (np.datetime64("NaT"), timestamp("ns")),
        (float("nan"), DOUBLE),
        (np.float32("nan"), FLOAT),
        (float("nan"), HALF),
        (Decimal("NaN"), decimal("INT32", 9, 2)),
        (Decimal(10**40), decimal("BYTE_ARRAY", 9, 2)),  # wider than any width that was asked for
        (Decimal("1E+999999999"), decimal("BYTE_ARRAY", 9, 2)),
        (True, BOOLEAN),
        (np.False_, BOOLEAN),
        (NOON, INT96),
        (NOON, timestamp("")),
        # Types that no lawful footer holds prove nothing
        (1, column("INT32", None, "int", bit_width=64)),
        (1, column("INT64", None, "int", bit_width=7)),
        (Decimal(1), decimal("INT32", 0, 0)),
        (Decimal(1), decimal("INT32", 5, 6)),
        (Decimal(1), decimal("INT32", 5, -1)),
        (Decimal(1), decimal("BYTE_ARRAY", (1 << 31) - 1, 0)),
        (Decimal(1), decimal("FIXED_LEN_BYTE_ARRAY", 9, 0, (1 << 31) - 1)),
        (Decimal(1), decimal("FIXED_LEN_BYTE_ARRAY", 9, 0, None)),
        (1.0, column("FIXED_LEN_BYTE_ARRAY", 4, "float16")),
    ],
)
def test_undecided(value: Any, column_type: ColumnType) -> None:
    assert encode_value(value, column_type) is None


def test_int96_is_decided_only_on_the_callers_word() -> None:
    stored = struct.pack("<qi", 12 * 3600 * 10**9, 2461230)
    for value in (NOON, NOON.replace(tzinfo=UTC), NOON.replace(hour=7, tzinfo=NEW_YORK), np.datetime64(NOON_NS, "ns")):
        assert encode_value(value, INT96, int96_utc=True) == (stored,)
    assert encode_value(dt.datetime(1582, 10, 4), INT96, int96_utc=True) is None
    assert encode_value(np.datetime64(1, "ps"), INT96, int96_utc=True) == ()


def test_narrowing_by_one_step_or_two() -> None:
    """An int of 60 bits that lies beside the middle of two floats rounds one way directly, the other by a double."""
    middle = (1 << 60) + (1 << 36)
    for sign in (1, -1):
        encodings = encode_value(sign * (middle + 1), FLOAT)
        assert encodings is not None
        found = {struct.unpack("<f", data)[0] for data in encodings}
        assert found == {sign * float(1 << 60), sign * float((1 << 60) + (1 << 37))}


class PandasLike(dt.datetime):
    """What a pandas.Timestamp looks like to us: a datetime with nanoseconds beyond its microseconds."""

    nanosecond = 7


def test_nanoseconds_of_a_datetime_subclass() -> None:
    value = PandasLike(2026, 7, 8, 12)
    assert encode_value(value, timestamp("ns")) == i64(NOON_NS + 7)
    assert encode_value(value, timestamp("us")) == ()


@pytest.mark.parametrize(
    ("value", "column_type"),
    [
        (True, INT32),
        (np.True_, INT64),
        (1.0, INT64),
        ("1", INT32),
        (Decimal(1), INT32),
        (NOON, INT64),
        (NOON, DATE),
        (np.datetime64("2020-01-01T00"), DATE),
        (18000, DATE),
        (NOON, time_of("us")),
        (dt.time(1, tzinfo=UTC), time_of("us")),
        (dt.date(2020, 1, 1), timestamp("us")),
        (5, timestamp("us")),
        (NOON, timestamp("us", utc=True)),
        (NOON.replace(tzinfo=UTC), timestamp("us")),
        (np.datetime64("2020-01-01T00"), timestamp("us", utc=True)),
        (pa.scalar(5, pa.timestamp("us")), timestamp("us", utc=True)),
        (pa.scalar(5, pa.duration("us")), INT64),
        (dt.timedelta(1), INT64),
        (True, DOUBLE),
        ("1.0", FLOAT),
        (Decimal(1), DOUBLE),
        (1.5, decimal("INT32", 9, 2)),
        (True, decimal("INT32", 9, 2)),
        ("1.5", decimal("BYTE_ARRAY", 9, 2)),
        (1, STRING),
        (b"\xff", STRING),
        ("\ud800", STRING),
        ("text", BINARY),
        (1234, FIXED),
        ("no uuid", UUID),
        (b"short", UUID),
        (uuid.UUID(int=1), FIXED),
        (1, BOOLEAN),
        (bytes(12), INT96),
        (5, INT96),
        ([1], INT32),
        (object(), STRING),
    ],
)
def test_wrong_kind(value: Any, column_type: ColumnType) -> None:
    with pytest.raises(UsageError) as caught:
        encode_value(value, column_type, int96_utc=True)
    message = str(caught.value)
    assert str(column_type) in message
    assert type(value).__name__ in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_messages_keep_the_value_to_themselves() -> None:
    for value, column_type in (
        ("secret-078-05", UUID),
        ("078051120", INT32),
        (b"\xffsecret", STRING),
        (78051120, STRING),
    ):
        with pytest.raises(UsageError) as caught:
            encode_value(value, column_type)
        assert "078051120" not in str(caught.value)
        assert "78051120" not in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("column_type", "text"),
    [
        (INT64, "INT64"),
        (timestamp("us", utc=True), "INT64 timestamp[us, UTC]"),
        (timestamp("ns"), "INT64 timestamp[ns]"),
        (sized(8, signed=False), "INT32 uint8"),
        (decimal("FIXED_LEN_BYTE_ARRAY", 9, 2, 4), "FIXED_LEN_BYTE_ARRAY(4) decimal(9, 2)"),
        (STRING, "BYTE_ARRAY string"),
    ],
)
def test_types_in_words(column_type: ColumnType, text: str) -> None:
    assert str(column_type) == text


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers_at_their_ends(bits: int, signed: bool) -> None:
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    width = 8 if bits == 64 else 4
    for number in (least, least + 1, greatest - 1, greatest):
        assert encode_value(number, sized(bits, signed)) == ((number % (1 << 8 * width)).to_bytes(width, "little"),)
    for number in (least - 2, least - 1, greatest + 1, greatest + 2):
        assert encode_value(number, sized(bits, signed)) == ()
    assert int_range(sized(bits, signed)) == (least, greatest)


def test_dates_of_every_form() -> None:
    day = dt.date(2024, 1, 1)
    number = i32((day - dt.date(1970, 1, 1)).days)
    forms = [pa.scalar(day, pa.date32()), pa.scalar(day, pa.date64()), np.datetime64(day)]
    for value in [day, *forms, np.datetime64("2024", "Y"), np.datetime64("2024-01", "M"), np.datetime64(day, "D")]:
        assert encode_value(value, DATE) == number
    week = np.datetime64("2024-01-04", "W")  # a Thursday, as 1970-01-01 was
    assert encode_value(week, DATE) == i32((dt.date(2024, 1, 4) - dt.date(1970, 1, 1)).days)
    assert encode_value(np.datetime64("1969-12-31"), DATE) == i32(-1)
    assert encode_value(np.datetime64("2024", "Y"), timestamp("ms")) == i64(1_704_067_200_000)


@pytest.mark.parametrize(("unit", "factor"), [("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_of_every_unit(unit: str, factor: int) -> None:
    pack = i32 if unit == "ms" else i64
    seconds = (13 * 60 + 47) * 60 + 59
    assert encode_value(dt.time(13, 47, 59), time_of(unit)) == pack(seconds * factor)
    assert encode_value(dt.time(0, 0, 0, 3_000), time_of(unit)) == pack(3 * factor // 1_000)


def test_int96_at_its_ends() -> None:
    """Decided from 1900 on, and as far as 32 bits of Julian days go."""
    first = dt.datetime(1900, 1, 1)
    assert encode_value(first, INT96, int96_utc=True) == (struct.pack("<qi", 0, 2_415_021),)
    assert encode_value(first - dt.timedelta(microseconds=1), INT96, int96_utc=True) is None
    last = (1 << 31) - 1 - 2_440_588
    assert encode_value(np.datetime64(last, "D"), INT96, int96_utc=True) == (struct.pack("<qi", 0, (1 << 31) - 1),)
    assert encode_value(np.datetime64(last + 1, "D"), INT96, int96_utc=True) == ()


def test_integers_beyond_64_bits_are_rounded_by_a_double_alone() -> None:
    """numpy holds no integer of more bits as a number, and would make an object of it."""
    for value in (-(1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1 << 64, (1 << 64) + 1, 1 << 70, -(1 << 70)):
        encodings = encode_value(value, FLOAT)
        assert encodings is not None
        assert struct.pack("<f", float(value)) in encodings
        assert all(len(data) == 4 for data in encodings)
        assert encode_value(value, DOUBLE) == (struct.pack("<d", float(value)),)


@pytest.mark.parametrize("column_type", [FLOAT, DOUBLE, HALF])
def test_numbers_that_no_width_holds_are_infinite_or_zero(column_type: ColumnType) -> None:
    pack = {4: "<f", 8: "<d", 2: "<e"}[column_type.type_length or (8 if column_type is DOUBLE else 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is nobody's mistake
        for value, end in ((10**400, float("inf")), (-(10**400), float("-inf"))):
            assert encode_value(value, column_type) == (struct.pack(pack, end),)
        if column_type is not DOUBLE:
            assert encode_value(1e300, column_type) == (struct.pack(pack, float("inf")),)
            assert set(encode_value(1e-300, column_type) or ()) == {struct.pack(pack, 0.0), struct.pack(pack, -0.0)}


@pytest.mark.parametrize(
    ("value", "column_type", "expected"),
    [
        (Decimal(9), decimal("INT32", 1, 0), i32(9)),
        (Decimal("0.9"), decimal("INT32", 1, 1), i32(9)),
        (Decimal(1), decimal("FIXED_LEN_BYTE_ARRAY", 1_000, 0, 1), (b"\x01",)),
        (Decimal(128), decimal("FIXED_LEN_BYTE_ARRAY", 2, 0, 1), ()),
        (Decimal(-128), decimal("FIXED_LEN_BYTE_ARRAY", 2, 0, 1), (b"\x80",)),
        (Decimal(0), decimal("FIXED_LEN_BYTE_ARRAY", 2, 0, 1), (b"\x00",)),
        (Decimal(0), decimal("BYTE_ARRAY", 38, 0), widths(0, 1, 16)),
        (Decimal(-1), decimal("BYTE_ARRAY", 38, 0), widths(-1, 1, 16)),
        (Decimal(1), decimal("BYTE_ARRAY", 39, 0), widths(1, 1, 32)),
        (Decimal(1), decimal("BYTE_ARRAY", 76, 0), widths(1, 1, 32)),
        (Decimal(1), decimal("BYTE_ARRAY", 77, 0), widths(1, 1, 33)),  # 10**77 needs 256 bits and a sign
        (Decimal(10), decimal("INT32", 9, 0), i32(10)),
        (Decimal("1E+1"), decimal("INT32", 9, 0), i32(10)),
        (Decimal("1.0"), decimal("INT32", 9, 0), i32(1)),
        (Decimal("0.1"), decimal("INT32", 9, 0), ()),
        (Decimal("0.01"), decimal("INT32", 9, 0), ()),
        (Decimal(10**1_200), decimal("FIXED_LEN_BYTE_ARRAY", 1_000, 0, 512), ((10**1_200).to_bytes(512, "big"),)),
        (Decimal("1E+1300"), decimal("FIXED_LEN_BYTE_ARRAY", 1_000, 0, 512), ()),
    ],
)
def test_decimals_at_their_ends(value: Decimal, column_type: ColumnType, expected: tuple[bytes, ...]) -> None:
    assert encode_value(value, column_type) == expected


@pytest.mark.parametrize(
    ("value", "column_type"),
    [
        (Decimal(1), decimal("INT32", 1_001, 0)),
        (Decimal(1), decimal("FIXED_LEN_BYTE_ARRAY", 9, 0, 0)),
        (Decimal(1), decimal("FIXED_LEN_BYTE_ARRAY", 9, 0, 513)),
        (Decimal(1), decimal("FLOAT", 9, 0)),
        (Decimal("1E+2000"), decimal("BYTE_ARRAY", 1_000, 0)),
    ],
)
def test_decimals_that_are_not_decided(value: Decimal, column_type: ColumnType) -> None:
    assert encode_value(value, column_type) is None


def test_messages_say_what_is_wanted() -> None:
    for value, wanted in (
        (1, "a str"),
        ("\ud800", "text that UTF-8 can encode"),
        (b"\xff", "text that UTF-8 can encode"),
    ):
        with pytest.raises(UsageError) as caught:
            encode_value(value, STRING)
        assert caught.value.hint == wanted


def test_nulls_of_other_libraries() -> None:
    pandas = pytest.importorskip("pandas")
    nulls = [pandas.NaT, pandas.NA, None, np.datetime64("NaT"), np.timedelta64("NaT")]
    for value in [*nulls, pa.array(["a", None]).dictionary_encode()[1]]:
        assert stands_for_null(unwrap(value))
        for column_type in (INT64, STRING, timestamp("ns")):
            assert encode_value(value, column_type) is None
    for value in (0, "", "NaT", np.datetime64(0, "ns"), pandas.Timestamp(0)):
        assert not stands_for_null(value)
