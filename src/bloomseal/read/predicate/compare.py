"""Decoded rows against the values of a predicate, exactly: no rounding that the column's type does not make itself.

Integers, decimals, dates, times and timestamps are all compared as the integers that they are: a bound between two of
them is moved to the next one, a bound beyond the type's range decides every row alike. A float is rounded to the
column's width, as in its filter.
"""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ..._lazy import deferred
from ...core.parquet.schema import Leaf
from ...core.sbbf import PhysicalType, encode_value
from ...core.sbbf.encoding import NANOS, date_days, int_range, moment_of, stands_for_null, time_nanos, unwrap
from .values import Values

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")

_COMPARE: Final = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_BEYOND: Final = 1 << 1024
"""Greater than what any column of integers or decimals can hold."""
_DIGITS: Final = 300
"""The same in decimal digits; numbers with more are not computed."""


def is_null(value: Any) -> bool:
    """None, a null scalar, NaT: what no row is compared with."""
    return stands_for_null(unwrap(value))


def all_plain(values: Values, leaf: Leaf) -> bool:
    """Whether all are of the one type of Python's own that suits the column, so that none needs a look by itself."""
    kind, physical = leaf.type.kind, leaf.type.physical
    if values.kinds == {int}:
        return physical in (PhysicalType.INT32, PhysicalType.INT64) and kind in ("", "int")
    if values.kinds == {str}:
        texts = physical is PhysicalType.BYTE_ARRAY and kind in ("string", "enum", "json")
        return texts and values.encodable
    return False


