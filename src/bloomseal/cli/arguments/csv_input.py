"""CSV → record batches, without changing a value that nobody gave a type.

Arrow reads every column as text. Its own guess takes ``07495`` for a number; here a column is a number, a date or a
moment only if every one of its values is, and is still the same after it; else it stays text. Of a file all values are
looked at before the first is given out; standard input passes once, and its first mebibyte decides. Each value is held
to its column's type again when it is given out.

A quote that nothing closes would swallow rows. So each block ends with a row of one value too many, which Arrow hands
over as invalid, unless a quote has swallowed it.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from ...core.errors import FormatError
from .text_input import BLOCK_BYTES, UNTYPED, TextInput, bad_line, first_unread, lines_in

_NULLS: Final = ["", "NULL", "null", "NA", "N/A", "n/a", "#NA", "#N/A"]
"""No values, in a column whose type was said and is not text. Where it is guessed, only the empty one: ``NA`` is a
country too.
"""
_BOOLEAN: Final = r"\A(true|false|True|False|TRUE|FALSE)\z"
_NUMBER: Final = r"\A-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][-+]?[0-9]+)?\z"
"""No plus sign and no leading zero: with these it is a phone number or a code."""
_TIME: Final = r"\A([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\z"
_EXACT_DIGITS: Final = 15
"""So many decimal digits come back out of a double unchanged; more are compared one by one."""
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_ENCODING: Final = "iconv -f ENCODING -t UTF-8, in front"
_UNCLOSED: Final = "a quote in it is not closed"
_QUOTES: Final = 'two quotes ("") for one inside a value'


class CsvReader:
    """A CSV file: its schema, and its rows in batches.

    Args:
        source: its lines.
        types: column → type, where it was said.
        known: column → type that other inputs have found.
        delimiter: one character.

    Raises:
        FormatError: a line that does not read, or a value that does not fit its type.
        OSError: the caller's to translate.
    """

    def __init__(
        self,
        source: TextInput,
        types: Mapping[str, pa.DataType],
        known: Mapping[str, pa.DataType],
        delimiter: str = ",",
    ) -> None:
        self._source, self._types, self._delimiter = source, types, delimiter
        tables = self._tables()
        looked = [next(tables)]
        guesses = {name: Guess() for name in looked[0].column_names if name not in {*types, *known}}
        for table in looked if source.once or not guesses else itertools.chain(looked, tables):
            for name, guess in guesses.items():
                guess.see(table.column(name))
        self._guessed = {name: guess.type for name, guess in guesses.items()} | dict(known)
        self.schema = pa.schema([(name, {**self._guessed, **types}[name]) for name in looked[0].column_names])
        rest = itertools.chain(looked, tables) if source.once else self._tables()
        self.batches = map(self._batch, rest)

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        if table.column_names != self.schema.names:
            raise FormatError("the input was changed while it was read", hint="again")
        columns = [
            exact(column, field) if field.name not in self._types else column.combine_chunks()
            for field, column in zip(self.schema, table.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _tables(self) -> Iterator[pa.Table]:
        """The rows from the beginning, about `BLOCK_BYTES` at a time."""
        blocks = self._source.blocks()
        _, begin = next(blocks, (1, b""))
        names, begin, line = _header(begin, self._delimiter)
        if len(names) == 1 and (found := set(names[0]) & set(";\t|")):  # as spreadsheets of many countries write it
            raise bad_line("csv", 1, "its header is one name only", f"--delimiter {found.pop()!r}, or another name")
        rows, rest = _Rows(names, self._delimiter, self._types), b""
        for first, block in itertools.chain([(line, begin)], blocks):
            data, line = rest + block, first - lines_in(rest)
            data += b"" if data.endswith((b"\n", b"\r")) or not data else b"\n"
            table, rest = rows.read(data, line)
            yield table
            line += lines_in(data) - lines_in(rest)
            if len(rest) > BLOCK_BYTES:
                why = f"it has more than {BLOCK_BYTES >> 20} MiB, or {_UNCLOSED}"
                raise bad_line("csv", line, why, "Parquet or Arrow as input, or shorter values")
        if rest:
            raise bad_line("csv", line, _UNCLOSED, _QUOTES)


class _Rows:
    """Arrow's reader, for rows of these columns: texts, where no type was said."""

    def __init__(self, names: Sequence[str], delimiter: str, types: Mapping[str, pa.DataType]) -> None:
        self._names, self._delimiter = names, delimiter
        self._types = {name: types.get(name, pa.string()) for name in names}
        self._raw = dict.fromkeys(names, pa.binary())
        self._end = delimiter * len(names)

    def read(self, data: bytes, line: int) -> tuple[pa.Table, bytes]:
        """The rows of these lines, and the row at their end that a quote leaves open.

        Raises:
            FormatError: a row that does not read, by its line; `line` is the first one's number.
        """
        if (found := self._columns(data, self._types)) is not None:
            return found, b""
        rest = self._open_row(data)
        data = data[: len(data) - len(rest)]
        if rest and (found := self._columns(data, self._types)) is not None:
            return found, rest
        raise self._bad(data, line)

    def _columns(self, data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table | None:
        """These columns; None where a row does not read, or a quote is open at the end."""
        try:
            data.decode()
        except UnicodeDecodeError:
            # Arrow can't hand over a row that is not UTF-8.
            if not self._whole(*self._parsed(_readable(data), self._end, self._raw)):
                return None
        try:
            found, invalid = self._parsed(data, self._end, types)
        except pa.ArrowException:
            return None
        return found if self._whole(found, invalid) else None

    def _whole(self, found: pa.Table, invalid: Sequence[Any]) -> bool:
        return [(row.number, row.text) for row in invalid] == [(found.num_rows + 1, self._end)]

    def _open_row(self, data: bytes) -> bytes:
        """The row at the end that a quote leaves open, as it stands there; nothing where none is."""
        # A closing quote makes an invalid row of it, which Arrow hands over as text.
        end = f'"{self._end}'
        found, invalid = self._parsed(_readable(data), end, self._raw)
        last = [row.text for row in invalid if row.number == found.num_rows + len(invalid)]
        return data[len(data) - sum(len(text) - len(end) for text in last) :]

    def _bad(self, data: bytes, line: int) -> FormatError:
        """What the first row is that does not read."""
        lines = data.splitlines(keepends=True)
        at = first_unread(lines, self._reads)
        row = self._open_row(b"".join(lines[:at])) + lines[at]
        line += at + 1 - lines_in(row)
        if self._columns(row, self._raw) is None:
            hint = "--delimiter, where it is no comma"
            return bad_line("csv", line, "it has not as many values as the first one", hint)
        column = next((name for name, kind in self._types.items() if self._columns(row, {name: kind}) is None), None)
        if column is not None and pa.types.is_string(self._types[column]):
            return bad_line("csv", line, "its text is not UTF-8", _ENCODING, column)
        return bad_line("csv", line, "its value does not fit the type", UNTYPED, column)

    def _reads(self, data: bytes) -> bool:
        """Whether all rows read, up to an open one at the end."""
        return self._columns(data[: len(data) - len(self._open_row(data))], self._types) is not None

    def _parsed(self, data: bytes, end: str, types: Mapping[str, pa.DataType]) -> tuple[pa.Table, list[Any]]:
        """The columns of `types`, and the rows that have not as many values as there are names."""
        from pyarrow import csv as arrow_csv

        invalid: list[Any] = []

        def skip(row: Any) -> str:
            invalid.append(row)
            return "skip"

        data += end.encode() + b"\n"
        found = arrow_csv.read_csv(
            io.BytesIO(data),
            arrow_csv.ReadOptions(column_names=self._names, block_size=len(data) + 1, use_threads=False),
            arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(self._names) > 1,
                invalid_row_handler=skip,
            ),
            arrow_csv.ConvertOptions(column_types=dict(types), include_columns=list(types), null_values=_NULLS),
        )
        return found, invalid


