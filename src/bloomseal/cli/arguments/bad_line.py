"""Where an input does not read. Its line is looked for when a reader of Arrow's has failed: that one's message quotes
the cell that did not parse, which may be a secret.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from .csv_input import BLOCK_BYTES, NULLS, inflated

__all__ = ["BadLine", "bad_csv_line", "bad_json_line"]

_TYPE: Final = "--type COLUMN=TYPE"
_NO_TYPE: Final = "its value does not fit the type"
_ENCODING: Final = "iconv -f ENCODING -t UTF-8, in front"
_LONG: Final = f"it has more than {BLOCK_BYTES >> 20} MiB"
_LINES: Final = 1 << 12
_END: Final = "\0 the end"
"""What no file of CSV ends with: read as a part of the last value, it tells that a quote is open."""


class BadLine(NamedTuple):
    """A line's number from 1; the column, where it is one value's fault; why it does not read, and what helps."""

    line: int
    column: str | None
    why: str
    hint: str


def bad_csv_line(path: str, types: Mapping[str, pa.DataType], delimiter: str) -> BadLine | None:
    """The first line with too many or too few values, or one that does not fit its type.

    None where no such line is found, as on standard input, which is gone.
    """
    widest = csv.field_size_limit(1 << 30)
    try:
        with _bytes(path) as raw:
            if raw is None:
                return None
            if raw.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                return BadLine(1, None, "it is UTF-16", _ENCODING.replace("ENCODING", "UTF-16"))
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
            return _first_bad(csv.reader(itertools.chain(text, [_END]), delimiter=delimiter), types)
    except (OSError, csv.Error, pa.ArrowException):
        return None
    finally:
        csv.field_size_limit(widest)


def bad_json_line(path: str, types: Mapping[str, pa.DataType]) -> BadLine | None:
    """The first line that is no object, or has a value that does not fit its type. None as in `bad_csv_line`."""
    try:
        with _bytes(path) as raw:
            if raw is None:
                return None
            if not types:  # what Arrow's reader failed on, as it looked for them
                lines = raw.read(BLOCK_BYTES).splitlines(keepends=True)
                found = _not_json(lines) or _first_of_another_type(lines)
                return found and found._replace(line=1 + found.line)
            first = 1
            while lines := list(itertools.islice(raw, _LINES)):
                if found := _first_bad_json(lines, types):
                    return found._replace(line=first + found.line)
                first += len(lines)
    except (OSError, pa.ArrowException):
        pass
    return None


@contextlib.contextmanager
def _bytes(path: str) -> Iterator[io.BufferedReader[Any] | None]:
    """The file, inflated; None for standard input."""
    if path == "-":
        yield None
        return
    with contextlib.ExitStack() as stack:
        raw: Any = inflated(path, stack.enter_context(pa.OSFile(path, "rb")), stack)
        yield io.BufferedReader(raw)


# CSV --------------------------------------------------------------------------------------------------------------


def _first_bad(rows: Any, types: Mapping[str, pa.DataType]) -> BadLine | None:
    names: list[str] = next(filter(None, rows), [])
    seen: list[tuple[int, list[str]]] = []
    end = rows.line_num
    for row in rows:
        line, end = end + 1, rows.line_num
        if row == [_END]:
            break
        why = hint = ""
        if row and row[-1].endswith(_END):
            why, hint = "a quote in it is not closed", 'two quotes ("") for one inside a value'
        elif row and len(row) != len(names):
            why, hint = "it has not as many values as the first one", "--delimiter, where it is no comma"
        elif sum(map(len, row)) >= BLOCK_BYTES:
            why, hint = _LONG, "Parquet or Arrow as input, or shorter values"
        if why:
            return _unfit(seen, names, types) or BadLine(line, None, why, hint)
        if row:
            seen.append((line, row))
        if len(seen) == _LINES:
            if found := _unfit(seen, names, types):
                return found
            seen = []
    return _unfit(seen, names, types)


def _unfit(seen: list[tuple[int, list[str]]], names: list[str], types: Mapping[str, pa.DataType]) -> BadLine | None:
    bad = [
        _misfit(seen[place][0], name, seen[place][1][at], types.get(name, pa.string()))
        for at, name in enumerate(names)
        if (place := _first_unfit([row[at] for _, row in seen], _reads_as(types.get(name, pa.string())))) is not None
    ]
    return min(bad, default=None)


def _misfit(line: int, column: str, value: str, kind: pa.DataType) -> BadLine:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if text and any("\udc80" <= character <= "\udcff" for character in value):
        return BadLine(line, column, "its text is not UTF-8", _ENCODING)
    return BadLine(line, column, _NO_TYPE, _TYPE)


def _first_unfit(values: Sequence[Any], reads: Callable[[Sequence[Any]], bool]) -> int | None:
    """The index of the first value that does not read, by halves."""
    if not values or reads(values):
        return None
    low, high = 0, len(values)  # values[:low] read, values[:high] do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reads(values[low:middle]) else (low, middle)
    return low


def _reads_as(kind: pa.DataType) -> Callable[[Sequence[str]], bool]:
    def reads(values: Iterable[str]) -> bool:
        from pyarrow import csv as arrow_csv

        lines = ["x", *('"' + value.replace('"', '""') + '"' for value in values)]
        data = "\n".join(lines).encode("utf-8", "surrogateescape")
        try:
            arrow_csv.read_csv(
                io.BytesIO(data),
                read_options=arrow_csv.ReadOptions(block_size=len(data) + 1),
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(column_types={"x": kind}, null_values=NULLS),
            )
        except pa.ArrowException:
            return False
        return True

    return reads


# Line-delimited JSON ----------------------------------------------------------------------------------------------


def _first_bad_json(lines: list[bytes], types: Mapping[str, pa.DataType]) -> BadLine | None:
    """As `bad_json_line`, its line counted from 0."""
    if found := _not_json(lines):
        return found
    place = _first_unfit(lines, lambda some: _schema(some, types) is not None)
    return None if place is None else _wrong_value(place, lines[place], types)


def _not_json(lines: list[bytes]) -> BadLine | None:
    for place, line in enumerate(lines):
        if len(line) >= BLOCK_BYTES:
            return BadLine(place, None, _LONG, "Parquet or Arrow as input, or shorter values")
        if line.strip() and not _is_object(line):
            return BadLine(place, None, "it is no JSON object", "one object in each line")
    return None


def _first_of_another_type(lines: list[bytes]) -> BadLine | None:
    low, high = 0, len(lines)  # the first `low` lines have one schema, the first `high` have not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _schema(lines[:middle], {}) is not None else (low, middle)
    before = _schema(lines[:low], {})
    return None if before is None else _wrong_value(low, lines[low], dict(zip(before.names, before.types, strict=True)))


def _wrong_value(place: int, line: bytes, types: Mapping[str, pa.DataType]) -> BadLine:
    for name, value in json.loads(line).items():
        if _schema([json.dumps({name: value}).encode()], types) is None:
            return BadLine(place, name, _NO_TYPE if name in types else "the first lines have no such column", _TYPE)
    return BadLine(place, None, "a name stands in it twice", "one value for each name")


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _schema(lines: Sequence[bytes], types: Mapping[str, pa.DataType]) -> pa.Schema | None:
    """Of these lines alone, in columns of these types; None where they do not read."""
    from pyarrow import json as arrow_json

    data = b"\n".join(lines)
    if not data.strip():
        return pa.schema([])
    options: dict[str, Any] = {}
    if types:
        options = {"explicit_schema": pa.schema(list(types.items())), "unexpected_field_behavior": "error"}
    try:
        return arrow_json.read_json(
            io.BytesIO(data),
            read_options=arrow_json.ReadOptions(block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(**options),
        ).schema
    except pa.ArrowException:
        return None
