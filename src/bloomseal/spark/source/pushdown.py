"""Spark's pushed filters as what rules out files, row groups and pages, and never a row that Spark would keep.

Spark evaluates every filter again on what it is given. So a filter that is not understood, or that means something else
to Spark than to us, is left to it: NaN equals NaN there and is the greatest float, and a column may be read in another
type than the file has.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as st

from ...core.errors import BloomsealError, UsageError
from ...core.exclusion import Exclusion, by_column
from ...core.parquet.schema import Leaf, Schema
from ...core.sbbf import PhysicalType
from ...format.leaves import leaves_of
from ...read.predicate.condition import AllOf, Compare
from ...read.predicate.like import successor
from ...read.predicate.predicate import Predicate
from ...read.predicate.values import Values
from .types import arrow_type

_OPERATORS: Final = {
    "EqualTo": "==",
    "EqualNullSafe": "==",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_REPLACED: Final = "\ufffd"
"""What Spark hands to Python instead of bytes that are not UTF-8: which bytes were meant, nobody knows."""


def conditions(filters: Iterable[Any]) -> list[Compare]:
    """What Spark's filters (`pyspark.sql.datasource.Filter`) say, as far as it can rule out anything: comparisons with
    values other than None, all of which hold for every row that Spark will keep.
    """
    return [one for pushed in filters for one in _understood(pushed)]


def to_text(asked: Iterable[Compare]) -> str:
    """Conditions as an option of the data source; `from_text` reads it."""
    told = [
        [one.column, one.op, [[type(value).__name__, _WRITTEN[type(value)](value)] for value in one.values]]
        for one in asked
        if all(type(value) in _WRITTEN for value in one.values)
    ]
    return json.dumps(told)


def from_text(text: str) -> tuple[Compare, ...]:
    """What `to_text` wrote. No pickle: a table's options may be somebody else's.

    Raises:
        UsageError: anything else.
    """
    try:
        return tuple(
            Compare(str(column), _KNOWN[op], Values(_READ[kind](value) for kind, value in values))
            for column, op, values in json.loads(text)
        )
    except (ValueError, TypeError, KeyError, ArithmeticError):
        raise UsageError("the option conditions is not what bloomseal.spark.read writes") from None


_WRITTEN: Final[dict[type, Callable[[Any], Any]]] = {
    bool: bool,
    int: str,
    float: float.hex,
    str: str,
    bytes: bytes.hex,
    Decimal: str,
    dt.date: dt.date.isoformat,
    dt.datetime: dt.datetime.isoformat,
}
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": bool,
    "int": int,
    "float": float.fromhex,
    "str": str,
    "bytes": bytes.fromhex,
    "Decimal": Decimal,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
}


_KNOWN: Final = {op: op for op in ("==", "<", "<=", ">", ">=", "in", "null", "valid")}


def _understood(pushed: Any) -> list[Compare]:
    kind = type(pushed).__name__
    if kind == "Not":
        inner = type(pushed.child).__name__
        opposite = {"IsNull": "valid", "IsNotNull": "null"}.get(inner)
        return [Compare(".".join(pushed.child.attribute), opposite, Values(()))] if opposite else []
    column = ".".join(pushed.attribute)
    if any(isinstance(one, str) and _REPLACED in one for one in _listed(getattr(pushed, "value", None))):
        return []
    if kind in ("IsNull", "IsNotNull"):
        return [Compare(column, "null" if kind == "IsNull" else "valid", Values(()))]
    value = getattr(pushed, "value", None)
    if kind == "EqualNullSafe" and value is None:
        return [Compare(column, "null", Values(()))]
    if kind == "In" and isinstance(value, list | tuple):
        return [Compare(column, "in", Values(one for one in value if one is not None))]
    if kind == "StringStartsWith" and isinstance(value, str) and value:
        return [Compare(column, op, Values((end,))) for op, end in ((">=", value), ("<", successor(value))) if end]
    if kind in _OPERATORS and value is not None:
        return [Compare(column, _OPERATORS[kind], Values((value,)))]
    return []


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def collated(kind: st.DataType | None) -> bool:
    """Whether it is a text whose equality is another one than that of its bytes."""
    return isinstance(kind, st.StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


def admitted(asked: Sequence[Compare], columns: st.StructType, rows: Sequence[Sequence[Any]]) -> list[bool]:
    """For each of these rows of partition values: may Spark keep a row that has them? True where it is not known."""
    found = np.ones(len(rows), dtype=np.bool_)
    for place, field in enumerate(columns.fields):
        # A dotted name could also be that of a field inside a struct.
        mine = [one for one in asked if one.column == field.name and "." not in field.name]
        if not mine:
            continue
        try:
            table = pa.table({field.name: pa.array([row[place] for row in rows], arrow_type(field.dataType))})
            schema = leaves_of(table.schema)
        except (BloomsealError, pa.ArrowException):
            continue
        (leaf,) = schema.leaves
        for one in mine:
            for part in _translated(one, field.dataType, leaf):
                hits = np.zeros(len(rows), dtype=np.bool_)
                hits[Predicate(part, schema).hits(table)] = True
                found &= hits
    return list(map(bool, found))


# Files ------------------------------------------------------------------------------------------------------------


def bind(
    asked: Sequence[Compare],
    wanted: Mapping[str, st.DataType],
    names: Mapping[str, str | None],
    schema: Schema,
) -> AllOf | Exclusion | None:
    """Conditions, in the types in which Spark reads the columns, as a condition on a file's own types; None where
    nothing is left of them, an exclusion where no row of the file can be kept.

    Args:
        wanted: the columns that are read from files, and their types.
        names: those columns → their names in this file; None where it has none.
        schema: the file's.
    """
    parts: list[Compare] = []
    for condition in asked:
        if (path := _path(condition.column, wanted)) is None:
            continue
        top, *inner = path
        if (name := names[top]) is None:
            if condition.op != "null" and (lacking := by_column(schema, [top])) is not None:
                return lacking
            continue
        leaf = _leaf(schema.leaves, (name, *inner))
        if leaf is None or leaf.repeated:
            continue
        kind = _inner_type(wanted[top], inner)
        for part in _translated(condition, kind, leaf) if kind is not None else ():
            try:
                Predicate(part, schema)
            except UsageError:
                continue
            parts.append(part)
    return AllOf(tuple(parts)) if parts else None


def _path(column: str, wanted: Mapping[str, st.DataType]) -> list[str] | None:
    """The path of a column by its dotted name; None where no column is wanted that it could be, or several are."""
    found = [name for name in wanted if column == name or column.startswith(f"{name}.")]
    rest = column.removeprefix(found[0]).split(".")[1:] if len(found) == 1 else []
    return [found[0], *rest] if len(found) == 1 else None


def _leaf(leaves: Sequence[Leaf], path: tuple[str, ...]) -> Leaf | None:
    # By its path, since a dotted name could also be another column's; and a name that is not unique finds nothing.
    found = [leaf for leaf in leaves if leaf.path == path]
    return found[0] if len(found) == 1 and sum(leaf.name == found[0].name for leaf in leaves) == 1 else None


def _inner_type(kind: st.DataType, path: Sequence[str]) -> st.DataType | None:
    for name in path:
        if not isinstance(kind, st.StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind


def _translated(condition: Compare, kind: st.DataType, leaf: Leaf) -> list[Compare]:
    """What the condition means for the file's type; empty where it could mean anything else than Spark means by it."""
    op, values = condition.op, condition.values
    if op in ("null", "valid"):
        # Below a struct, statistics count its nulls too; only flat columns say it plainly.
        return [Compare(leaf.name, op, values)] if len(leaf.path) == 1 else []
    check = _CHECKS.get(type(kind))
    if check is None or not check(leaf, condition) or collated(kind):
        return []
    if leaf.type.kind == "timestamp" and leaf.type.logical is not None and leaf.type.logical.unit == "ns":
        return [Compare(leaf.name, op, Values((value,))) for op, value in _floored(op, values)]
    if isinstance(kind, st.StringType) and leaf.type.kind == "":
        values = Values(value.encode() for value in values)
    return [Compare(leaf.name, op, values)]


