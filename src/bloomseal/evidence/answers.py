"""The questions that an auditor asks of a column, answered from what is in the bundle, each with the place that shows
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from .destruction import Certificate
from .keys import KeyVersion
from .rotations import Rotation

__all__ = ["Answer", "answers_for"]


@dataclass(frozen=True)
class Answer:
    """A question, its answer, and the member of the bundle that shows it."""

    question: str
    answer: str
    shown_by: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def answers_for(
    table: str | None,
    column: str,
    files: Mapping[str, int],
    versions: Sequence[KeyVersion],
    rotations: Sequence[Rotation],
    certificates: Sequence[Certificate],
    unseen: Sequence[str],
) -> list[Answer]:
    """The questions about one column.

    Args:
        files: protection → number of files in which the column was seen so.
        versions, rotations, certificates: of the whole bundle.
        unseen: what could not be looked at.
    """
    own = [one for one in versions if any(use["table"] == table and use["column"] == column for use in one.uses)]
    names = {one.master_key for one in own}
    family = [one for one in versions if one.master_key in names]
    about = [one for one in rotations if _concerns(one, names)]
    # Sealing and unsealing put no key in another one's place.
    rotated = [one for one in about if any(pair["before"] and pair["after"] for pair in one.keys)]
    last = max(rotated, key=lambda one: one.started or "", default=None)
    return [
        Answer("Which keys protect it?", _which(own, table, column, files), "evidence.json: keys; inventory.parquet"),
        Answer("Since when?", _since(own), "evidence.json: keys"),
        Answer(
            "Who may use them?", _who(own), "evidence.json: keys (owner, custodian and users are the policy's words)"
        ),
        Answer("When is the next rotation due?", _due(family), "evidence.json: keys"),
        Answer("Was the last rotation complete?", _last(last), f"rotation/; evidence.json: rotations{_head(last)}"),
        Answer("Is the old key gone?", _old(family, certificates), "evidence.json: keys, destructions"),
        Answer("How do you know?", _how(unseen, about), "manifest.json; audit.json: unseen"),
    ]


def _which(own: Sequence[KeyVersion], table: str | None, column: str, files: Mapping[str, int]) -> str:
    told = []
    if bare := files.get("plaintext"):
        told.append(f"NONE in {bare} files, where it stands in plaintext")
    if not own and not told:
        return "None that was seen."
    for one in own:
        use = next(use for use in one.uses if use["table"] == table and use["column"] == column)
        kind = ", ".join(one.data_key_algorithms)
        told.append(f"{one.name} ({one.state}) in {use['files']} files, over data keys of {kind} bits")
    return "; ".join(told) + "."


def _since(own: Sequence[KeyVersion]) -> str:
    told = [
        f"{one.name}: active since {_day(one.activation)}, made {_day(one.created)}, files written from "
        f"{_day(one.oldest_file)} to {_day(one.newest_file)}"
        for one in own
    ]
    return "; ".join(told) + "." if told else "Not known."


def _who(own: Sequence[KeyVersion]) -> str:
    told = {
        one.master_key: f"{one.master_key}: owner {one.owner or 'not named'}, custodian {one.custodian or 'not named'}, "
        f"users {', '.join(one.users) or 'not named'}"
        for one in own
    }
    return "; ".join(told.values()) + ". What the KMS itself grants was not asked." if told else "Not known."


def _due(family: Sequence[KeyVersion]) -> str:
    told = []
    for one in family:
        if one.current and one.rotation_due is not None:
            told.append(f"{one.name}: {_day(one.rotation_due)}" + (" (overdue)" if one.overdue else ""))
        elif one.current:
            told.append(f"{one.name}: no originator usage period is told")
    return "; ".join(told) + "." if told else "Not known: the KMS does not tell which version is current."


def _last(last: Rotation | None) -> str:
    if last is None:
        return "No journal of a rotation of these keys is in the bundle."
    counted = ", ".join(f"{count} {status}" for status, count in last.files.items())
    moved = ", ".join(f"{one['before']} to {one['after']} in {one['files']} files" for one in last.keys)
    answer = {"yes": "Yes", "no": "No"}.get(last.complete, "Unknown")
    return (
        f"{answer}: {last.why}. {last.operation} by {', '.join(last.by) or 'nobody that it names'}, from {last.started} to "
        f"{last.ended or '(no end)'}: {counted}; {moved or 'no key changed'}."
    )


def _old(family: Sequence[KeyVersion], certificates: Sequence[Certificate]) -> str:
    by_name = {one.name: one for one in certificates}
    told = []
    for one in family:
        if one.current is not False:
            continue
        if (found := by_name.get(one.name)) is not None:
            told.append(
                f"{one.name}: {found.gone}, {found.why}; needed by files: {found.needed} ({found.files} looked at, copies "
                f"and snapshots included, at {len(found.looked_at)} places)"
            )
        else:
            told.append(f"{one.name}: {one.state}, {one.files} files are under it; no certificate is in the bundle")
    return "; ".join(told) + "." if told else "There is no older version that anybody tells of."


def _how(unseen: Sequence[str], about: Sequence[Rotation]) -> str:
    chains = sorted({f"{one.journal}: chain {one.chain}" for one in about})
    seen = f"Not seen: {'; '.join(list(unseen)[:5])}." if unseen else "Every file and key was looked at."
    return (
        "By key metadata and authenticated footers of every file, the KMS's own answers, and the journals"
        f"{' (' + ', '.join(chains) + ')' if chains else ''}. {seen}"
    )


def _concerns(rotation: Rotation, names: set[str]) -> bool:
    ends = {end for pair in rotation.keys for end in (pair["before"], pair["after"]) if end}
    return any(end.rpartition(":")[0] in names for end in ends)


def _head(last: Rotation | None) -> str:
    return f" ({last.journal})" if last is not None else ""


def _day(moment: datetime | None) -> str:
    return "not told" if moment is None else moment.date().isoformat()
