"""From a typed value to the plain-encoding bytes that a writer may have hashed for it.

The footer's type decides, never the value's Python type: a filter over a FLOAT column asked with the eight bytes of
a double would answer *absent* for values that are there.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from ..errors import UsageError
from ..text import articled
from .types import ColumnType, LogicalType, PhysicalType

Encodings = tuple[bytes, ...] | None

_ABSENT: Final[Encodings] = ()
_UNDECIDED: Final[Encodings] = None

_MOMENTS: Final = (
    *(pa.TimestampScalar, pa.Time32Scalar, pa.Time64Scalar, pa.Date32Scalar, pa.Date64Scalar),
    *(pa.DurationScalar, pa.MonthDayNanoIntervalScalar),  # which no column type takes
)
_BYTES: Final = (bytes, bytearray, memoryview, pa.Buffer)
_INT_BYTES: Final = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}
NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_NANOS: Final = 86_400 * NANOS["s"]
_NUMPY_NANOS: Final[dict[str, int | Fraction]] = {
    "W": 7 * _DAY_NANOS,
    "D": _DAY_NANOS,
    "h": 3_600 * NANOS["s"],
    "m": 60 * NANOS["s"],
    **NANOS,
    "ps": Fraction(1, 10**3),
    "fs": Fraction(1, 10**6),
    "as": Fraction(1, 10**9),
}
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_ORDINAL: Final = _EPOCH.toordinal()
_EPOCH_JULIAN_DAY: Final = 2_440_588
_INT96_FROM_DAY: Final = dt.date(1900, 1, 1).toordinal() - _EPOCH_ORDINAL

# Precision, scale and type length come from a file. Beyond these a number is not built from them: 10**(2**31) would
# keep a processor busy for hours. The widest decimals in use have 76 digits in 32 bytes.
_MAX_PRECISION: Final = 1_000
_MAX_DECIMAL_BYTES: Final = 512
_MAX_DIGITS: Final = 1_300
"""More than _MAX_DECIMAL_BYTES can hold."""
_DECODED_BYTES: Final = ((38, 16), (76, 32))
"""Up to this precision, decimals of variable length are decoded from up to so many bytes (Arrow's decimal128 and
decimal256).
"""


def encode_value(value: Any, column_type: ColumnType, *, int96_utc: bool = False) -> Encodings:
    """All plain encodings that can stand for `value` in a column of this type, the writer's usual one first.

    BYTE_ARRAY values carry no length prefix, as in the filter's hash (Parquet Bloom filter specification).

    Args:
        value: a Python, numpy or pyarrow scalar; pandas timestamps keep their nanoseconds.
        column_type: the column's type, from the footer.
        int96_utc: the caller states that INT96 values are canonical UTC instants; else INT96 is never decided.

    Returns:
        ``()`` where the type cannot hold the value: it is surely absent. None where no set of encodings is complete
        (null, NaN, BOOLEAN, INT96 by default): the value may be present, whatever a filter says.

    Raises:
        UsageError: the value is of the wrong kind for the column.
    """
    value = unwrap(value)
    if stands_for_null(value):
        return _UNDECIDED
    physical, kind = column_type.physical, column_type.kind
    if physical is PhysicalType.BOOLEAN:
        if not isinstance(value, bool | np.bool_):
            raise _refusal(value, column_type)
        return _UNDECIDED
    if physical is PhysicalType.INT96:
        return _encode_int96(value, column_type, int96_utc)
    if kind == "decimal":
        return _encode_decimal(value, column_type)
    if physical in _INT_BYTES:
        return _encode_int(value, column_type)
    if physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE) or kind == "float16":
        return _encode_float(value, column_type)
    return _encode_bytes(value, column_type)


def unwrap(value: Any) -> Any:
    """Take a pyarrow scalar apart; those of moments stay, because Python's types stop at microseconds and the year
    9999.
    """
    while isinstance(value, pa.DictionaryScalar | pa.ExtensionScalar | pa.RunEndEncodedScalar):
        value = value.value if value.is_valid else None
    if not isinstance(value, pa.Scalar):
        return value
    if not value.is_valid:
        return None
    if isinstance(value, _MOMENTS):
        return value
    try:
        return value.as_py()
    except (ValueError, OverflowError, TypeError):
        return value  # text that is not UTF-8, numbers that Python can't hold: no column type takes such


def stands_for_null(value: Any) -> bool:
    """Whether a value is None, NaT or NA."""
    if value is None:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    kind = type(value)
    return kind.__module__.startswith("pandas.") and kind.__name__ in ("NaTType", "NAType")


def _refusal(value: Any, column_type: ColumnType, hint: str | None = None) -> UsageError:
    # The types, never the value: it may be the very secret that the column keeps.
    return UsageError(f"{articled(column_type)} column cannot be asked for {articled(type(value).__name__)}", hint=hint)


def _is_int(value: Any) -> bool:
    # numpy counts its time spans as integers.
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


# Integers, dates and times ---------------------------------------------------------------------------------------


def _encode_int(value: Any, column_type: ColumnType) -> Encodings:
    match column_type.kind:
        case "date":
            number: int | None = date_days(value, column_type)
        case "time" | "timestamp":
            assert column_type.logical is not None  # noqa: S101 - kind says so
            unit = NANOS.get(column_type.logical.unit)
            if unit is None:
                return _UNDECIDED
            nanos = (time_nanos if column_type.kind == "time" else _timestamp_nanos)(value, column_type)
            quotient, rest = divmod(nanos, unit)
            number = None if rest else int(quotient)
        case _:
            if not _is_int(value):
                raise _refusal(value, column_type, "an int")
            number = int(value)
    bounds = int_range(column_type)
    if bounds is None:
        return _UNDECIDED
    if number is None or not bounds[0] <= number <= bounds[1]:
        return _ABSENT
    width = _INT_BYTES[column_type.physical]
    return ((number & ((1 << 8 * width) - 1)).to_bytes(width, "little"),)


def int_range(column_type: ColumnType) -> tuple[int, int] | None:
    """Least and greatest value of an integer column; None for a bit width that its physical type cannot have."""
    bits, signed = 8 * _INT_BYTES[column_type.physical], True
    if column_type.kind == "int":
        assert column_type.logical is not None  # noqa: S101 - kind says so
        width, signed = column_type.logical.bit_width, column_type.logical.signed
        if width not in (8, 16, 32, 64) or width > bits:
            return None
        bits = width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def date_days(value: Any, column_type: ColumnType) -> int:
    """Days since 1970-01-01. Raises UsageError: no date."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH_ORDINAL
    if isinstance(value, pa.Date32Scalar | pa.Date64Scalar):
        days, rest = divmod(int(value.value), 1 if isinstance(value, pa.Date32Scalar) else 86_400_000)
        if not rest:
            return days
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D"):
        return int(value.astype("datetime64[D]").astype(np.int64))
    raise _refusal(value, column_type, "a datetime.date")


