"""From the values asked for to the hashes that an ORC writer may have put into its filter for them.

The file's type decides, as in Parquet; where writers hash one value in several ways, each of them is asked for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.errors import UsageError
from ...core.sbbf.encoding import encode_value, moment_of, stands_for_null, unwrap
from ...core.sbbf.probe import ProbeSet
from ...core.sbbf.types import ColumnType, LogicalType, PhysicalType
from ...core.text import articled
from ...sbbf.batch import worthwhile
from ..filters import MOST_POSITIONS, Filters
from ..hashing import hash_bytes, hash_longs, positions
from ..index import Bounds
from ..schema import INTEGER_BITS, OrcColumn, OrcKind

Inputs = tuple[int, ...] | tuple[bytes, ...] | None
"""Inputs of the hash, any of which can stand for a value; none at all: it is absent; None: it may always be there."""

_TEXT: Final = (OrcKind.STRING, OrcKind.VARCHAR, OrcKind.CHAR)
_TYPES: Final = {
    OrcKind.BOOLEAN: ColumnType(PhysicalType.BOOLEAN),
    OrcKind.FLOAT: ColumnType(PhysicalType.FLOAT),
    OrcKind.DOUBLE: ColumnType(PhysicalType.DOUBLE),
    OrcKind.BINARY: ColumnType(PhysicalType.BYTE_ARRAY),
    OrcKind.DATE: ColumnType(PhysicalType.INT32, None, LogicalType("date")),
    **{kind: ColumnType(PhysicalType.BYTE_ARRAY, None, LogicalType("string")) for kind in _TEXT},
    **{
        kind: ColumnType(PhysicalType.INT64 if bits == 64 else PhysicalType.INT32, None, LogicalType("int", bits))
        for kind, bits in INTEGER_BITS.items()
    },
}
_DECIMAL_BYTES: Final = 32
_LONGEST_CHAR: Final = 65_535
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_GREGORIAN_FROM: Final = dt.date(1582, 10, 15).toordinal() - _EPOCH
_SURE_FROM: Final = (dt.date(1900, 1, 1).toordinal() - _EPOCH) * 86_400_000
"""Before it, in milliseconds, writers differ in calendars and local mean times."""
_LONG_END: Final = 1 << 63
_UTC: Final = ("GMT", "UTC", "Etc/UTC", "Etc/GMT", "Z")
_FLOATS: Final = {OrcKind.FLOAT: np.float32, OrcKind.DOUBLE: np.float64}
_SPAN: Final = 2_000
"""Nanoseconds to hash a text without kernels."""


class OrcProbeSet(ProbeSet):
    """Values of one column of an ORC file, hashed once. Make one with `of_column`."""

    __slots__ = ("_longs",)

    def __init__(self, values: HashedValues) -> None:
        super().__init__(values.hashes.view(np.uint64), (values.owners, values.undecided))
        self._apart = None  # which bits a value chooses is another matter here
        self._longs = values.longs

    @classmethod
    def of_column(cls, values: Iterable[Any], column: OrcColumn, *, zone: str, hybrid: bool) -> Self:
        """Hash Python, numpy or Arrow values.

        Args:
            column: a leaf.
            zone: the stripe's writer time zone: TIMESTAMP values are wall-clock times in it.
            hybrid: dates before 1582-10-15 may count in the Julian calendar.

        Raises:
            UsageError: a value of the wrong kind for the column.
        """
        if (known := hashed(values, column)) is not None:
            return cls(known)
        inputs: list[Any] = []
        owners: list[int] = []
        undecided: list[bool] = []
        for place, value in enumerate(values):
            found = _inputs(unwrap(value), column, zone, hybrid)
            undecided.append(found is None)
            inputs += found or ()
            owners += [place] * len(found or ())
        of, doubts = np.array(owners, np.intp), np.array(undecided, np.bool_)
        if column.kind in _TEXT or column.kind in (OrcKind.BINARY, OrcKind.DECIMAL):
            return cls(HashedValues(hash_bytes(inputs), of, doubts, None))
        longs = np.array(inputs, np.int64)
        ordered = column.kind in INTEGER_BITS or column.kind is OrcKind.DATE
        return cls(HashedValues(hash_longs(longs), of, doubts, longs if ordered else None))

    def within(self, bounds: Bounds | None) -> npt.NDArray[np.bool_]:
        """Which values the statistics leave possible; null is always."""
        longs = self._longs
        if bounds is not None and bounds.only_nulls:
            return self.of_values(np.zeros(len(self._hashes), np.bool_))
        if bounds is None or longs is None or (bounds.least is None and bounds.greatest is None):
            return np.ones(len(self), np.bool_)
        inside = np.ones(len(longs), np.bool_)
        if bounds.least is not None:
            inside &= longs >= bounds.least
        if bounds.greatest is not None:
            inside &= longs <= bounds.greatest
        return self.of_values(inside)

    def check_all(self, filters: Filters) -> npt.NDArray[np.bool_] | None:
        """Few values, asked of filters of one size at once: an array of shape (filters, values). None: too much of both
        to be held in memory.
        """
        if not filters.num_bytes or len(filters) * len(self._hashes) * filters.num_hashes > MOST_POSITIONS:
            return None
        hits = filters.hits(positions(self._hashes.view(np.int64), filters.num_hashes, 8 * filters.num_bytes))
        return np.array([self.of_values(one) for one in hits], np.bool_).reshape(len(filters), len(self))


def _inputs(value: Any, column: OrcColumn, zone: str, hybrid: bool) -> Inputs:
    kind = column.kind
    if stands_for_null(value) or kind is None:
        return None
    if kind in (OrcKind.TIMESTAMP, OrcKind.TIMESTAMP_INSTANT):
        return _timestamp(value, column, zone)
    if kind is OrcKind.DECIMAL:
        return _decimal(value, column)
    encoded = encode_value(value, _TYPES[kind])
    if encoded is None:
        return None
    match kind:
        case OrcKind.FLOAT:
            # A float is widened: its hash is that of the double's bits.
            doubles = np.frombuffer(b"".join(encoded), "<f4").astype(np.float64)
            return tuple(doubles.view(np.int64).tolist())
        case OrcKind.DATE:
            return _with_julian(*_ints(encoded)) if hybrid and encoded else _ints(encoded)
        case OrcKind.CHAR:
            return _padded(encoded[0], column.length) if encoded else ()
        case OrcKind.STRING | OrcKind.VARCHAR | OrcKind.BINARY:
            return encoded
        case _:
            return _ints(encoded)


def _ints(encoded: tuple[bytes, ...]) -> tuple[int, ...]:
    return tuple(int.from_bytes(one, "little", signed=True) for one in encoded)


def _with_julian(days: int) -> tuple[int, ...]:
    """A day before the Gregorian calendar, also counted as the same date of the Julian one."""
    if days >= _GREGORIAN_FROM:
        return (days,)
    try:
        date = dt.date.fromordinal(days + _EPOCH)
    except (ValueError, OverflowError):
        return (days,)
    # Day number of a Julian date (Meeus, "Astronomical Algorithms", chapter 7), less that of 1970-01-01.
    month, year = (date.month, date.year) if date.month > 2 else (date.month + 12, date.year - 1)
    julian = 1461 * (year + 4716) // 4 + 306_001 * (month + 1) // 10_000 + date.day - 1_524
    return days, julian - 2_440_588


def _padded(text: bytes, length: int) -> Inputs:
    """A CHAR, which one writer pads to characters and another to bytes; readers may give it with or without the
    padding.
    """
    if length > _LONGEST_CHAR:
        return None
    bare = text.rstrip(b" ")
    characters = len(bare.decode("utf-8", "replace"))
    forms = {text, bare, bare.ljust(length), bare + b" " * max(0, length - characters)}
    return tuple(sorted(forms))


def _timestamp(value: Any, column: OrcColumn, zone: str) -> Inputs:
    moment = moment_of(value)
    if moment is None:
        raise UsageError(
            f"{articled(column.type_name)} column cannot be asked for {articled(type(value).__name__)}",
            hint="a datetime",
        )
    nanos, aware = moment
    if column.kind is OrcKind.TIMESTAMP_INSTANT and not aware:
        raise UsageError("a timestamp_instant column holds moments", hint="a datetime with a time zone")
    if column.kind is OrcKind.TIMESTAMP and aware and zone not in _UTC:
        # Our rules of a zone can be older or younger than the writer's.
        return None
    millis = int(nanos // 1_000_000)
    if millis < _SURE_FROM:
        return None
    if millis >= _LONG_END:
        return ()
    if millis >= 1_000:
        return (millis,)
    if millis >= 0:
        # Readers give a moment of the last second before 1970, as the C++ writer stores it, as one of the next second.
        return millis, millis - 1_000
    # Before 1970 one writer rounds down, another up, and the Java writer is a second late in the last second.
    return millis, int(-(-nanos // 1_000_000)), millis + 1_000


def _decimal(value: Any, column: OrcColumn) -> Inputs:
    """The text without trailing zeros."""
    if not 0 < column.precision <= 76 or column.scale > column.precision:
        return None
    logical = LogicalType("decimal", precision=column.precision, scale=column.scale)
    encoded = encode_value(value, ColumnType(PhysicalType.FIXED_LEN_BYTE_ARRAY, _DECIMAL_BYTES, logical))
    if not encoded:
        return encoded
    unscaled = int.from_bytes(encoded[0], "big", signed=True)
    digits = str(abs(unscaled)).rjust(column.scale + 1, "0")
    whole, fraction = digits[: len(digits) - column.scale], digits[len(digits) - column.scale :].rstrip("0")
    text = ("-" if unscaled < 0 else "") + whole + ("." + fraction if fraction else "")
    return (text.encode(),)


class HashedValues(NamedTuple):
    """What stands for values in a filter: hashes; of which value each is; which values no hash decides; the numbers
    themselves.
    """

    hashes: npt.NDArray[np.int64]
    owners: npt.NDArray[np.intp]
    undecided: npt.NDArray[np.bool_]
    longs: npt.NDArray[np.int64] | None


def hashed(values: Any, column: OrcColumn) -> HashedValues | None:
    """Arrays of the column's own kind, without nulls and NaN; None for all else."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        if values.null_count:
            return None
        if column.kind in (OrcKind.STRING, OrcKind.VARCHAR) and (
            pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        ):
            return _texts(values)
        if column.kind is OrcKind.BINARY and (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
            return _texts(values)
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            return None
        values = values.to_numpy(zero_copy_only=False)
    if type(values) is not np.ndarray or values.ndim != 1:
        return None
    if column.kind in INTEGER_BITS and values.dtype.kind in "iu" and values.dtype != np.uint64:
        return _integers(values.astype(np.int64), INTEGER_BITS[column.kind])
    if column.kind in _FLOATS and values.dtype == _FLOATS[column.kind]:
        return _floats(values.astype(np.float64))
    return None


def _integers(values: npt.NDArray[np.int64], bits: int) -> HashedValues:
    half = 1 << bits - 1
    owners = np.flatnonzero((values >= -half) & (values <= half - 1))
    longs = values[owners]
    return HashedValues(hash_longs(longs), owners, np.zeros(len(values), np.bool_), longs)


def _floats(values: npt.NDArray[np.float64]) -> HashedValues | None:
    if np.isnan(values).any():
        return None
    zeros = np.flatnonzero(values == 0)
    # Both zeros are asked for.
    owners = np.concatenate([np.arange(len(values)), zeros])
    inputs = np.concatenate([values, -values[zeros]])
    return HashedValues(hash_longs(inputs.view(np.int64)), owners, np.zeros(len(values), np.bool_), None)


def _texts(values: pa.Array) -> HashedValues:
    owners, decided = np.arange(len(values)), np.zeros(len(values), np.bool_)
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    if not len(values) or not worthwhile(_SPAN * len(values)):
        return HashedValues(
            hash_bytes(values.cast(pa.large_binary() if wide else pa.binary()).to_pylist()), owners, decided, None
        )
    from .. import kernels

    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    spans = offsets.astype(np.int64)
    whole = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    hashes = np.empty(len(values), np.uint64)
    if spans[0] < 0 or spans[-1] > len(whole) or (np.diff(spans) < 0).any():
        raise UsageError("an Arrow array with offsets outside its data")
    kernels.hash_spans(whole, spans, hashes)
    return HashedValues(hashes.view(np.int64), owners, decided, None)