def _readable(data: bytes) -> bytes:
    """The same text in UTF-8, of which each character stands for a byte."""
    return data.decode("latin-1").encode()


def _header(data: bytes, delimiter: str) -> tuple[list[str], bytes, int]:
    """The columns' names, what stands behind them, and the number of the line there."""
    if data.startswith(_UTF16):
        raise bad_line("csv", 1, "it is UTF-16", _ENCODING.replace("ENCODING", "UTF-16"))
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = data.splitlines(keepends=True)
    empty = len(list(itertools.takewhile(lambda line: not line.strip(b"\r\n"), lines)))
    if empty == len(lines):
        raise FormatError("the input is empty: not even the columns' names", hint="a first line that names them")
    csv.field_size_limit(BLOCK_BYTES)
    reader = csv.reader((line.decode() for line in lines[empty:]), delimiter=delimiter, strict=True)
    try:
        names = next(reader)
    except UnicodeDecodeError:
        raise bad_line("csv", empty + 1, "its text is not UTF-8", _ENCODING) from None
    except csv.Error:
        raise bad_line("csv", empty + 1, _UNCLOSED, _QUOTES) from None
    used = empty + reader.line_num
    if not lines[used - 1].endswith((b"\n", b"\r")):
        raise FormatError("the input ends within its first line, the columns' names", hint="a line break behind them")
    if twice := [name for name in names if names.count(name) > 1]:
        raise FormatError("several columns have the same name", column=twice[0])
    return names, b"".join(lines[used:]), used + 1