def _floored(op: str, values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Nanoseconds are read as microseconds, so that equality asks for a range of them."""
    if op == "in":
        return [(">=", min(values)), ("<", max(values) + _MICROSECOND)] if values else []
    (value,) = values
    match op:
        case "==":
            return [(">=", value), ("<", value + _MICROSECOND)]
        case "<=":
            return [("<", value + _MICROSECOND)]
        case ">":
            return [(">=", value + _MICROSECOND)]
    return [(op, value)]


def _of(kind: type, also: Callable[[Leaf, Compare], bool]) -> Callable[[Leaf, Compare], bool]:
    def check(leaf: Leaf, condition: Compare) -> bool:
        return all(type(value) is kind for value in condition.values) and also(leaf, condition)

    return check


def _is_int(leaf: Leaf, condition: Compare) -> bool:  # noqa: ARG001
    return leaf.type.physical in (PhysicalType.INT32, PhysicalType.INT64) and leaf.type.kind in ("int", "")


def _is_float(leaf: Leaf, condition: Compare) -> bool:
    narrow = leaf.type.physical is PhysicalType.FLOAT
    if leaf.type.kind or not (narrow or leaf.type.physical is PhysicalType.DOUBLE):
        return False
    # NaN is greater than all floats to Spark, and no statistic or comparison of ours says so.
    if condition.op in (">", ">=") or any(math.isnan(value) for value in condition.values):
        return False
    with np.errstate(over="ignore"):
        # A double between two floats would be rounded, and a bound with it.
        return not narrow or all(float(np.float32(value)) == value for value in condition.values)


def _is_text(leaf: Leaf, condition: Compare) -> bool:  # noqa: ARG001
    return leaf.type.physical is PhysicalType.BYTE_ARRAY and leaf.type.kind in ("string", "enum", "json", "")


def _is_binary(leaf: Leaf, condition: Compare) -> bool:  # noqa: ARG001
    return leaf.type.physical in (PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY) and leaf.type.kind == ""


def _is_timestamp(leaf: Leaf, condition: Compare) -> bool:
    logical = leaf.type.logical
    if leaf.type.kind != "timestamp" or logical is None:
        return False
    return all((value.tzinfo is not None) is logical.utc for value in condition.values)


def _instant(*, utc: bool) -> Callable[[Leaf, Compare], bool]:
    def same(leaf: Leaf, condition: Compare) -> bool:
        return leaf.type.logical is not None and leaf.type.logical.utc is utc and _is_timestamp(leaf, condition)

    return _of(dt.datetime, same)


_CHECKS: Final[dict[type[st.DataType], Callable[[Leaf, Compare], bool]]] = {
    **dict.fromkeys((st.ByteType, st.ShortType, st.IntegerType, st.LongType), _of(int, _is_int)),
    **dict.fromkeys((st.FloatType, st.DoubleType), _of(float, _is_float)),
    st.DecimalType: _of(Decimal, lambda leaf, _: leaf.type.kind == "decimal"),
    st.StringType: _of(str, _is_text),
    st.BinaryType: _of(bytes, _is_binary),
    st.BooleanType: _of(bool, lambda leaf, one: leaf.type.physical is PhysicalType.BOOLEAN and one.op in ("==", "in")),
    st.DateType: _of(dt.date, lambda leaf, _: leaf.type.kind == "date"),
    st.TimestampType: _instant(utc=True),
    st.TimestampNTZType: _instant(utc=False),
}
