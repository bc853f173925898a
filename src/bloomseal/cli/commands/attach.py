"""``bloomseal attach``: filters for a file that has none, or others."""

from __future__ import annotations

import click

from ...core.errors import UsageError
from ...orc.rewrite.report import OrcRewriteReport
from ...sbbf import FilterSpec
from ...table.verbs import attach_filters
from ...write.attach import AttachReport
from ..arguments.filters import filter_option
from ..arguments.opening import OpeningOptions, opening_options
from ..render import facts, print_json, progress, size, table
from ..state import PATH, State, common_options

__all__ = ["attach"]


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
    reports: list[AttachReport | OrcRewriteReport] = [*found.values()] if isinstance(found, dict) else [found]
    if State.current().json:
        told = [report.to_dict() for report in reports]
        print_json(told if isinstance(found, dict) else told[0])
        return
    for report in reports:
        if isinstance(report, OrcRewriteReport):
            _show_orc(report, dry_run)
        else:
            _show(report, dry_run)


def _show_orc(report: OrcRewriteReport, dry_run: bool) -> None:
    table(
        ["stripe", "column", "row groups", "bytes of each", "encrypted"],
        [(f["stripe"], f["column"], f["row_groups"], f["num_bytes"], f["encrypted"]) for f in report.filters],
    )
    facts(
        [
            ("size before", size(report.old_size)),
            ("size after", size(report.new_size)),
            ("under new local keys", ", ".join(report.rekeyed) or None),
            ("old copies", report.old_copies),
            ("dry run", "nothing was written" if dry_run else None),
        ],
        title=report.path,
    )


def _show(report: AttachReport, dry_run: bool) -> None:
    table(
        ["row group", "column", "bytes", "sealed", "false positives", "replaced"],
        [
            (f["row_group"], f["column"], f["num_bytes"], f["sealed"], f["false_positive_probability"], f["replaced"])
            for f in report.filters
        ],
    )
    facts(
        [
            ("size before", size(report.old_size)),
            ("size after", None if dry_run else size(report.new_size)),
            ("replaced, in clear, now zeros", size(report.zeroed_bytes) if report.zeroed_bytes else None),
            ("dead space", size(report.dead_bytes) if report.dead_bytes else None),
            ("dry run", "nothing was written" if dry_run else None),
        ],
        title=report.path,
    )
