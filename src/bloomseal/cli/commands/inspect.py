"""``bloomseal inspect``: what a reader without any key sees, and what it can't."""

from __future__ import annotations

import click

from ...format.inspect import Inspection
from ...table.verbs import inspect as look
from ..render import facts, print_json, printable, size, table
from ..state import PATH, CommandState, common_options

__all__ = ["inspect"]


@click.command()
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...")
@common_options()
def inspect(files: tuple[str, ...]) -> None:
    """Show what anybody sees of each FILE (or folder, pattern, table) without a key, and what stays hidden. Nothing is
    opened or verified.

    \b
    Example:
      bloomseal inspect people.parquet
    """
    seen = [found for path in files for found in _seen(path)]
    if CommandState.current().json:
        listed = [one.to_dict() for one in seen]
        print_json(listed[0] if len(listed) == 1 else listed)
        return
    for one in seen:
        facts(
            [
                ("size", size(one.size)),
                ("format", one.file_format),
                ("footer", one.footer),
                ("algorithm", one.algorithm),
                ("AAD prefix", one.aad_prefix),
                ("footer key", one.footer_key),
                ("written by", one.created_by),
                ("rows", one.num_rows),
                ("row groups", one.num_row_groups),
                ("key-value metadata", ", ".join(one.key_value_keys) if one.key_value_keys else None),
            ],
            title=one.path,
        )
        if one.columns is not None:
            table(
                ["column", "type", "protection", "key", "filter", "exposed though encrypted"],
                [(c.column, c.type, c.protection, c.key, c.filter, ", ".join(c.exposed)) for c in one.columns],
            )
        for hidden in one.hidden:
            click.echo(printable(f"  hidden: {hidden}"))


def _seen(path: str) -> list[Inspection]:
    found: list[Inspection] | Inspection = look(path)
    return found if isinstance(found, list) else [found]
