"""Plaintext Parquet files changed in single fields: what other writers got wrong, built without them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bloomseal as bs
from bloomseal.core.parquet.layout import Column, FileMeta, Group, Meta
from bloomseal.core.thrift import Struct, WireType

__all__ = [
    "add_group",
    "booleans",
    "change_chunk",
    "change_column_index",
    "change_element",
    "created_by",
    "statistics",
    "written",
]

Change = Callable[[Struct], object]
_MAGIC = b"PAR1"


def written(table: pa.Table, **options: Any) -> bytes:
    """A plaintext file as pyarrow writes it, without its own schema beside Parquet's."""
    out = io.BytesIO()
    pq.write_table(table, out, **{"compression": "none", "store_schema": False, **options})
    return out.getvalue()


def change_element(data: bytes, change: Change, element: int = 1) -> bytes:
    """The file with one schema element changed; element 0 is the root."""
    return _with_footer(data, lambda footer: _change_in(footer, FileMeta.SCHEMA, element, change))


def add_group(data: bytes, name: str, *, first: bool = False) -> bytes:
    """The file with a group without fields among those at the top."""

    def change(footer: Struct) -> None:
        root, *elements = footer.elements(FileMeta.SCHEMA)
        top = Struct.parse(root)
        top.set_i32(5, (top.integer(5) or 0) + 1)
        group = Struct()
        group.set_i32(3, 1)
        group.set_binary(4, name.encode())
        group.set_i32(5, 0)
        elements.insert(0 if first else len(elements), group.to_bytes())
        footer.set_list(FileMeta.SCHEMA, [top.to_bytes(), *elements])

    return _with_footer(data, change)


def change_chunk(data: bytes, change: Change, column: int = 0, row_group: int = 0) -> bytes:
    """The file with one column's ColumnMetaData changed."""

    def meta(chunk: Struct) -> None:
        inner = chunk.struct(Column.META)
        assert inner is not None
        change(inner)
        chunk.set_struct(Column.META, inner)

    return _with_footer(data, lambda footer: _in_chunk(footer, column, row_group, meta))


def column_orders(data: bytes, *members: int) -> bytes:
    """The file with these members of the union ColumnOrder, one for each column."""

    def change(footer: Struct) -> None:
        orders = []
        for member in members:
            order = Struct()
            order.set_struct(member, Struct())
            orders.append(order.to_bytes())
        footer.set_list(FileMeta.COLUMN_ORDERS, orders)

    return _with_footer(data, change)


def change_pages(data: bytes, change: Change, column: int = 0) -> bytes:
    """The file with the headers of one column's data pages changed, which must not grow by that."""
    raw = bytearray(data)
    with bs.open_file(data) as file:
        for page in file.walk.pages(file.walk.chunk(0, column)):
            if page.ordinal >= 0:
                header = Struct.parse(page.header)
                change(header)
                changed = header.to_bytes()
                assert len(changed) == len(page.header)
                raw[page.offset : page.offset + len(changed)] = changed
    return bytes(raw)


def created_by(data: bytes, writer: str) -> bytes:
    """The file as if somebody else had written it."""
    return _with_footer(data, lambda footer: footer.set_binary(FileMeta.CREATED_BY, writer.encode()))


def statistics(**fields: Any) -> Change:
    """A change of ColumnMetaData: its statistics are these and no others."""

    def change(meta: Struct) -> None:
        made = Struct()
        for number, name in ((1, "max"), (2, "min"), (5, "max_value"), (6, "min_value")):
            if name in fields:
                made.set_binary(number, fields[name])
        for number, name in ((3, "null_count"), (9, "nan_count")):
            if name in fields:
                made.set_i64(number, fields[name])
        meta.set_struct(Meta.STATISTICS, made)

    return change


def change_column_index(data: bytes, change: Change, column: int = 0) -> bytes:
    """The file with one column index changed; its old bytes stay where they are."""
    places: list[int] = []

    def find(chunk: Struct) -> None:
        places.extend((chunk.integer(Column.COLUMN_INDEX) or 0, chunk.integer(Column.COLUMN_INDEX_LENGTH) or 0))

    _with_footer(data, lambda footer: _in_chunk(footer, column, 0, find))
    index = Struct.parse(data[places[0] : sum(places)])
    change(index)
    raw = index.to_bytes()
    end = _footer_start(data)

    def move(chunk: Struct) -> None:
        chunk.set_i64(Column.COLUMN_INDEX, end)
        chunk.set_i32(Column.COLUMN_INDEX_LENGTH, len(raw))

    data = data[:end] + raw + data[end:]
    return _with_footer(data, lambda footer: _in_chunk(footer, column, 0, move))


def booleans(values: list[bool]) -> bytes:
    """A raw list of booleans."""
    assert len(values) < 15
    return bytes([len(values) << 4 | WireType.FALSE, *(WireType.TRUE if one else WireType.FALSE for one in values)])


def _footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _with_footer(data: bytes, change: Change) -> bytes:
    start = _footer_start(data)
    footer = Struct.parse(data[start:-8])
    change(footer)
    raw = footer.to_bytes()
    return data[:start] + raw + len(raw).to_bytes(4, "little") + _MAGIC


def _change_in(struct: Struct, field: int, number: int, change: Change) -> None:
    elements = struct.elements(field)
    inner = Struct.parse(elements[number])
    change(inner)
    elements[number] = inner.to_bytes()
    struct.set_list(field, elements)


def _in_chunk(footer: Struct, column: int, row_group: int, change: Change) -> None:
    _change_in(footer, FileMeta.ROW_GROUPS, row_group, lambda group: _change_in(group, Group.COLUMNS, column, change))
