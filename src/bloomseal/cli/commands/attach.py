"""``bloomseal attach``: filters for a file that has none, or others."""

from __future__ import annotations

from typing import Any, Final

import click

from ...core.errors import UsageError
from ...sbbf import FilterSpec
from ...table.verbs import attach_filters
from ..arguments.filters import filter_option
from ..arguments.opening import OpeningOptions, opening_options
from ..render import facts, print_json, progress, size, table
from ..state import PATH, CommandState, common_options

__all__ = ["attach"]

_NOT_BELOW: Final = ("path", "filters", "keys", "versions", "left_out")


@click.command()
@click.argument("file", type=PATH)
@filter_option
@click.option("--dry-run", is_flag=True, help="Build the filters and report; write nothing.")
@opening_options
@common_options()
def attach(file: str, filters: dict[str, FilterSpec], dry_run: bool, opening: OpeningOptions) -> None:
    """Add filters to FILE (or to each file of a folder or pattern), or replace the ones that it has. No page is
    touched.

    Filters of encrypted columns are sealed with the column's key; those of plaintext columns stand in clear. The file
    is replaced only when the new one has been reopened and probed.

    \b
    Example:
      bloomseal attach people.parquet --bloom-filter ssn:fpp=0.001 --keyring keys.json
    """
    if not filters:
        raise UsageError("no filter to attach", hint="--bloom-filter COLUMN")
    decryption = opening.decryption([file])
    with progress("Building filters") as tell:
        found = attach_filters(file, filters, decryption=decryption, dry_run=dry_run, progress=tell)
    reports = [*found.values()] if isinstance(found, dict) else [found]
    if CommandState.current().json:
        told = [report.to_dict() for report in reports]
        print_json(told if isinstance(found, dict) else told[0])
        return
    for report in reports:
        _show(report.to_dict())


def _show(report: dict[str, Any]) -> None:
    """A report of either format: its filters as a table, and what else it says."""
    filters = report["filters"]
    table([_words(name) for name in (filters[0] if filters else ())], [list(one.values()) for one in filters])
    said = ((name, value) for name, value in report.items() if name not in _NOT_BELOW and value)
    facts([(_words(name), _in_words(name, value)) for name, value in said], title=report["path"])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _in_words(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(value)
    return size(value) if name.endswith(("_bytes", "_size")) else value
