"""Spark's pushed filters as what rules out files, row groups and pages, and never a row that Spark would keep.

Spark evaluates every filter again on what it is given. So a filter that is not understood, or that means something else
to Spark than to us, is left to it: NaN equals NaN there and is the greatest float, and a column may be read in another
type than the file has.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np
from pyspark.sql import types as st

from ...core.errors import UsageError
from ...core.parquet.schema import Leaf, Schema
from ...core.parquet.statistics import all_null, no_nulls
from ...core.parquet.walk import Walk
from ...core.sbbf import PhysicalType
from ...core.thrift.structs import ColumnMetaData
from ...read.predicate.like import successor
from ...read.predicate.predicate import Predicate

__all__ = ["Bound", "Condition", "admits", "bind", "collated", "conditions", "from_text", "to_text"]

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
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

Term = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that holds for every row that Spark will keep. The repr leaves the values out: they may be secrets.

    Attributes:
        path: the column, or a field inside structs.
        op: ``== < <= > >= in``, or ``null`` and ``valid``, which have no values.
        values: what it is compared with; never None.
    """

    path: tuple[str, ...]
    op: str
    values: tuple[Any, ...] = ()

    @property
    def by_equality(self) -> bool:
        """Can a filter or an index be asked?"""
        return self.op in ("==", "in")

    def __repr__(self) -> str:
        return f"<Condition {'.'.join(self.path)} {self.op} …>"


def conditions(filters: Iterable[Any]) -> list[Condition]:
    """What Spark's filters (`pyspark.sql.datasource.Filter`) say, as far as it can rule out anything."""
    return [one for pushed in filters for one in _understood(pushed)]


def to_text(asked: Iterable[Condition]) -> str:
    """Conditions as an option of the data source; `from_text` reads it."""
    told = [
        [one.path, one.op, [[type(value).__name__, _WRITTEN[type(value)](value)] for value in one.values]]
        for one in asked
        if all(type(value) in _WRITTEN for value in one.values)
    ]
    return json.dumps(told)


