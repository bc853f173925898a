"""``bloomseal probe``: may these values be in the file? Exit codes as grep's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...core.errors import BloomsealError, UsageError
from ...core.verdict import Verdict
from ...read.answers import overall
from ...read.predicate.literals import parse_value
from ..arguments.opening import TableOptions
from ..arguments.options import options
from ..arguments.values import read_lines
from ..command import PATH, Command, CommandState
from ..render import answer, print_json, table

if TYPE_CHECKING:
    from ...core.parquet.schema import Leaf
    from ...table.sealed import SealedTable

_ABSENT_EXIT = 1


@click.command(cls=Command, first=("--policy", "--table", "--keyring", "--values-from", "--quiet"))
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
@options(TableOptions, "source")
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
        told = _ask_table(source.table([file]), file, column, texts, per_file)
        if not quiet and per_file and not CommandState.current().json:
            _tell_files(told["values"])
        elif not quiet:
            answer(told, title=file)
        return 0 if told["maybe_present"] else _ABSENT_EXIT
    with opened:
        by_group = opened.probe(column, _parsed(texts, opened.leaf(column), file, column))
    verdicts = [[group[index] for group in by_group] for index in range(len(texts))]
    found = [overall(one) for one in verdicts]
    present = any(verdict is not Verdict.ABSENT for verdict in found)
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
                    for text, verdict, one in zip(texts, found, verdicts, strict=True)
                ],
            }
        )
    else:
        rows = [
            (text, str(verdict), _groups(one, Verdict.MAYBE_PRESENT), _groups(one, Verdict.NO_FILTER))
            for text, verdict, one in zip(texts, found, verdicts, strict=True)
        ]
        table(["value", "verdict", "to read: row group", "without filter: row group"], rows)
    return 0 if present else _ABSENT_EXIT


def _ask_table(opened: SealedTable, path: str, column: str, texts: list[str], per_file: bool) -> dict[str, Any]:
    """A table's answer, as plain data: per value the files to read, each with its row groups' verdicts."""
    answers = opened.probe(column, _parsed(texts, opened.leaves.leaf(column), None, column))
    values = []
    for index, text in enumerate(texts):
        files = {name: [group[index] for group in groups] for name, groups in answers.items()}
        files = {name: verdicts for name, verdicts in files.items() if overall(verdicts) is not Verdict.ABSENT}
        values.append(
            {
                "value": text,
                "verdict": overall([overall(verdicts) for verdicts in files.values()]),
                "files_to_read": len(files),
                "row_groups_to_read": sum(one is not Verdict.ABSENT for of in files.values() for one in of),
                **({"files": files} if per_file else {}),
            }
        )
    return {
        "table": path,
        "column": column,
        "files": len(opened.files),
        "row_groups": sum(map(len, answers.values())),
        "maybe_present": any(one["files_to_read"] for one in values),
        "values": values,
    }


def _tell_files(values: list[dict[str, Any]]) -> None:
    rows = []
    for one in values:
        rows += [
            (one["value"], name, str(overall(of)), _groups(of, Verdict.MAYBE_PRESENT), _groups(of, Verdict.NO_FILTER))
            for name, of in one["files"].items()
        ] or [(one["value"], "", str(one["verdict"]), "", "")]
    table(["value", "file", "verdict", "to read: row group", "without filter: row group"], rows)


def _parsed(texts: list[str], leaf: Leaf, file: str | None, column: str) -> list[Any]:
    asked = []
    for index, text in enumerate(texts):
        try:
            asked.append(parse_value(text, leaf.type))
        except BloomsealError as error:
            error.what = f"value {index + 1}: {error.what}"
            raise error.at(file=file, column=column) from None
    return asked


def _groups(verdicts: list[Verdict], wanted: Verdict) -> str:
    found = [str(index) for index, verdict in enumerate(verdicts) if verdict is wanted]
    return ", ".join(found[:20]) + (f", … ({len(found)})" if len(found) > 20 else "")
