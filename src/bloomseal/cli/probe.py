"""``bloomseal probe``: may these values be in the file? Exit codes as grep's."""

from __future__ import annotations

import click

from ..errors import BloomsealError, UsageError
from ..read.file import Verdict, open_file
from .opening import OpeningOptions, opening_options
from .render import print_json, table
from .state import PATH, State, common_options
from .values import parse_value, read_lines

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
@opening_options
@common_options()
def probe(
    file: str, column: str, values: tuple[str, ...], values_from: str | None, quiet: bool, opening: OpeningOptions
) -> int:
    """Ask the filters of COLUMN in every row group of FILE whether VALUEs may be present.

    The footer's type decides how a VALUE is read: numbers, ISO 8601 dates and timestamps, UUIDs and text as they are; bytes
    as hex:… or base64:…. Only an authenticated filter says "absent". A row group without a filter says "no filter": its
    values may be present. VALUEs that begin with a minus sign go behind --.

    Exit code: 0 if some value may be present, 1 if all are absent, 2 on errors.

    \b
    Examples:
      bloomseal probe people.parquet ssn 078-05-1120 --keyring keys.json
      bloomseal probe people.parquet ssn --values-from wanted.txt --keyring keys.json --format json
    """
    texts = [*values, *(read_lines(values_from) if values_from else [])]
    if not texts:
        raise UsageError("no value to ask for", hint="VALUE..., or --values-from PATH")
    with open_file(file, decryption=opening.decryption()) as opened:
        leaf = opened.walk.footer.schema.leaf(column)
        asked = []
        for index, text in enumerate(texts):
            try:
                asked.append(parse_value(text, leaf.type))
            except BloomsealError as error:
                error.what = f"value {index + 1}: {error.what}"
                raise error.at(file=file, column=column) from None
        by_group = opened.probe(column, asked)
    verdicts = [[group[index] for group in by_group] for index in range(len(texts))]
    overall = [_overall(one) for one in verdicts]
    present = any(verdict is not Verdict.ABSENT for verdict in overall)
    if quiet:
        return 0 if present else _ABSENT_EXIT
    if State.current().json:
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


def _overall(verdicts: list[Verdict]) -> Verdict:
    for verdict in (Verdict.MAYBE_PRESENT, Verdict.NO_FILTER):
        if verdict in verdicts:
            return verdict
    return Verdict.ABSENT


def _groups(verdicts: list[Verdict], wanted: Verdict) -> str:
    found = [str(index) for index, verdict in enumerate(verdicts) if verdict is wanted]
    return ", ".join(found[:20]) + (f", … ({len(found)})" if len(found) > 20 else "")
