"""Row predicates in the list-of-tuples form: what they prove about a row group, and which rows they keep.

A value means what the column's type makes of it, the same for statistics, filters and rows: a float is rounded to the
column's width, an integer out of range equals nothing. Comparison with null keeps no row, and ``in`` is ``==`` any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..sbbf import PhysicalType, ProbeSet, encode_value
from .schema import Leaf, Schema

__all__ = ["Predicate", "Term"]

_OPERATORS = {
    "=": "==",
    "==": "==",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "in": "in",
    "not in": "not in",
}
_COMPARE = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


@dataclass(frozen=True)
class Term:
    """``column op value``, bound to a leaf. The repr leaves the value out: it may be the secret looked for."""

    leaf: Leaf
    op: str
    values: tuple[Any, ...]
    int96_utc: bool

    def __repr__(self) -> str:
        return f"<Term {self.leaf.name} {self.op} …>"

    @functools.cached_property
    def probe_set(self) -> ProbeSet | None:
        """The values to ask a filter for; None where the operator is not about equality."""
        if self.op not in ("==", "in"):
            return None
        # Null equals nothing, so it must not keep a row group.
        values = [value for value in self.values if not _is_null(value)]
        return ProbeSet.of(values, self.leaf.type, int96_utc=self.int96_utc)

    def excluded_by(self, prove: Callable[[str, Any], bool]) -> bool:
        """Does `prove(op, value)` rule out every row? Asked once per value for ``in``."""
        match self.op:
            case "==" | "in":
                return all(_is_null(value) or prove("==", value) for value in self.values)
            case "<" | "<=" | ">" | ">=":
                return prove(self.op, self.values[0])
            case _:
                return False

    def mask(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """One bool per row: True where the term holds; never null."""
        column = _comparable_column(column)
        negated = self.op in ("!=", "not in")
        if self.op in _COMPARE:
            value = self.values[0]
            hit = None if _is_null(value) else _COMPARE[self.op](column, self._bound(value, column.type))
            hit = None if hit is None else pc.fill_null(hit, False)
        else:
            hit = self._equal_any(column)
        if negated:
            present = [value for value in self.values if not _is_null(value)]
            if len(present) < len(self.values):
                return _none(column)
            valid = pc.is_valid(column)
            return valid if hit is None else pc.and_(valid, pc.invert(hit))
        return _none(column) if hit is None else hit

    def _equal_any(self, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        scalars = [scalar for value in self.values if (scalar := self._equal(value, column.type)) is not None]
        if not scalars:
            return None
        if len(scalars) == 1:
            return pc.fill_null(pc.equal(column, scalars[0]), False)
        wanted = pa.array([scalar.as_py() for scalar in scalars], type=column.type)
        if pa.types.is_floating(column.type):
            zeros = pa.array([0.0, -0.0], type=column.type)
            if pc.any(pc.equal(wanted, pa.scalar(0.0, column.type))).as_py():
                wanted = pa.concat_arrays([wanted, zeros])
        return pc.is_in(column, value_set=wanted)

    def _equal(self, value: Any, kind: pa.DataType) -> pa.Scalar | None:
        """`value` as a scalar of the column's Arrow type; None where no row can equal it."""
        encodings = encode_value(value, self.leaf.type, int96_utc=True)
        if encodings == () or _is_null(value):
            return None
        if encodings is None and self.leaf.type.physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE):
            return None  # NaN equals nothing, itself included
        if encodings is None and self.leaf.type.kind == "float16":
            return None
        return self._scalar(value, kind, encodings)

    def _bound(self, value: Any, kind: pa.DataType) -> pa.Scalar:
        """`value` for an ordering: unrounded, except that a float takes the column's width."""
        encode_value(value, self.leaf.type, int96_utc=True)
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        if pa.types.is_floating(kind):
            return (
                pa.scalar(float(value), pa.float64()).cast(kind) if not _is_float16(self.leaf) else _half(value, kind)
            )
        if pa.types.is_integer(kind):
            # Beyond 64 bits an integer is larger or smaller than every value; the next lawful bound says the same.
            number = int(value)
            if not -(1 << 63) <= number < 1 << 64:
                raise UsageError(f"an integer out of 64 bits for {self.op}", column=self.leaf.name)
            return pa.scalar(number, pa.uint64() if number >= 1 << 63 else pa.int64())
        if pa.types.is_timestamp(kind):
            return _timestamp(value, kind)
        return self._scalar(value, kind, encode_value(value, self.leaf.type) or None)

    def _scalar(self, value: Any, kind: pa.DataType, encodings: tuple[bytes, ...] | None) -> pa.Scalar:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        try:
            if pa.types.is_floating(kind):
                return (
                    _half(value, kind) if _is_float16(self.leaf) else pa.scalar(float(value), pa.float64()).cast(kind)
                )
            if pa.types.is_timestamp(kind):
                return _timestamp(value, kind).cast(kind)
            if pa.types.is_decimal(kind):
                return pa.scalar(value).cast(kind) if not isinstance(value, int) else pa.scalar(value, kind)
            if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
                return pa.scalar(value.decode() if isinstance(value, bytes) else value, kind)
            if encodings and self.leaf.type.physical in (PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY):
                return pa.scalar(encodings[0], kind)
            if isinstance(value, np.generic):
                value = value.item()
            return pa.scalar(value, kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError):
            raise UsageError(
                f"a {type(value).__name__} can't be compared with a column of Arrow type {kind}", column=self.leaf.name
            ) from None


