"""``bloomseal compact``: small files of a table made into large ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import click

from ...table.open import open_table
from ..arguments.opening import OpeningOptions
from ..arguments.options import argument, option, options
from ..command import PATH, Command, CommandState
from ..render import answer, print_json, progress, remark

_SIZE: Final = re.compile(r"(\d+) ?(?:([kmg])(i?)b?|b)?", re.IGNORECASE)


def size(text: str) -> int:
    """Bytes, of ``256MB`` (10^6) or ``256MiB`` (2^20)."""
    if not (found := _SIZE.fullmatch(text)) or not int(found[1]):
        raise ValueError(text)
    number, unit, binary = found.groups(default="")
    step = 1024 if binary else 1000
    return int(number) * {"": 1, "k": step, "m": step**2, "g": step**3}[unit.lower()]


@dataclass
class _Compacting:
    """A table to compact."""

    place: str = argument(type=PATH, metavar="TABLE")
    target_size: int = option(
        "--target-size", type=size, default="256MB", show_default=True, metavar="SIZE",
        help="Of a new file, about. A file larger than half of it stays as it is.",
    )  # fmt: skip
    dry_run: bool = option(
        "--dry-run", is_flag=True, help="Tell which files would become which, and check the keys; write nothing."
    )
    opening: OpeningOptions = field(default_factory=OpeningOptions)


@click.command(
    cls=Command,
    short_help="Make large files of a table's small ones.",
    first=("--target-size", "--policy", "--table", "--keyring", "--dry-run"),
)
@options(_Compacting, "compacting")
def compact(compacting: _Compacting) -> int:
    """Make large files of the small ones of TABLE, in each folder those of one schema: sealed under fresh keys, their
    filters built anew for the rows that they have, the table's indexes brought up to date.

    A new file is complete and checked before it takes its name; then the files that it replaces go. Whoever lists the
    folder between the two sees rows twice. After a run that was killed there, run the command again: it ends that
    first.

    Exit code: 0; 1 where files could not be compacted; 2 on errors.

    \b
    Examples:
      bloomseal compact lake/customers --policy policy.toml --table customers
      bloomseal compact lake/customers --target-size 1GB --keyring keys.json --dry-run
    """
    table = open_table(compacting.place, decryption=compacting.opening.decryption([compacting.place]))
    with progress("Compacting") as tell:
        report = table.compact(target_size=compacting.target_size, dry_run=compacting.dry_run, progress=tell)
    told = report.to_dict()
    if CommandState.current().json:
        print_json(told)
    else:
        made = [{**one, "files": len(one["files"])} for one in report.files]
        answer({**told, "files": made}, title=f"compact: {len(made)} new files" + " (dry run)" * report.dry_run)
        if not made and report.ok:
            remark("no two small files of a folder agree in schema and keys")
    return 0 if report.ok else 1
