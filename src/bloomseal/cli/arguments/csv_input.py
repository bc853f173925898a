"""CSV → record batches, without changing a value that nobody gave a type.

Arrow's own guess looks at the first block only, and takes ``07495`` for a number. Here a column is a number, a date or
a moment only if every one of its values is, and is still the same after it; else it stays text. Of a file all values
are looked at before the first is read; standard input passes once, so a value that does not fit the guess is an error
there.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import PurePath
from typing import IO, Any, Final, cast

import pyarrow as pa

from ...core.errors import FormatError
from .standard_input import StandardInput

__all__ = ["BLOCK_BYTES", "COMPRESSIONS", "DATES", "NULLS", "CsvReader", "Guess", "inflated"]

COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BLOCK_BYTES: Final = 1 << 20  # the reader runs some ten blocks ahead
NULLS: Final = ["", "NULL", "null", "NA", "N/A", "n/a", "#NA", "#N/A"]
"""No values, in a column that is not text. Only the empty one is while types are guessed: ``NA`` is a country too."""
_BOOLEANS: Final = ["true", "false", "True", "False", "TRUE", "FALSE"]
_NUMBER: Final = r"\A-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][-+]?[0-9]+)?\z"
"""No plus sign and no leading zero: with these it is a phone number or a code."""
_TIME: Final = r"\A([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\z"
_EXACT_DIGITS: Final = 15
"""So many decimal digits come back out of a double unchanged; more are compared one by one."""


class CsvReader:
    """A CSV file, or standard input for ``-``: its schema, and its rows in batches.

    Args:
        path: the file; ``.gz``, ``.bz2`` and ``.zst`` are inflated.
        types: column → type, where it is not to be found out.
        delimiter: one character.
        stack: closes what is opened here.

    Attributes:
        types: of all columns of a file, found out or given.
        total: bytes of the file, which `position` counts up to; 0 for standard input.

    Raises:
        OSError, pyarrow.ArrowException, ValueError: the caller's to translate.
    """

    def __init__(
        self, path: str, types: Mapping[str, pa.DataType], delimiter: str, stack: contextlib.ExitStack
    ) -> None:
        self.path = path
        self._given = dict(types)
        self._delimiter = delimiter
        self.total = 0
        self.types = self._given
        self._raw: Any = None
        self._leading: int | None = None
        if path == "-":
            self.schema, self.batches = self._once(stack)
        else:
            with contextlib.ExitStack() as survey:
                self.types = {**self._surveyed(survey), **self._given}
            reader = self._open(self._stream(stack), self.types, stack)
            self.schema, self.batches = reader.schema, self._closed(reader)

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._raw.tell() if self.total else 0

    def _stream(self, stack: contextlib.ExitStack) -> Any:
        self._raw = stack.enter_context(pa.OSFile(self.path, "rb"))
        self.total = self._raw.size()
        return inflated(self.path, self._raw, stack)

    def _open(self, stream: Any, types: Mapping[str, pa.DataType], stack: contextlib.ExitStack, **options: Any) -> Any:
        from pyarrow import csv as arrow_csv

        convert = arrow_csv.ConvertOptions(column_types=dict(types), null_values=NULLS, **options)
        # A line break in quotes belongs to its value, wherever a block ends.
        parse = arrow_csv.ParseOptions(
            delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=self._leading is None
        )
        read = arrow_csv.ReadOptions(block_size=BLOCK_BYTES, skip_rows=self._leading or 0)
        reader = arrow_csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
        return stack.enter_context(reader)

    def _surveyed(self, stack: contextlib.ExitStack) -> dict[str, pa.DataType]:
        try:
            names = self._open(self._stream(stack), self._given, stack).schema.names
        except pa.ArrowInvalid:
            _refuse_empty(self._stream(stack).read(BLOCK_BYTES))
            raise
        _refuse_repeated(names)
        if len(names) == 1:
            self._leading = _empty_lines(self._stream(stack).read(BLOCK_BYTES))
        asked = [name for name in names if name not in self._given]
        if not asked:
            return {}
        texts = self._open(self._stream(stack), dict.fromkeys(asked, pa.string()), stack, include_columns=asked)
        guesses = {name: Guess() for name in asked}
        for batch in texts if names[-1] not in asked else self._closed(texts):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                guesses[name].see(column)
        return {name: guess.type for name, guess in guesses.items()}

    def _once(self, stack: contextlib.ExitStack) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        head, names = _head(sys.stdin.buffer, self._delimiter)
        _refuse_empty(head)
        if len(names) == 1:
            self._leading = _empty_lines(head)
        self._raw = StandardInput(sys.stdin.buffer, head, remember=BLOCK_BYTES)
        stream = stack.enter_context(pa.PythonFile(cast("Any", self._raw), mode="r"))
        texts = self._open(stream, {**dict.fromkeys(names, pa.string()), **self._given}, stack)
        _refuse_repeated(texts.schema.names)
        if not {*texts.schema.names} <= {*names, *self._given}:
            # Values of the others came as Arrow guesses them: without their leading zeros, and NULL for a null.
            raise FormatError("the columns' names do not read as CSV", hint="shorter ones, or a file")
        batches = self._closed(texts)
        first = next(batches, None)
        guesses = {name: Guess(castable=True) for name in texts.schema.names if name not in self._given}
        for name, guess in guesses.items():
            if first is not None:
                guess.see(first.column(texts.schema.get_field_index(name)))
        types = {name: guess.type for name, guess in guesses.items()}
        schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in texts.schema])
        rest = [] if first is None else [first]
        return schema, (_typed(batch, schema, set(guesses)) for part in (rest, batches) for batch in part)

    def _closed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, and an error where a quote is open at the end: it made one value of all lines behind it."""
        last = None
        for batch in batches:
            last = batch if batch.num_rows else last
            yield batch
        if last is None or not _is_text(last.schema.types[-1]):
            return
        value = last.columns[-1][-1].as_buffer()
        inside = b'"' + (b"" if value is None else value.to_pybytes().replace(b'"', b'""'))
        end = self._end(len(inside) + 1, b"\n" in inside or b"\r" in inside)
        if end.endswith(inside) and end[: -len(inside)] in (self._delimiter.encode(), b"\n", b"\r"):
            if self.path != "-":
                raise ValueError  # whose line is looked for
            hint = 'two quotes ("") for one inside a value'
            raise FormatError("a quote is not closed", column=last.schema.names[-1], hint=hint)

    def _end(self, size: int, suspicious: bool) -> bytes:
        """The last bytes; of a file that has to be inflated for that, only where there is a suspicion."""
        if isinstance(self._raw, StandardInput):
            return self._raw.end[-size:]
        with contextlib.ExitStack() as stack:
            raw: Any = stack.enter_context(pa.OSFile(self.path, "rb"))
            stream = inflated(self.path, raw, stack)
            if stream is raw:
                raw.seek(max(0, raw.size() - size))
            elif not suspicious:
                return b""
            end = b""
            while piece := stream.read(BLOCK_BYTES):
                end = (end + piece)[-size:]
        return end


