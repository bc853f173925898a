"""One schema for files that differ: columns that came later, types that were widened.

What Spark's own ``mergeSchema`` merges, this merges alike. Where that refuses (an ``int`` beside a ``bigint``), the
wider of two types is taken, as `bloomseal.table.query.schema` has it; and so is a type of another kind of which every
value of both has its place in it, since Spark reads such files as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as st

from ...core.errors import BloomsealError, UnsupportedError
from ...table.query.schema import wider
from .types import arrow_type

_DIGITS: Final = {st.ByteType: 3, st.ShortType: 5, st.IntegerType: 10, st.LongType: 20}


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
    for small, large in ((one, other), (other, one)):
        if isinstance(large, st.DoubleType) and _DIGITS.get(type(small), 99) <= _DIGITS[st.IntegerType]:
            return large
        if isinstance(large, st.TimestampNTZType) and isinstance(small, st.DateType):
            return large
        if isinstance(large, st.DecimalType) and (digits := _DIGITS.get(type(small))) is not None:
            return _common(large, st.DecimalType(digits, 0))
    kind = wider(arrow_type(one), arrow_type(other))
    for known in (one, other):
        if kind == arrow_type(known):
            found: st.DataType = known
            return found
    if kind is not None and pa.types.is_decimal128(kind):
        return st.DecimalType(kind.precision, kind.scale)
    raise UnsupportedError(
        f"files have {one.simpleString()} and {other.simpleString()}, which have no common type without loss",
        hint=".schema(...) with the type that is wanted, or read the files apart",
    )