def from_text(text: str) -> tuple[Condition, ...]:
    """What `to_text` wrote. No pickle: a table's options may be somebody else's.

    Raises:
        UsageError: anything else.
    """
    try:
        return tuple(
            Condition(tuple(path), str(op), tuple(_READ[kind](value) for kind, value in values))
            for path, op, values in json.loads(text)
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


def _understood(pushed: Any) -> list[Condition]:
    kind = type(pushed).__name__
    if kind == "Not":
        inner = type(pushed.child).__name__
        opposite = {"IsNull": "valid", "IsNotNull": "null"}.get(inner)
        return [Condition(pushed.child.attribute, opposite)] if opposite else []
    path = tuple(pushed.attribute)
    if any(isinstance(one, str) and _REPLACED in one for one in _listed(getattr(pushed, "value", None))):
        return []
    if kind in ("IsNull", "IsNotNull"):
        return [Condition(path, "null" if kind == "IsNull" else "valid")]
    value = getattr(pushed, "value", None)
    if kind == "EqualNullSafe" and value is None:
        return [Condition(path, "null")]
    if kind == "In" and isinstance(value, list | tuple):
        return [Condition(path, "in", tuple(one for one in value if one is not None))]
    if kind == "StringStartsWith" and isinstance(value, str) and value:
        after = successor(value)
        return [Condition(path, ">=", (value,)), *([Condition(path, "<", (after,))] if after else [])]
    if kind in _OPERATORS and value is not None:
        return [Condition(path, _OPERATORS[kind], (value,))]
    return []


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


# Partition values -------------------------------------------------------------------------------------------------


def admits(condition: Condition, value: Any, kind: st.DataType) -> bool:
    """May a row with this partition value be kept? True where it is not known."""
    if condition.op in ("null", "valid"):
        return (value is None) is (condition.op == "null")
    if value is None:
        return False
    if not all(_same_kind(one, value) for one in condition.values) or collated(kind):
        return True
    if condition.op in ("==", "in"):
        return value in condition.values
    return _COMPARE[condition.op](_ordered(value), _ordered(condition.values[0]))


def _same_kind(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return not math.isnan(one) and not math.isnan(other)
    if isinstance(one, dt.datetime) and isinstance(other, dt.datetime):
        return (one.tzinfo is None) is (other.tzinfo is None)
    return type(one) is type(other)


def _ordered(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def collated(kind: st.DataType | None) -> bool:
    """Is it a text whose equality is another one than that of its bytes?"""
    return isinstance(kind, st.StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


# Files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """Conditions as one file has them.

    Attributes:
        impossible: no row of the file can be kept.
        terms: for `SealedFile.plan`: ``(column, op, value)``, all of which must hold.
        valid, null: leaves of which a row group must have a value, or a null.
    """

    impossible: bool = False
    terms: tuple[tuple[str, str, Any], ...] = field(default=(), repr=False)
    valid: tuple[Leaf, ...] = ()
    null: tuple[Leaf, ...] = ()

    def rules_out(self, walk: Walk, row_group: int) -> bool:
        """Do the numbers of nulls rule out a row group?"""

        def meta(leaf: Leaf) -> ColumnMetaData:
            return walk.meta(walk.chunk(row_group, leaf.index))

        return any(all_null(meta(leaf), leaf) for leaf in self.valid) or any(
            no_nulls(meta(leaf), leaf) for leaf in self.null
        )


def bind(
    asked: Sequence[Condition],
    wanted: Mapping[str, st.DataType],
    names: Mapping[str, str | None],
    schema: Schema,
    masked: frozenset[int],
) -> Bound:
    """Conditions, in the types in which Spark reads the columns, as conditions on a file's own types.

    Args:
        wanted: the columns that are read from files, and their types.
        names: those columns → their names in this file; None where it has none.
        schema: the file's.
        masked: leaves that are null for this reader. What is asked of them is left to Spark.
    """
    terms: list[tuple[str, str, Any]] = []
    valid: list[Leaf] = []
    null: list[Leaf] = []
    for condition in asked:
        top = condition.path[0]
        if top not in wanted:
            continue
        if names[top] is None:
            if condition.op != "null":
                return Bound(impossible=True)
            continue
        leaf = _leaf(schema.leaves, (names[top] or "", *condition.path[1:]))
        if leaf is None or leaf.repeated or leaf.index in masked:
            continue
        if condition.op in ("null", "valid"):
            # Below a struct, statistics count its nulls too; only flat columns say it plainly.
            if len(leaf.path) == 1:
                (null if condition.op == "null" else valid).append(leaf)
            continue
        kind = _inner_type(wanted[top], condition.path[1:])
        for op, value in _translated(condition, kind, leaf) if kind is not None else ():
            try:
                Predicate([(leaf.name, op, value)], schema)
            except UsageError:
                continue
            terms.append((leaf.name, op, value))
    return Bound(False, tuple(terms), tuple(valid), tuple(null))


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


def _translated(condition: Condition, kind: st.DataType, leaf: Leaf) -> list[Term]:
    """What the condition means for the file's type; empty where it could mean anything else than Spark means by it."""
    check = _CHECKS.get(type(kind))
    if check is None or not check(leaf, condition) or collated(kind):
        return []
    op, values = condition.op, condition.values
    if leaf.type.kind == "timestamp" and leaf.type.logical is not None and leaf.type.logical.unit == "ns":
        return _floored(op, values)
    if isinstance(kind, st.StringType) and leaf.type.kind == "":
        values = tuple(value.encode() for value in values)
    return [(op, list(values) if op == "in" else values[0])]


def _floored(op: str, values: tuple[Any, ...]) -> list[Term]:
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


def _of(kind: type, also: Callable[[Leaf, Condition], bool]) -> Callable[[Leaf, Condition], bool]:
    def check(leaf: Leaf, condition: Condition) -> bool:
        return all(type(value) is kind for value in condition.values) and also(leaf, condition)

    return check


def _is_int(leaf: Leaf, condition: Condition) -> bool:  # noqa: ARG001
    return leaf.type.physical in (PhysicalType.INT32, PhysicalType.INT64) and leaf.type.kind in ("int", "")


def _is_float(leaf: Leaf, condition: Condition) -> bool:
    narrow = leaf.type.physical is PhysicalType.FLOAT
    if leaf.type.kind or not (narrow or leaf.type.physical is PhysicalType.DOUBLE):
        return False
    # NaN is greater than all floats to Spark, and no statistic or comparison of ours says so.
    if condition.op in (">", ">=") or any(math.isnan(value) for value in condition.values):
        return False
    with np.errstate(over="ignore"):
        # A double between two floats would be rounded, and a bound with it.
        return not narrow or all(float(np.float32(value)) == value for value in condition.values)


def _is_text(leaf: Leaf, condition: Condition) -> bool:  # noqa: ARG001
    return leaf.type.physical is PhysicalType.BYTE_ARRAY and leaf.type.kind in ("string", "enum", "json", "")


def _is_binary(leaf: Leaf, condition: Condition) -> bool:  # noqa: ARG001
    return leaf.type.physical in (PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY) and leaf.type.kind == ""


def _is_timestamp(leaf: Leaf, condition: Condition) -> bool:
    logical = leaf.type.logical
    if leaf.type.kind != "timestamp" or logical is None:
        return False
    return all((value.tzinfo is not None) is logical.utc for value in condition.values)


def _instant(*, utc: bool) -> Callable[[Leaf, Condition], bool]:
    def same(leaf: Leaf, condition: Condition) -> bool:
        return leaf.type.logical is not None and leaf.type.logical.utc is utc and _is_timestamp(leaf, condition)

    return _of(dt.datetime, same)


_CHECKS: Final[dict[type[st.DataType], Callable[[Leaf, Condition], bool]]] = {
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