class Predicate:
    """A predicate in disjunctive normal form: any of several conjunctions of terms.

    Args:
        filters: ``[(column, op, value), ...]`` (all of them) or a list of such lists (any of them), as pyarrow and
            pandas take it. Operators: ``= == != < <= > >= in`` and ``not in``.

    Raises:
        UsageError: not of that form, no such column, a repeated column, a value of the wrong kind.
    """

    def __init__(self, filters: Any, schema: Schema, *, int96_utc: bool = False) -> None:
        self.any_of = [
            [_term(item, schema, int96_utc) for item in conjunction] for conjunction in _normal_form(filters)
        ]

    @property
    def leaves(self) -> list[Leaf]:
        """The leaves that it looks at, in schema order."""
        unique = {term.leaf.index: term.leaf for conjunction in self.any_of for term in conjunction}
        return [unique[index] for index in sorted(unique)]

    def excluded(self, proves: Callable[[Term], bool]) -> bool:
        """True where every conjunction holds a term that `proves` rules out."""
        return all(any(proves(term) for term in conjunction) for conjunction in self.any_of)

    def mask(self, table: pa.Table) -> pa.ChunkedArray:
        """One bool per row."""
        conjunctions = [
            functools.reduce(pc.and_, (term.mask(column_at(table, term.leaf.path)) for term in conjunction))
            for conjunction in self.any_of
        ]
        return functools.reduce(pc.or_, conjunctions)


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """A column, or a field inside structs; null where any struct above it is."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _normal_form(filters: Any) -> list[list[Any]]:
    wrong = UsageError("filters= takes a list of (column, op, value), or a list of such lists")
    if not isinstance(filters, list | tuple) or not filters:
        raise wrong
    if all(isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str) for item in filters):
        return [list(filters)]
    if not all(isinstance(item, list | tuple) and item for item in filters):
        raise wrong
    return [list(item) for item in filters]


def _term(item: Any, schema: Schema, int96_utc: bool) -> Term:
    if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[0], str):
        raise UsageError("filters= takes a list of (column, op, value), or a list of such lists")
    name, op, value = item
    if op not in _OPERATORS:
        raise UsageError(f"unknown operator {op!r}", column=name, hint=", ".join(_OPERATORS))
    leaf = schema.leaf(name)
    if leaf.repeated:
        raise UsageError("a row predicate on a repeated column", column=name, hint="probe() asks its filters")
    op = _OPERATORS[op]
    values: Iterable[Any] = [value]
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise UsageError(f"{op!r} takes a list of values", column=name)
        values = value
    term = Term(leaf, op, tuple(values), int96_utc)
    for one in term.values:
        try:
            encode_value(one, leaf.type, int96_utc=True)
        except UsageError as error:
            raise error.at(column=name) from None
    return term


def _comparable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
        kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    return column


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


def _none(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(np.zeros(len(column), dtype=np.bool_))])


def _is_float16(leaf: Leaf) -> bool:
    return leaf.type.kind == "float16"


def _half(value: Any, kind: pa.DataType) -> pa.Scalar:
    with np.errstate(over="ignore"):
        return pa.scalar(float(np.float16(value)), kind)


def _timestamp(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A moment with all its digits, in UTC where the column has a zone."""
    if isinstance(value, pa.Scalar):
        scalar = value
    elif hasattr(value, "to_datetime64"):  # pandas: nanoseconds survive only this way
        scalar = pa.scalar(value.to_datetime64())
        if value.tzinfo is not None:
            scalar = scalar.cast(pa.timestamp("ns", "UTC"))
    else:
        scalar = pa.scalar(value)
    aware = scalar.type.tz is not None
    if kind.tz is None and aware:
        # INT96 columns come as naive timestamps that mean UTC.
        return scalar.cast(pa.timestamp(scalar.type.unit, "UTC")).cast(pa.timestamp(scalar.type.unit))
    if kind.tz is not None and not aware:
        return scalar.cast(pa.timestamp(scalar.type.unit, "UTC"))
    return scalar
