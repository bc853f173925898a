"""``bloomseal erase``: rows taken out of a table, and of its copies."""

from __future__ import annotations

from typing import Any

import click

from ...core.errors import UsageError
from ...core.text import counted
from ...rotation.erase import ErasureReport
from ...rotation.erase import erase as erase_rows
from ..arguments.conditions import ConditionOptions
from ..arguments.opening import OpeningOptions
from ..arguments.options import options
from ..command import PATH, Command, CommandState
from ..render import print_json, progress, show
from .rotate import RunOptions


@click.command(cls=Command, first=("--where", "--where-in", "--dry-run", "--policy", "--keyring"))
@options(ConditionOptions, "condition")
@click.option(
    "--also",
    multiple=True,
    type=PATH,
    metavar="PATH",
    help="A copy of the table, from which the rows are erased, too. Repeatable.",
)
@options(RunOptions, "run")
@options(OpeningOptions, "opening")
def erase(condition: ConditionOptions, also: tuple[str, ...], run: RunOptions, opening: OpeningOptions) -> int:
    """Take the rows for which a condition is true out of the table at PATH. Files that hold some are written anew
    without them, sealed as they are; the others are not touched. A row for which the condition is null stays.

    No value is written down anywhere, so a run that was killed is resumed by the same command with the same condition.
    Rows are not changed but taken out: whoever wants to change them writes them anew.

    What still holds the rows is told: older versions of a Delta table, indexes until they are compacted, hidden files.

    \b
    Examples:
      bloomseal erase lake/customers --where "email = 'x@example.com'" --policy policy.toml --table customers --dry-run
      bloomseal erase lake/customers --where-in id=ids.txt --also partner/customers --keyring keys.json
    """
    if not condition.said:
        raise UsageError("a condition says which rows are erased", hint="--where or --where-in")
    listed = condition.listed()
    with progress("Erasing") as tell:
        report = erase_rows(
            run.paths,
            lambda leaves: condition.condition(leaves, listed),
            decryption=opening.decryption(run.paths),
            follow_links=run.follow_links,
            also=also,
            dry_run=run.dry_run,
            journal=run.journal,
            restart=run.restart,
            jobs=run.jobs,
            patience=run.patience,
            progress=tell,
        )
    if CommandState.current().json:
        print_json(report.to_dict())
    else:
        what = "nothing was written" if report.dry_run else counted(report.rows, "row")
        show(_for_people(report), title=f"erase: {what}")
    return 0 if report.ok else 1


def _for_people(report: ErasureReport) -> dict[str, Any]:
    """What a run did, of its files those about which there is something to know; or what it would do."""
    shown = report.files if report.dry_run else report.problems
    files = [{"path": one.path, "status": str(one.status), "rows": one.rows, "why": one.why} for one in shown]
    told = {"rows": report.rows, "still held by": report.remaining, "files": files}
    ran = {"journal": report.journal, "resumed": report.resumed, "bytes_written": report.to_dict()["bytes_written"]}
    return {**report.counts, **told, **({} if report.dry_run else {**ran, "seconds": report.seconds})}
