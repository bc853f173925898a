"""Answers on standard output: JSON, or tables; remarks and progress on standard error."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import itertools
import json
import math
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import click

from ..core.text import safe_text as printable
from .command import CommandState

__all__ = [
    "answer",
    "facts",
    "json_line",
    "listed",
    "place",
    "plain",
    "print_json",
    "printable",
    "progress",
    "records",
    "remark",
    "size",
    "table",
]

_WIDTH_WITHOUT_TERMINAL: Final = 160
_LISTED: Final = 20
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})


def plain(value: Any) -> Any:
    """A value as JSON has it: moments in ISO 8601, decimals and UUIDs as text, binary as base64, NaN and infinities as
    text.
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            return str(value)  # an enumeration's member too
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Decimal() | uuid.UUID():
            return str(value)
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _:
            return str(value)


def json_line(value: Any, *, indent: int | None = None) -> str:
    """JSON text in UTF-8 that no terminal takes for commands; what it says is exact, by JSON's own escapes."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)
    # JSON has escaped the newlines of texts: those that are left are its own.
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


def _escaped(line: str) -> str:
    # `dumps` writes a character beyond 16 bits as JSON wants it, by two escapes.
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def print_json(value: Any) -> None:
    """Print a value as indented JSON, see `json_line`."""
    click.echo(json_line(value, indent=2))


def remark(text: str) -> None:
    """A line on standard error, where it can't be taken for an answer."""
    click.echo(printable(text), err=True)


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def listed(title: str, lines: Iterable[str]) -> None:
    """Lines under a title, the first ones of many; no title where there is none."""
    shown = list(lines)
    if shown:
        click.echo(f"  {title}")
    for line in shown[:_LISTED]:
        click.echo(f"    {printable(line)}")
    if len(shown) > _LISTED:
        click.echo(f"    and {len(shown) - _LISTED} more: --format json has all")


def place(path: str) -> str:
    """A file's path, from the working folder where it is below."""
    here = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118
    return path.removeprefix(here)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """A table; numbers stand to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    out = Table(title=None if title is None else Text(printable(title)), title_justify="left", box=box.SIMPLE_HEAD)
    for index, name in enumerate(columns):
        numeric = bool(listed) and all(isinstance(row[index], int | float) for row in listed)
        out.add_column(Text(printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        out.add_row(*(Text(_cell(value)) for value in row))
    _print(out)


def records(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows of data: as a table where that fits the width, else one field per line."""
    from rich.cells import cell_len
    from rich.console import Console

    cells = [columns, *([_cell(value) for value in row] for row in rows)]
    width = sum(max(map(cell_len, map(printable, column))) + 3 for column in zip(*cells, strict=True))
    if width <= (Console().width if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL):
        table(columns, rows)
        return
    for number, row in enumerate(cells[1:], 1):
        facts(zip(columns, row, strict=True), title=f"row {number:,}")


def facts(pairs: Iterable[tuple[str, Any]], *, title: str | None = None) -> None:
    """Names and values, one pair per line; pairs without a value are left out."""
    from rich.table import Table
    from rich.text import Text

    out = Table.grid(padding=(0, 2))
    if title:
        click.echo(printable(title))
    for name, value in pairs:
        if value is not None:
            out.add_row(Text(f"  {printable(name)}"), Text(_cell(value)))
    _print(out)


def answer(told: Mapping[str, Any] | list[dict[str, Any]], *, title: str | None = None, listed: int = _LISTED) -> None:
    """A report, or several: as JSON, or for people, as `show` has it."""
    if CommandState.current().json:
        print_json(told)
        return
    for one in told if isinstance(told, list) else [told]:
        show(one, title=title or one["path"], listed=listed)


def show(told: Mapping[str, Any], *, title: str, listed: int = _LISTED) -> None:
    """A report for people: its values, and a table for each list of records, as notebooks show it. What is empty is
    left out.

    Args:
        told: plain data, as a report's `to_dict` gives it.
        title: stands above it.
        listed: how many records of a list are shown.
    """
    several = {name: value for name, value in told.items() if isinstance(value, list | Mapping)}
    single = [(words(name), in_words(name, value)) for name, value in told.items() if name not in several]
    facts([(name, value) for name, value in single if value != title], title=title)
    for name, value in several.items():
        records: list[Mapping[str, Any]]
        if isinstance(value, Mapping):
            records = [{name: key, "": item} for key, item in value.items()]
        else:
            records = [one if isinstance(one, Mapping) else {name: one} for one in value]
        known = dict.fromkeys(itertools.chain(*records))
        columns = [one for one in known if any(record.get(one) not in _NOTHING for record in records)]
        if columns:
            rows = [[in_words(one, record.get(one)) for one in columns] for record in records[:listed]]
            table([words(one) for one in columns], rows)
        if len(records) > listed:
            remark(f"{len(records) - listed} more {words(name)}: --format json has all")


def words(name: str) -> str:
    """A name of plain data for people."""
    return name.replace("_", " ")


def in_words(name: str, value: Any) -> Any:
    """A value of plain data for people; `name` says what it is."""
    match value:
        case list():
            return ", ".join(str(in_words("", one)) for one in value)
        case Mapping():
            return "; ".join(f"{words(key)} {in_words(key, one)}" for key, one in value.items())
        case int() if name.endswith(("bytes", "size")) or name.startswith("bytes"):
            return size(value)
    return value


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case _:
            return printable(value)


def _print(renderable: Any) -> None:
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1, which is an answer here

    console = Plain(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(renderable)


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[float, int], None]]:
    """A progress bar on standard error: call what it gives with (done, in all). Nothing is shown where no
    terminal is.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
