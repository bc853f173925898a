"""``bloomseal read``: rows, as a table, JSON lines, CSV or a file."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from ...core.decryption import DecryptionSpec
from ...core.errors import BloomsealError, UsageError
from ...core.storage.local import NoRegularFileError
from ...read.open import open_file
from ...read.plan import ReadStats
from ...storage.discovery.tables import is_one_file
from ...storage.folder import Folder
from ...storage.replacement import Replacement
from ...table.open import open_table
from ..arguments.opening import OpeningOptions, opening_options, trust_option, use_index_option
from ..arguments.places import need_elsewhere
from ..arguments.values import parse_value, read_lines
from ..render import json_line, plain, progress, remark, table
from ..rows import flat, rows_of, shown_flat
from ..state import PATH, State, common_options

if TYPE_CHECKING:
    from ...core.parquet.schema import Schema
    from ...policy import TablePolicy
    from ...read.predicate.condition import Condition

__all__ = ["read"]

_ROWS_ON_SCREEN: Final = 50
_GROUP_ROWS: Final = 1 << 17
_EXTENSIONS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".ndjson": "json",
    ".jsonl": "json",
    ".json": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
}


@click.command()
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...")
@click.option("--columns", "-c", multiple=True, metavar="NAME[,NAME...]", help="Columns to read (default: all).")
@click.option(
    "--where",
    "-w",
    multiple=True,
    metavar="CONDITION",
    help="A condition in SQL: \"ssn = '078-05-1120' or age between 18 and 20\". All must hold.",
)
@click.option(
    "--where-in",
    multiple=True,
    metavar="COLUMN=PATH",
    help="COLUMN is one of the lines of a file (- is standard input).",
)
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help=f"Rows at most (default: {_ROWS_ON_SCREEN} as a table)."
)
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    help="Write the rows IN PLAINTEXT to .parquet, .csv, .tsv, .ndjson (also .gz) or .arrow; - is standard output.",
)
@click.option(
    "--int96-unit",
    type=click.Choice(["ns", "us"]),
    default="ns",
    help="Read INT96 timestamps in this unit; us holds 9999-12-31 (default: ns).",
)
@click.option(
    "--version", type=int, metavar="N", help="Of a Delta table its version, of an Iceberg table a snapshot's id."
)
@click.option("--stats", is_flag=True, help="Tell on standard error how many row groups were ruled out.")
@use_index_option
@trust_option
@opening_options
@common_options("table", "json", "csv")
def read(
    files: tuple[str, ...],
    columns: tuple[str, ...],
    where: tuple[str, ...],
    where_in: tuple[str, ...],
    limit: int | None,
    output: str | None,
    int96_unit: str,
    version: int | None,
    stats: bool,
    use_index: str,
    trust: str,
    opening: OpeningOptions,
) -> None:
    """Read rows of FILEs: files, folders, patterns, or a Delta or Iceberg table. Several are read as one table. Row
    groups are ruled out by statistics and filters first; the answer is exact.

    The folders of a table (country=DE/day=1) give columns, a column that a file lacks is null there, and narrower
    numbers are widened. Rows are streamed: a row group per processor is held, whatever the table's size.

    A CONDITION is SQL's: comparisons of a column with a literal, in, between, like, is null, joined by and, or, not and
    parentheses. Text, dates and moments stand in single quotes, names that are no plain words in double quotes. The
    column's type says what a literal means. A condition that is not understood is an error, not an empty answer.

    With --format json every row is one line. On a terminal CSV has control characters escaped, and ' in front of texts
    that a spreadsheet would take for formulas; a file or a pipe gets the values as they are. A file written with
    --output is plaintext, and only its owner may read it.

    \b
    Examples:
      bloomseal read people.parquet --where "ssn = '078-05-1120'" --columns name,ssn --keyring keys.json
      bloomseal read people.parquet --where "name like 'A%' and not born < '1985-01-01'" --keyring keys.json
      bloomseal read people.parquet --where-in ssn=wanted.txt --format csv --keyring keys.json
      bloomseal read lake/customers --where "country = 'DE'" --output de.parquet --policy policy.toml --table customers
    """
    if not all(item.strip() for item in columns):
        raise UsageError("--columns without a name", hint="leave it out for all columns")
    wanted = [name.strip() for item in columns for name in item.split(",") if name.strip()] or None
    kind, zipped = _output_kind(output)
    if output is not None:
        inputs = [*files, *(item.partition("=")[2] for item in where_in)]
        need_elsewhere(output, inputs, "another name; bloomseal unseal --in-place decrypts files where they are")
    asked = _Asked(where, [_lines(item) for item in where_in])
    decryption = opening.decryption(files)
    state = State.current()
    screen = output is None and state.format == "table"
    if limit is None and screen:
        limit = _ROWS_ON_SCREEN
    with progress("Reading") as tell:
        alone = version is None and len(files) == 1 and is_one_file(files[0])
        source = _one_file if alone else partial(_table, use_index, trust)
        with source(files, version, decryption, wanted, asked, int96_unit, tell) as (schema, batches, done):
            # A table on the screen tells how many rows are left out, and --stats counts them all.
            rows = _Limited(batches, limit, to_end=screen or stats)
            if output is not None and output != "-":
                _write_file(schema, rows, output, kind, zipped)
            elif screen:
                shown = pa.Table.from_batches(rows, schema)
            else:
                with _standard_output() as stream:
                    _write_rows(schema, rows, stream, state.format)
    if screen:
        table(shown.column_names, ([_shown(value) for value in row.values()] for row in rows_of([shown])))
        if rows.found > rows.given:
            remark(f"{rows.found - rows.given} more rows; --limit shows more, --output writes all to a file")
    elif output is not None and output != "-":
        remark(f"{rows.given} rows written in plaintext to {output}")
    if stats:
        remark(
            f"{done.row_groups} row groups: {_by_index(done)}{done.pruned_by_statistics} ruled out by statistics, "
            f"{done.pruned_by_filter} by filters, {done.decoded} decoded; {rows.found} rows"
        )


def _by_index(done: ReadStats) -> str:
    """What indexes ruled out, and what they do not cover; nothing where none was asked."""
    if not done.pruned_by_index:
        return ""
    uncovered = f", which does not cover {done.files_not_covered} files" if done.files_not_covered else ""
    return f"{done.pruned_by_index} ruled out by an index{uncovered} ({done.files_unopened} files unopened), "


Rows = tuple[pa.Schema, Iterator[pa.RecordBatch], ReadStats]


@contextlib.contextmanager
def _one_file(
    files: tuple[str, ...],
    version: int | None,  # noqa: ARG001
    decryption: DecryptionSpec | TablePolicy | None,
    wanted: list[str] | None,
    asked: _Asked,
    int96_unit: str,
    tell: Callable[[float, int], None],
) -> Iterator[Rows]:
    """The rows of one file, whose footer is opened once."""
    with open_file(files[0], decryption=decryption) as opened:
        try:
            plan = opened.plan(wanted, asked.of(opened.leaves), int96_unit=int96_unit)
        except UsageError as error:
            raise error.at(file=files[0]) from None

        def batches() -> Iterator[pa.RecordBatch]:
            for part in range(opened.num_parts):
                for found in opened.pieces(plan, part):
                    yield from found.to_batches()
                tell(part + 1, opened.num_parts)

        yield plan.empty.schema, batches(), plan.stats


@contextlib.contextmanager
def _table(
    use_index: Any,
    trust: Any,
    files: tuple[str, ...],
    version: int | None,
    decryption: DecryptionSpec | TablePolicy | None,
    wanted: list[str] | None,
    asked: _Asked,
    int96_unit: str,
    tell: Callable[[float, int], None],
) -> Iterator[Rows]:
    """The rows of a table, or of several places as one."""
    opened = open_table(list(files), decryption=decryption, version=version, use_index=use_index, trust=trust)
    condition = asked.of(opened.leaves) if asked else None
    with opened.scan(wanted, condition, int96_unit=int96_unit, progress=tell) as reader:
        yield reader.schema, iter(reader), opened.stats


class _Limited:
    """The first `limit` rows of `batches`, or all.

    Attributes:
        given, found: rows given out, and rows seen; with `to_end` those are all that there are.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], limit: int | None, *, to_end: bool) -> None:
        self._batches, self._limit, self._to_end = batches, limit, to_end
        self.given = self.found = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.found += batch.num_rows
            left = batch.num_rows if self._limit is None else self._limit - self.given
            if left > 0:
                part = batch.slice(0, left)
                self.given += part.num_rows
                yield part
            if self.given == self._limit and not self._to_end:
                return


