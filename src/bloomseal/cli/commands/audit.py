"""``bloomseal audit``: what lies open, which key protects what, and what a rotation has missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ...core.errors import BloomsealError, UsageError
from ..arguments.auditing import DestructionOptions, LookOptions
from ..arguments.keys import KeyOptions
from ..arguments.options import option, options
from ..arguments.values import read_lines
from ..command import PATH, Command, CommandState
from ..render import facts, listed, place, print_json, progress, remark, show, table
from ..reports import Target

if TYPE_CHECKING:
    from ...audit.report import Report
    from ...audit.rules.findings import Finding

_FOUND, _UNSEEN, _NOT_JUDGED = 1, 3, 4


@dataclass(frozen=True)
class _Gate:
    """What makes an audit fail: the options that say so, as given."""

    fail_on: tuple[str, ...] = option(
        "--fail-on",
        multiple=True,
        type=click.Choice(["info", "warning", "error", "critical", "unseen", "never"]),
        help="Exit with 1 on findings of this severity or above (default: error; never: on none). unseen: with 3 where anything "
        "at all was not seen, also what only keys show. Repeatable.",
    )
    allow_unseen: bool = option(
        "--allow-unseen", is_flag=True, help="What could not be looked at is told, and does not change the exit code."
    )

    def __post_init__(self) -> None:
        if len(self._levels) > 1:
            raise UsageError("--fail-on takes one severity", hint="the lowest of them; unseen may stand beside it")
        if self._hidden and self.allow_unseen:
            raise UsageError("--fail-on unseen and --allow-unseen contradict one another")

    @property
    def _hidden(self) -> bool:
        """Whether what only keys show counts as well."""
        return "unseen" in self.fail_on

    @property
    def _levels(self) -> list[str]:
        return [one for one in dict.fromkeys(self.fail_on) if one != "unseen"]

    def code(self, report: Report) -> int:
        """The exit code: a finding counts more than what was not seen."""
        from ...audit import Severity

        level = next(iter(self._levels), "error")
        never = level == "never"
        if not never and report.at_least(Severity.named(level)):
            return _FOUND
        lenient = never or self.allow_unseen
        if (report.unseen and (self._hidden or not lenient)) or (self._hidden and report.hidden):
            return _UNSEEN
        return 0 if never or report.with_policy else _NOT_JUDGED


@dataclass(frozen=True)
class _Demonstration:
    """What a filter in clear confirms to anybody: the options that ask for it, as given."""

    SECTION: ClassVar = "Demonstration"
    demonstrate: str | None = option(
        "--demonstrate", metavar="COLUMN", help="Show what this column's filter in clear confirms to anybody."
    )
    pattern: str | None = option(
        "--pattern", metavar="PATTERN", help=r"Candidates for --demonstrate, such as '\d{3}-\d{2}-\d{4}'."
    )
    candidates: str | None = option(
        "--candidates", type=PATH, metavar="FILE", help="Candidates for --demonstrate, one per line."
    )
    most: int = option(
        "--most", type=click.IntRange(1), default=1_000_000, show_default=True, help="Candidates to try at most."
    )

    def answer(self, paths: tuple[str, ...], given: dict[str, Any]) -> int:
        """Ask the filters, tell, and give the exit code."""
        from ...audit.facts.auditor import Auditor
        from ...audit.leaks import NothingLeaksError, demonstrate
        from ...audit.pattern import Pattern

        if (self.pattern is None) == (self.candidates is None):
            raise UsageError("--demonstrate takes candidates from --pattern or from --candidates")
        asked: Any = Pattern(self.pattern) if self.pattern is not None else read_lines(self.candidates or "")
        column = self.demonstrate or ""
        results, failed = [], False
        auditor = Auditor(**given)
        for ref in auditor.find(list(paths)).files:
            try:
                results.append(
                    demonstrate(ref.path, column, asked, most=self.most, keys=auditor.keys, filesystem=ref.filesystem)
                )
            except BloomsealError as error:
                failed |= not isinstance(error, NothingLeaksError)
                remark(f"bloomseal: {error.at(file=ref.path)}")
        if CommandState.current().json:
            print_json([one.to_dict() for one in results])
        else:
            table(
                ["file", "row groups", "candidates", "possible", "confirmed", "precision", "precision is"],
                [
                    (place(r.file), r.row_groups[0], r.candidates, r.possible, r.confirmed, r.precision,
                     "exact" if r.exact else "expected")
                    for r in results
                ],
            )  # fmt: skip
        # Nothing was confirmed of a file that could not be asked; that is no answer.
        return 1 if any(one.confirmed for one in results) else 2 if failed else 0


@dataclass(frozen=True)
class _Reports:
    """What else is told: the options that say so, as given."""

    reports: tuple[str, ...] = option(
        "--report",
        multiple=True,
        metavar="KIND=FILE",
        help="Also write a report: json, parquet (the inventory), findings (as Parquet), sarif, html, or cbom; in the place of "
        "an older one only. Repeatable.",
    )
    since: str | None = option(
        "--since",
        type=PATH,
        metavar="FILE",
        help="An older inventory (--report parquet=FILE): tell what was rotated since.",
    )

    def changes(self, report: Report) -> dict[str, Any] | None:
        """What was rotated since the older inventory; None where none was named."""
        from ...audit.history import compare, load_inventory

        return None if self.since is None else compare(load_inventory(self.since), report.inventory).to_dict()


@click.command(cls=Command, first=("--policy", "--table", "--keyring", "--report", "--fail-on"))
@click.argument("paths", nargs=-1, type=PATH, required=True, metavar="PATH...")
@options(LookOptions, "look")
@options(_Gate, "gate")
@options(_Reports, "reports")
@options(DestructionOptions, "destruction")
@options(_Demonstration, "demonstration")
@options(KeyOptions, "keys")
def audit(
    paths: tuple[str, ...],
    look: LookOptions,
    gate: _Gate,
    reports: _Reports,
    destruction: DestructionOptions,
    demonstration: _Demonstration,
    keys: KeyOptions,
) -> int:
    """Audit files, folders, Delta tables (folders) and Iceberg tables (folders, or .metadata.json) at each PATH.

    Keys are from the options, else from the KMS that the policy names. Without keys it looks at what everybody sees,
    and says what is hidden from it.

    Exit code: 0; 1 on findings at or above --fail-on, or if --demonstrate confirms a candidate; 2 on errors, and where
    --demonstrate confirms nothing and could not ask some file; 3 where nothing was found, and something could not be
    looked at: a key that the KMS did not give, a folder that can't be listed, no file at all; 4 where neither holds,
    and no policy says what is to be sealed, so that nothing was judged. Of --may-destroy: 0 yes, 1 no, 3 unknown, 2
    errors.

    \b
    Examples:
      bloomseal audit lake/customers
      bloomseal audit lake/customers --policy policy.toml --keyring keys.json --report html=audit.html
      bloomseal audit lake/customers --may-destroy pii:1 --keyring keys.json
      bloomseal audit leaky.parquet --demonstrate ssn --pattern '\\d{3}-\\d{2}-\\d{4}'
    """
    from ...audit import audit as look_at

    given = look.arguments(keys, "--may-destroy" if destruction.may_destroy else None)
    if demonstration.demonstrate is not None:
        return demonstration.answer(paths, given)
    if destruction.may_destroy:
        return destruction.answer(paths, given)
    targets = Target.all_of(reports.reports, paths)
    with progress("Looking") as tell:
        report = look_at(
            list(paths),
            deep=look.deep,
            key_options=keys.said(),
            progress=tell,
            **given,
        )
    for target in targets:
        target.write(report)
    changes = reports.changes(report)
    if CommandState.current().json:
        print_json(report.to_dict() | ({} if changes is None else {"since": changes}))
    else:
        _tell(report)
        if changes is not None:
            show(
                _counted(changes) | {"retired": None, "keys": list(map(_counted, changes["keys"]))},
                title="Since the older inventory",
            )
            retired = [f"{one['master_key']}:{one['version']}" for one in changes["retired"]]
            listed("needed by no file seen (--may-destroy answers for all versions):", retired)
            listed("missed:", changes["missed"])
    return gate.code(report)


def _tell(report: Report) -> None:
    """Verdict and numbers, each rule with its worst finding, then what to do."""
    chunks = report.inventory.num_rows - report.inventory["row_group"].null_count
    facts(
        [
            ("verdict", report.verdict),
            ("looked at", f"{report.files:,} files, {chunks:,} column chunks"),
            ("keys", "at hand" if report.with_keys else "none: what everybody sees"),
            (
                "signed by",
                "; ".join(f"{s['signer'] or s['signature']}: {s['files']:,}" for s in report.signatures) or None,
            ),
            ("in clear", ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in report.in_clear.items())),
        ],
        title="Audit",
    )
    if rules := report.by_rule():
        verbose = CommandState.current().verbose
        heads = ["severity", "rule", "findings", "files", "what", "such as"]
        shown = [_line(one.worst, len(one.findings), one.files) for one in rules]
        if verbose:
            heads, shown = ["severity", "rule", "what", "where"], [_line(one) for one in report.findings]
        table(heads, shown)
        listed(
            "to mend it:",
            (line for command, ids in report.commands().items() for line in (command, f"  # {', '.join(ids)}")),
        )
        serious = (one for one in rules if one.worst.severity.label != "info" and one.advice)
        # What a person does is told once for a rule, by the worst of its findings.
        listed("for a person, before anything else:", (f"{one.worst.rule.id}: {one.advice[0]}" for one in serious))
        if not verbose:
            click.echo("  every finding: --verbose, --format json, --report html=FILE; the rules: docs/audit-rules.md")
    listed("could not look:", report.unseen)
    listed("not seen:", report.hidden)
    listed("may be personal, and stands in clear:", (f"{name} (by {why})" for name, why in report.personal.items()))


def _line(one: Finding, *counts: int) -> list[Any]:
    where = _place(one.file, one.column, one.row_groups)
    return [one.severity.label, f"{one.rule.id} {one.rule.name}", *counts, one.message, where]


def _place(file: str | None, column: str | None, row_groups: tuple[int, ...]) -> str:
    parts = [place(file) if file else "", column or ""]
    if row_groups:
        shown = ", ".join(map(str, row_groups[:4])) + (", ..." if len(row_groups) > 4 else "")
        parts.append(f"row group {shown}" if len(row_groups) == 1 else f"row groups {shown}")
    return ", ".join(part for part in parts if part)


def _counted(told: dict[str, Any]) -> dict[str, Any]:
    """With the number of files in the place of their names."""
    files = {name for name, value in told.items() if isinstance(value, list) and not any(map(_is_record, value))}
    return {name: len(value) if name in files else value for name, value in told.items()}


def _is_record(value: Any) -> bool:
    return isinstance(value, dict)
