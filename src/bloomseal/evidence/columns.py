"""The columns that a bundle speaks of: those under a requirement, what covers them, and the questions about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..audit.report import Report
from ..columns import covers
from ..policy import TablePolicy
from .answers import answers_for
from .destruction import Certificate
from .keys import KeyVersion
from .leaks import ColumnLeak
from .requirements import HIPAA, PCI, Scope, ScopedColumn
from .rotations import Rotation
from .uses import FOOTER, Use, columns_of

__all__ = ["answered_columns", "other_requirements", "scope_of", "scoped_columns"]


def scoped_columns(report: Report, leaks: Sequence[ColumnLeak], tables: Sequence[TablePolicy]) -> list[ScopedColumn]:
    """The columns that come under some requirement; those too that no file has."""
    leak_of = {(one.table, one.column): one for one in leaks}
    seen = {(one["table"], one["column"]): one["files"] for one in columns_of(report.inventory)}
    found = []
    for policy in tables:
        names = [column for table, column in seen if table == policy.name and policy.requirements(column)]
        covered = set(names)
        names += [
            name
            for name, entry in policy.columns.items()
            if entry.requirements and not any(covers(name, one) for one in covered)
        ]
        for name in sorted(names):
            files = seen.get((policy.name, name), {})
            found.append(
                ScopedColumn(
                    policy.name,
                    name,
                    policy.requirements(name),
                    files,
                    leak_of.get((policy.name, name)),
                    policy.accepted_keys(name),
                )
            )
    return found


def scope_of(
    standard: str,
    columns: Sequence[ScopedColumn],
    versions: Sequence[KeyVersion],
    uses: Sequence[Use],
    unseen: Sequence[str],
    logged: Mapping[str, bool],
    kms: str | None,
) -> Scope:
    own = [one for one in columns if any(text.startswith(standard) for text in one.requirements)]
    places = {(one.table, one.column) for one in own} | {(one.table, FOOTER) for one in own}
    mine = [use for use in uses if (use.table, use.column) in places]
    names = {use.master_key for use in mine}
    return Scope(
        own,
        [one for one in versions if one.master_key in names],
        unseen,
        {table: on for table, on in logged.items() if table in {one.table for one in own}},
        kms,
        frozenset(use.material for use in mine if use.material is not None),
        frozenset(use.bits for use in mine),
        frozenset(use.kms_url for use in mine),
    )


def answered_columns(
    columns: Sequence[ScopedColumn],
    report: Report,
    tables: Sequence[TablePolicy],
    versions: Sequence[KeyVersion],
    rotations: Sequence[Rotation],
    certificates: Sequence[Certificate],
    unseen: Sequence[str],
) -> list[dict[str, Any]]:
    """Every encrypted column, and every one that the policy says something of, with the questions about it."""
    by_name = {policy.name: policy for policy in tables}
    required = {(one.table, one.column): one.requirements for one in columns}
    seen = {(one["table"], one["column"]): one["files"] for one in columns_of(report.inventory)}
    told = []
    # Those that come under something go first.
    for table, column in sorted({*seen, *required}, key=lambda name: (name not in required, name[0] or "", name[1])):
        policy = by_name.get(table or "")
        files = seen.get((table, column), {})
        if (
            not required.get((table, column))
            and set(files) <= {"plaintext"}
            and (policy is None or policy.master_key(column) is None)
        ):
            continue
        answers = answers_for(table, column, files, versions, rotations, certificates, unseen)
        told.append(
            {
                "table": table,
                "column": column,
                "requirements": list(required.get((table, column), ())),
                "sensitivity": policy.sensitivity(column).value if policy is not None else None,
                "files": files,
                "answers": [one.to_dict() for one in answers],
            }
        )
    return told


def other_requirements(columns: Sequence[ScopedColumn]) -> list[dict[str, Any]]:
    """Requirements that nobody here knows how to judge."""
    return [
        {"table": one.table, "column": one.column, "requirement": text, "status": "not decidable"}
        for one in columns
        for text in one.requirements
        if not text.startswith((PCI, HIPAA))
    ]
