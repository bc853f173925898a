"""``bloomseal show`` and ``bloomseal verify``: what files and tables are, and whether every module opens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from ...core.decryption import DecryptionSpec
from ...core.errors import BloomsealError
from ...core.text import counted
from ...format.verify import VerifyReport
from ...read.open import inspect_file, open_file
from ...storage.discovery.tables import is_one_file
from ...table.open import open_table
from ..arguments.opening import OpeningOptions, TableOptions
from ..arguments.options import options
from ..command import PATH, Command, CommandState
from ..hints import hint_for
from ..render import answer, facts, listed, print_json, progress, table

if TYPE_CHECKING:
    from ...policy import TablePolicy

_LISTED: Final = 1000


@click.command(cls=Command, first=("--policy", "--table", "--keyring", "--without-keys", "--files"))
@click.argument("places", nargs=-1, type=PATH, required=True, metavar="PLACE...")
@click.option("--without-keys", is_flag=True, help="Show what anybody sees, whatever keys are at hand.")
@click.option("--files", is_flag=True, help="Show each file of a table by itself, too.")
@options(TableOptions, "source")
def show(places: tuple[str, ...], without_keys: bool, files: bool, source: TableOptions) -> None:
    """Show what is at each PLACE, a file, a folder, a pattern, or a Delta or Iceberg table: rows, row groups and bytes,
    which column is under which key, filters and indexes, and what can't be seen.

    Keys open footers and the columns' metadata; no page and no filter is read. Without keys, it is what anybody sees
    who can read the files. A file that does not open is told, and ends nothing.

    `bloomseal verify` opens every module, `bloomseal audit` judges.

    \b
    Examples:
      bloomseal show people.parquet
      bloomseal show people.parquet --keyring keys.json
      bloomseal show lake/customers --policy policy.toml --table customers
    """
    told = [
        _shown(place, None if without_keys else _allowing(source.opening.decryption([place])), files, source)
        for place in places
    ]
    answer(told[0] if len(told) == 1 else told, title=places[0] if len(told) == 1 else None, listed=_LISTED)


def _allowing(decryption: DecryptionSpec | TablePolicy | None) -> DecryptionSpec | TablePolicy | None:
    """Keys that happen to be at hand say nothing of a plaintext file; a policy does."""
    return replace(decryption, allow_plaintext=True) if isinstance(decryption, DecryptionSpec) else decryption


def _shown(
    place: str, decryption: DecryptionSpec | TablePolicy | None, files: bool, source: TableOptions
) -> dict[str, Any]:
    if source.version is None and is_one_file(place):
        return inspect_file(place, decryption=decryption).to_dict()
    found = open_table(place, decryption=decryption, version=source.version, partitions=False).inspect()
    each = {"inspections": [one.to_dict() for one in found.inspections]} if files else {}
    return {"path": place, **found.to_dict(), **each}


@click.command(cls=Command, first=("--policy", "--table", "--keyring", "--strict", "--filters"))
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...")
@click.option(
    "--strict", is_flag=True, help="Also fail on modules without a key, and on those that nothing authenticates."
)
@click.option("--filters", is_flag=True, help="Also ask each filter for every value of its own column chunk.")
@options(OpeningOptions, "opening")
def verify(files: tuple[str, ...], strict: bool, filters: bool, opening: OpeningOptions) -> int:
    """Open every module of each FILE (or folder, pattern, table) that the keys at hand can open, and say which could
    not be.

    With --filters, a filter that denies a value of its own column chunk has failed, whoever wrote it: readers that
    believe it skip rows that are there. Filters that can't be asked are named, and left unproven.

    Plaintext columns and the pages of AES_GCM_CTR_V1 are read, but nothing authenticates them.

    Exit code: 0 if no module failed, 1 if one did (with --strict: or anything was left unproven), 2 on errors.

    \b
    Example:
      bloomseal verify people.parquet --keyring keys.json
    """
    decryption = opening.decryption(files)
    seen: list[VerifyReport] = []
    failed: list[BloomsealError] = []
    with progress("Opening modules") as tell:
        for number, path in enumerate(files):
            if is_one_file(path):
                with open_file(path, decryption=decryption) as opened:
                    seen.append(opened.verify(filters=filters))
                tell(number + 1, len(files))
            else:
                table = open_table(path, decryption=decryption, partitions=False)
                found = table.verify(filters=filters, progress=tell)
                seen += found.files.values()
                failed += found.failures.values()
    for error in failed:
        error.hint = hint_for(error)
    if CommandState.current().json:
        told = [report.to_dict() for report in seen] + [problem.to_dict() | {"ok": False} for problem in failed]
        print_json(told[0] if len(told) == 1 else told)
    elif len(seen) == 1 and not failed:
        _show_verified(seen[0], filters)
    else:
        _show_all(seen, failed, filters)
    good = not failed and all(report.complete if strict else report.ok for report in seen)
    return 0 if good else 1


def _show_verified(report: VerifyReport, filters: bool) -> None:
    open_footer = "not verified: row groups could be missing" if report.encrypted else "in plaintext, not verified"
    sound = "complete" if report.complete else "sound, as far as it could be opened"
    facts(
        [
            ("verdict", sound if report.ok else "failed"),
            ("footer", "verified" if report.footer_verified else open_footer),
            ("no key for", ", ".join(report.inaccessible) or None),
            ("filters that hold their values", report.filters_true if filters else None),
        ],
        title=report.path,
    )
    _show_modules([report])
    listed("failed:", map(str, report.failures))
    listed("filter not asked:", report.filters_unasked)
    listed("note:", report.notes)


def _show_all(reports: list[VerifyReport], failed: list[BloomsealError], filters: bool) -> None:
    """Files of which there is something to know, and a summary of all."""
    verbose = CommandState.current().verbose
    for report in reports:
        if not report.ok or verbose:
            _show_verified(report, filters)
    listed("failed:", map(str, failed))
    every, broken = len(reports) + len(failed), len(failed) + sum(not report.ok for report in reports)
    complete = sum(report.complete for report in reports)
    part = every - broken - complete
    unopened = Counter(column for report in reports for column in report.inaccessible)
    facts(
        [
            ("verdict", f"failed: {broken} of {counted(every, 'file')}" if broken else "no module failed"),
            ("complete", counted(complete, "file")),
            ("sound, as far as they could be opened", counted(part, "file") if part else None),
            ("no key for", ", ".join(f"{name} ({counted(count, 'file')})" for name, count in unopened.items()) or None),
            ("filters that hold their values", sum(report.filters_true for report in reports) if filters else None),
            ("filters not asked", sum(len(report.filters_unasked) for report in reports) or None),
        ],
        title=counted(every, "file"),
    )
    _show_modules(reports)
    notes = Counter(note for report in reports for note in report.notes)
    listed("note:", (f"{note} ({counted(count, 'file')})" for note, count in notes.most_common()))
    if not verbose:
        click.echo("  each file: --verbose, --format json")


def _show_modules(reports: Sequence[VerifyReport]) -> None:
    authentic = sum((report.authenticated for report in reports), Counter[str]())
    other = sum((report.unauthenticated for report in reports), Counter[str]())
    kinds = sorted({*authentic, *other})
    table(["module", "authenticated", "not authenticated"], [(kind, authentic[kind], other[kind]) for kind in kinds])
