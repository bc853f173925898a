"""``bloomseal read``, ``head`` and ``count``: rows, as a table, JSON lines, CSV or a file, and how many there are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import pyarrow as pa

from ...core.errors import UsageError
from ...core.text import counted
from ..arguments.conditions import ConditionOptions
from ..arguments.opening import TableOptions
from ..arguments.options import option, options
from ..command import PATH, Command, CommandState
from ..output import RowOutput, need_elsewhere
from ..render import plain, print_json, progress, records, remark

if TYPE_CHECKING:
    from ...read.file import SealedFile
    from ...read.plan import ReadStats
    from ...read.predicate.condition import Condition

_ROWS_ON_SCREEN: Final = 50

Rows = tuple[pa.Schema, Iterator[pa.RecordBatch], "ReadStats"]


@dataclass
class _Chosen:
    """The rows that are asked for, and where they are."""

    condition: ConditionOptions = field(default_factory=ConditionOptions)
    int96_unit: str = option(
        "--int96-unit",
        type=click.Choice(["ns", "us"]),
        default="ns",
        help="Read INT96 timestamps in this unit; us holds 9999-12-31 (default: ns).",
    )
    columns_without_key: Literal["error", "null", "drop"] = option(
        "--columns-without-key",
        type=click.Choice(["error", "null", "drop"]),
        default="error",
        help="What becomes of columns whose key you may not use (default: error). --where needs the keys of its columns.",
    )
    source: TableOptions = field(default_factory=TableOptions)

    @contextlib.contextmanager
    def opened(
        self, files: Sequence[str], tell: Callable[[float, int], None], names: Sequence[str] | None
    ) -> Iterator[Rows]:
        """The rows of these files: of one, whose footer is opened once, or of several places as one table.

        Args:
            names: columns; none: one of those that the condition is about.
        """
        listed = self.condition.listed()
        strict = self.columns_without_key == "error"
        if strict and (file := self.source.one_file(files)) is not None:
            with file:
                try:
                    condition = self.condition.condition(file.leaves, listed)
                    plan = file.plan(_or_one(names, condition), condition, int96_unit=self.int96_unit)
                except UsageError as error:
                    raise error.at(file=files[0]) from None
                yield plan.empty.schema, _batches(file, plan, tell), plan.stats
            return
        opened = self.source.table(files, self.columns_without_key)
        condition = self.condition.condition(opened.leaves, listed) if self.condition.said else None
        with opened.scan(_or_one(names, condition), condition, int96_unit=self.int96_unit, progress=tell) as reader:
            yield reader.schema, iter(reader), opened.stats


@dataclass
class _Wanted:
    """The columns that are asked for, and the rows."""

    columns: tuple[str, ...] = option(
        "--columns", "-c", multiple=True, metavar="NAME[,NAME...]", help="Columns to read (default: all)."
    )
    chosen: _Chosen = field(default_factory=_Chosen)

    @property
    def names(self) -> list[str] | None:
        """None for all."""
        if not all(item.strip() for item in self.columns):
            raise UsageError("--columns without a name", hint="leave it out for all columns")
        return [name.strip() for item in self.columns for name in item.split(",") if name.strip()] or None


def _or_one(names: Sequence[str] | None, condition: Condition | None) -> Sequence[str] | None:
    """The columns to read: where none is wanted, one of those that are read anyway."""
    from ...read.predicate.condition import columns_of

    return names if names or names is None or condition is None else columns_of(condition)[:1]


def _batches(file: SealedFile, plan: Any, tell: Callable[[float, int], None]) -> Iterator[pa.RecordBatch]:
    for part in range(file.num_parts):
        for found in file.pieces(plan, part):
            yield from found.to_batches()
        tell(part + 1, file.num_parts)


@click.command(
    cls=Command, formats=("table", "json", "csv"), first=("--where", "--columns", "--limit", "--policy", "--keyring")
)
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...")
@options(_Wanted, "wanted")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help=f"Rows at most (default: {_ROWS_ON_SCREEN} as a table)."
)
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    help="Write the rows IN PLAINTEXT to .parquet, .csv, .tsv, .ndjson (also .gz) or .arrow; - is standard output.",
)
@click.option("--stats", is_flag=True, help="Tell on standard error how many row groups were ruled out.")
def read(files: tuple[str, ...], wanted: _Wanted, limit: int | None, output: str | None, stats: bool) -> None:
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
    _read(files, wanted, limit, output, stats=stats)


@click.command(
    cls=Command, formats=("table", "json", "csv"), first=("--lines", "--columns", "--where", "--policy", "--keyring")
)
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="PLACE...")
@options(_Wanted, "wanted")
@click.option("--lines", "-n", type=click.IntRange(min=0), metavar="N", default=10, help="Rows at most (default: 10).")
def head(files: tuple[str, ...], wanted: _Wanted, lines: int) -> None:
    """Show the first rows of PLACE: a file, a folder, a pattern, or a Delta or Iceberg table. `bloomseal read --limit`,
    in short.

    \b
    Examples:
      bloomseal head people.parquet --keyring keys.json
      bloomseal head lake/customers -n 3 --policy policy.toml --table customers
    """
    _read(files, wanted, lines)


@click.command(cls=Command, first=("--where", "--where-in", "--policy", "--table", "--keyring"))
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="PLACE...")
@options(_Chosen, "chosen")
def count(files: tuple[str, ...], chosen: _Chosen) -> None:
    """Count the rows of PLACE: a file, a folder, a pattern, or a Delta or Iceberg table.

    Without a condition the footers tell. With one, row groups are ruled out first and the condition's columns are read
    in the others, as `bloomseal read` does it.

    \b
    Examples:
      bloomseal count people.parquet --keyring keys.json
      bloomseal count people.parquet --where "born < '1985-01-01'" --keyring keys.json
    """
    if chosen.condition.said:
        with progress("Counting") as tell, chosen.opened(files, tell, []) as (_, batches, _):
            rows = sum(batch.num_rows for batch in batches)
    elif (file := chosen.source.one_file(files)) is not None:
        with file:
            file.need_verified("count of its rows")
            rows = file.num_rows
    else:
        rows = chosen.source.table(files).num_rows
    if CommandState.current().json:
        print_json({"rows": rows})
    else:
        click.echo(f"{rows:,}")


def _read(
    files: tuple[str, ...], wanted: _Wanted, limit: int | None, output: str | None = None, *, stats: bool = False
) -> None:
    state = CommandState.current()
    screen = output is None and state.format == "table"
    made = RowOutput.of(output, state.format)
    if output is not None:
        inputs = [*files, *(item.partition("=")[2] for item in wanted.chosen.condition.where_in)]
        need_elsewhere(output, inputs, "another name; bloomseal unseal --in-place decrypts files where they are")
    if limit is None and screen:
        limit = _ROWS_ON_SCREEN
    with progress("Reading") as tell, wanted.chosen.opened(files, tell, wanted.names) as (schema, batches, done):
        rows = _Limited(batches, limit)
        if screen:
            shown = pa.Table.from_batches(rows, schema)
        else:
            made.write(schema, rows)
    if screen:
        from ..rows import rows_of

        records(shown.column_names, [[_shown(value) for value in row.values()] for row in rows_of([shown])])
        if rows.given == limit:
            remark(
                f"the first {counted(rows.given, 'row')}; bloomseal read --limit shows more, --output writes all to a file"
            )
    elif made.path is not None:
        remark(f"{counted(rows.given, 'row')} written in plaintext to {output}")
    if stats:
        remark(
            f"{counted(done.row_groups, 'row group')}: {_by_index(done)}{done.pruned_by_statistics} ruled out by "
            f"statistics, {done.pruned_by_filter} by filters, {done.decoded} decoded; {counted(rows.given, 'row')}"
        )


def _by_index(done: ReadStats) -> str:
    """What indexes ruled out, and what they do not cover; nothing where none was asked."""
    if not done.pruned_by_index:
        return ""
    uncovered = f", which does not cover {counted(done.files_not_covered, 'file')}" if done.files_not_covered else ""
    return (
        f"{done.pruned_by_index} ruled out by an index{uncovered} ({counted(done.files_unopened, 'file')} unopened), "
    )


class _Limited:
    """The first `limit` rows of `batches`, or all. What comes behind them is not read.

    Attributes:
        given: rows given out.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], limit: int | None) -> None:
        self._batches, self._limit = batches, limit
        self.given = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            part = batch if self._limit is None else batch.slice(0, self._limit - self.given)
            self.given += part.num_rows
            yield part
            if self.given == self._limit:
                return


def _shown(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(plain(value), ensure_ascii=False)
    # Thousands separators are for counts, not for data.
    return value if value is None or isinstance(value, bool) else str(plain(value))
