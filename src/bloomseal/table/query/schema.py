"""One schema for files whose schemas differ, and their rows in it.

A column that a file lacks is null there; integers, floats, decimals and timestamps are widened. Whatever else differs
is refused, by what the files' schemas say and not by what their rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ..._lazy import deferred
from ...core.errors import Hint, UsageError

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")

_UNITS = ("s", "ms", "us", "ns")
_FLOORED = {"s": "second", "ms": "millisecond", "us": "microsecond"}


def unified(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The schema that holds the rows of all files.

    Args:
        schemas: file and schema, in the order of the files; columns stand in the order in which they come first.

    Raises:
        UsageError: two files whose types of a column have none in common; both are named.
    """
    found = [*schemas]
    if not found:
        return pa.schema([])
    first = found[0][1]
    if all(schema is first or schema.equals(first, check_metadata=False) for _, schema in found):
        return first
    fields: dict[str, pa.Field] = {}
    owner: dict[str, str] = {}
    for path, schema in found:
        for field in schema:
            if (known := fields.get(field.name)) is None:
                fields[field.name], owner[field.name] = field, path
                continue
            kind = wider(known.type, field.type)
            if kind is None:
                raise UsageError(
                    f"{field.type} here and {known.type} in {owner[field.name]}: no type holds both",
                    file=path,
                    column=field.name,
                    hint=Hint.WITHOUT_COLUMN,
                )
            if kind != known.type:
                owner[field.name] = path
            fields[field.name] = known.with_type(kind).with_nullable(known.nullable or field.nullable)
    everywhere = set.intersection(*(set(schema.names) for _, schema in found))
    return pa.schema(
        [field if field.name in everywhere else field.with_nullable(True) for field in fields.values()], first.metadata
    )


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both exactly; None where there is none.

    A timestamp is widened to the finer unit, whose range may be too narrow for single values: such a value is refused
        when it is read.
    """
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_dictionary(one) or types.is_dictionary(other):
        return wider(*(kind.value_type if types.is_dictionary(kind) else kind for kind in (one, other)))
    for same in (types.is_floating, types.is_signed_integer, types.is_unsigned_integer):
        if same(one) and same(other):
            return one if one.bit_width > other.bit_width else other
    if types.is_integer(one) and types.is_integer(other):
        unsigned, signed = (one, other) if types.is_unsigned_integer(one) else (other, one)
        if unsigned.bit_width == 64:
            return None
        return signed if signed.bit_width > unsigned.bit_width else _signed(2 * unsigned.bit_width)
    if types.is_decimal(one) and types.is_decimal(other):
        return _decimal(one, other)
    if types.is_timestamp(one) and types.is_timestamp(other) and one.tz == other.tz:
        return one if _UNITS.index(one.unit) > _UNITS.index(other.unit) else other
    for texts, large in ((_is_text, pa.large_string()), (_is_bytes, pa.large_binary())):
        if texts(one) and texts(other):
            return large
    return _nested(one, other)


def fits(stored: pa.DataType, logged: pa.DataType) -> bool:
    """Whether a column of files can have the type that the table's log gives it."""
    types = pa.types
    if wider(stored, logged) == logged or types.is_nested(logged):
        return True
    # Whether offsets are wide is no matter, and INT96 has nanoseconds and no zone.
    alike = (_is_text, _is_bytes, types.is_timestamp)
    return any(same(stored) and same(logged) for same in alike)


