"""An audit: inventory, findings, and what could not be seen."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..notebook import ShownInNotebooks
from ..policy import Policy, TablePolicy
from .facts.file import FileFacts
from .facts.inventory import Policies, look, to_table
from .facts.places import Places, find_files
from .rules.checks import check
from .rules.findings import Finding, Severity
from .rules.judged import Facts

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from .facts.deep import Nonces

__all__ = ["Report", "audit", "judged"]

_PROBLEMS: Final = 20


@dataclass
class Report(ShownInNotebooks):
    """The results of an audit.

    Attributes:
        inventory: one row per column chunk (`bloomseal.audit.facts.inventory.SCHEMA`).
        findings: worst first.
        unseen: what could not be seen, in words.
        files: how many files were looked at.
        with_keys, deep: how.
    """

    inventory: pa.Table
    findings: list[Finding]
    unseen: list[str] = field(default_factory=list)
    files: int = 0
    with_keys: bool = False
    deep: bool = False

    @property
    def worst(self) -> Severity | None:
        """The worst finding's severity; None where there is none."""
        return max((finding.severity for finding in self.findings), default=None)

    def at_least(self, severity: Severity) -> list[Finding]:
        """Findings of this severity and above."""
        return [finding for finding in self.findings if finding.severity >= severity]

    def counts(self) -> dict[str, int]:
        """Severity → number of findings, worst first."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity.label: counted[severity] for severity in sorted(Severity, reverse=True)}

    def to_dict(self, *, inventory: bool = False) -> dict[str, Any]:
        """As plain data; with `inventory` all its rows too."""
        told: dict[str, Any] = {
            "format": "bloomseal audit",
            "format_version": 1,
            "files": self.files,
            "column_chunks": self.inventory.num_rows - self.inventory["row_group"].null_count,
            "with_keys": self.with_keys,
            "deep": self.deep,
            "counts": self.counts(),
            "findings": [finding.to_dict() for finding in self.findings],
            "unseen": self.unseen,
        }
        if inventory:
            told["inventory"] = self.inventory.to_pylist()
        return told

    def to_json(self, *, inventory: bool = False) -> str:
        """JSON text; the same audit gives the same text."""
        return json.dumps(self.to_dict(inventory=inventory), indent=2, ensure_ascii=False, default=_plain) + "\n"

    def findings_table(self) -> pa.Table:
        """The findings as an Arrow table."""
        rows = [finding.to_dict() for finding in self.findings]
        text = ("rule", "name", "severity", "file", "column", "message", "fix")
        fields: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in text]
        return pa.Table.from_pylist(rows, schema=pa.schema([*fields, ("row_groups", pa.list_(pa.int32()))]))


def audit(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    keys: Any = None,
    policy: Policy | TablePolicy | None = None,
    table: str | None = None,
    aad_prefix: bytes | str | None = None,
    filesystem: FileSystem | None = None,
    deep: bool = False,
    now: datetime | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Inventory, and what the rules say to it.

    Args:
        paths, keys, policy, table, aad_prefix, filesystem, progress: as `bloomseal.audit.inventory`.
        deep: read whole files, and look for repeated nonces, for filters in clear that no metadata names, and for filters
            that deny values of their own column chunk.
        now: the moment that ages of keys are counted to.

    Raises:
        UsageError, MissingDependencyError: no paths, or a table without its library. Never for what is in a file.
    """
    places = find_files(paths, filesystem=filesystem)
    policies = Policies(policy, table)
    files, nonces = look(places, keys, policies, aad_prefix=aad_prefix, deep=deep, progress=progress)
    return judged(files, places, policies, with_keys=keys is not None, nonces=nonces, now=now)


def judged(
    files: Sequence[FileFacts],
    places: Places,
    policies: Policies,
    *,
    with_keys: bool,
    nonces: Nonces | None = None,
    now: datetime | None = None,
) -> Report:
    """The report about files that were looked at, wherever that was done."""
    facts = Facts(files, places, policies, with_keys, nonces, now or datetime.now(UTC))
    unseen = list(places.unknown)
    if places.dead:
        unseen.append(f"Parquet files in the table's folder that no live version names ({len(places.dead)} files)")
    hidden = Counter(what for file in files for what in file.hidden)
    unseen += [f"{what} ({count} files)" for what, count in sorted(hidden.items())]
    sealed = sum(1 for file in files if any(chunk.protection and chunk.values is None for chunk in file.chunks))
    blind = sum(1 for file in files if any(chunk.filter == 3 for chunk in file.chunks))
    if sealed or blind:
        unseen.append(
            f"sealed metadata of encrypted columns, and whether they have a filter ({max(sealed, blind)} files)"
        )
    problems = Counter(key.problem for file in files for key in file.keys if key.problem is not None)
    unseen += [f"{problem} ({count} keys)" for problem, count in sorted(problems.items())[:_PROBLEMS]]
    unasked = Counter(c.bloom.unasked for file in files for c in file.chunks if c.bloom is not None and c.bloom.unasked)
    unseen += [f"whether filters are right: {why} ({count} filters)" for why, count in sorted(unasked.items())]
    if nonces is not None and nonces.unseen:
        unseen.append(f"nonces of some modules ({len(set(nonces.unseen))} files)")
    return Report(to_table(files, policies), check(facts), unseen, len(files), with_keys, nonces is not None)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
