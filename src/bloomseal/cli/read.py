"""``bloomseal read``: rows, as a table, JSON lines, CSV or a file."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from ..errors import BloomsealError, UsageError
from ..read.file import ReadStats, open_file
from ..specs import DecryptionSpec
from ..storage.ref import FileRef
from ..storage.tables import find_files
from .opening import OpeningOptions, opening_options
from .render import busy, json_line, plain, remark, table
from .state import PATH, State, common_options
from .values import parse_value, read_lines

if TYPE_CHECKING:
    from ..format.schema import Schema
    from ..read.condition import Condition

__all__ = ["read"]

_ROWS_ON_SCREEN: Final = 50
_BATCH_ROWS: Final = 8192
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
@click.option("--stats", is_flag=True, help="Tell on standard error how many row groups were ruled out.")
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
    stats: bool,
    opening: OpeningOptions,
) -> None:
    """Read rows of FILEs and folders. Row groups are ruled out by statistics and filters first; the answer is exact.

    A CONDITION is SQL's: comparisons of a column with a literal, in, between, like, is null, joined by and, or, not and
    parentheses. Text, dates and moments stand in single quotes, names that are no plain words in double quotes. The
    column's type says what a literal means. A condition that is not understood is an error, not an empty answer.

    With --format json every row is one line. A file written with --output is plaintext, and only its owner may read it.

    \b
    Examples:
      bloomseal read people.parquet --where "ssn = '078-05-1120'" --columns name,ssn --keyring keys.json
      bloomseal read people.parquet --where "name like 'A%' and not born < '1985-01-01'" --keyring keys.json
      bloomseal read people.parquet --where-in ssn=wanted.txt --format csv --keyring keys.json
    """
    wanted = [name.strip() for item in columns for name in item.split(",") if name.strip()] or None
    kind, zipped = _output_kind(output)
    asked = _Asked(where, [_lines(item) for item in where_in])
    with busy("Reading"):
        rows, done = _read(
            [found.ref for found in find_files(list(files)).files], wanted, asked, opening.decryption(), int96_unit
        )
    found = rows.num_rows
    state = State.current()
    if limit is None and output is None and state.format == "table":
        limit = _ROWS_ON_SCREEN
    if limit is not None:
        rows = rows.slice(0, limit)
    if output is not None and output != "-":
        _write_file(rows, output, kind, zipped)
        remark(f"{rows.num_rows} rows written in plaintext to {output}")
    elif state.format == "table":
        table(rows.column_names, ([_shown(value) for value in row.values()] for row in _rows(rows)))
        if found > rows.num_rows:
            remark(f"{found - rows.num_rows} more rows; --limit shows more, --output writes all to a file")
    else:
        with _standard_output() as stream:
            _write_rows(rows, stream, state.format)
    if stats:
        remark(
            f"{done.row_groups} row groups: {done.pruned_by_statistics} ruled out by statistics, "
            f"{done.pruned_by_filter} by filters, {done.decoded} decoded; {found} rows"
        )


def _read(
    refs: list[FileRef],
    wanted: list[str] | None,
    asked: _Asked,
    decryption: DecryptionSpec | None,
    int96_unit: str,
) -> tuple[pa.Table, ReadStats]:
    """The rows of all files, and what was done for them."""
    tables: list[pa.Table] = []
    done = ReadStats()
    for ref in refs:
        with open_file(ref, decryption=decryption) as opened:
            try:
                plan = opened.plan(wanted, asked.of(opened.walk.footer.schema), int96_unit=int96_unit)
            except UsageError as error:
                raise error.at(file=ref.path) from None
            found = list(opened.scan(plan)) or [plan.empty]
        if tables and not found[0].schema.equals(tables[0].schema):
            raise UsageError(f"its columns are not those of {refs[0].path}", file=ref.path, hint="--columns NAME,...")
        tables += found
        for name in ("row_groups", "pruned_by_statistics", "pruned_by_filter", "decoded", "rows"):
            setattr(done, name, getattr(done, name) + getattr(plan.stats, name))
    return pa.concat_tables(tables), done


class _Asked:
    """The rows that --where and --where-in ask for, typed anew only where the columns have other types."""

    def __init__(self, where: tuple[str, ...], where_in: list[tuple[str, list[str]]]) -> None:
        self._where, self._where_in = where, where_in
        self._known: dict[Any, Any] = {}

    def of(self, schema: Schema) -> Condition | None:
        """The condition on a file of this schema; None for all rows."""
        types = tuple((leaf.path, leaf.type, leaf.repeated) for leaf in schema.leaves)
        if types not in self._known:
            self._known[types] = self._made(schema)
        found: Condition | None = self._known[types]
        return found

    def _made(self, schema: Schema) -> Condition | None:
        from ..read.condition import AllOf, Compare
        from ..read.values import Values

        parts: list[Condition] = []
        if self._where:
            from .where import parse_where  # the parser takes as long to load as a small read takes

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


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        yield from batch.to_pylist()


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


def _write_rows(rows: pa.Table, stream: IO[bytes] | gzip.GzipFile, kind: str) -> None:
    if kind in ("csv", "tsv"):
        from pyarrow import csv

        csv.write_csv(_flat(rows), stream, csv.WriteOptions(delimiter="," if kind == "csv" else "\t"))
        return
    for row in _rows(rows):
        stream.write(json_line(row).encode() + b"\n")


def _flat(rows: pa.Table) -> pa.Table:
    """CSV has no nested values: they become JSON text."""
    for index, field in enumerate(rows.schema):
        if (
            pa.types.is_nested(field.type)
            or isinstance(field.type, pa.BaseExtensionType)
            or pa.types.is_binary(field.type)
        ):
            texts = [None if value is None else _text(value) for value in rows.column(index).to_pylist()]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
    return rows


def _text(value: Any) -> str:
    value = plain(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_file(rows: pa.Table, path: str, kind: str, zipped: bool) -> None:
    """Aside, then renamed; readable for its owner only, since it is plaintext."""
    aside = None
    try:
        target = Path(path).resolve()
        descriptor, aside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with open(descriptor, "wb") as stream:
            if kind == "parquet":
                import pyarrow.parquet as pq

                pq.write_table(rows, stream)
            elif kind == "arrow":
                with pa.ipc.new_file(stream, rows.schema) as writer:
                    writer.write_table(rows)
            elif zipped:
                with gzip.open(stream, "wb") as packed:
                    _write_rows(rows, packed, kind)
            else:
                _write_rows(rows, stream, kind)
        Path(aside).replace(target)
    except (OSError, pa.ArrowException) as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        raise UsageError(f"the rows can't be written: {reason}", file=path) from None
