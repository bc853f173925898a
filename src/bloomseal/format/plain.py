"""Texts, bytes and lists in place of views of them, which few of Arrow's own functions take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from .._lazy import deferred

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with texts, bytes and lists in place of views of them."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema], schema.metadata)


def plain_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows in the `plain_schema` of their schema."""
    if table.schema == schema:
        return table
    columns = [
        pa.chunked_array([_array(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_list_view(array.type) or types.is_large_list_view(array.type):
        # Arrow's own cast makes no last offset.
        sizes = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
        wide = types.is_large_list(kind)
        made, width = (pa.LargeListArray, pa.int64()) if wide else (pa.ListArray, pa.int32())
        values = _array(array.flatten(), kind.value_type)
        return made.from_arrays(offsets.cast(width), values, kind, mask=array.is_null())
    if types.is_struct(array.type) and array.type != kind:
        inside = [_array(array.field(place), field.type) for place, field in enumerate(kind)]
        return pa.StructArray.from_arrays(inside, fields=[*kind], mask=array.is_null())
    return array.cast(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)), kind.keys_sorted)
    for is_list, make in (
        (pa.types.is_list, pa.list_),
        (pa.types.is_list_view, pa.list_),
        (pa.types.is_large_list, pa.large_list),
        (pa.types.is_large_list_view, pa.large_list),
        (pa.types.is_fixed_size_list, lambda value: pa.list_(value, kind.list_size)),
    ):
        if is_list(kind):
            return make(kind.value_field.with_type(_plain(kind.value_field.type)))
    return kind
