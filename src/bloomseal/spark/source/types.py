"""What a file's columns are to Spark, and decoded columns in exactly the Arrow types that Spark asks for.

Types follow Spark's own Parquet reader (`ParquetToSparkSchemaConverter` for those of a schema,
`ParquetVectorUpdaterFactory` for what a column may be widened to). Where it refuses a type that Spark can hold, this
reads it: nanoseconds are cut to microseconds, half floats become floats, UUIDs binary, ORC's wall clocks
``timestamp_ntz``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_type

from ...core.errors import BloomsealError, UnsupportedError
from ...core.parquet.schema import Leaf
from ...core.sbbf import PhysicalType
from ...read.file import SealedFile
from ..versions import arrow_type_of

Convert = Callable[[pa.Array], pa.Array] | None
"""What makes of a decoded column the column that Spark wants; None where it is that already."""

INT96: Final = "cut"
"""How INT96 is decoded: in microseconds, to which Spark cuts it; nanoseconds can't hold 9999-12-31."""

_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_WHOLE: Final = {st.ByteType: 8, st.ShortType: 16, st.IntegerType: 32, st.LongType: 64}
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}


def file_schema(file: SealedFile) -> pa.Schema:
    """The file's Arrow schema as its own types have it: Spark reads a number where a writer's Arrow schema makes of it
    a duration.
    """
    file.forget_arrow_schema()
    return file.arrow_schema(INT96)


def spark_schema(file: SealedFile) -> st.StructType:
    """The schema of a table that begins with this file: what Spark stored in it, else what its types are to Spark.

    Raises:
        UnsupportedError: a column of a type that Spark does not have.
    """
    stored = _stored_schema(file)
    arrow = file_schema(file)
    if stored is not None:
        return stored
    leaves = iter(file.leaves.leaves)
    try:
        return st.StructType([_field(field, leaves) for field in arrow])
    except BloomsealError as error:
        raise error.at(file=file.path) from None


def stored_type(file: SealedFile, path: Sequence[str]) -> st.DataType | None:
    """The type that Spark stored for a leaf; None where it stored none."""
    kind: Any = _stored_schema(file)
    for part in path:
        if isinstance(kind, st.StructType):
            kind = kind[part].dataType if part in kind.names else None
        elif isinstance(kind, st.ArrayType) and part == "element":
            kind = kind.elementType
        elif isinstance(kind, st.MapType) and part in ("key", "value"):
            kind = kind.keyType if part == "key" else kind.valueType
    found: st.DataType | None = kind
    return found


