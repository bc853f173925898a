"""Lines of an answer that say of one thing after another how it stands: what ``doctor`` and ``policy check`` share."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import BloomsealError
from ..core.text import counted
from ..policy import Policy, TablePolicy
from .command import CommandState
from .hints import hint_for
from .render import print_json, table

if TYPE_CHECKING:
    from ..audit.facts.auditor import Auditor
    from ..audit.facts.files.file import FileFacts
    from ..audit.facts.places import Places
    from ..policy.check import PolicyRemark


class CheckOutcome(StrEnum):
    """The outcome of a check. UNKNOWN is an answer, and none to rely on."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    PROBLEM = "problem"

    @property
    def good(self) -> bool:
        return self in (CheckOutcome.OK, CheckOutcome.NOTE)


@dataclass(frozen=True)
class Check:
    """One line of the answer.

    Attributes:
        part: ``software``, ``policy``, ``keys`` or ``table``.
        name: what was looked at.
        state: how it came out.
        found: in words.
        hint: what to try.
    """

    part: str
    name: str
    state: CheckOutcome
    found: str
    hint: str | None = None

    @classmethod
    def failed(cls, part: str, name: str, error: BloomsealError) -> Check:
        """The line for an error of ours."""
        # Without the place: the line's name says it.
        return cls(part, name, CheckOutcome.PROBLEM, error.what, hint_for(error))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def show_checks(checks: Sequence[Check]) -> int:
    """Answer with these lines. Returns the exit code: 1 where one of them is not good."""
    good = all(check.state.good for check in checks)
    if CommandState.current().json:
        print_json({"ok": good, "checks": [check.to_dict() for check in checks]})
    else:
        table(["", "what", "found", "try"], [(c.state.value, c.name, c.found, c.hint) for c in checks])
        bad = sum(not check.state.good for check in checks)
        click.echo("nothing is wrong in what was looked at" if good else f"{bad} of {len(checks)} need a look")
    return 0 if good else 1


def policy_checks(
    path: str, named: str | None = None, kms: Any = None
) -> Generator[Check, None, Policy | TablePolicy | None]:
    """Load a policy and look for what is odd about it.

    Args:
        path: the file.
        named: a table of it; None: all.
        kms: takes the place of the KMS that the file names.

    Returns:
        The policy, or the table's; None where it can't be loaded.
    """
    from ..policy.check import check

    try:
        loaded = Policy.load(path, kms=kms)
        policy = loaded if named is None else loaded.for_table(named)
    except BloomsealError as error:
        yield Check.failed("policy", path, error)
        return None
    tables = ", ".join(sorted(loaded.tables))
    if not tables:
        yield Check("policy", path, CheckOutcome.PROBLEM, "it has no tables", "bloomseal policy init FOLDER")
        return policy
    yield Check("policy", path, CheckOutcome.OK, f"valid; tables: {tables}")
    yield from _remarks(check(policy))
    return policy


def column_checks(
    auditor: Auditor, places: Places, files: Iterable[FileFacts], *, whole: bool = True
) -> Iterator[Check]:
    """The columns of files beside those of the tables that claim them.

    Args:
        auditor: with the policy.
        places: where the files were found.
        files: what was seen of them.
        whole: they are all there are; a column may be in one that was not looked at.
    """
    from ..audit.facts.columns import columns_of_tables
    from ..policy.check import check_columns

    if not (found := columns_of_tables(auditor, places, files)):
        said = "no table of the policy is called as the path is"
        yield Check("table", "policy", CheckOutcome.UNKNOWN, said, "--table NAME")
    for policy, seen in found if whole else ():
        if seen.unseen:
            said = f"the columns of {counted(seen.unseen, 'file')} could not be seen"
            yield Check("policy", policy.name, CheckOutcome.UNKNOWN, said, "their keys, or bloomseal doctor")
        yield from _remarks(check_columns(policy, seen))


def _remarks(remarks: Iterable[PolicyRemark]) -> Iterator[Check]:
    for one in remarks:
        state = CheckOutcome.PROBLEM if one.problem else CheckOutcome.NOTE
        yield Check("policy", one.place, state, one.what, one.hint)