class _Asked:
    """The rows that --where and --where-in ask for."""

    def __init__(self, where: tuple[str, ...], where_in: list[tuple[str, list[str]]]) -> None:
        self._where, self._where_in = where, where_in

    def __bool__(self) -> bool:
        return bool(self._where or self._where_in)

    def of(self, schema: Schema) -> Condition | None:
        """The condition on columns of this schema; None for all rows."""
        from ...read.predicate.condition import AllOf, Compare
        from ...read.predicate.values import Values

        parts: list[Condition] = []
        if self._where:
            from ..arguments.where import parse_where  # the parser takes as long to load as a small read takes

            parts += [parse_where(text, schema) for text in self._where]
        for column, texts in self._where_in:
            leaf = schema.leaf(column)
            try:
                parts.append(Compare(column, "in", Values(parse_value(text, leaf.type) for text in texts)))
            except BloomsealError as error:
                raise error.at(column=column) from None
        return AllOf(tuple(parts)) if parts else None


def _lines(item: str) -> tuple[str, list[str]]:
    column, equals, path = item.partition("=")
    if not equals:
        raise UsageError("--where-in takes COLUMN=PATH")
    return column, read_lines(path)


def _shown(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(plain(value), ensure_ascii=False)
    # Thousands separators are for counts, not for data.
    return value if value is None or isinstance(value, bool) else str(plain(value))


def _output_kind(path: str | None) -> tuple[str, bool]:
    """What to write, and whether gzip is around it."""
    if path is None:
        return "", False
    if path == "-":
        if State.current().format == "table":
            raise UsageError("rows on standard output are CSV or JSON lines", hint="--format csv, --format json")
        return "", False
    zipped = path.lower().endswith(".gz")
    kind = _EXTENSIONS.get(Path(path[:-3] if zipped else path).suffix.lower())
    if kind is None or (zipped and kind in ("parquet", "arrow")):
        names = ", ".join(_EXTENSIONS)
        raise UsageError("what shall the file be?", file=path, hint=f"a name that ends in {names}; text also in .gz")
    return kind, zipped


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _write_rows(
    schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: IO[bytes] | gzip.GzipFile, kind: str
) -> None:
    if kind in ("csv", "tsv"):
        from pyarrow import csv

        options = csv.WriteOptions(delimiter="," if kind == "csv" else "\t")
        # A file gets each value as it is. A terminal would take some for commands, a spreadsheet for formulas.
        made = shown_flat if stream.isatty() else flat
        with csv.CSVWriter(stream, made(pa.Table.from_batches([], schema)).schema, write_options=options) as writer:
            for batch in rows:
                writer.write_table(made(pa.Table.from_batches([batch])))
        return
    for row in rows_of(rows):
        stream.write(json_line(row).encode() + b"\n")


def _spelt(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _write_file(schema: pa.Schema, rows: Iterable[pa.RecordBatch], path: str, kind: str, zipped: bool) -> None:
    """All at once, and readable for its owner only, since it is plaintext."""
    try:
        with Replacement(*Folder.of(path), private=True) as new:
            with open(new.fd, "wb", closefd=False) as stream:
                _write_kind(schema, rows, stream, kind, zipped)
            new.commit()
    except NoRegularFileError as error:
        raise UsageError(f"the rows can't be written: {error.strerror}", file=path) from None
    except (OSError, pa.ArrowException) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        raise UsageError(f"the rows can't be written: {reason}", file=path) from None


def _write_kind(schema: pa.Schema, rows: Iterable[pa.RecordBatch], stream: IO[bytes], kind: str, zipped: bool) -> None:
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(stream, schema) as writer:
            for group in _groups(rows, schema):
                writer.write_table(group)
    elif kind == "arrow":
        # A file of Arrow's has one dictionary for each column; every row group has its own.
        spelt = pa.schema([field.with_type(_spelt(field.type)) for field in schema], schema.metadata)
        with pa.ipc.new_file(stream, spelt) as writer:
            for batch in rows:
                columns = [
                    column if column.type == field.type else column.cast(field.type)
                    for column, field in zip(batch.columns, spelt, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=spelt))
    elif zipped:
        with gzip.open(stream, "wb") as packed:
            _write_rows(schema, rows, packed, kind)
    else:
        _write_rows(schema, rows, stream, kind)


def _groups(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches put together, so that a few rows of each file do not become a row group of their own."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in rows:
        waiting.append(batch)
        count += batch.num_rows
        if count >= _GROUP_ROWS:
            yield pa.Table.from_batches(waiting, schema)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)