def nowhere(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A mask that keeps no row."""
    return pa.chunked_array([pa.array(np.zeros(len(column), dtype=np.bool_))])


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that Arrow has comparisons for: storage, values, whole strings, float32 for float16."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
        kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    types = pa.types
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_string_view(kind):
        return column.cast(pa.large_string())
    if types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if types.is_decimal(kind):
        # Columns hold numbers beyond their precision; of the widest precision, all of them are compared.
        wide = pa.decimal256(76, kind.scale) if kind.bit_width > 128 else pa.decimal128(38, kind.scale)
        if kind.bit_width < 128:
            return column.cast(wide)
        return pa.chunked_array([chunk.view(wide) for chunk in column.chunks], type=wide)
    if types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return column


def ordered(column: pa.ChunkedArray, op: str, value: Any, leaf: Leaf) -> pa.ChunkedArray:
    """Where ``column op value`` holds, for an operator of order; never null. `column` is `comparable`."""
    kind = column.type
    if is_null(value) or pa.types.is_null(kind):
        return nowhere(column)
    encode_value(value, leaf.type, int96_utc=True)  # refuses values of another kind
    if not _is_integral(kind):
        return pc.fill_null(getattr(pc, _COMPARE[op])(column, _scalar(value, kind, leaf)), False)
    exact = _exact(value, kind, leaf)
    if exact is None:
        return nowhere(column)
    # v < x is v <= ceil(x) - 1, and v > x is v >= floor(x) + 1: every bound becomes an integer that belongs to the
    # rows.
    if op in ("<", "<="):
        bound = math.ceil(exact) - 1 if op == "<" else math.floor(exact)
    else:
        bound = math.floor(exact) + 1 if op == ">" else math.ceil(exact)
    least, greatest = _range(kind)
    upward = op in (">", ">=")
    if least <= bound <= greatest:
        compare = pc.greater_equal if upward else pc.less_equal
        return pc.fill_null(compare(column, _integral(bound, kind)), False)
    return pc.is_valid(column) if upward is (bound < least) else nowhere(column)


def equal_any(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """Where the column equals any of `values`, which are `wanted`; never null. `column` is `comparable`."""
    if not len(values):
        return nowhere(column)
    if len(values) == 1:
        found = pc.equal(column, values[0])
        return pc.fill_null(found, False) if found.null_count else found
    return pc.is_in(column, value_set=values)


def wanted(kind: pa.DataType, values: Values, leaf: Leaf) -> pa.Array:
    """The values that rows of this Arrow type can equal, as an array of it."""
    if pa.types.is_null(kind):
        return pa.nulls(0)
    if all_plain(values, leaf):
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _texts(values, kind)
        if pa.types.is_integer(kind):
            ranges = [_range(kind), int_range(leaf.type) or _range(kind)]
            least, greatest = max(low for low, _ in ranges), min(high for _, high in ranges)
            dtype = f"{'uint' if pa.types.is_unsigned_integer(kind) else 'int'}{kind.bit_width}"
            numbers = np.array([value for value in values if least <= value <= greatest], dtype=dtype)
            return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
    found = pa.array([scalar for value in values if (scalar := _equal(value, kind, leaf)) is not None], type=kind)
    if pa.types.is_floating(kind) and len(found) > 1 and pc.any(pc.equal(found, pa.scalar(0.0, kind))).as_py():
        # is_in compares bits, and 0.0 == -0.0.
        found = pa.concat_arrays([found, pa.array([0.0, -0.0], type=kind)])
    return found


def _texts(values: Values, kind: pa.DataType) -> pa.Array:
    """As pa.array, whose first call loads pandas where that is installed: more than the time of a cold
    look-up.
    """
    encoded = [value.encode() for value in values]
    wide = pa.types.is_large_string(kind)
    ends = np.cumsum([0, *map(len, encoded)])
    if not wide and ends[-1] > np.iinfo(np.int32).max:
        return pa.array(list(values), type=kind)
    offsets = pa.py_buffer(ends.astype(np.int64 if wide else np.int32))
    return pa.Array.from_buffers(kind, len(encoded), [None, offsets, pa.py_buffer(b"".join(encoded))])


def _equal(value: Any, kind: pa.DataType, leaf: Leaf) -> pa.Scalar | None:
    """`value` as a scalar of the column's Arrow type; None where no row can equal it."""
    if is_null(value) or encode_value(value, leaf.type, int96_utc=True) == ():
        return None
    if not _is_integral(kind):
        scalar = _scalar(value, kind, leaf)
        return None if pa.types.is_floating(kind) and math.isnan(scalar.as_py()) else scalar
    exact = _exact(value, kind, leaf)
    least, greatest = _range(kind)
    if exact is None or exact != int(exact) or not least <= exact <= greatest:
        return None
    return _integral(int(exact), kind)


def _is_integral(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _exact(value: Any, kind: pa.DataType, leaf: Leaf) -> Fraction | int | None:
    """The value in the units of the Arrow type's integers; None for the NaN of decimals."""
    value = unwrap(value)
    types = pa.types
    if types.is_decimal(kind):
        return _exact_decimal(value, kind.scale)
    if types.is_timestamp(kind):
        moment = moment_of(value)
        return None if moment is None else Fraction(moment[0]) / NANOS[kind.unit]
    if types.is_time(kind):
        return Fraction(time_nanos(value, leaf.type), NANOS[kind.unit])
    if types.is_date(kind):
        days = date_days(value, leaf.type)
        return days * 86_400_000 if types.is_date64(kind) else days
    return int(value)


def _exact_decimal(value: Any, scale: int) -> Fraction | int | None:
    if not isinstance(value, Decimal):
        return int(value) * int(10**scale)
    if value.is_nan():
        return None
    sign = -1 if value.is_signed() else 1
    if value.is_infinite() or (value and value.adjusted() > _DIGITS):
        return sign * _BEYOND
    if value and value.adjusted() < -_DIGITS:
        return Fraction(sign, _BEYOND)
    return Fraction(value) * int(10**scale)


def _range(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(kind):
        return 0, (1 << kind.bit_width) - 1
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


def _integral(number: int, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_decimal(kind):
        raw = pa.py_buffer(number.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True))
        return pa.Array.from_buffers(kind, 1, [None, raw])[0]
    return pa.scalar(number, kind)


def _scalar(value: Any, kind: pa.DataType, leaf: Leaf) -> pa.Scalar:
    """A float, bool, string or bytes as a scalar of this type."""
    value = unwrap(value)
    if pa.types.is_floating(kind):
        return _float(value, kind, leaf)
    if pa.types.is_boolean(kind):
        return pa.scalar(bool(value), kind)
    data = encode_value(value, leaf.type)
    # Without an encoding it is bytes of another length than the column's: ordered all the same.
    whole = data[0] if data else bytes(value)
    return pa.scalar(whole.decode() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else whole, kind)


def _float(value: Any, kind: pa.DataType, leaf: Leaf) -> pa.Scalar:
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore", under="ignore"):
        if leaf.type.kind == "float16":
            return pa.scalar(float(np.float16(wide)), kind)
        return pa.scalar(float(np.float32(wide)) if pa.types.is_float32(kind) else wide, kind)
