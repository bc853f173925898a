"""``bloomseal inspect`` and ``bloomseal verify``: what anybody sees of a file, and what the keys at hand open."""

from __future__ import annotations

from collections.abc import Iterable

import click

from ...core.errors import BloomsealError
from ...format.inspect import Inspection
from ...format.verify import VerifyReport
from ...read.open import open_file
from ...storage.discovery.tables import files_at
from ...table.verbs import inspect as look
from ..arguments.opening import OpeningOptions
from ..arguments.options import options
from ..command import PATH, Command, CommandState
from ..hints import hint_for
from ..render import answer, facts, print_json, printable, progress, table

__all__ = ["inspect", "verify"]


@click.command(cls=Command)
@click.argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...")
def inspect(files: tuple[str, ...]) -> None:
    """Show what anybody sees of each FILE (or folder, pattern, table) without a key, and what stays hidden. Nothing is
    opened or verified.

    \b
    Example:
      bloomseal inspect people.parquet
    """
    seen = [found.to_dict() for path in files for found in _seen(path)]
    answer(seen[0] if len(seen) == 1 else seen)


def _seen(path: str) -> list[Inspection]:
    found: list[Inspection] | Inspection = look(path)
    return found if isinstance(found, list) else [found]


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
    seen: list[tuple[VerifyReport, bool]] = []
    failed: list[BloomsealError] = []
    listed = [(path, one) for path in files for one in files_at(path)]
    with progress("Opening modules") as tell:
        for done, (path, one) in enumerate(listed):
            try:
                with open_file(one, decryption=decryption) as opened:
                    seen.append((opened.verify(filters=filters), opened.encrypted))
            except BloomsealError as error:
                if one is path:
                    raise
                # One bad file of a table is found, and the rest are looked at.
                error.hint = hint_for(error)
                failed.append(error)
            tell(done + 1, len(listed))
    if CommandState.current().json:
        told = [report.to_dict() for report, _ in seen] + [problem.to_dict() | {"ok": False} for problem in failed]
        print_json(told[0] if len(told) == 1 else told)
    else:
        for report, encrypted in seen:
            _show_verified(report, encrypted, filters)
        for problem in failed:
            click.echo(printable(f"failed: {problem}"))
    good = not failed and all(report.complete if strict else report.ok for report, _ in seen)
    return 0 if good else 1


def _show_verified(report: VerifyReport, encrypted: bool, filters: bool) -> None:
    open_footer = "not verified: row groups could be missing" if encrypted else "in plaintext, not verified"
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
    kinds = sorted({*report.authenticated, *report.unauthenticated})
    table(
        ["module", "authenticated", "not authenticated"],
        [(kind, report.authenticated[kind], report.unauthenticated[kind]) for kind in kinds],
    )
    lines: list[tuple[str, Iterable[object]]] = [
        ("failed", report.failures),
        ("filter not asked", report.filters_unasked),
        ("note", report.notes),
    ]
    for what, texts in lines:
        for text in texts:
            click.echo(printable(f"  {what}: {text}"))