def exact(column: pa.ChunkedArray, field: pa.Field, *, empty_is_null: bool = True) -> pa.Array:
    """Texts as values of the field's type, one that a `Guess` gives.

    Args:
        empty_is_null: an empty text is null in a column that is not text.

    Raises:
        FormatError: a text that is not the same after it.
    """
    texts = column.combine_chunks()
    if pa.types.is_string(field.type):
        return texts
    if (found := _typed(_said(texts) if empty_is_null else texts, field.type)) is None:
        raise FormatError(
            f"the column began as {field.type}, and later values are something else",
            column=field.name,
            hint=f"--type '{field.name}=string'; of a CSV file that nobody changes all values are looked at first",
        )
    return found


class Guess:
    """The types that all values seen so far fit.

    Args:
        among: these types only.
    """

    def __init__(self, among: Sequence[pa.DataType] | None = None) -> None:
        self._left = list(among or _TYPED)
        self._empty = True

    def see(self, column: pa.ChunkedArray) -> None:
        """Leave out the types that a text of this column does not fit."""
        if self._left and (values := _said(column.combine_chunks())).null_count < len(values):
            self._empty = False
            self._left = [kind for kind in self._left if _typed(values, kind) is not None]

    @property
    def type(self) -> pa.DataType:
        """The first of them; null for a column without values."""
        if self._empty:
            return pa.null()
        return self._left[0] if self._left else pa.string()


def _said(texts: pa.Array) -> pa.Array:
    """The texts with null in the place of empty ones."""
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(texts, ""), None, texts)


def _typed(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values of this type; None where one of the texts is not the same after it."""
    if pa.types.is_null(kind):
        return pa.nulls(len(texts)) if texts.null_count == len(texts) else None
    try:
        values = texts.cast(kind) if kind != pa.time32("s") else _times(texts)
    except pa.ArrowException:
        return None
    return values if _TYPED[kind](texts, values) else None


def _times(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("s")).cast(pa.time32("s"))


def _same_text(texts: pa.Array, values: pa.Array) -> bool:
    return bool(values.cast(pa.string()).equals(texts))


def _match(texts: pa.Array, pattern: str) -> bool:
    import pyarrow.compute as pc

    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _same_numbers(texts: pa.Array, values: pa.Array) -> bool:
    """Whether doubles hold the numbers as they are written, up to the zeros at their end."""
    import pyarrow.compute as pc

    if not _match(texts, _NUMBER):
        return False
    long = pc.or_(pc.greater(pc.binary_length(texts), _EXACT_DIGITS), pc.match_substring_regex(texts, "[eE]"))
    texts, values = texts.filter(long), values.filter(long)
    other = pc.not_equal(values.cast(pa.string()), texts)
    pairs = zip(texts.filter(other).to_pylist(), values.filter(other).to_pylist(), strict=True)
    return all(Decimal(repr(number)) == Decimal(text) for text, number in pairs)


_TYPED: Final[dict[pa.DataType, Callable[[pa.Array, pa.Array], bool]]] = {
    pa.int64(): _same_text,
    pa.bool_(): lambda texts, _: _match(texts, _BOOLEAN),
    pa.float64(): _same_numbers,
    pa.date32(): _same_text,
    pa.time32("s"): lambda texts, _: _match(texts, _TIME),
    **{pa.timestamp(unit, zone): lambda *_: True for zone in (None, "UTC") for unit in ("s", "ns")},
}
"""The types in the order in which they are tried, and whether texts are the same as such values."""
DATES: Final = [kind for kind in _TYPED if pa.types.is_date(kind) or pa.types.is_timestamp(kind)]