def time_nanos(value: Any, column_type: ColumnType) -> int:
    """Nanoseconds since midnight. Raises UsageError: no time without a zone."""
    if isinstance(value, pa.Time32Scalar | pa.Time64Scalar):
        return int(value.value) * NANOS[value.type.unit]
    if isinstance(value, dt.time) and value.tzinfo is None:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * NANOS["s"] + value.microsecond * NANOS["us"]
    raise _refusal(value, column_type, "a datetime.time without a zone")


def _timestamp_nanos(value: Any, column_type: ColumnType) -> int | Fraction:
    moment = moment_of(value)
    utc = column_type.logical is not None and column_type.logical.utc
    if moment is None or moment[1] is not utc:
        # A naive value in a UTC-adjusted column, or the reverse, would need a zone that nobody stated.
        raise _refusal(value, column_type, f"a datetime {'with' if utc else 'without'} a time zone")
    return moment[0]


def moment_of(value: Any) -> tuple[int | Fraction, bool] | None:
    """Nanoseconds since the epoch, and whether they are UTC (else wall-clock); None if the value is no timestamp."""
    if isinstance(value, pa.TimestampScalar):
        return int(value.value) * NANOS[value.type.unit], value.type.tz is not None
    if isinstance(value, np.datetime64):
        unit, step = np.datetime_data(value.dtype)
        if unit in ("Y", "M"):
            value, unit, step = value.astype("datetime64[D]"), "D", 1
        return int(value.astype(np.int64)) * step * _NUMPY_NANOS[unit], False
    if isinstance(value, dt.datetime):
        wall = dt.datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
        )
        try:
            elapsed, offset = wall - _EPOCH, value.utcoffset()
        except Exception:  # a zone is the caller's code, and may raise anything
            return None
        if offset is not None:
            elapsed -= offset
        nanos = (elapsed // dt.timedelta(microseconds=1)) * NANOS["us"]
        return nanos + getattr(value, "nanosecond", 0), offset is not None  # only pandas.Timestamp has it
    return None


def _encode_int96(value: Any, column_type: ColumnType, utc: bool) -> Encodings:
    moment = moment_of(value)
    if moment is None:
        raise _refusal(value, column_type, "a datetime")
    day, nanos = divmod(moment[0], _DAY_NANOS)
    # Before 1900 writers differ: Spark's legacy mode counts in the hybrid calendar and in local mean times.
    if not utc or day < _INT96_FROM_DAY:
        return _UNDECIDED
    if nanos != int(nanos) or day + _EPOCH_JULIAN_DAY >= 1 << 31:
        return _ABSENT
    return (struct.pack("<qi", int(nanos), int(day) + _EPOCH_JULIAN_DAY),)


# Floating point --------------------------------------------------------------------------------------------------


def _encode_float(value: Any, column_type: ColumnType) -> Encodings:
    """Round to the column's width, as an equality that casts the literal does; exact values are among the results."""
    if not _is_int(value) and not isinstance(value, float | np.floating):
        raise _refusal(value, column_type, "a float or an int")
    if value != value:  # NaN has many bit patterns, and a reader may take any of them as equal
        return _UNDECIDED
    wide = _as_double(value)
    exact = wide if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64 else value
    # An engine narrows in one step or by way of a double or a float, and the results can differ in the last bit.
    with np.errstate(over="ignore", under="ignore"):
        sources: tuple[Any, ...]
        if column_type.physical is PhysicalType.DOUBLE:
            dtype, sources = "<f8", (wide,)
        elif column_type.physical is PhysicalType.FLOAT:
            dtype, sources = "<f4", (exact, wide)
        elif column_type.type_length == 2:
            dtype, sources = "<f2", (exact, wide, np.float32(wide))
        else:
            return _UNDECIDED
        found: dict[bytes, None] = {}
        for source in sources:
            rounded = np.array(source).astype(dtype)
            found[rounded.tobytes()] = None
            if rounded == 0:
                found[np.negative(rounded).tobytes()] = None  # 0.0 == -0.0, but their bits differ
    return tuple(found)


def _as_double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# Decimals --------------------------------------------------------------------------------------------------------


def _encode_decimal(value: Any, column_type: ColumnType) -> Encodings:
    if _is_int(value):
        value = Decimal(int(value))
    if not isinstance(value, Decimal):
        raise _refusal(value, column_type, "a decimal.Decimal or an int")
    if value.is_nan():
        return _UNDECIDED
    logical = column_type.logical
    assert logical is not None  # noqa: S101 - kind says so
    if not (0 < logical.precision <= _MAX_PRECISION and 0 <= logical.scale <= logical.precision):
        return _UNDECIDED
    unscaled = _unscaled(value, logical)
    if unscaled is None:
        return _ABSENT
    match column_type.physical:
        case PhysicalType.INT32 | PhysicalType.INT64:
            return _twos_complement(unscaled, _INT_BYTES[column_type.physical], "little")
        case PhysicalType.FIXED_LEN_BYTE_ARRAY:
            if column_type.type_length is None or not 0 < column_type.type_length <= _MAX_DECIMAL_BYTES:
                return _UNDECIDED
            return _twos_complement(unscaled, column_type.type_length, "big")
        case PhysicalType.BYTE_ARRAY:
            # Writers only *should* store the fewest bytes that hold the number, and no more digits than the precision.
            decoded = (most for precision, most in _DECODED_BYTES if logical.precision <= precision)
            widest = next(decoded, _signed_bytes(10**logical.precision - 1))
            widths = range(_signed_bytes(unscaled), widest + 1)
            return tuple(unscaled.to_bytes(width, "big", signed=True) for width in widths) or _UNDECIDED
        case _:
            return _UNDECIDED


def _unscaled(value: Decimal, logical: LogicalType) -> int | None:
    """The integer that a decimal column stores, also beyond its precision; None where its scale cannot hold the
    value.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # infinite
        return None
    number = int(Decimal((0, digits, 0)))
    if number == 0:
        return 0
    shift = exponent + logical.scale
    if shift < -len(digits):  # before any power of ten is computed
        return None
    if len(digits) + shift > _MAX_DIGITS:
        return 1 << 8 * _MAX_DECIMAL_BYTES
    if shift < 0:
        number, rest = divmod(number, int(10**-shift))
        if rest:
            return None
    else:
        number *= int(10**shift)
    return -number if sign else number


def _signed_bytes(number: int) -> int:
    """Fewest bytes of a two's complement that holds `number`; one for zero."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _twos_complement(number: int, width: int, order: Literal["little", "big"]) -> Encodings:
    return (number.to_bytes(width, order, signed=True),) if _signed_bytes(number) <= width else _ABSENT


# Strings, bytes and UUIDs ----------------------------------------------------------------------------------------


def _encode_bytes(value: Any, column_type: ColumnType) -> Encodings:
    match column_type.kind:
        case "string" | "enum" | "json":
            data = _text(value, column_type)
        case "uuid":
            data = _uuid_bytes(value, column_type)
        case _:
            if not isinstance(value, _BYTES):
                raise _refusal(value, column_type, "bytes")
            data = bytes(value)
    if column_type.physical is PhysicalType.FIXED_LEN_BYTE_ARRAY and len(data) != column_type.type_length:
        return _ABSENT
    return (data,)


def _text(value: Any, column_type: ColumnType) -> bytes:
    wanted = "a str"
    try:
        if isinstance(value, str):
            return str.encode(value)
        if isinstance(value, _BYTES):
            data = bytes(value)
            data.decode()
            return data
    except UnicodeError:
        wanted = "text that UTF-8 can encode"
    # Raised out here: the other error holds the value.
    raise _refusal(value, column_type, wanted)


def _uuid_bytes(value: Any, column_type: ColumnType) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, _BYTES) and len(data := bytes(value)) == 16:
        return data
    if isinstance(value, str):
        try:
            return uuid.UUID(value).bytes
        except ValueError:
            raise _refusal(value, column_type, "a str in the form of a UUID") from None
    raise _refusal(value, column_type, "a uuid.UUID, its text, or its 16 bytes")
