"""Answers on standard output: JSON, or tables; remarks and progress on standard error."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import math
import os
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final
from unicodedata import combining, east_asian_width

import click

from ..core.text import safe_text as printable

__all__ = ["busy", "facts", "json_line", "plain", "print_json", "printable", "progress", "remark", "size", "table"]

_WIDTH_WITHOUT_TERMINAL: Final = 160
_NARROWEST: Final = 8
_ERASE: Final = "\x1b[K"  # to the end of the line


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


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """A table; numbers stand to the right. Long cells are folded where the terminal is narrower."""
    listed = [list(row) for row in rows]
    kinds = [bool(listed) and all(isinstance(row[at], int | float) for row in listed) for at in range(len(columns))]
    cells = [[printable(name) for name in columns], *([_cell(value) for value in row] for row in listed)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    room = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    room = room or _WIDTH_WITHOUT_TERMINAL
    while sum(widths) + 3 * len(widths) + 1 > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    rule = "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"
    lines = ["" if title is None else printable(title), *_folded(cells[0], widths, kinds)]
    lines.append(f" {rule * (sum(widths) + 3 * len(widths) - 1)}")
    for row in cells[1:]:
        lines += _folded(row, widths, kinds)
    click.echo("\n".join([*lines, ""]))


def _folded(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> Iterator[str]:
    """The lines of a row."""
    parts = [
        [text] if _width(text) <= width else textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        for text, width in zip(row, widths, strict=True)
    ]
    for line in zip_longest(*parts, fillvalue=""):
        padded = []
        for text, width, right in zip(line, widths, numeric, strict=True):
            space = " " * (width - _width(text))
            padded.append(space + text if right else text + space)
        yield f"  {'   '.join(padded)}".rstrip()


def _width(text: str) -> int:
    """Columns of a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def facts(pairs: Iterable[tuple[str, Any]], *, title: str | None = None) -> None:
    """Names and values, one pair per line; pairs without a value are left out."""
    told = [(printable(name), _cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in told), default=0)
    lines = [printable(title)] if title else []
    click.echo("\n".join([*lines, *(f"  {name:<{width}}  {value}" for name, value in told)]))


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


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[float, int], None]]:
    """How far work is, on standard error: call what it gives with (done, in all). Nothing is shown where no
    terminal is.
    """
    with busy(label) as say:

        def tell(done: float, total: int) -> None:
            say(f"{label} {min(done / total, 1):.0%}" if total else label)

        yield tell


@contextlib.contextmanager
def busy(label: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error for as long as work goes on; call what it gives to change it."""
    if not sys.stderr.isatty():
        yield lambda text: None  # noqa: ARG005
        return
    shown = ""

    def say(text: str) -> None:
        nonlocal shown
        if text != shown:
            shown = text
            click.echo(f"\r{_ERASE}{printable(text)} ...", err=True, nl=False)

    say(label)
    try:
        yield say
    finally:
        click.echo(f"\r{_ERASE}", err=True, nl=False)
