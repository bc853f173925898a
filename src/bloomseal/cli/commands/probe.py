"""``bloomseal probe``: may these values be in the file? Exit codes as grep's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...core.errors import BloomsealError, UsageError
from ...core.verdict import Verdict
from ..arguments.opening import TableOptions, table_options
from ..arguments.values import parse_value, read_lines
from ..render import print_json, table
from ..state import PATH, CommandState, common_options

if TYPE_CHECKING:
    from ...core.parquet.schema import Leaf
    from ...table.sealed import SealedTable

__all__ = ["probe"]

_ABSENT_EXIT = 1


@click.command()
@click.argument("file", type=PATH)
@click.argument("column")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option(
    "--values-from",
    metavar="PATH",
    help="Take the values from a file's lines (- is standard input), unseen by other users.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; the exit code answers.")
@click.option("--per-file", is_flag=True, help="Of a table, tell which files to read, not only how many.")
@table_options
@common_options()
def probe(
    file: str,
    column: str,
    values: tuple[str, ...],
    values_from: str | None,
    quiet: bool,
    per_file: bool,
    source: TableOptions,
) -> int:
    """Ask the filters of COLUMN in every row group of FILE (or of all files of a folder, pattern, Delta or Iceberg
    table) whether VALUEs may be present.

    The footer's type decides how a VALUE is read: numbers, ISO 8601 dates and timestamps, UUIDs and text as they are;
    bytes as hex:… or base64:…. Only an authenticated filter says "absent". A row group without a filter says "no
    filter": its values may be present. VALUEs that begin with a minus sign go behind --.

    Exit code: 0 if some value may be present, 1 if all are absent, 2 on errors.

    \b
    Examples:
      bloomseal probe people.parquet ssn 078-05-1120 --keyring keys.json
      bloomseal probe people.parquet ssn --values-from wanted.txt --keyring keys.json --format json
      bloomseal probe lake/customers ssn 078-05-1120 --per-file --policy policy.toml --table customers
    """
    texts = [*values, *(read_lines(values_from) if values_from else [])]
    if not texts:
        raise UsageError("no value to ask for", hint="VALUE..., or --values-from PATH")
    if (opened := source.one_file([file])) is None:
        found = _ask_table(source.table([file]), column, texts)
        if not quiet:
            _tell_table(file, column, texts, found, per_file)
        return 0 if found.maybe else _ABSENT_EXIT
    with opened:
        by_group = opened.probe(column, _parsed(texts, opened.leaf(column), file, column))
    verdicts = [[group[index] for group in by_group] for index in range(len(texts))]
    overall = [_overall(one) for one in verdicts]
    present = any(verdict is not Verdict.ABSENT for verdict in overall)
    if quiet:
        return 0 if present else _ABSENT_EXIT
    if CommandState.current().json:
        print_json(
            {
                "file": file,
                "column": column,
                "row_groups": len(by_group),
                "maybe_present": present,
                "values": [
                    {"value": text, "verdict": verdict, "row_groups": one}
                    for text, verdict, one in zip(texts, overall, verdicts, strict=True)
                ],
            }
        )
    else:
        rows = [
            (text, str(verdict), _groups(one, Verdict.MAYBE_PRESENT), _groups(one, Verdict.NO_FILTER))
            for text, verdict, one in zip(texts, overall, verdicts, strict=True)
        ]
        table(["value", "verdict", "row groups to read", "row groups without filter"], rows)
    return 0 if present else _ABSENT_EXIT


@dataclass
class _Found:
    """A table's answer.

    Attributes:
        files: their paths.
        row_groups: number in all files.
        maybe: number of a value → the files to read, each with its row groups' verdicts. Absent values are left out.
    """

    files: list[str]
    row_groups: int
    maybe: dict[int, list[tuple[str, list[Verdict]]]]


def _ask_table(opened: SealedTable, column: str, texts: list[str]) -> _Found:
    asked = _parsed(texts, opened.leaves.leaf(column), None, column)
    answers = opened.probe(column, asked)
    maybe: dict[int, list[tuple[str, list[Verdict]]]] = {}
    for path, groups in answers.items():
        for index, verdicts in enumerate(zip(*groups, strict=True)):
            if any(verdict is not Verdict.ABSENT for verdict in verdicts):
                maybe.setdefault(index, []).append((path, list(verdicts)))
    return _Found(opened.files, sum(map(len, answers.values())), maybe)


def _tell_table(path: str, column: str, texts: list[str], found: _Found, per_file: bool) -> None:
    rows = []
    for index, text in enumerate(texts):
        files = found.maybe.get(index, [])
        verdict = _overall([_overall(verdicts) for _, verdicts in files])
        groups = sum(verdict is not Verdict.ABSENT for _, verdicts in files for verdict in verdicts)
        rows.append((text, verdict, files, groups))
    if CommandState.current().json:
        told = [
            {"value": text, "verdict": verdict, "files_to_read": len(files), "row_groups_to_read": groups}
            | ({"files": dict(files)} if per_file else {})
            for text, verdict, files, groups in rows
        ]
        counts = {"files": len(found.files), "row_groups": found.row_groups, "maybe_present": bool(found.maybe)}
        print_json({"table": path, "column": column, **counts, "values": told})
    elif per_file:
        head = ["value", "file", "verdict", "row groups to read", "row groups without filter"]
        listed = []
        for text, verdict, files, _ in rows:
            listed += [
                (text, name, str(_overall(of)), _groups(of, Verdict.MAYBE_PRESENT), _groups(of, Verdict.NO_FILTER))
                for name, of in files
            ] or [(text, "", str(verdict), "", "")]
        table(head, listed)
    else:
        summed = [
            (text, str(verdict), f"{len(files)} of {len(found.files)}", f"{groups} of {found.row_groups}")
            for text, verdict, files, groups in rows
        ]
        table(["value", "verdict", "files to read", "row groups to read"], summed)


def _parsed(texts: list[str], leaf: Leaf, file: str | None, column: str) -> list[Any]:
    asked = []
    for index, text in enumerate(texts):
        try:
            asked.append(parse_value(text, leaf.type))
        except BloomsealError as error:
            error.what = f"value {index + 1}: {error.what}"
            raise error.at(file=file, column=column) from None
    return asked


def _overall(verdicts: list[Verdict]) -> Verdict:
    for verdict in (Verdict.MAYBE_PRESENT, Verdict.NO_FILTER):
        if verdict in verdicts:
            return verdict
    return Verdict.ABSENT


def _groups(verdicts: list[Verdict], wanted: Verdict) -> str:
    found = [str(index) for index, verdict in enumerate(verdicts) if verdict is wanted]
    return ", ".join(found[:20]) + (f", … ({len(found)})" if len(found) > 20 else "")
