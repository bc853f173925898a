"""CSV, Parquet, Arrow and line-delimited JSON as streams of record batches: no input is held as a whole."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final

import click
import pyarrow as pa

from ...core.errors import BloomsealError, FormatError, KeyAccessError, UsageError
from ...core.spelling import nearest
from ...storage.discovery.tables import is_one_file
from .csv_input import CsvReader
from .json_input import JsonReader
from .options import option
from .text_input import COMPRESSIONS, TextInput, is_tabbed, kind_of

__all__ = [
    "FORMATS",
    "Input",
    "InputOptions",
    "is_tabbed",
    "kind_of",
    "open_input",
    "open_inputs",
    "parse_type",
]

FORMATS: Final = ("csv", "parquet", "arrow", "ndjson")
_TABS: Final = {"tab": "\t", "\\t": "\t"}
_BATCH_ROWS: Final = 1 << 16
_DECIMAL: Final = re.compile(r"decimal(?:128|256)?\((\d+),\s*(-?\d+)\)")
_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:,\s*([^\]]+))?\]")


@dataclass
class InputOptions:
    """What inputs are, where their names and values don't tell it."""

    input_format: str | None = option(
        "--input-format", type=click.Choice(FORMATS), help="Kind of INPUT (default: by its name)."
    )
    delimiter: str | None = option(
        "--delimiter", metavar="CHARACTER", help="Between the values of CSV (default: , and a tab in .tsv)."
    )
    types: Mapping[str, pa.DataType] = option(
        "--type",
        multiple=True,
        callback=lambda _context, _option, items: dict(map(_typed, items)),
        metavar="COLUMN=TYPE",
        help="A column's type, not the inferred one. Repeatable.",
    )


def _typed(item: str) -> tuple[str, pa.DataType]:
    column, equals, name = item.rpartition("=")
    if not equals or not column:
        raise UsageError("--type takes COLUMN=TYPE")
    return column, parse_type(name)


@dataclass
class Input:
    """A stream of rows.

    Attributes:
        schema: of every batch.
        batches: the rows; each batch comes with the bytes, rows or files that were consumed so far.
        total: what `batches` counts up to; 0 where that is not known.
    """

    schema: pa.Schema
    batches: Iterator[tuple[pa.RecordBatch, float]]
    total: int


