"""``bloomseal read``: rows, as a table, JSON lines, CSV or a file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import click
import pyarrow as pa

from ..errors import BloomsealError, UsageError
from ..read.file import SealedFile, open_file
from .keys import OpeningOptions, opening_options
from .render import busy, json_line, plain, remark, table
from .state import PATH, State, common_options
from .values import parse_value, parse_where, read_lines

__all__ = ["read"]

_ROWS_ON_SCREEN: Final = 50
_BATCH_ROWS: Final = 8192
_EXTENSIONS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "json",
    ".jsonl": "json",
    ".json": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
}


@click.command()
@click.argument("file", type=PATH)
@click.option("--columns", "-c", multiple=True, metavar="NAME[,NAME...]", help="Columns to read (default: all).")
@click.option(
    "--where",
    "-w",
    multiple=True,
    metavar="CONDITION",
    help="'ssn = 078-05-1120', 'age >= 18', 'id in 1,2'. All must hold.",
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
    "--output", "-o", metavar="PATH", help="Write the rows IN PLAINTEXT to .parquet, .csv, .ndjson or .arrow."
)
@click.option("--stats", is_flag=True, help="Tell on standard error how many row groups were ruled out.")
@opening_options
@common_options("table", "json", "csv")
def read(
    file: str,
    columns: tuple[str, ...],
    where: tuple[str, ...],
    where_in: tuple[str, ...],
    limit: int | None,
    output: str | None,
    stats: bool,
    opening: OpeningOptions,
) -> None:
    """Read rows of FILE. Row groups are ruled out by statistics and filters first; the answer is exact.

    With --format json every row is one line. A file written with --output is plaintext, and only its owner may read it.

    \b
    Examples:
      bloomseal read people.parquet --where 'ssn = 078-05-1120' --columns name,ssn --keyring keys.json
      bloomseal read people.parquet --where-in ssn=wanted.txt --format csv --keyring keys.json
    """
    wanted = [name.strip() for item in columns for name in item.split(",") if name.strip()] or None
    kind = _output_kind(output)
    with open_file(file, decryption=opening.decryption()) as opened:
        predicate = _predicate(opened, where, where_in)
        with busy("Reading"):
            rows = opened.read(wanted, predicate)
        done = opened.stats
    found = rows.num_rows
    state = State.current()
    if limit is None and output is None and state.format == "table":
        limit = _ROWS_ON_SCREEN
    if limit is not None:
        rows = rows.slice(0, limit)
    if output is not None:
        _write_file(rows, output, kind)
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


def _predicate(
    opened: SealedFile, where: tuple[str, ...], where_in: tuple[str, ...]
) -> list[tuple[str, str, Any]] | None:
    terms: list[tuple[str, str, Any]] = []
    for text in where:
        column, operator, value = parse_where(text)
        listed = operator in ("in", "not in")
        values = _typed(opened, column, [one.strip() for one in value.split(",")] if listed else [value])
        terms.append((column, operator, values if listed else values[0]))
    for item in where_in:
        column, equals, path = item.partition("=")
        if not equals:
            raise UsageError("--where-in takes COLUMN=PATH")
        terms.append((column, "in", _typed(opened, column, read_lines(path))))
    return terms or None


def _typed(opened: SealedFile, column: str, texts: list[str]) -> list[Any]:
    leaf = opened.walk.footer.schema.leaf(column)
    try:
        return [parse_value(text, leaf.type) for text in texts]
    except BloomsealError as error:
        raise error.at(file=opened.path, column=column) from None


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        yield from batch.to_pylist()


def _shown(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(plain(value), ensure_ascii=False)
    # Thousands separators are for counts, not for data.
    return value if value is None or isinstance(value, bool) else str(plain(value))


def _output_kind(path: str | None) -> str:
    if path is None:
        return ""
    if (kind := _EXTENSIONS.get(Path(path).suffix.lower())) is None:
        raise UsageError("what shall the file be?", file=path, hint=f"a name that ends in {', '.join(_EXTENSIONS)}")
    return kind


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _write_rows(rows: pa.Table, stream: IO[bytes], kind: str) -> None:
    if kind == "csv":
        from pyarrow import csv

        csv.write_csv(_flat(rows), stream)
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


def _write_file(rows: pa.Table, path: str, kind: str) -> None:
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
            else:
                _write_rows(rows, stream, kind)
        Path(aside).replace(target)
    except (OSError, pa.ArrowException) as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        raise UsageError(f"the rows can't be written: {reason}", file=path) from None
