"""CSV → record batches, without changing a value that nobody gave a type.

Python's reader finds the rows, so that each has the number of its line and no quote swallows others; Arrow's makes
columns of them. Arrow's own guess takes ``07495`` for a number. Here a column is a number, a date or a moment only if
every one of its values is, and is still the same after it; else it stays text. Of a file all values are looked at
before the first is read; standard input passes once, so a value that does not fit the guess is an error there.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ...core.errors import FormatError
from .lines import BLOCK_BYTES, UNTYPED, TextInput, bad_line, first_unread

__all__ = ["DATES", "CsvReader", "Guess"]

_NULLS: Final = ["", "NULL", "null", "NA", "N/A", "n/a", "#NA", "#N/A"]
"""No values, in a column that is not text. Only the empty one is while types are guessed: ``NA`` is a country too."""
_BOOLEANS: Final = ["true", "false", "True", "False", "TRUE", "FALSE"]
_NUMBER: Final = r"\A-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][-+]?[0-9]+)?\z"
"""No plus sign and no leading zero: with these it is a phone number or a code."""
_TIME: Final = r"\A([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\z"
_EXACT_DIGITS: Final = 15
"""So many decimal digits come back out of a double unchanged; more are compared one by one."""
_END: Final = "\0"
_UTF16: Final = ("\udcff\udcfe", "\udcfe\udcff")
_ENCODING: Final = "iconv -f ENCODING -t UTF-8, in front"


class _Row(NamedTuple):
    """A row of the file.

    Attributes:
        line: the number of its first line.
        text: as it stands there.
    """

    line: int
    text: str


class CsvReader:
    """A CSV file, or standard input for ``-``: its schema, and its rows in batches.

    Args:
        path: the file; ``.gz``, ``.bz2`` and ``.zst`` are inflated.
        types: column → type, where it is not to be found out.
        delimiter: one character.
        stack: closes what is opened here.

    Raises:
        FormatError: a line that does not read, or a value that does not fit its type.
        OSError: the caller's to translate.
    """

    def __init__(
        self, path: str, types: Mapping[str, pa.DataType], delimiter: str, stack: contextlib.ExitStack
    ) -> None:
        self._delimiter = delimiter
        self.input = TextInput(path, stack)
        blocks = self._blocks(self.input, stack)
        guesses = {name: Guess() for name in self._names if name not in types}
        first: list[list[_Row]] = []
        if path == "-":
            first = list(itertools.islice(blocks, 1))
            self._look(first, guesses)
        elif guesses:
            with contextlib.ExitStack() as survey:
                self._look(self._blocks(TextInput(path, survey), survey), guesses)
        found = {name: guess.type for name, guess in guesses.items()}
        known = {**found, **types}
        self.schema = pa.schema([(name, known[name]) for name in self._names])
        checked = found if path == "-" else {}
        self.batches = (self._batch(rows, checked) for part in (first, blocks) for rows in part)

    def _blocks(self, source: TextInput, stack: contextlib.ExitStack) -> Iterator[list[_Row]]:
        """The rows behind the names, about `BLOCK_BYTES` at a time."""
        text = io.TextIOWrapper(source.stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        stack.callback(text.detach)
        rows = _rows(text, self._delimiter)
        self._names = _header(rows)
        return self._grouped(rows)

    def _grouped(self, rows: Iterator[tuple[_Row, list[str]]]) -> Iterator[list[_Row]]:
        block: list[_Row] = []
        size = 0
        width = len(self._names)
        for row, values in rows:
            if not values and width > 1:
                continue
            if len(values) != width and values:
                hint = "--delimiter, where it is no comma"
                raise bad_line("csv", row.line, "it has not as many values as the first one", hint)
            block.append(row)
            size += len(row.text)
            if size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block

    def _look(self, blocks: Iterable[list[_Row]], guesses: Mapping[str, Guess]) -> None:
        for rows in blocks:
            texts = self._read_or_tell(rows, dict.fromkeys(guesses, pa.string()))
            for name, guess in guesses.items():
                guess.see(texts.column(name))

    def _batch(self, rows: list[_Row], checked: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        if checked:
            texts = self._read_or_tell(rows, dict.fromkeys(checked, pa.string()))
            for name, kind in checked.items():
                values = _said(texts.column(name))
                if not Guess.fits(values, kind):
                    raise FormatError(
                        f"the column began as {kind}, and later values are something else",
                        column=name,
                        hint=f"--type '{name}=string', or a file, all of which is looked at first",
                    )
        read = self._read_or_tell(rows, dict(zip(self._names, self.schema.types, strict=True)))
        return pa.RecordBatch.from_arrays([column.combine_chunks() for column in read.columns], schema=self.schema)

    def _read_or_tell(self, rows: list[_Row], types: Mapping[str, pa.DataType]) -> pa.Table:
        try:
            return self._read(rows, types)
        except (pa.ArrowException, ValueError):
            pass
        bad = rows[first_unread(rows, lambda some: self._reads(some, types))]
        column = next((name for name, kind in types.items() if not self._reads([bad], {name: kind})), None)
        text = column is not None and pa.types.is_string(types[column])
        if text and any("\udc80" <= character <= "\udcff" for character in bad.text):
            raise bad_line("csv", bad.line, "its text is not UTF-8", _ENCODING, column)
        raise bad_line("csv", bad.line, "its value does not fit the type", UNTYPED, column)

    def _reads(self, rows: Sequence[_Row], types: Mapping[str, pa.DataType]) -> bool:
        try:
            self._read(rows, types)
        except (pa.ArrowException, ValueError):
            return False
        return True

    def _read(self, rows: Sequence[_Row], types: Mapping[str, pa.DataType]) -> pa.Table:
        """These columns of these rows."""
        from pyarrow import csv as arrow_csv

        data = "".join(row.text for row in rows).encode("utf-8", "surrogateescape")
        found = arrow_csv.read_csv(
            io.BytesIO(data),
            arrow_csv.ReadOptions(column_names=self._names, block_size=len(data) + 1, use_threads=False),
            arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False),
            arrow_csv.ConvertOptions(column_types=dict(types), include_columns=list(types), null_values=_NULLS),
        )
        if found.num_rows != len(rows):
            raise ValueError
        return found


def _rows(text: io.TextIOWrapper, delimiter: str) -> Iterator[tuple[_Row, list[str]]]:
    """Each row, and its values."""
    csv.field_size_limit(BLOCK_BYTES)
    taken: list[str] = []
    ended = False

    def lines() -> Iterator[str]:
        nonlocal ended
        while line := text.readline(BLOCK_BYTES + 1):
            if len(line) > BLOCK_BYTES:
                raise csv.Error
            taken.append(line)
            yield line
        ended = True
        taken.append(_END)  # a part of the last value where a quote is open, else a row of its own
        yield _END

    reader, line = csv.reader(lines(), delimiter=delimiter), 1
    try:
        for values in reader:
            row = _Row(line, "".join(taken))
            if ended and row.text == _END:
                return
            if ended:
                raise bad_line("csv", line, "a quote in it is not closed", 'two quotes ("") for one inside a value')
            yield row, values
            taken.clear()
            line = reader.line_num + 1
    except csv.Error:
        why = f"it has more than {BLOCK_BYTES >> 20} MiB, or a quote in it is not closed"
        raise bad_line("csv", line, why, "Parquet or Arrow as input, or shorter values") from None


def _header(rows: Iterator[tuple[_Row, list[str]]]) -> list[str]:
    """The columns' names."""
    row, names = next((found for found in rows if found[1]), (_Row(1, ""), []))
    if row.text.startswith(_UTF16):
        raise bad_line("csv", 1, "it is UTF-16", _ENCODING.replace("ENCODING", "UTF-16"))
    if not row.text.strip():
        raise FormatError("the input is empty: not even the columns' names", hint="a first line that names them")
    if any("\udc80" <= character <= "\udcff" for character in row.text):
        raise bad_line("csv", row.line, "its text is not UTF-8", _ENCODING)
    if not row.text.endswith(("\n", "\r")):
        raise FormatError("the input ends within its first line, the columns' names", hint="a line break behind them")
    if twice := [name for name in names if names.count(name) > 1]:
        raise FormatError("several columns have the same name", column=twice[0])
    return names