def arrow_type(kind: st.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes a column.

    Raises:
        UnsupportedError: it takes none.
    """
    try:
        return arrow_type_of(kind)
    except PySparkException:
        raise UnsupportedError(f"Spark takes no {kind.simpleString()} columns from Python") from None


def leaves_below(kind: pa.DataType) -> int:
    """Leaves below a type."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return sum(leaves_below(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def position_of(wanted: str, names: Sequence[str]) -> int | None:
    """The place of a column, or of a field, that a file may spell in another case.

    Raises:
        UnsupportedError: two of them differ in case only, and neither is spelt as wanted.
    """
    if wanted in names:
        return names.index(wanted)
    found = [place for place, name in enumerate(names) if name.lower() == wanted.lower()]
    if len(found) > 1:
        raise UnsupportedError("several columns differ in upper and lower case only", column=wanted)
    return found[0] if found else None


def select(have: pa.DataType, want: st.DataType, leaves: Iterator[Leaf], masked: Collection[int]) -> list[Leaf]:
    """The leaves of a column that must be read for what Spark wants of it; none where it is to be null.

    Args:
        leaves: those at and below the column; as many are taken as it has.
        masked: leaves that can't be read. A list or a map with one of them is null as a whole, a struct goes without.
    """
    if not (isinstance(want, st.StructType) and pa.types.is_struct(have)):
        mine = [next(leaves) for _ in range(leaves_below(have))]
        return [] if any(leaf.index in masked for leaf in mine) else mine
    below = [[next(leaves) for _ in range(leaves_below(have.field(i).type))] for i in range(have.num_fields)]
    names = [have.field(i).name for i in range(have.num_fields)]
    places = {place: field.dataType for field in want if (place := position_of(field.name, names)) is not None}
    chosen = [leaf for i in sorted(places) for leaf in select(have.field(i).type, places[i], iter(below[i]), masked)]
    if not chosen and not places:
        # Any other field tells where the struct itself is null.
        chosen = next((mine for mine in below if not any(leaf.index in masked for leaf in mine)), [])
    return chosen


def converter(have: pa.DataType, want: st.DataType, leaves: Iterator[Leaf]) -> Convert:
    """From a decoded type to what Spark wants of it; a field that is not there becomes null.

    Args:
        leaves: those that were read, at and below the column; as many are taken as it has.

    Raises:
        UnsupportedError: the file's type does not become the wanted one without loss. Spark's own reader refuses it
            too.
    """
    if isinstance(have, pa.BaseExtensionType):
        inner = converter(have.storage_type, want, leaves)
        return lambda array: array.storage if inner is None else inner(array.storage)
    if isinstance(want, st.UserDefinedType):
        want = want.sqlType()
    if isinstance(want, st.StructType) and pa.types.is_struct(have):
        return _struct(have, want, leaves)
    if isinstance(want, st.VariantType) and pa.types.is_struct(have):
        if have.get_field_index("typed_value") >= 0:  # what lies there is missing from the value
            raise UnsupportedError("a variant that is stored in columns of its own", hint="spark.read.parquet")
        return _struct(have, _VARIANT, leaves, arrow_type(want))
    if isinstance(want, st.MapType) and pa.types.is_map(have):
        return _repeated(have, want, [(have.key_type, want.keyType), (have.item_type, want.valueType)], leaves)
    if isinstance(want, st.ArrayType) and pa.types.is_list(have):
        return _repeated(have, want, [(have.value_type, want.elementType)], leaves)
    if pa.types.is_nested(have):
        raise _refusal(have, want)
    return _primitive(have, want, next(leaves))


_VARIANT: Final = st.StructType(
    [st.StructField("value", st.BinaryType(), False), st.StructField("metadata", st.BinaryType(), False)]
)


def _stored_schema(file: SealedFile) -> st.StructType | None:
    if (stored := file.metadata.get(_SPARK_SCHEMA)) is None:
        return None
    try:
        schema = st.StructType.fromJson(json.loads(stored))
    except Exception:
        return None  # as Spark: a schema that it does not understand is no schema
    return st.StructType(_nullable(schema).fields) if isinstance(schema, st.StructType) else None


def _nullable(kind: Any) -> Any:
    if isinstance(kind, st.StructType):
        return st.StructType(
            [st.StructField(one.name, _nullable(one.dataType), True, one.metadata) for one in kind.fields]
        )
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, st.MapType):
        return st.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def _field(field: pa.Field, leaves: Iterator[Leaf]) -> st.StructField:
    try:
        return st.StructField(field.name, _spark_type(field.type, leaves), True)
    except BloomsealError as error:
        raise error.at(column=field.name) from None


