"""One schema for files that differ: columns that came later, types that were widened.

What Spark's own ``mergeSchema`` merges, this merges alike. Where that refuses (an ``int`` beside a ``bigint``), the
wider of two types is taken, if every value of both has its place in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import types as st

from ...core.errors import BloomsealError, UnsupportedError

__all__ = ["merged"]

_WHOLE: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_DIGITS: Final = {st.ByteType: 3, st.ShortType: 5, st.IntegerType: 10, st.LongType: 20}
_MAX_PRECISION: Final = 38


def merged(schemas: Iterable[st.StructType]) -> st.StructType:
    """All columns of all schemas, in the order in which they first come. Names that differ in case only are one.

    Raises:
        UnsupportedError: a column of types without a common one.
    """
    found = st.StructType()
    for schema in schemas:
        found = _structs(found, schema)
    return found


def _structs(one: st.StructType, other: st.StructType) -> st.StructType:
    fields = {field.name.lower(): field for field in one.fields}
    for field in other.fields:
        if (known := fields.get(field.name.lower())) is None:
            fields[field.name.lower()] = field
        elif known.dataType != field.dataType:
            try:
                kind = _common(known.dataType, field.dataType)
            except BloomsealError as error:
                raise error.at(column=field.name) from None
            fields[field.name.lower()] = st.StructField(known.name, kind, True, known.metadata)
    return st.StructType(list(fields.values()))


def _common(one: Any, other: Any) -> st.DataType:
    if isinstance(one, st.StructType) and isinstance(other, st.StructType):
        return _structs(one, other)
    if isinstance(one, st.ArrayType) and isinstance(other, st.ArrayType):
        return st.ArrayType(_common(one.elementType, other.elementType), True)
    if isinstance(one, st.MapType) and isinstance(other, st.MapType):
        return st.MapType(_common(one.keyType, other.keyType), _common(one.valueType, other.valueType), True)
    if one == other:
        kind: st.DataType = one
        return kind
    return _wider(one, other) or _refused(one, other)


def _wider(one: st.DataType, other: st.DataType) -> st.DataType | None:
    for small, large in ((one, other), (other, one)):
        if isinstance(small, _WHOLE) and isinstance(large, _WHOLE):
            return max(small, large, key=lambda kind: _WHOLE.index(type(kind)))
        if isinstance(large, st.DoubleType) and isinstance(small, (st.FloatType, *_WHOLE[:3])):
            return large
        if isinstance(large, st.TimestampNTZType) and isinstance(small, st.DateType):
            return large
        if isinstance(large, st.DecimalType) and isinstance(small, st.DecimalType):
            return _decimal(max(_before(small), _before(large)), max(small.scale, large.scale))
        if isinstance(large, st.DecimalType) and isinstance(small, _WHOLE):
            return _decimal(max(_before(large), _DIGITS[type(small)]), large.scale)
    return None


def _before(kind: st.DecimalType) -> int:
    """Digits before the point."""
    return int(kind.precision - kind.scale)


def _decimal(before: int, scale: int) -> st.DecimalType | None:
    return st.DecimalType(before + scale, scale) if before + scale <= _MAX_PRECISION else None


def _refused(one: st.DataType, other: st.DataType) -> st.DataType:
    raise UnsupportedError(
        f"files have {one.simpleString()} and {other.simpleString()}, which have no common type without loss",
        hint=".schema(...) with the type that is wanted, or read the files apart",
    )