class Guess:
    """The types that all values seen so far fit.

    Args:
        among: these types only.
    """

    def __init__(self, among: Sequence[pa.DataType] | None = None) -> None:
        self._left = list(among or _FITS)
        self._empty = True

    @staticmethod
    def fits(values: pa.Array, kind: pa.DataType) -> bool:
        """Whether all these texts are of this type, one that a guess may give."""
        return pa.types.is_string(kind) or (_FITS[kind](values, kind) if kind in _FITS else not len(values))

    def see(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Leave out the types that a text of this column does not fit."""
        values = _said(column) if self._left else column[:0]
        if len(values):
            self._empty = False
            self._left = [kind for kind in self._left if _FITS[kind](values, kind)]

    @property
    def type(self) -> pa.DataType:
        """The first of them; null for a column without values."""
        if self._empty:
            return pa.null()
        return self._left[0] if self._left else pa.string()


def _said(column: pa.Array | pa.ChunkedArray) -> Any:
    import pyarrow.compute as pc

    return column.filter(pc.not_equal(column, ""))


def _same_text(values: pa.Array, kind: pa.DataType) -> bool:
    return bool(_converts(values, kind) and values.cast(kind).cast(pa.string()).equals(values))


def _converts(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


def _matches(pattern: str) -> Callable[[pa.Array, pa.DataType], bool]:
    def check(values: pa.Array, kind: pa.DataType) -> bool:  # noqa: ARG001
        import pyarrow.compute as pc

        return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())

    return check


def _booleans(values: pa.Array, kind: pa.DataType) -> bool:  # noqa: ARG001
    import pyarrow.compute as pc

    return bool(pc.all(pc.is_in(values, value_set=pa.array(_BOOLEANS))).as_py())


def _doubles(values: pa.Array, kind: pa.DataType) -> bool:
    """Numbers that a double holds as they are written, up to the zeros at their end."""
    import pyarrow.compute as pc

    if not _matches(_NUMBER)(values, kind) or not _converts(values, kind):
        return False
    numbers = values.cast(kind)
    short = pc.and_(
        pc.less_equal(pc.binary_length(values), _EXACT_DIGITS), pc.invert(pc.match_substring_regex(values, "[eE]"))
    )
    doubtful = pc.invert(pc.or_(short, pc.equal(numbers.cast(pa.string()), values)))
    pairs = zip(values.filter(doubtful).to_pylist(), numbers.filter(doubtful).to_pylist(), strict=True)
    return all(Decimal(repr(number)) == Decimal(text) for text, number in pairs)


_FITS: Final[dict[pa.DataType, Callable[[pa.Array, pa.DataType], bool]]] = {
    pa.int64(): _same_text,
    pa.bool_(): _booleans,
    pa.float64(): _doubles,
    pa.date32(): _same_text,
    pa.time32("s"): _matches(_TIME),
    pa.timestamp("s"): _converts,
    pa.timestamp("ns"): _converts,
    pa.timestamp("s", "UTC"): _converts,
    pa.timestamp("ns", "UTC"): _converts,
}
DATES: Final = [kind for kind in _FITS if pa.types.is_date(kind) or pa.types.is_timestamp(kind)]