def as_logged(stored: pa.DataType, logged: pa.DataType, *, whole: bool) -> pa.DataType:
    """A nested column's type as files have it, but for what the table's log says: the fields of its structs, since
    files still hold those that were dropped, the width of its numbers, since a value means there what the wider type
    makes of it, and its moments, of which the log knows the zone.

    Args:
        whole: all of the column was asked for, and so fields that no file has yet.
    """

    def inside(one: pa.Field, told: pa.DataType) -> pa.Field:
        return one.with_type(as_logged(one.type, told, whole=whole))

    types = pa.types
    if types.is_struct(stored) and types.is_struct(logged):
        held = {field.name: field for field in stored}
        return pa.struct(
            [inside(held[one.name], one.type) if one.name in held else one.with_nullable(True)
             for one in logged if whole or one.name in held]
        )  # fmt: skip
    if types.is_map(stored) and types.is_map(logged):
        return pa.map_(inside(stored.key_field, logged.key_type), inside(stored.item_field, logged.item_type))
    if _is_list(stored) and _is_list(logged):
        made = pa.list_ if types.is_list(stored) else pa.large_list
        return made(inside(stored.value_field, logged.value_type))
    if types.is_timestamp(stored) and types.is_timestamp(logged):
        return logged
    numbers = types.is_integer(stored) or types.is_floating(stored) or types.is_decimal(stored)
    return logged if numbers and wider(stored, logged) == logged else stored


def conform(
    table: pa.Table, schema: pa.Schema, known: Mapping[str, pa.Scalar], path: str, *, sealed_instants: bool = False
) -> pa.Table:
    """A file's rows in the schema of the table.

    Args:
        known: columns that have one value in the whole file.
        path: the file, for errors.
        sealed_instants: timestamps without a zone are UTC where the schema says so.

    Raises:
        UsageError: a value that does not fit the wider type.
    """
    columns = []
    for field in schema:
        if field.name in known:
            value = known[field.name]
            column = pa.repeat(value, table.num_rows) if value.is_valid else pa.nulls(table.num_rows, field.type)
        elif field.name in table.column_names:
            column = _cast(table.column(field.name), field, path, sealed_instants)
        else:
            column = pa.nulls(table.num_rows, field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, path: str, sealed_instants: bool) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        if sealed_instants and pa.types.is_timestamp(field.type):
            # INT96 has nanoseconds and no zone; the log says what it means.
            return _instants(column, field.type)
        return column.cast(field.type)
    except (pa.ArrowException, AttributeError):
        raise UsageError(f"a value does not fit {field.type}", file=path, column=field.name) from None


def _instants(column: pa.ChunkedArray, kind: pa.TimestampType) -> pa.ChunkedArray:
    """Instants of a finer unit are floored, before 1970 too, as Spark does it; those of a coarser one have to fit."""
    if column.type.tz != kind.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    if _UNITS.index(column.type.unit) > _UNITS.index(kind.unit):
        column = pc.floor_temporal(column, unit=_FLOORED[kind.unit])
    return column.cast(kind)


def _signed(bits: int) -> pa.DataType:
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]


def _decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    if precision > 76:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _nested(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_struct(one) and types.is_struct(other):
        fields = _fields([*one], [*other])
        return None if fields is None else pa.struct(fields)
    if _is_list(one) and _is_list(other):
        kind = wider(one.value_type, other.value_type)
        # Whether offsets are wide is the writer's choice: of one table, Polars' files have wide ones, Spark's do not.
        made = pa.list_ if types.is_list(one) and types.is_list(other) else pa.large_list
        return None if kind is None else made(one.value_field.with_type(kind).with_nullable(True))
    if types.is_map(one) and types.is_map(other):
        key, item = wider(one.key_type, other.key_type), wider(one.item_type, other.item_type)
        return None if key is None or item is None else pa.map_(key, one.item_field.with_type(item).with_nullable(True))
    return None


def _fields(one: Sequence[pa.Field], other: Sequence[pa.Field]) -> list[pa.Field] | None:
    found = {field.name: field for field in one}
    if len(found) < len(one):
        return None
    theirs = {field.name: field for field in other}
    for name, field in theirs.items():
        kind = wider(found[name].type, field.type) if name in found else field.type
        if kind is None:
            return None
        found[name] = field.with_type(kind)
    return [field.with_nullable(True) for field in found.values()]