class Guess:
    """The types that all values seen so far fit.

    Args:
        castable: leave out types that only the reader of CSV converts to.
        among: these types only.
    """

    def __init__(self, *, castable: bool = False, among: Sequence[pa.DataType] | None = None) -> None:
        self._left = [kind for kind in among or _FITS if not (castable and pa.types.is_time(kind))]
        self._empty = True

    @staticmethod
    def fits(values: pa.Array, kind: pa.DataType) -> bool:
        """Are all these texts of this type, one that a guess may give?"""
        return _FITS[kind](values, kind) if kind in _FITS else not len(values)

    def see(self, column: pa.Array) -> None:
        import pyarrow.compute as pc

        values = column.filter(pc.not_equal(column, "")) if self._left else column[:0]
        if len(values):
            self._empty = False
            self._left = [kind for kind in self._left if _FITS[kind](values, kind)]

    @property
    def type(self) -> pa.DataType:
        """The first of them; null for a column without values."""
        if self._empty:
            return pa.null()
        return self._left[0] if self._left else pa.string()


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


def _typed(batch: pa.RecordBatch, schema: pa.Schema, guessed: set[str]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        if field.name in guessed and not pa.types.is_string(field.type):
            values = column.filter(pc.not_equal(column, ""))
            if not Guess.fits(values, field.type):
                raise FormatError(
                    f"the column began as {field.type}, and later values are something else",
                    column=field.name,
                    hint=f"--type '{field.name}=string', or a file, all of which is looked at first",
                )
            # Arrow casts no text to null.
            texts = pc.if_else(pc.equal(column, ""), None, column)
            column = pa.nulls(len(column)) if pa.types.is_null(field.type) else texts.cast(field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def inflated(path: str, raw: Any, stack: contextlib.ExitStack) -> Any:
    """The file's bytes, as its name says that they are packed."""
    kind = COMPRESSIONS.get(PurePath(path).suffix.lower())
    return raw if kind is None else stack.enter_context(pa.CompressedInputStream(raw, kind))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _empty_lines(begin: bytes) -> int:
    """How many there are in front of the names. Behind them, an empty line of one column is an empty value."""
    before = re.match(rb"[\r\n]*", begin.removeprefix(codecs.BOM_UTF8))
    return len(re.findall(rb"\r\n|\r|\n", before[0] if before else b""))


def _refuse_repeated(names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise FormatError("several columns have the same name", column=twice[0])


def _refuse_empty(begin: bytes) -> None:
    names = begin.removeprefix(codecs.BOM_UTF8).lstrip()
    if not names:
        raise FormatError("the input is empty: not even the columns' names", hint="a first line that names them")
    if len(begin) < BLOCK_BYTES and not re.search(rb"[\r\n]", names):
        raise FormatError("the input ends within its first line, the columns' names", hint="a line break behind them")


def _head(stream: IO[bytes], delimiter: str) -> tuple[bytes, list[str]]:
    """The beginning of a stream, at least its first line; and the names there. A name may hold a line break, and a pipe
    gives as much at a time as it likes.
    """
    head, names, whole = b"", [], False
    while not whole and len(head) < BLOCK_BYTES and (more := stream.read1(BLOCK_BYTES)):  # type: ignore[attr-defined]
        head += more
        text = io.StringIO(head.decode("utf-8-sig", "replace"), newline="")
        with contextlib.suppress(csv.Error):  # names that are not known are refused
            names = next(filter(None, csv.reader(text, delimiter=delimiter)), [])
        whole = bool(names and text.read())  # something stands behind them
    return head, names
