"""Text, in a condition of SQL or on a command line → a value of a column's type, which the footer decides."""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
import uuid
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from ...core.errors import Hint, UsageError
from ...core.parquet.schema import Leaf, Schema
from ...core.sbbf import ColumnType, PhysicalType
from ...core.text import articled

HINT: Final = (
    "SQL: text and dates in single quotes, as in \"ssn = '…' and not born < '1985-01-01'\"; names in double quotes"
)

_FRACTION: Final = re.compile(r"(?<=\d)\.(\d+)")
_WHAT: Final = {
    "date": "a date such as 1984-03-07",
    "time": "a time such as 13:37:00.25",
    "decimal": "a number such as -12.50",
    "uuid": "a UUID",
    "float": "a number such as 0.25",
    "int": "a whole number",
    "bool": "true or false",
    "binary": "text, or hex: or base64: and the bytes",
}


def parse_value(text: str, column_type: ColumnType) -> Any:
    """The value that `text` stands for in a column of this type.

    Numbers, dates (ISO 8601), UUIDs and text are written as usual; timestamps in ISO 8601, with a zone (``Z``) exactly
    where the column is adjusted to UTC; bytes as ``hex:…``, ``base64:…`` or, without a prefix, as UTF-8 text.

    Raises:
        UsageError: the text does not fit. The message does not repeat it: it may be the secret looked for.
    """
    kind, physical = column_type.kind, column_type.physical
    if physical is PhysicalType.BOOLEAN:
        kind = "bool"
    elif physical is PhysicalType.INT96:
        kind = "timestamp"
    elif kind in ("date", "time", "timestamp", "decimal", "uuid", "string", "enum", "json"):
        pass
    elif physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE) or kind == "float16":
        kind = "float"
    else:
        kind = "int" if physical in (PhysicalType.INT32, PhysicalType.INT64) else "binary"
    try:
        return _parse(text, kind, column_type)
    except (ValueError, ArithmeticError, InvalidOperation, KeyError, pa.ArrowException):
        pass
    if kind == "timestamp":
        zone = "with a zone such as Z" if physical is PhysicalType.INT96 or _is_utc(column_type) else "without a zone"
        hint = f"a moment in ISO 8601, {zone}"
    else:
        hint = _WHAT[kind]
    raise UsageError(f"a value that is none of type {column_type}", hint=hint)


def row_leaf(schema: Schema, name: str) -> Leaf:
    """The column of this name, of which each row has one value.

    Raises:
        UsageError: there is none.
    """
    leaf = schema.leaf(name)
    if leaf.repeated:
        raise UsageError("a row predicate on a repeated column", column=name, hint=Hint.PROBE)
    return leaf


def literal_value(text: str, leaf: Leaf, name: str, *, bare: bool) -> Any:
    """A literal as a value of the column's type.

    Args:
        bare: it stands without quotes: a number, true or false.

    Raises:
        UsageError: it does not suit the column.
    """
    boolean = text in ("true", "false")
    if bare and not (leaf.type.physical is PhysicalType.BOOLEAN if boolean else _is_number(leaf)):
        raise UsageError(f"{articled(leaf.type)} column is not compared with such a literal", column=name, hint=HINT)
    try:
        return parse_value(text, leaf.type)
    except UsageError as error:
        raise error.at(column=name) from None


def _is_number(leaf: Leaf) -> bool:
    physical, kind = leaf.type.physical, leaf.type.kind
    plain = physical in (PhysicalType.INT32, PhysicalType.INT64, PhysicalType.FLOAT, PhysicalType.DOUBLE)
    return kind in ("int", "decimal", "float16") or (plain and kind == "")


def _float(text: str, column_type: ColumnType) -> float:
    """A number that the column's width takes for infinite is none of its values: no row equals it."""
    value = float(text)
    width = {PhysicalType.DOUBLE: "<d", PhysicalType.FLOAT: "<f"}.get(column_type.physical, "<e")
    if math.isinf(value) and any(map(str.isdigit, text)):
        raise ValueError
    if not math.isinf(value):
        struct.pack(width, value)  # OverflowError
    return value


def _parse(text: str, kind: str, column_type: ColumnType) -> Any:
    if kind in ("int", "float", "decimal") and "_" in text:
        raise ValueError  # Python's own notation
    match kind:
        case "string" | "enum" | "json":
            return text
        case "int":
            return int(text)
        case "float":
            return _float(text, column_type)
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "decimal":
            return Decimal(text)
        case "date":
            return dt.date.fromisoformat(text)
        case "uuid":
            return uuid.UUID(text)
        case "time":
            return _time(text)
        case "timestamp":
            return _timestamp(text, None if column_type.physical is PhysicalType.INT96 else _is_utc(column_type))
        case _:
            return _binary(text)


def _binary(text: str) -> bytes:
    prefix, colon, rest = text.partition(":")
    if colon and prefix == "hex":
        return bytes.fromhex(rest)
    if colon and prefix == "base64":
        return base64.b64decode(rest, validate=True)
    return text.encode()


def _is_utc(column_type: ColumnType) -> bool:
    return column_type.logical is not None and column_type.logical.utc


def _split_nanos(text: str) -> tuple[str, int]:
    """The text cut to microseconds, and its nanoseconds below those: Python's own parsers drop digits after the
    sixth.
    """
    if (match := _FRACTION.search(text)) is None or len(match[1]) <= 6:
        return text, 0
    digits = match[1]
    if len(digits) > 9 and digits[9:].strip("0"):
        raise ValueError
    return text[: match.start(1) + 6] + text[match.end(1) :], int(digits[6:9].ljust(3, "0"))


def _time(text: str) -> Any:
    text, nanos = _split_nanos(text)
    value = dt.time.fromisoformat(text)
    if value.tzinfo is not None:
        raise ValueError
    if not nanos:
        return value
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return pa.scalar(micros * 1000 + nanos, pa.time64("ns"))


def _timestamp(text: str, utc: bool | None) -> Any:
    text, nanos = _split_nanos(text)
    value = dt.datetime.fromisoformat(text)
    if utc is not None and (value.tzinfo is not None) is not utc:
        raise ValueError
    if not nanos:
        return value
    wall = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
    micros = (wall - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    return pa.scalar(micros * 1000 + nanos, pa.timestamp("ns", "UTC" if value.tzinfo else None))
