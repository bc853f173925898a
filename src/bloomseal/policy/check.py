"""What is odd about a policy: columns left in clear that look personal, settings that protect less than they seem to.

Nothing is opened, and no KMS is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..core.columns import covers, meant_by
from ..core.encryption import Algorithm
from ..core.spelling import nearest
from .file import Policy
from .personal import by_name
from .table import SENSITIVE, ColumnPolicy, TablePolicy


@dataclass(frozen=True)
class PolicyRemark:
    """Something about a policy to look at.

    Attributes:
        table, column: what it is about; the column None where it is the whole table.
        what: in words.
        hint: what to do.
        problem: it is most likely a mistake; False: it may be meant.
    """

    table: str
    column: str | None
    what: str
    hint: str
    problem: bool = True

    @property
    def place(self) -> str:
        return self.table if self.column is None else f"{self.table}.{self.column}"


@dataclass
class SeenColumns:
    """The columns of a table's files.

    Attributes:
        names: dotted paths of leaves.
        folders: columns in the names of folders.
        personal: column → what tells that it is personal.
        files: how many have shown their columns.
        unseen: how many have not, for want of a key or for another reason.
    """

    names: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    personal: dict[str, str] = field(default_factory=dict)
    files: int = 0
    unseen: int = 0


def check(policy: Policy | TablePolicy) -> Iterator[PolicyRemark]:
    """What the policy alone tells, table by table."""
    tables: Iterable[TablePolicy] = policy.tables.values() if isinstance(policy, Policy) else [policy]
    for table in tables:
        if table.iceberg is None:  # else all of its files are sealed, each under a prefix of its own
            yield from _check_table(table)
            for name, column in table.columns.items():
                yield from _check_column(table, name, column)
        for name in table.partition_by:
            if (kind := by_name(name)) is not None:
                what = f"stands in the names of folders, which nothing seals, and sounds personal ({kind.what})"
                yield PolicyRemark(table.name, name, what, "partition by another column, such as a year")


def _check_table(table: TablePolicy) -> Iterator[PolicyRemark]:
    if not table.uniform and not table.complete:
        what = "columns that the policy does not name stay in clear"
        yield PolicyRemark(table.name, None, what, "complete = true seals them under the footer key", False)
    if table.aad_prefix is None or "{path}" not in table.aad_prefix:
        what = "a file that is moved to another place opens there"
        yield PolicyRemark(
            table.name, None, what, 'aad_prefix = "{table}/{path}/" with store_aad_prefix = false', False
        )
    if table.algorithm is Algorithm.AES_GCM_CTR_V1 or table.allow_ctr:
        what = "pages under AES_GCM_CTR_V1 can be altered unnoticed"
        yield PolicyRemark(table.name, None, what, 'algorithm = "AES_GCM_V1" without allow_ctr, and rekey', False)


def _check_column(table: TablePolicy, name: str, column: ColumnPolicy) -> Iterator[PolicyRemark]:
    key, kind = table.master_key(name), by_name(name)
    if key is None and kind is not None:
        hint = 'key = "pii", or complete = true for the table'
        yield PolicyRemark(table.name, name, f"sounds personal ({kind.what}), and is left in clear", hint)
    elif key is None and column.filter is not None:
        what = "its filter is in clear: whoever has the file can ask it"
        yield PolicyRemark(table.name, name, what, "a key, where its values are nobody else's business", False)
    if column.sensitivity in SENSITIVE and column.key is None and key is not None and not table.uniform:
        what = f"is {column.sensitivity}, and sealed under the footer key, which every reader has"
        yield PolicyRemark(table.name, name, what, "a key of its own", False)


def check_columns(table: TablePolicy, seen: SeenColumns) -> Iterator[PolicyRemark]:
    """What the policy of a table and the columns of its files say of one another."""
    known = seen.names | seen.folders
    entries: Mapping[str, ColumnPolicy] = table.columns
    for name in entries if not seen.unseen else ():  # not seen is not absent
        if not any(covers(name, column) for column in known):
            near = ", ".join(nearest(name, sorted(known), most=3)) or "none"
            yield PolicyRemark(table.name, name, "no file has the column", f"one of {near}; or leave it out")
    for name, why in sorted(seen.personal.items()):
        if name in seen.folders:
            hint = "partition by another column, such as a year"
            yield PolicyRemark(
                table.name, name, f"looks personal ({why}), and stands in the names of folders in clear", hint
            )
        elif table.iceberg is None and table.master_key(name) is None and meant_by(name, frozenset(entries)) != name:
            # One that the policy names itself is told of by `check`.
            hint = f'[tables.{table.name}.columns."{name}"] key = "pii"; or complete = true'
            yield PolicyRemark(table.name, name, f"looks personal ({why}), and is left in clear", hint)
    for name in sorted(seen.folders - set(table.partition_by)):
        if table.iceberg is None and (table.uniform or table.complete):
            what = "stands in the names of folders, and readers believe no folder that the policy does not name"
            yield PolicyRemark(table.name, name, what, f'partition_by = ["{name}"]')
    for name in sorted(set(table.partition_by) - seen.folders) if seen.files else ():
        yield PolicyRemark(table.name, name, "no folder is named after it", "leave it out of partition_by", False)