@contextlib.contextmanager
def open_input(
    path: str, options: InputOptions, known: Mapping[str, pa.DataType] = MappingProxyType({})
) -> Iterator[Input]:
    """Open an input file, or standard input for ``-``.

    Args:
        path: the file; or a folder, a pattern, a Delta or Iceberg table of plaintext files.
        known: column → type that other inputs have found, to which the values of CSV and JSON are held.

    Raises:
        UsageError: no such file, an unknown kind, no such column.
        FormatError: the input does not parse, or a value does not fit its type. The message names no value.
    """
    kind, types, delimiter = options.input_format, options.types, options.delimiter
    if kind in (None, "parquet") and _is_table(path):
        kind = "table"
    if kind is None and (kind := kind_of(path)) is None:
        raise UsageError(
            "the input's name does not tell its format", file=path, hint=f"--input-format {'|'.join(FORMATS)}"
        )
    delimiter = _TABS.get(delimiter or "", delimiter)
    if delimiter is not None and (kind != "csv" or len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
        raise UsageError("a delimiter is one character of ASCII between the values of CSV", hint="--delimiter ';'")
    delimiter = delimiter or ("\t" if is_tabbed(path) else ",")

    with contextlib.ExitStack() as stack:
        with _translated(path, kind):
            if kind in ("csv", "ndjson"):
                source = TextInput(path, kind, stack)
                of_csv = kind == "csv"
                reader = CsvReader(source, types, known, delimiter) if of_csv else JsonReader(source, types, known)
                counted = ((batch, source.position) for batch in reader.batches)
                found = Input(reader.schema, counted, source.total)
            else:
                found = _OPENERS[kind](path, stack)
        if missing := [name for name in types if name not in found.schema.names]:
            raise UsageError(
                "no such column in the input",
                column=missing[0],
                hint=f"one of {', '.join(nearest(missing[0], found.schema.names))}",
            )
        if kind in _OPENERS and types:
            found = _cast(found, types)
        found.batches = _guarded(found.batches, path, kind)
        yield found


@contextlib.contextmanager
def open_inputs(paths: Sequence[str], options: InputOptions) -> Iterator[Input]:
    """Open input files one after the other, as `open_input` does a single one.

    All are looked at before the first row is given out; then one is open at a time. `batches` counts files, a file that
    is half read as a half.

    Raises:
        UsageError: another header (names, or their order), or a column of another type than in the first file; standard
            input beside other inputs. And as `open_input`.
        FormatError: as `open_input`.
    """
    if len(paths) == 1:
        with open_input(paths[0], options) as found:
            yield found
        return
    if "-" in paths:
        raise UsageError("standard input stands alone: all inputs are looked at before the first row is written")
    schema = _one_schema(paths, options)
    # What is known is not found out again; a type that only other files have is that of those without a value of it.
    plain = {field.name: field.type for field in schema if not pa.types.is_nested(field.type)}

    def batches() -> Iterator[tuple[pa.RecordBatch, float]]:
        for number, path in enumerate(paths):
            with open_input(path, options, plain) as found:
                for batch, done in found.batches:
                    yield batch.cast(schema), number + (done / found.total if found.total else 0)

    yield Input(schema, batches(), len(paths))


def _one_schema(paths: Sequence[str], options: InputOptions) -> pa.Schema:
    fields: list[pa.Field] = []
    owners: list[str] = []
    for path in paths:
        with open_input(path, options) as found:
            schema = found.schema
        if not fields:
            fields, owners, metadata = list(schema), [path] * len(schema), schema.metadata
        names = [field.name for field in fields]
        if schema.names != names:
            raise UsageError(
                f"other columns, or another order of them, than in {paths[0]}",
                file=path,
                hint=_difference(names, schema),
            )
        for place, (one, other) in enumerate(zip(fields, schema, strict=True)):
            nullable = one.nullable or other.nullable
            if pa.types.is_null(one.type):
                fields[place], owners[place] = other.with_nullable(nullable), path
            elif pa.types.is_null(other.type) or one.type == other.type:
                fields[place] = one.with_nullable(nullable)
            else:
                raise UsageError(
                    f"{other.type} here and {one.type} in {owners[place]}", file=path, column=one.name,
                    hint=f"--type '{one.name}=string', or another type that holds both",
                )  # fmt: skip
    return pa.schema(fields, metadata)


def _difference(names: Sequence[str], schema: pa.Schema) -> str:
    missing = [name for name in names if name not in schema.names]
    more = [name for name in schema.names if name not in names]
    said = [f"without {', '.join(missing)}"] * bool(missing) + [f"with {', '.join(more)}"] * bool(more)
    return "; ".join(said) or f"the order is {', '.join(names)}"


def parse_type(text: str) -> pa.DataType:
    """A type as pyarrow prints it: ``string``, ``int64``, ``date32``, ``decimal(12, 2)``, ``timestamp[us, UTC]``, ...

    Raises:
        UsageError: not a type.
    """
    try:
        if match := _DECIMAL.fullmatch(text):
            precision, scale = int(match[1]), int(match[2])
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        if match := _TIMESTAMP.fullmatch(text):
            return pa.timestamp(match[1], match[2])
        return pa.type_for_alias(text)
    except (ValueError, pa.ArrowException):
        raise UsageError(
            f"unknown type {text!r}", hint="string, int64, date32, decimal(12,2), timestamp[us,UTC]"
        ) from None


def _open_parquet(path: str, stack: contextlib.ExitStack) -> Input:
    import pyarrow.parquet as pq

    if path == "-":
        raise UsageError("Parquet is read from its end, so not from standard input", hint="a file")
    with open(path, "rb") as raw:
        raw.seek(-min(4, raw.seek(0, 2)), 2)
        if raw.read() == b"PARE":
            raise UsageError("the input is an encrypted file", file=path, hint="bloomseal attach adds filters to it")
    file = stack.enter_context(pq.ParquetFile(path, memory_map=False, pre_buffer=False))
    return Input(file.schema_arrow, _with_rows(file.iter_batches(_BATCH_ROWS)), file.metadata.num_rows)


def _is_table(path: str) -> bool:
    return path != "-" and "://" not in path and not is_one_file(path)


def _open_table(path: str, stack: contextlib.ExitStack) -> Input:
    from ...table.open import open_table

    table, done = open_table(path), [0.0]

    def rows() -> Iterator[tuple[pa.RecordBatch, float]]:
        with _in_clear(path):
            for batch in reader:
                yield batch, done[0]

    with _in_clear(path):
        reader = stack.enter_context(table.scan(progress=lambda files, _: done.__setitem__(0, files)))
    return Input(reader.schema, rows(), len(table))


@contextlib.contextmanager
def _in_clear(path: str) -> Iterator[None]:
    """The keys on the command line are those of the output, so that none is asked for here."""
    try:
        yield
    except KeyAccessError:
        raise UsageError("the input is encrypted", file=path, hint="bloomseal unseal, or attach and rekey") from None


def _open_arrow(path: str, stack: contextlib.ExitStack) -> Input:
    if path == "-":
        reader = stack.enter_context(pa.ipc.open_stream(sys.stdin.buffer))
        return Input(reader.schema, ((batch, 0) for batch in reader), 0)
    stream = stack.enter_context(pa.OSFile(path, "rb"))
    with contextlib.suppress(pa.ArrowInvalid):
        file = stack.enter_context(pa.ipc.open_file(stream))
        batches = (file.get_batch(index) for index in range(file.num_record_batches))
        return Input(file.schema, ((batch, 0) for batch in batches), 0)
    stream.seek(0)
    reader = stack.enter_context(pa.ipc.open_stream(stream))
    return Input(reader.schema, ((batch, stream.tell()) for batch in reader), stream.size())


_OPENERS: Final = {"table": _open_table, "parquet": _open_parquet, "arrow": _open_arrow}


def _with_rows(batches: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield batch, done


def _cast(found: Input, types: Mapping[str, pa.DataType]) -> Input:
    fields = [field.with_type(types.get(field.name, field.type)) for field in found.schema]
    schema = pa.schema(fields, metadata=found.schema.metadata)
    return Input(schema, ((batch.cast(schema), done) for batch, done in found.batches), found.total)


def _guarded(
    batches: Iterator[tuple[pa.RecordBatch, float]], path: str, kind: str
) -> Iterator[tuple[pa.RecordBatch, float]]:
    with _translated(path, kind):
        yield from batches


@contextlib.contextmanager
def _translated(path: str, kind: str) -> Iterator[None]:
    """Errors as ours, with the file's name."""
    try:
        yield
    except BloomsealError as error:
        raise error.at(file=path) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    except (pa.ArrowException, ValueError) as error:
        # pyarrow's messages quote the cell that did not parse; it may be a secret.
        what = f"the input does not read as {kind} of these types ({type(error).__name__})"
        raise FormatError(what, file=path, hint="--type COLUMN=TYPE") from None


def _unreadable(path: str, error: OSError) -> UsageError:
    if path != "-" and Path(path).is_fifo():
        return UsageError("the input is a pipe, which can't be read twice", file=path, hint="- for standard input")
    if error.strerror is None and PurePath(path).suffix.lower() in COMPRESSIONS:
        suffix = PurePath(path).suffix
        return UsageError(
            f"the input does not inflate as {suffix}: it is cut off, or something else", file=path,
            hint=f"the whole file, or a name without {suffix} if it is not packed",
        )  # fmt: skip
    # Arrow's own text repeats the name, and adds numbers.
    why = os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__
    return UsageError(f"the input can't be read: {why}", file=path)
