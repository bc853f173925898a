"""Text → values, filters, conditions, keys: by the footer's type, and never repeated in a message."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bloomseal import FilterSpec, UsageError
from bloomseal.cli.arguments.inputs import parse_type
from bloomseal.cli.arguments.keys import Given, parse_key
from bloomseal.cli.arguments.sealing import parse_filters
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import KeyAccessError
from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, encode_value
from bloomseal.read.predicate.literals import parse_value

P = PhysicalType
UTC = dt.UTC


def column(physical: PhysicalType, kind: str = "", *, length: int | None = None, **rest: Any) -> ColumnType:
    return ColumnType(physical, length, LogicalType(kind, **rest) if kind else None)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("-7", column(P.INT32), -7),
        ("18446744073709551615", column(P.INT64, "int", bit_width=64, signed=False), 2**64 - 1),
        ("0.1", column(P.FLOAT), 0.1),
        ("-inf", column(P.DOUBLE), float("-inf")),
        ("1.5", column(P.FIXED_LEN_BYTE_ARRAY, "float16", length=2), 1.5),
        ("true", column(P.BOOLEAN), True),
        ("-12.50", column(P.FIXED_LEN_BYTE_ARRAY, "decimal", length=6, precision=12, scale=2), Decimal("-12.50")),
        ("1984-03-07", column(P.INT32, "date"), dt.date(1984, 3, 7)),
        ("13:37", column(P.INT32, "time", unit="ms"), dt.time(13, 37)),
        ("13:37:00.123456789", column(P.INT64, "time", unit="ns"), pa.scalar(49_020_123_456_789, pa.time64("ns"))),
        ("2025-01-02T03:04:05Z", column(P.INT64, "timestamp", unit="us", utc=True), dt.datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2025-01-02 03:04:05", column(P.INT64, "timestamp", unit="us"), dt.datetime(2025, 1, 2, 3, 4, 5)),
        (
            "1969-12-31T23:59:59.999999999",
            column(P.INT64, "timestamp", unit="ns"),
            pa.scalar(-1, pa.timestamp("ns")),
        ),
        (
            "2025-01-02T03:04:05.000000001+01:00",
            column(P.INT64, "timestamp", unit="ns", utc=True),
            pa.scalar(1_735_783_445_000_000_001, pa.timestamp("ns", "UTC")),
        ),
        ("2025-01-02T03:04:05Z", column(P.INT96), dt.datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("hex:00", column(P.BYTE_ARRAY, "string"), "hex:00"),
        ("hex:00ff", column(P.BYTE_ARRAY), b"\x00\xff"),
        ("base64:AP8=", column(P.BYTE_ARRAY), b"\x00\xff"),
        ("plain: text", column(P.BYTE_ARRAY), b"plain: text"),
        ("hex:00ff", column(P.FIXED_LEN_BYTE_ARRAY, length=2), b"\x00\xff"),
        (
            "12345678-1234-5678-1234-567812345678",
            column(P.FIXED_LEN_BYTE_ARRAY, "uuid", length=16),
            uuid.UUID("12345678123456781234567812345678"),
        ),
    ],
)  # fmt: skip
def test_text_means_what_the_columns_type_says(text: str, kind: ColumnType, value: object) -> None:
    parsed = parse_value(text, kind)
    assert parsed == value
    assert type(parsed) is type(value)
    encode_value(parsed, kind)  # and the filter's encoding takes it


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("4711.5", column(P.INT64)),
        ("4_711", column(P.INT64)),
        ("4_711", column(P.DOUBLE)),
        ("not a number 4711", column(P.DOUBLE)),
        ("4711", column(P.INT32, "date")),
        ("4711:00", column(P.INT64, "time", unit="us")),
        ("2025-01-02T03:04:05.4711", column(P.INT64, "timestamp", unit="us", utc=True)),  # no zone
        ("2025-01-02T03:04:05.4711Z", column(P.INT64, "timestamp", unit="us")),  # a zone too many
        ("2025-01-02T03:04:05.0000047110001", column(P.INT64, "timestamp", unit="ns")),  # finer than a nanosecond
        ("4711", column(P.FIXED_LEN_BYTE_ARRAY, "uuid", length=16)),
        ("hex:4711z", column(P.BYTE_ARRAY)),
        ("base64:4711*", column(P.BYTE_ARRAY)),
        ("4711 euros", column(P.INT32, "decimal", precision=9, scale=2)),
        ("4711", column(P.BOOLEAN)),
    ],
)
def test_text_that_does_not_fit_is_refused_without_repeating_it(text: str, kind: ColumnType) -> None:
    with pytest.raises(UsageError) as caught:
        parse_value(text, kind)
    assert "4711" not in str(caught.value)
    assert "4_711" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "column", "spec"),
    [
        ("ssn", "ssn", FilterSpec()),
        ("ssn:fpp=0.001", "ssn", FilterSpec(fpp=0.001)),
        ("a:b", "a:b", FilterSpec()),
        ("a:b:ndv=100,hide_size", "a:b", FilterSpec(ndv=100, hide_size=True)),
        ("ssn:num_bytes=1024,max_bytes=2048", "ssn", FilterSpec(num_bytes=1024, max_bytes=2048)),
        ("ssn:ndv=100,hide_size", "ssn", FilterSpec(ndv=100, hide_size=True)),
        ("a:b=c:fpp=0.5", "a:b=c", FilterSpec(fpp=0.5)),
    ],
)
def test_filters(text: str, column: str, spec: FilterSpec) -> None:
    assert parse_filters([text]) == {column: spec}


@pytest.mark.parametrize(
    "text", ["ssn:fpp=x", "ssn:fpp=2", "ssn:ndv=1.5", "ssn:hide_size", "ssn:fpr=0.1", "ssn:hide_size=1"]
)
def test_filters_that_can_not_be(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filters([text])
    assert caught.value.column == "ssn"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("00112233445566778899aabbccddeeff\n", bytes.fromhex("00112233445566778899aabbccddeeff")),
        ("ABEiM0RVZneImaq7zN3u/w==", bytes.fromhex("00112233445566778899aabbccddeeff")),
        ("hex:" + "ab" * 24, b"\xab" * 24),
        ("base64:" + "AAAA" * 8, bytes(24)),
        ("text:0123456789012345", b"0123456789012345"),
        ("ab" * 32, b"\xab" * 32),
    ],
)
def test_keys(text: str, value: bytes) -> None:
    assert parse_key(text.encode(), "ssn").reveal() == value


@pytest.mark.parametrize("text", ["", "4711", "47" * 15, "hex:4711", "text:4711", "\xff4711", "4711====", "47 " * 16])
def test_what_is_no_key_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(KeyAccessError) as caught:
        parse_key(text.encode("latin-1"), "ssn")
    assert "ssn" in str(caught.value)
    assert "47" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_names_of_keys() -> None:
    given, key = Given(), SecretKey(bytes(16))
    for name in ("footer", "ssn", "column:footer", "id:kf", "id:arn:aws:kms:x"):
        given.put(name, key)
    assert given.footer is key
    assert set(given.columns) == {"ssn", "footer"}
    assert set(given.ids) == {"kf", "arn:aws:kms:x"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("string", pa.string()),
        ("date32", pa.date32()),
        ("decimal(12, 2)", pa.decimal128(12, 2)),
        ("decimal(60,3)", pa.decimal256(60, 3)),
        ("timestamp[us, UTC]", pa.timestamp("us", "UTC")),
        ("timestamp[ns]", pa.timestamp("ns")),
    ],
)
def test_types(text: str, kind: pa.DataType) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize("text", ["", "strong", "decimal(99999,2)", "timestamp[fortnight]"])
def test_no_types(text: str) -> None:
    with pytest.raises(UsageError):
        parse_type(text)
