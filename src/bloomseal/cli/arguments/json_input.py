"""Line-delimited JSON → record batches, without changing a value that nobody gave a type.

Arrow takes text that looks like a moment for one, and drops its zone; and it takes whole numbers beyond 64 bits, or
beside fractions, for doubles. Here text is a date or a moment where CSV's would be one, and a number that a double may
not hold exactly is an error.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Container, Iterator, Mapping
from typing import Final

import pyarrow as pa

from ...core.errors import FormatError
from .csv_input import DATES, Guess, exact
from .text_input import UNTYPED, TextInput, bad_line, first_unread

_EXACT: Final = float(1 << 53)
"""Beyond it a double does not hold every whole number."""


class JsonReader:
    """A file of JSON, one object a line: its schema, and its rows in batches.

    The first mebibyte says which columns there are, and their types; what does not fit them later is an error.

    Args:
        source: its lines.
        types: column → type, where it was said.
        known: column → type that other inputs have found.

    Raises:
        FormatError: a line that does not read, or a value that does not fit its type.
        OSError: the caller's to translate.
    """

    def __init__(self, source: TextInput, types: Mapping[str, pa.DataType], known: Mapping[str, pa.DataType]) -> None:
        blocks = source.blocks()
        first, begin = next(blocks, (1, b""))
        if not begin.strip():
            raise FormatError("the input is empty", hint="one JSON object in each line")
        # Types that Arrow's reader of JSON does not know, or that its texts are held to, are made of texts.
        texts = {name: pa.string() if kind in DATES else kind for name, kind in known.items()}
        texts |= {name: pa.string() if pa.types.is_date(kind) else kind for name, kind in types.items()}
        found = _read_or_tell(first, begin, texts, complete=False).schema
        plain = pa.schema([field.with_type(_without_moments(field.type)) for field in found])
        self._plain = dict(zip(plain.names, plain.types, strict=True))
        table = _read_or_tell(first, begin, self._plain)
        guessed = [one.name for one in plain if one.name not in {*types, *known} and pa.types.is_string(one.type)]
        wanted = {**{name: _moments(table.column(name)) for name in guessed}, **known, **types}
        self.schema = pa.schema([field.with_type(wanted.get(field.name, field.type)) for field in plain])
        unsaid = [name for name in self.schema.names if name not in types]
        rest = (_read_or_tell(line, data, self._plain) for line, data in blocks)
        self.batches = (_typed(one, self.schema, unsaid) for one in itertools.chain([table], rest))


def _read_or_tell(first: int, data: bytes, types: Mapping[str, pa.DataType], *, complete: bool = True) -> pa.Table:
    """Columns of these types; others are found out, where these are not `complete`."""
    found = _read(data, types, complete)
    if found is not None:
        return found
    lines = data.splitlines(keepends=True)
    at = first_unread(lines, lambda some: _read(some, types, complete) is not None)
    line, number = lines[at], first + at
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise bad_line("ndjson", number, "it is no JSON object", "one object in each line")
    if not complete and (before := _read(b"".join(lines[:at]), types, complete)) is not None:
        types = dict(zip(before.schema.names, before.schema.types, strict=True))
    for name, value in values.items():
        if _read(json.dumps({name: value}).encode(), types, complete=True) is None:
            why = "its value does not fit the type" if name in types else "the first lines have no such column"
            raise bad_line("ndjson", number, why, UNTYPED, name)
    raise bad_line("ndjson", number, "a name stands in it twice", "one value for each name")


def _read(data: bytes, types: Mapping[str, pa.DataType], complete: bool) -> pa.Table | None:
    from pyarrow import json as arrow_json

    more = "error" if complete else "infer"
    if not data.strip():
        return pa.schema(list(types.items())).empty_table()
    schema = pa.schema(list(types.items())) if types else None
    try:
        return arrow_json.read_json(
            io.BytesIO(data),
            arrow_json.ReadOptions(block_size=len(data) + 1, use_threads=False),
            arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=more),
        )
    except pa.ArrowException:
        return None


def _without_moments(kind: pa.DataType) -> pa.DataType:
    """The type with text in the place of moments that Arrow takes it for. It makes only those without a zone."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is None:
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_moments(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_moments(kind.value_type)))
    return kind


def _moments(column: pa.ChunkedArray) -> pa.DataType:
    import pyarrow.compute as pc

    if pc.any(pc.equal(column, "")).as_py():
        return pa.string()  # JSON has a null of its own
    guess = Guess(among=DATES)
    guess.see(column)
    return pa.string() if pa.types.is_null(guess.type) else guess.type


def _typed(table: pa.Table, schema: pa.Schema, unsaid: Container[str]) -> pa.RecordBatch:
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        if field.name in unsaid and any(map(_inexact, _doubles(column.combine_chunks()))):
            raise FormatError(
                "the column has fractions, or numbers of more than 64 bits, and numbers that no double holds for sure",
                column=field.name,
                hint=f"--type '{field.name}=decimal(38,6)', or double to round them",
            )
        guessed = field.name in unsaid and column.type != field.type
        try:
            made = exact(column, field, empty_is_null=False) if guessed else column.combine_chunks().cast(field.type)
        except pa.ArrowException:  # its message quotes the value
            raise FormatError("a value does not fit the type", column=field.name, hint=UNTYPED) from None
        columns.append(made)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _doubles(column: pa.Array) -> Iterator[pa.Array]:
    """All columns of doubles in it."""
    if pa.types.is_float64(column.type):
        yield column
    elif pa.types.is_struct(column.type):
        for child in column.flatten():
            yield from _doubles(child)
    elif pa.types.is_list(column.type):
        yield from _doubles(column.flatten())


def _inexact(column: pa.Array) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.greater_equal(pc.abs(column), _EXACT)).as_py())
