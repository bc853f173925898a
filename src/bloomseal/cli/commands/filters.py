"""``bloomseal attach`` and ``bloomseal advise``: filters for files that have none, and whether they are worth it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click

from ...core.errors import BloomsealError, UsageError
from ...core.text import counted
from ...read.predicate.condition import AllOf, AnyOf, Compare, Condition, Not
from ...read.predicate.where import parse_where
from ...sbbf import FilterSpec
from ...table.advice import ColumnAdvice
from ...table.open import open_table
from ...table.verbs import attach_filters
from ..arguments.opening import OpeningOptions
from ..arguments.options import options
from ..arguments.sealing import filter_option
from ..arguments.values import read_lines
from ..command import PATH, Command, CommandState
from ..render import answer, print_json, progress, remark, size, table

_EQUALITIES: Final = ("==", "in")


@click.command(cls=Command, first=("--bloom-filter", "--policy", "--table", "--keyring", "--dry-run"))
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...")
@filter_option
@click.option("--dry-run", is_flag=True, help="Build the filters and report; write nothing.")
@options(OpeningOptions, "opening")
def attach(files: tuple[str, ...], filters: dict[str, FilterSpec], dry_run: bool, opening: OpeningOptions) -> None:
    """Add filters to each FILE (or file of a folder or pattern), or replace the ones that it has. No page is touched.

    Filters of encrypted columns are sealed with the column's key; those of plaintext columns stand in clear. The file
    is replaced only when the new one has been reopened and probed.

    \b
    Example:
      bloomseal attach people.parquet --bloom-filter ssn:fpp=0.001 --keyring keys.json
    """
    if not filters:
        raise UsageError("no filter to attach", hint="--bloom-filter COLUMN")
    decryption = opening.decryption(files)
    told: list[dict[str, Any]] = []
    with progress("Building filters") as tell:
        for file in files:
            found = attach_filters(file, filters, decryption=decryption, dry_run=dry_run, progress=tell)
            told += [report.to_dict() for report in (found.values() if isinstance(found, dict) else [found])]
    answer(told[0] if len(told) == 1 else told)


@click.command(cls=Command, first=("--column", "--queries", "--policy", "--table", "--keyring"))
@click.argument("folder", type=PATH, metavar="TABLE")
@click.option("--column", "columns", multiple=True, metavar="COLUMN", help="This column (repeatable; none: all).")
@click.option(
    "--queries",
    type=PATH,
    metavar="FILE",
    help="One condition a line, as --where takes it, or a JSON string of one: what is really looked for.",
)
@options(OpeningOptions, "opening")
def advise(folder: str, columns: tuple[str, ...], queries: str | None, opening: OpeningOptions) -> None:
    """Tell for each column of TABLE whether a filter, a sealed index or neither is worth it.

    It is tried on a sample: filters are built in memory, and asked for values that are in the table and for values that
    are not. What they rule out counts beyond what statistics rule out. Nothing is written.

    \b
    Examples:
      bloomseal advise lake/customers --policy policy.toml --table customers
      bloomseal advise people --column ssn --queries queries.log --keyring keys.json
    """
    opened = open_table(folder, decryption=opening.decryption([folder]))
    asked, skipped = (None, 0) if queries is None else _asked(queries, opened.leaves)
    found = opened.advise(list(columns) or None, queries=asked)
    if CommandState.current().json:
        print_json([one.to_dict() for one in found])
        return
    if skipped:
        remark(f"{counted(skipped, 'line')} of the queries that are no condition on this table were left out")
    groups = counted(max((one.row_groups for one in found), default=0), "row group")
    table(
        ["column", "worth it", "of a value there", "not there", "filters", "index", "why"],
        [_row(one) for one in sorted(found, key=lambda one: one.verdict == "neither")],
        title=f"{folder}: {counted(len(opened), 'file')}, about {groups}; a look-up leaves out, by statistics / with filters "
        "/ with an index",
    )


def _row(one: ColumnAdvice) -> tuple[Any, ...]:
    if not one.distinct:
        return one.column, one.verdict, None, None, None, None, one.why
    present = one.statistics_present, one.filter_present, one.index_present
    absent = one.statistics_absent, one.filter_absent, one.index_absent
    ruled_out = (" / ".join(f"{number:.1f}".removesuffix(".0") for number in each) for each in (present, absent))
    return one.column, one.verdict, *ruled_out, size(one.filter_bytes), size(one.index_bytes), one.why


def _asked(path: str, schema: Any) -> tuple[dict[str, list[Any]], int]:
    """Column → values that queries look for; and how many lines are no condition on this table."""
    asked: dict[str, list[Any]] = {}
    skipped = 0
    for line in filter(None, map(str.strip, read_lines(path))):
        try:
            text = json.loads(line) if line.startswith('"') else line
            for one in _equalities(parse_where(text, schema)):
                asked.setdefault(one.column, []).extend(one.values)
        except (BloomsealError, ValueError):
            skipped += 1
    return asked, skipped


def _equalities(condition: Condition) -> Iterator[Compare]:
    match condition:
        case Compare() if condition.op in _EQUALITIES:
            yield condition
        case AllOf() | AnyOf():
            for part in condition.parts:
                yield from _equalities(part)
        case Not():
            return
