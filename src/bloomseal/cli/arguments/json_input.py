"""Line-delimited JSON → record batches, without changing a value that nobody gave a type.

Arrow takes text that looks like a moment for one, and drops its zone; and it takes whole numbers beyond 64 bits, or
beside fractions, for doubles. Here text is a date or a moment where CSV's would be one, and a number that a double may
not hold exactly is an error.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import pyarrow as pa

from ...core.errors import FormatError
from .csv_input import BLOCK_BYTES, DATES, Guess, inflated
from .standard_input import StandardInput

__all__ = ["JsonReader"]

_EXACT: Final = float(1 << 53)
"""Beyond it a double does not hold every whole number."""


class JsonReader:
    """A file of JSON, one object a line, or standard input for ``-``: its schema, and its rows in batches.

    The first mebibyte says which columns there are, and their types; what does not fit them later is an error.

    Args:
        path: the file; ``.gz``, ``.bz2`` and ``.zst`` are inflated.
        types: column → type, where it is not to be found out.
        stack: closes what is opened here.

    Attributes:
        types: of all columns as Arrow's reader takes them.
        total: bytes of the file, which `position` counts up to; 0 for standard input.

    Raises:
        OSError, pyarrow.ArrowException, ValueError: the caller's to translate.
    """

    def __init__(self, path: str, types: Mapping[str, pa.DataType], stack: contextlib.ExitStack) -> None:
        from pyarrow import json

        self.total = 0
        self._raw: Any = None
        # Types that Arrow's reader of JSON does not know are made of texts.
        texts = {name: pa.string() if pa.types.is_date(kind) else kind for name, kind in types.items()}
        self.types: dict[str, pa.DataType] = {}
        begin, stream = self._opened(path, stack)
        if not begin.strip():
            raise FormatError("the input is empty", hint="one JSON object in each line")
        found = _schema_of(begin, texts)
        plain = pa.schema([field.with_type(_without_moments(field.type)) for field in found])
        self.types = dict(zip(plain.names, plain.types, strict=True))
        options = json.ParseOptions(explicit_schema=plain)
        reader = json.open_json(stream, read_options=json.ReadOptions(block_size=BLOCK_BYTES), parse_options=options)
        batches = iter(stack.enter_context(reader))
        first = next(batches, None)
        guessed = [field.name for field in plain if field.name not in types and pa.types.is_string(field.type)]
        wanted = {**{name: _moments(first, name) for name in guessed}, **types}
        self.schema = pa.schema([field.with_type(wanted.get(field.name, field.type)) for field in reader.schema])
        given = [name for name in self.schema.names if name not in types]
        rest = [] if first is None else [first]
        self.batches = (_typed(batch, self.schema, given) for part in (rest, batches) for batch in part)

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._raw.tell() if self.total else 0

    def _opened(self, path: str, stack: contextlib.ExitStack) -> tuple[bytes, Any]:
        """The beginning, and a stream of all."""
        if path == "-":
            begin, stdin = b"", cast("io.BufferedReader[Any]", sys.stdin.buffer)
            while len(begin) < BLOCK_BYTES and (more := stdin.read1(BLOCK_BYTES - len(begin))):
                begin += more
            whole = StandardInput(stdin, begin)
            return begin, stack.enter_context(pa.PythonFile(cast("Any", whole), mode="r"))
        with contextlib.ExitStack() as survey:
            begin = inflated(path, survey.enter_context(pa.OSFile(path, "rb")), survey).read(BLOCK_BYTES)
        self._raw = stack.enter_context(pa.OSFile(path, "rb"))
        self.total = self._raw.size()
        return begin, inflated(path, self._raw, stack)


def _schema_of(begin: bytes, types: Mapping[str, pa.DataType]) -> pa.Schema:
    from pyarrow import json

    whole = begin[: begin.rfind(b"\n") + 1] if len(begin) >= BLOCK_BYTES else begin
    options = json.ParseOptions(explicit_schema=pa.schema(list(types.items())) if types else None)
    read = json.ReadOptions(block_size=len(whole) + 1)
    return json.read_json(io.BytesIO(whole or begin), read_options=read, parse_options=options).schema


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


def _moments(first: pa.RecordBatch | None, name: str) -> pa.DataType:
    guess = Guess(among=DATES)
    if first is not None:
        guess.see(first.column(first.schema.get_field_index(name)).drop_null())
    return pa.string() if pa.types.is_null(guess.type) else guess.type


def _typed(batch: pa.RecordBatch, schema: pa.Schema, found: Iterable[str]) -> pa.RecordBatch:
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        if field.name in found and any(map(_inexact, _doubles(column))):
            raise FormatError(
                "the column has fractions, or numbers of more than 64 bits, and numbers that no double holds for sure",
                column=field.name,
                hint=f"--type '{field.name}=decimal(38,6)', or double to round them",
            )
        if column.type != field.type:
            if field.name in found and not Guess.fits(column.drop_null(), field.type):
                raise FormatError(
                    f"the column began as {field.type}, and later values are something else",
                    column=field.name,
                    hint=f"--type '{field.name}=string'",
                )
            column = column.cast(field.type)
        columns.append(column)
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