def _spark_type(kind: pa.DataType, leaves: Iterator[Leaf]) -> st.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _spark_type(kind.storage_type, leaves)
    if pa.types.is_struct(kind):
        return st.StructType([_field(kind.field(i), leaves) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return st.MapType(_spark_type(kind.key_type, leaves), _spark_type(kind.item_type, leaves), True)
    if pa.types.is_list(kind):
        return st.ArrayType(_spark_type(kind.value_type, leaves), True)
    found = _spark_leaf(kind, next(leaves))
    if found is None:
        raise UnsupportedError(f"Spark has no type for {kind}", hint="leave the column out: .schema(...)")
    return found


def _spark_leaf(kind: pa.DataType, leaf: Leaf) -> st.DataType | None:
    types, logical = pa.types, leaf.type.kind
    if types.is_timestamp(kind):
        adjusted = leaf.type.physical is PhysicalType.INT96 or kind.tz is not None
        return st.TimestampType() if adjusted else st.TimestampNTZType()
    if types.is_time(kind):
        return st.TimeType(6) if kind == pa.time64("us") and hasattr(st, "TimeType") else None
    if types.is_decimal256(kind):
        return None
    if types.is_binary(kind) and logical in ("string", "enum", "json"):
        return st.StringType()
    if types.is_fixed_size_binary(kind):
        return None if logical == "interval" else st.BinaryType()
    try:
        found: st.DataType = from_arrow_type(_HELD_BY.get(kind, kind))
    except PySparkException:
        return None
    return found


_HELD_BY: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.null(): pa.int32(),  # what they are stored as
}
"""Type that Spark has not → one that holds its values."""


# From decoded columns to Spark's ----------------------------------------------------------------------------------


def _refusal(have: pa.DataType, want: st.DataType) -> UnsupportedError:
    return UnsupportedError(
        f"the file has {have} where {want.simpleString()} is asked for, and the one does not become the other without loss",
        hint="another .schema(...), or leave the file out",
    )


def _primitive(have: pa.DataType, want: st.DataType, leaf: Leaf) -> Convert:
    target = arrow_type(want)
    if not _allowed(have, want, leaf):
        raise _refusal(have, want)
    if have == target:
        return None
    if pa.types.is_timestamp(have) and have.unit == "ns":
        # A cast would cut towards zero; Spark's microseconds are floored.
        return lambda array: pc.floor_temporal(array, unit="microsecond").cast(target)
    if pa.types.is_string(target):
        # Bytes that are not UTF-8 too, as in Spark.
        return lambda array: array.cast(pa.binary()).cast(target, safe=False)
    if pa.types.is_uint64(have):
        return lambda array: array.cast(pa.decimal128(20, 0)).cast(target)
    return lambda array: array.cast(target)


def _allowed(have: pa.DataType, want: st.DataType, leaf: Leaf) -> bool:
    types = pa.types
    if types.is_integer(have):
        if isinstance(want, st.DecimalType):
            return want.precision - want.scale >= _DIGITS[have.bit_width]
        if isinstance(want, st.DayTimeIntervalType):
            return bool(have == pa.int64())
        return type(want) in _WHOLE or (isinstance(want, st.DoubleType) and bool(have.bit_width <= 32))
    if types.is_floating(have):
        return isinstance(want, st.DoubleType) or (isinstance(want, st.FloatType) and bool(have.bit_width <= 32))
    if types.is_decimal(have) and isinstance(want, st.DecimalType):
        whole = have.precision - have.scale
        return bool(want.scale >= have.scale and want.precision - want.scale >= whole)
    if types.is_timestamp(have):
        adjusted = leaf.type.physical is PhysicalType.INT96 or have.tz is not None
        # An instant may be read as the wall clock of UTC, never the other way round.
        return isinstance(want, st.TimestampNTZType) or (adjusted and isinstance(want, st.TimestampType))
    if types.is_date(have):
        return isinstance(want, st.DateType | st.TimestampNTZType)
    if types.is_string(have) or types.is_binary(have) or types.is_fixed_size_binary(have):
        return isinstance(want, st.StringType | st.BinaryType)
    if types.is_time64(have):
        return want.typeName() == "time"
    if types.is_null(have):
        return True
    return isinstance(want, st.BooleanType) and bool(types.is_boolean(have))


def _struct(
    have: pa.StructType,
    want: st.StructType,
    leaves: Iterator[Leaf],
    target: pa.DataType | None = None,
) -> Convert:
    target = target or arrow_type(want)
    names = [have.field(i).name for i in range(have.num_fields)]
    places = {place: field for field in want if (place := position_of(field.name, names)) is not None}
    known: dict[str, tuple[int, Convert]] = {}
    for place in range(have.num_fields):
        mine = [next(leaves) for _ in range(leaves_below(have.field(place).type))]
        if (field := places.get(place)) is not None:
            try:
                known[field.name] = place, converter(have.field(place).type, field.dataType, iter(mine))
            except BloomsealError as error:
                raise error.at(column=mine[0].name) from None
    same = have == target and len(known) == have.num_fields
    if same and all(convert is None for _, convert in known.values()):
        return None

    def convert_struct(array: pa.StructArray) -> pa.Array:
        children = []
        for position, field in enumerate(want.fields):
            place, convert = known.get(field.name, (None, None))
            if place is None:
                children.append(pa.nulls(len(array), target.field(position).type))
            else:
                child = array.field(place)
                children.append(child if convert is None else convert(child))
        return pa.StructArray.from_arrays(
            children, fields=[target.field(i) for i in range(target.num_fields)], mask=array.is_null()
        )

    return convert_struct


def _repeated(
    have: pa.DataType, want: st.DataType, below: Sequence[tuple[pa.DataType, st.DataType]], leaves: Iterator[Leaf]
) -> Convert:
    """Of lists and maps; `below`: the type that each part has, and is to have."""
    target = arrow_type(want)
    converters = [converter(*kinds, leaves) for kinds in below]
    if have == target and not any(converters):
        return None

    def convert_repeated(array: pa.ListArray | pa.MapArray) -> pa.Array:
        # Offsets of a slice do not begin where its values do.
        array = pa.concat_arrays([array]) if array.offset else array
        parts = (array.keys, array.items) if pa.types.is_map(have) else (array.values,)
        made = [part if convert is None else convert(part) for part, convert in zip(parts, converters, strict=True)]
        return type(array).from_arrays(array.offsets, *made, type=target, mask=array.is_null())

    return convert_repeated
