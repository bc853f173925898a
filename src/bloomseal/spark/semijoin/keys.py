"""Keys as a caller gives them: as values to be hashed, and as the frame that Spark joins."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as st

from ...core.errors import UsageError
from ..source.types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_WHOLE: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)


def values_of(keys: Any, column: str) -> Any:
    """What a caller gave as keys, as one array or sequence.

    Args:
        keys: a Spark, pandas or Polars DataFrame, an Arrow table or array, a set, an iterator, or any sequence. Frames
            and tables of several columns must have one of the probed column's name.

    Raises:
        UsageError: none of these; lists, maps or structs, which no column that is asked has.
    """
    if isinstance(keys, str | bytes):
        raise UsageError("keys come as a list, an Arrow array or a DataFrame, also a single one")
    if hasattr(keys, "toArrow"):
        frame = _key_column(keys, column)
        kind = frame.schema.fields[0].dataType
        if isinstance(kind, st.ArrayType | st.MapType | st.StructType):
            raise UsageError(f"keys of {kind.simpleString()}", hint="one column of them, such as key.name")
        return frame.toArrow().column(0)
    if hasattr(keys, "__arrow_c_stream__") and hasattr(keys, "columns"):
        keys = pa.table(keys)  # a pandas or Polars frame, a table of pyarrow
    if isinstance(keys, pa.Table | pa.RecordBatch):
        keys = keys.column(_one_of(keys.schema.names, column))
    if hasattr(keys, "dropna"):
        keys = keys.dropna()  # in a column of pandas what is missing is a NaN, of texts too
    # They are gone through more than once: hashed, and again as the frame that Spark joins.
    return list(keys) if isinstance(keys, set | frozenset | dict | Iterator) else keys


def keys_frame(spark: SparkSession, keys: Any, values: Any, column: str, kind: st.DataType) -> DataFrame:
    """The keys as one column of the probed column's type. Not as literals, which plans and event logs would show.

    Args:
        keys: as the caller gave them.
        values: of `values_of`, or some of those. A frame of Spark's is not computed again: it could have other keys
            then than those that row groups were ruled out by.
    """
    if hasattr(keys, "toArrow"):
        have = _key_column(keys, column).schema.fields[0].dataType
        if not _unchanged(have, kind):
            raise UsageError(
                f"keys of {have.simpleString()} for a column of {kind.simpleString()}", column=column, hint="cast them"
            )
        found, given = values, have
    else:
        found, given = _as_column(values, column, kind), kind
    # Spark takes a batch without rows for the end of all.
    table = pa.table({"_key": found.unique()}).combine_chunks()
    frame = spark.createDataFrame(table, st.StructType([st.StructField("_key", given)]))
    return frame if given is kind else frame.select(f.expr(f"try_cast(_key AS {kind.simpleString()})").alias("_key"))


def quoted(name: str) -> str:
    """One name as SQL has it: dots and backticks in it are part of the name."""
    return f"`{name.replace('`', '``')}`"


def path_in_sql(column: str) -> str:
    """A dotted path as SQL has it."""
    return ".".join(map(quoted, column.split(".")))


def type_of(schema: st.StructType, column: str) -> st.DataType:
    """The type of a dotted path.

    Raises:
        UsageError: there is no such column.
    """
    kind: st.DataType = schema
    for part in column.split("."):
        fields = kind.fields if isinstance(kind, st.StructType) else []
        alike = [one for one in fields if one.name == part] or [
            one for one in fields if one.name.lower() == part.lower()
        ]
        if not alike:
            raise UsageError("no such column, or one within a list or a map", column=column, hint="prune() asks those")
        kind = alike[0].dataType
    return kind


def _key_column(frame: DataFrame, column: str) -> DataFrame:
    """The frame's column of keys, alone."""
    name = _one_of(frame.columns, column)
    return frame.select(f.col(quoted(name)))


def _one_of(names: list[str], column: str) -> str:
    if len(names) == 1:
        return names[0]
    alike = [name for name in names if name.lower() == column.lower()]
    if len(alike) != 1:
        raise UsageError(
            "nothing tells which column of the frame holds the keys",
            column=column,
            hint="a frame of one column, or with one of this name",
        )
    return alike[0]


def _unchanged(have: st.DataType, want: st.DataType) -> bool:
    """Whether Spark compares the two as it compares two values of the wanted type."""
    if isinstance(have, _WHOLE) and isinstance(want, _WHOLE):
        return True
    if isinstance(have, st.DecimalType) and isinstance(want, st.DecimalType):
        return have.scale == want.scale
    return (
        have == want
        or isinstance(have, st.NullType)
        or (isinstance(have, st.FloatType) and isinstance(want, st.DoubleType))
    )


def _as_column(values: Any, column: str, kind: st.DataType) -> pa.Array:
    import pyarrow.compute as pc

    target = arrow_type(kind)
    listed = isinstance(values, list | tuple)
    try:
        # What the column can't hold equals nothing in it.
        if listed and pa.types.is_decimal(target):
            return pa.array([one for one in values if _holds(target, one)], target)
        limit = 1 << target.bit_width - 1 if pa.types.is_integer(target) else 0
        if listed and limit:
            values = [one for one in values if type(one) is not int or -limit <= one < limit]
        found = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
        if limit and pa.types.is_uint64(found.type):
            found = found.filter(pc.less(found, pa.scalar(limit, pa.uint64())))
        elif limit and pa.types.is_integer(found.type):
            least, greatest = pa.scalar(-limit, pa.int64()), pa.scalar(limit - 1, pa.int64())
            found = found.filter(pc.and_(pc.greater_equal(found, least), pc.less_equal(found, greatest)))
        return found.cast(target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass  # the message may hold a key
    raise UsageError(f"the keys are no values of {kind.simpleString()}", column=column)


def _holds(target: pa.DataType, value: Any) -> bool:
    """Whether a whole or a decimal number is one of this decimal type; True where it is neither: Arrow will say so."""
    if not isinstance(value, int | Decimal):
        return True
    number = Decimal(value)
    if not number.is_finite():
        return False
    scaled = number.scaleb(target.scale, _EXACT)
    return scaled == scaled.to_integral_value() and abs(scaled) < 10**target.precision
