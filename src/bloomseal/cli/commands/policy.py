"""``bloomseal policy``: propose a policy for a folder of files, and check one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...core.errors import BloomsealError, Hint, UsageError
from ...core.text import counted
from ...keytools.tools import KeyTools
from ...policy import Policy, TablePolicy
from ..arguments.keys import KeyOptions
from ..arguments.options import options
from ..checks import Check, CheckOutcome, column_checks, policy_checks, show_checks
from ..command import PATH, CommandGroup, CommandState
from ..render import print_json, progress, remark, table

if TYPE_CHECKING:
    from ...audit.proposal import TableProposal

_FILE: Final = "policy.toml"
_KEYRING: Final = "keyring:keys.json"


@click.group(cls=CommandGroup)
def policy() -> None:
    """Propose a policy for the files that you have, and check a policy.

    \b
    Examples:
      bloomseal policy init customers
      bloomseal policy check policy.toml --against customers
    """


@policy.command(
    short_help="Propose a policy for a folder of plaintext files.", first=("--output", "--overwrite", "--kms")
)
@click.argument("folders", nargs=-1, required=True, type=PATH, metavar="FOLDER...")
@click.option(
    "--output", type=PATH, default=_FILE, show_default=True, metavar="FILE", help="The policy; - is standard output."
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--kms", default=_KEYRING, show_default=True, metavar="URI", help="Where the master keys are, or are to be."
)
def init(folders: Sequence[str], output: str, overwrite: bool, kms: str) -> None:
    """Look at names of columns and at a sample of values, propose which columns are personal, and write a commented
    policy, one table for each FOLDER. Every proposal says its reason; no value stands in the file. Read it before you
    use it: rules know names and shapes, and no meaning.

    Nothing else is written, and no key is made: the commands to go on with are printed.

    \b
    Examples:
      bloomseal policy init customers
      bloomseal policy init lake/customers lake/orders --output policies/lake.toml --kms aws-kms:?region=eu-central-1
    """
    from ...audit.proposal import policy_text, propose

    with progress("Looking") as tell:
        proposals = []
        for done, folder in enumerate(folders, 1):
            proposals.append(propose(folder))
            tell(done, len(folders))
    if len({one.table for one in proposals}) < len(proposals):
        raise UsageError("two folders have the same name, and tables are called as they are", hint="a policy for each")
    beside = Path() if output == "-" else Path(output).parent
    text = policy_text(proposals, kms, beside)
    if output == "-":
        click.echo(text, nl=False)
        return
    _write(output, text, overwrite)
    following = list(_following(proposals, output, kms))
    if CommandState.current().json:
        print_json({"output": output, "tables": [asdict(one) for one in proposals], "next": following})
        return
    rows = [
        (
            f"{one.table}.{column.column}",
            column.key or "(footer)",
            str(column.sensitivity),
            bool(column.filter),
            column.why,
        )
        for one in proposals
        for column in one.columns
    ]
    table(["column", "key", "sensitivity", "filter", "why"], rows)
    for one in proposals:
        for said in one.remarks:
            remark(f"{one.table}: {said}")
    click.echo(f"{output} is written. Read it, and go on with:")
    for line in following:
        click.echo(f"  {line}")


def _write(output: str, text: str, overwrite: bool) -> None:
    from ...storage.folder import Folder
    from ...storage.replacement import Replacement

    if not overwrite and (Path(output).exists() or Path(output).is_symlink()):
        raise UsageError("there is a file already", file=output, hint=Hint.OVERWRITE)
    try:
        with Replacement(*Folder.of(output)) as new:
            with open(new.fd, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
            new.commit(replaces=None if overwrite else ())
    except OSError as error:
        raise UsageError(f"the policy can't be written: {error.strerror}", file=output) from None


def _following(proposals: Sequence[TableProposal], output: str, kms: str) -> Iterator[str]:
    """The commands that lead from a proposal to a sealed table."""
    keys = " ".join(shlex.quote(name) for name in dict.fromkeys(key for one in proposals for key in one.master_keys))
    scheme, _, path = kms.partition(":")
    if scheme == "keyring" and path:
        ring = Path(output).parent / path  # it counts from the policy
        verb = "add --exist-ok" if ring.exists() else "create"
        yield f"bloomseal keyring {verb} --keyring {shlex.quote(str(ring))} {keys}"
    named, places = shlex.quote(output), [shlex.quote(one.path) for one in proposals]
    yield f"bloomseal policy check {named} {' '.join(f'--against {place}' for place in places)}"
    for place in places:
        yield f"bloomseal seal {place} --policy {named}"


@policy.command(
    short_help="Check a policy, beside a table's files too.", first=("--against", "--table", "--keyring", "--kms")
)
@click.argument("path", type=PATH, default=_FILE, envvar="BLOOMSEAL_POLICY", metavar="[POLICY]")
@click.option("--table", "named", metavar="NAME", help="Check this table of the policy only.")
@click.option(
    "--against", type=PATH, multiple=True, metavar="PATH", help="Compare with the columns of the files there."
)
@options(KeyOptions, "keys")
def check(path: str, named: str | None, against: Sequence[str], keys: KeyOptions) -> int:
    """Check the policy (default: the one that BLOOMSEAL_POLICY names, or policy.toml): whether it can be read, columns
    that sound personal and are left in clear, settings that protect less than they seem to. No key is needed.

    With --against also columns that no file has, columns that look personal and are left in clear, and columns in the
    names of folders. What encrypted footers hide is seen with the keys of the policy's KMS, or of these options.

    Exit code: 0 if nothing is wrong, notes included; 1 if something is, or could not be found out; 2 on a wrong call.

    \b
    Examples:
      bloomseal policy check
      bloomseal policy check policy.toml --against lake/customers --format json
    """
    return show_checks(list(_checks(path, named, against, keys)))


def _checks(path: str, named: str | None, against: Sequence[str], keys: KeyOptions) -> Iterator[Check]:
    at_hand = keys.reading()
    tools = at_hand if isinstance(at_hand, KeyTools) else None
    loaded: Policy | TablePolicy | None = yield from policy_checks(path, named, tools)
    if loaded is None or not against:
        return
    if isinstance(loaded, Policy) and len(loaded.tables) == 1:
        (loaded,) = loaded.tables.values()
    from ...audit.facts.auditor import Auditor

    for place in against:
        try:
            auditor = Auditor(at_hand, loaded)
            places = auditor.find([place])
            seen, _ = auditor.look(places)
        except BloomsealError as error:
            yield Check.failed("policy", place, error)
            continue
        state = CheckOutcome.OK if seen else CheckOutcome.UNKNOWN
        yield Check(
            "policy", place, state, f"{counted(len(seen), 'file')} looked at", None if seen else "the table's folder"
        )
        if seen:
            yield from column_checks(auditor, places, seen)
