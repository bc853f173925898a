"""``bloomseal audit``: what lies open, which key protects what, and what a rotation has missed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import BloomsealError, UsageError
from ..arguments.destruction import DestructionOptions, destruction_options
from ..arguments.keys import KeyOptions, key_options
from ..render import facts, print_json, printable, progress, remark, table
from ..state import PATH, Renamed, State, common_options

if TYPE_CHECKING:
    from ...audit import Report

__all__ = ["audit"]

_REPORTS = ("json", "parquet", "findings", "sarif", "html", "cbom")


@click.command()
@click.argument("paths", nargs=-1, type=PATH, required=True, metavar="PATH...")
@click.option("--policy", type=PATH, metavar="FILE", help="Policy file to hold the files against.")
@click.option("--table", "table_name", metavar="NAME", help="The policy's table, where paths don't tell it.")
@click.option("--aad-prefix", metavar="TEXT", help="AAD prefix of files that don't store theirs, without a policy.")
@click.option("--deep", is_flag=True, help="Read whole files: repeated nonces, filters in clear.")
@click.option(
    "--fail-on",
    type=click.Choice(["info", "warning", "error", "critical", "never"]),
    default="error",
    show_default=True,
    help="Exit with 1 on findings of this severity or above.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="KIND=FILE",
    help="Also write a report: json, parquet (the inventory), findings (as Parquet), sarif, html, or cbom. Repeatable.",
)
@click.option(
    "--since",
    type=PATH,
    metavar="FILE",
    help="An older inventory (--report parquet=FILE): tell what was rotated since.",
)
@destruction_options
@click.option("--demonstrate", metavar="COLUMN", help="Show what this column's filter in clear confirms to anybody.")
@click.option("--pattern", metavar="PATTERN", help=r"Candidates for --demonstrate, such as '\d{3}-\d{2}-\d{4}'.")
@click.option("--candidates", type=PATH, metavar="FILE", help="Candidates for --demonstrate, one per line.")
@click.option(
    "--most",
    cls=Renamed,
    formerly=("--bound",),
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Candidates to try at most.",
)
@key_options
@common_options()
def audit(
    paths: tuple[str, ...],
    policy: str | None,
    table_name: str | None,
    aad_prefix: str | None,
    deep: bool,
    fail_on: str,
    reports: tuple[str, ...],
    since: str | None,
    destruction: DestructionOptions,
    demonstrate: str | None,
    pattern: str | None,
    candidates: str | None,
    most: int,
    keys: KeyOptions,
) -> int:
    """Audit files, folders, Delta tables (folders) and Iceberg tables (folders, or .metadata.json) at each PATH.

    Without keys it looks at what everybody sees, and says what it could not see.

    Exit code: 0; 1 on findings at or above --fail-on, or if --demonstrate confirms a candidate; 2 on errors, and where
    --demonstrate confirms nothing and could not ask some file. Of --may-destroy: 0 yes, 1 no, 3 unknown, 2 errors.

    \b
    Examples:
      bloomseal audit lake/customers
      bloomseal audit lake/customers --policy policy.toml --keyring keys.json --report html=audit.html
      bloomseal audit lake/customers --may-destroy pii:1 --keyring keys.json
      bloomseal audit leaky.parquet --demonstrate ssn --pattern '\\d{3}-\\d{2}-\\d{4}'
    """
    from ...policy import Policy

    common: dict[str, Any] = {
        "keys": keys.reading(),
        "policy": None if policy is None else Policy.load(policy),
        "table": table_name,
        "aad_prefix": aad_prefix,
    }
    if demonstrate is not None:
        return _demonstrate(paths, demonstrate, pattern, candidates, most, common["keys"])
    if destruction.asked:
        return destruction.answer(paths, common)
    from ...audit import Severity
    from ...audit import audit as look

    targets = [_target(text) for text in reports]
    with progress("Looking") as tell:
        report = look(list(paths), deep=deep, progress=tell, **common)
    if not report.files:
        remark("bloomseal: warning: no data files were found, so that nothing was looked at")
    for kind, path in targets:
        _write(report, kind, path)
    changes = None
    if since is not None:
        from ...audit.history import compare, load_inventory

        changes = compare(load_inventory(since), report.inventory).to_dict()
    if State.current().json:
        told = report.to_dict()
        if changes is not None:
            told["since"] = changes
        print_json(told)
    else:
        _tell(report)
        if changes is not None:
            _tell_changes(changes)
    return int(fail_on != "never" and bool(report.at_least(Severity.named(fail_on))))


def _tell(report: Report) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in report.counts().items() if count)
    chunks = report.inventory.num_rows - report.inventory["row_group"].null_count
    facts(
        [
            ("files", report.files),
            ("column chunks", chunks),
            ("keys", "at hand" if report.with_keys else "none: what everybody sees"),
            ("findings", counts or "none"),
        ],
        title="Audit",
    )
    if report.findings:
        table(
            ["severity", "rule", "place", "what"],
            [
                (f.severity.label, f"{f.rule.id} {f.rule.name}", _place(f.file, f.column, f.row_groups), f.message)
                for f in report.findings
            ],
        )
        fixes = dict.fromkeys(f.fix for f in report.findings if f.severity.label != "info")
        if fixes:
            click.echo("  to mend it:")
            for fix in list(fixes)[:20]:
                click.echo(printable(f"    {fix}"))
            if len(fixes) > 20:
                click.echo(f"    and {len(fixes) - 20} more: --format json has all")
    for text in report.unseen:
        click.echo(printable(f"  not seen: {text}"))


def _place(file: str | None, column: str | None, row_groups: tuple[int, ...]) -> str:
    parts = [Path(file).name if file else "", column or ""]
    if row_groups:
        shown = ", ".join(map(str, row_groups[:4])) + (", ..." if len(row_groups) > 4 else "")
        parts.append(f"row group {shown}" if len(row_groups) == 1 else f"row groups {shown}")
    return ", ".join(part for part in parts if part)


def _tell_changes(changes: dict[str, Any]) -> None:
    names = ("rotated", "rekeyed", "partly", "missed", "added", "removed", "unknown")
    facts([(name, len(changes[name])) for name in names], title="Since the older inventory")
    table(
        ["master key", "version", "files that need it"],
        [(one["master_key"], one["version"] or "unknown", one["files"]) for one in changes["needed"]],
    )
    for one in changes["retired"]:
        click.echo(
            printable(
                f"  no file seen needs {one['master_key']}:{one['version']}; --may-destroy answers for all versions"
            )
        )
    for path in changes["missed"][:20]:
        click.echo(printable(f"  missed: {path}"))


def _demonstrate(
    paths: tuple[str, ...], column: str, pattern: str | None, candidates: str | None, most: int, keys: Any
) -> int:
    from ...audit.facts.places import find_files
    from ...audit.leaks import NothingLeaksError, demonstrate
    from ...audit.pattern import Pattern

    if (pattern is None) == (candidates is None):
        raise UsageError("--demonstrate takes candidates from --pattern or from --candidates")
    asked: Any = Pattern(pattern) if pattern is not None else _lines(candidates or "")
    results, failed = [], False
    for ref in find_files(list(paths)).files:
        try:
            results.append(demonstrate(ref.path, column, asked, most=most, keys=keys, filesystem=ref.filesystem))
        except BloomsealError as error:
            failed |= not isinstance(error, NothingLeaksError)
            remark(f"bloomseal: {error.at(file=ref.path)}")
    if State.current().json:
        print_json([one.to_dict() for one in results])
    else:
        table(
            ["file", "row groups", "candidates", "possible", "confirmed", "precision", "precision is"],
            [
                (Path(r.file).name, r.row_groups[0], r.candidates, r.possible, r.confirmed, r.precision,
                 "exact" if r.exact else "expected")
                for r in results
            ],
        )  # fmt: skip
    # Nothing was confirmed of a file that could not be asked; that is no answer.
    return 1 if any(one.confirmed for one in results) else 2 if failed else 0


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        pass
    raise UsageError("the candidates can't be read as lines of text", file=path)


def _target(text: str) -> tuple[str, str]:
    kind, equals, path = text.partition("=")
    if kind not in _REPORTS or not equals or not path:
        raise UsageError(f"--report takes KIND=FILE, the kind one of {', '.join(_REPORTS)}")
    return kind, path


def _write(report: Report, kind: str, path: str) -> None:
    import pyarrow.parquet as pq

    try:
        match kind:
            case "parquet":
                pq.write_table(report.inventory, path)
            case "findings":
                pq.write_table(report.findings_table(), path)
            case _:
                with open(path, "w", encoding="utf-8") as file:
                    file.writelines(_text(report, kind))
    except OSError as error:
        raise UsageError(f"the report can't be written: {error.strerror or type(error).__name__}", file=path) from None


def _text(report: Report, kind: str) -> Iterable[str]:
    match kind:
        case "json":
            from ...audit.rendering.streamed import json_pieces

            return json_pieces(report)
        case "sarif":
            from ...audit.rendering.sarif import sarif_pieces

            return sarif_pieces(report, base=os.getcwd())  # noqa: PTH109
        case "html":
            from ...audit.rendering.html import to_html

            return [to_html(report)]
        case _:
            from ...audit.rendering.cbom import to_cbom

            return [to_cbom(report)]
