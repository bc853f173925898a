"""An audit: inventory, findings, and what could not be seen."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from .._version import __version__
from ..core.text import counted
from ..keytools.signatures.envelope import SignatureFault
from ..notebook import ShownInNotebooks
from ..policy.personal import by_name
from ..storage.discovery.kinds import FileKind
from .facts.auditor import AnyPath, Auditor, AuditorOptions
from .facts.files.file import FileFacts, Seen
from .facts.indexes import look_at_indexes
from .facts.inventory import to_table
from .facts.leftovers import Content, look_at
from .facts.places import Places
from .facts.uses import signatures_of
from .rules.checks import check, unclaimed_filters
from .rules.findings import Finding, RuleFindings, Severity
from .rules.judged import Facts, KeyArguments
from .streamed import Lazily, pieces, rows

if TYPE_CHECKING:
    from .facts.files.deep import Nonces

_PROBLEMS: Final = 20
_LISTED: Final = 20
_ROWS: Final = 1_000
_FINDINGS: Final = {"bloomseal.findings": "1"}


@dataclass
class Report(ShownInNotebooks):
    """The results of an audit.

    Attributes:
        inventory: one row per column chunk (`bloomseal.audit.facts.inventory.SCHEMA`).
        findings: worst first.
        unseen: what was to be looked at and could not be, in words: a folder that can't be listed, a key that the KMS
            did not give, files that no table of the policy claims, no file at all. Of these nobody knows what a rule
            would say.
        hidden: what only keys show, where none were given, and what an audit leaves out.
        files: how many files were looked at.
        with_keys, deep: how.
        moment: when, and what ages were counted to.
        policy: SHA-256 of the policy's file in hexadecimal; None without one.
        with_policy: the files were held against a policy. Without one nobody has said what is to be sealed.
        in_clear: how many column chunks, filters and statistics (smallest and greatest values) stand in clear.
        personal: column in clear → why it looks personal; a hint, by names and values in clear.
    """

    inventory: pa.Table
    findings: list[Finding]
    unseen: list[str] = field(default_factory=list)
    files: int = 0
    with_keys: bool = False
    deep: bool = False
    hidden: list[str] = field(default_factory=list)
    moment: datetime | None = None
    policy: str | None = None
    with_policy: bool = False
    in_clear: dict[str, int] = field(default_factory=dict)
    personal: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool | None:
        """A gate asks this. False: something was found at *error* or above, or could not be looked at: not seen is not
        absent. None: nothing of that, and no policy that says what is to be sealed, so that nothing was judged.
        """
        if self.unseen or self.at_least(Severity.ERROR):
            return False
        return True if self.with_policy else None

    @property
    def signatures(self) -> list[dict[str, Any]]:
        """Who signed how many files of the tables with signers, and how many nobody did, see `signatures_of`."""
        return signatures_of(self.inventory)

    @property
    def verdict(self) -> str:
        """`ok` in words, with what it rests on."""
        levels = ", ".join(f"{count:,} {name}" for name, count in self.counts().items() if count)
        found = f"{counted(len(self.findings), 'finding')} ({levels})" if levels else "no findings"
        if self.ok is None:
            return f"not judged: no policy says what is to be sealed; the rules that need none have {found}"
        if self.ok:
            seen = "with keys" if self.with_keys else "without keys, as everybody sees them"
            pages = "read as a whole" if self.deep else "pages not read"
            more = f"; {counted(len(self.hidden), 'thing')} not looked at" if self.hidden else ""
            return f"ok: {counted(self.files, 'file')} checked against the policy, {seen}, {pages}; {found}{more}"
        blind = f"; {counted(len(self.unseen), 'thing')} could not be looked at" if self.unseen else ""
        return f"not ok: {found}{blind}"

    @property
    def worst(self) -> Severity | None:
        """The worst finding's severity; None where there is none."""
        return max((finding.severity for finding in self.findings), default=None)

    def at_least(self, severity: Severity) -> list[Finding]:
        """Findings of this severity and above."""
        return [finding for finding in self.findings if finding.severity >= severity]

    def by_rule(self) -> list[RuleFindings]:
        """The findings of each rule, worst first, and so are the rules."""
        together: dict[str, list[Finding]] = {}
        for finding in self.findings:
            together.setdefault(finding.rule.id, []).append(finding)
        return [RuleFindings(found) for found in together.values()]

    def commands(self) -> dict[str, list[str]]:
        """Command → the rules whose findings it mends, worst first."""
        found: dict[str, list[str]] = {}
        for rule in self.by_rule():
            for command in rule.commands:
                found.setdefault(command, []).append(rule.worst.rule.id)
        return found

    def counts(self) -> dict[str, int]:
        """Severity → number of findings, worst first."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity.label: counted[severity] for severity in sorted(Severity, reverse=True)}

    def to_dict(self, *, inventory: bool = False) -> dict[str, Any]:
        """As plain data; with `inventory` all its rows too."""
        told = self.summary() | {"findings": [finding.to_dict() for finding in self.findings]}
        if inventory:
            told["inventory"] = self.inventory.to_pylist()
        return told

    def summary(self) -> dict[str, Any]:
        """As `to_dict`, without the findings: of those there may be hundreds of thousands."""
        return {
            "format": "bloomseal audit",
            "format_version": 3,
            "tool": f"bloomseal {__version__}",
            "time": None if self.moment is None else self.moment.isoformat(),
            "policy_digest": self.policy,
            "ok": self.ok,
            "files": self.files,
            "column_chunks": self.inventory.num_rows - self.inventory["row_group"].null_count,
            "with_keys": self.with_keys,
            "deep": self.deep,
            "with_policy": self.with_policy,
            "in_clear": self.in_clear,
            "looks_personal": self.personal,
            "signatures": self.signatures,
            "counts": self.counts(),
            "rules": [one.to_dict() for one in self.by_rule()],
            "findings": [],
            "unseen": self.unseen,
            "hidden": self.hidden,
        }

    def to_json(self, *, inventory: bool = False) -> str:
        """JSON text, by ``docs/audit-report.schema.json``; the same audit at the same moment gives the same text."""
        return "".join(self.json_pieces(inventory=inventory))

    def json_pieces(self, *, inventory: bool = True) -> Iterator[str]:
        """The text of `to_json`, piece by piece."""
        found, table = self.findings, self.inventory
        told = self.summary() | {"findings": Lazily(len(found), lambda: (one.to_dict() for one in found))}
        if inventory:
            told["inventory"] = Lazily(table.num_rows, lambda: rows(table))
        return pieces(told)

    def findings_table(self) -> pa.Table:
        """The findings as an Arrow table."""
        text = ("rule", "name", "severity", "file", "column", "message", "fix", "advice")
        fields: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in text]
        schema = pa.schema([*fields, ("row_groups", pa.list_(pa.int32()))], _FINDINGS)
        parts = (self.findings[start : start + _ROWS] for start in range(0, len(self.findings), _ROWS))
        batches = [pa.RecordBatch.from_pylist([one.to_dict() for one in part], schema=schema) for part in parts]
        return pa.Table.from_batches(batches, schema)


def audit(
    paths: Sequence[AnyPath] | AnyPath,
    *,
    deep: bool = False,
    now: datetime | None = None,
    key_options: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **access: Unpack[AuditorOptions],
) -> Report:
    """Inventory, and what the rules say to it.

    Args:
        paths, progress: as `bloomseal.audit.inventory`.
        deep: read whole files, and look for repeated nonces, for filters in clear that no metadata names, and for
            filters that deny values of their own column chunk.
        now: the moment that ages of keys are counted to.
        key_options: the options by which the command line gets at the keys, for the commands of findings. None: told
            from `keys`, or from the policy, where these are a keyring's or say a KMS's URI.
        access: keys, policy, table, aad_prefix, filesystem, with_keys: see `Auditor`.

    Raises:
        UsageError, MissingDependencyError: no paths, or a table without its library. Never for what is in a file.
    """
    auditor = Auditor(**access)
    places = auditor.find(paths)
    files, nonces = auditor.look(places, deep=deep, progress=progress)
    return judged(auditor, places, files, nonces=nonces, now=now, key_options=key_options)


def judged(
    auditor: Auditor,
    places: Places,
    files: Sequence[FileFacts],
    *,
    nonces: Nonces | None = None,
    now: datetime | None = None,
    key_options: Sequence[str] | None = None,
) -> Report:
    """The report about files that were looked at, wherever that was done."""
    policies, with_keys = auditor.policies, auditor.keys is not None
    beside = [found for one in places.outside if (found := look_at(one)) is not None]
    moment = now or datetime.now(UTC).replace(microsecond=0)
    facts = Facts(
        files,
        places,
        policies,
        with_keys,
        nonces,
        moment,
        beside,
        KeyArguments.of(auditor.keys) if key_options is None else KeyArguments.said(key_options),
        look_at_indexes(files, places, policies, with_keys=with_keys),
    )
    unseen, hidden = _unseen(facts), []
    if dead := sum(one.kind is FileKind.DEAD for one in places.outside):
        hidden.append(
            f"the keys of Parquet files in a table's folder that no live version names ({counted(dead, 'file')})"
        )
    if policies.dated and not with_keys:
        hidden.append("the ages of master keys, which the policy limits and only their KMS tells")
    hidden += places.untold
    hidden += _not_looked_at(places)
    (unseen if with_keys else hidden).extend(_kept_back(files, nonces))
    return Report(
        to_table([*files, *places.sealed], policies),
        check(facts),
        unseen,
        len(files),
        with_keys,
        nonces is not None,
        hidden,
        moment,
        policies.digest,
        policies.given,
        *_in_clear(files),
    )


def _in_clear(files: Sequence[FileFacts]) -> tuple[dict[str, int], dict[str, str]]:
    """What stands in clear, counted, and which of the columns in clear look personal."""
    count = dict.fromkeys(("column_chunks", "filters", "statistics"), 0)
    looks: dict[str, str | None] = {}
    for file in files:
        for chunk in file.chunks:
            column = file.leaves[chunk.leaf][0]
            count["column_chunks"] += not chunk.protection
            count["filters"] += chunk.filter == Seen.CLEAR
            count["statistics"] += chunk.bounds or chunk.exposed & 1
            if not chunk.protection and looks.get(column) is None:
                by_pattern = file.patterns.get(column)
                looks[column] = "its name" if by_name(column) else by_pattern and f"values like {by_pattern}"
    return count, {column: why for column, why in sorted(looks.items()) if why is not None}


def _unseen(facts: Facts) -> list[str]:
    """What nobody could look at, whatever the keys."""
    unseen = list(facts.places.unknown)
    if not facts.files:
        unseen.append("no data file was found: nothing was looked at")
    strangers = facts.policies.strangers(facts.files)
    if strangers:
        what = f"no table of the policy claims {strangers[0]}: it was held against nothing"
        unseen.append(
            f"{what} ({len(strangers)} of {counted(len(facts.files), 'file')}); --table NAME says which table it is of"
        )
    unseen += [f"{one.path}: {one.why}" for one in facts.beside if one.content is Content.UNKNOWN]
    unsure = sum(1 for file in facts.files if unclaimed_filters(file, facts.policies.of(file.path)))
    if unsure:
        unseen.append(
            f"the columns of filters in clear, which keys would name: plaintext ones or encrypted ones ({counted(unsure, 'file')})"
        )
    authors = [(file.path, file.authorship) for file in facts.files if file.authorship is not None]
    unseen += [f"who signed {path}: {one.why}" for path, one in authors if one.fault is SignatureFault.UNSEEN]
    doubts = Counter(doubt for file in facts.files for key in file.keys for doubt in key.doubts)
    return unseen + [f"{doubt} ({counted(count, 'key')})" for doubt, count in sorted(doubts.items())]


def _not_looked_at(places: Places) -> list[str]:
    """Files that are neither data nor a table's metadata, by folder and ending."""
    together: dict[tuple[str, str], list[str]] = {}
    for path in places.unread:
        folder, name = posixpath.split(path)
        together.setdefault((folder, posixpath.splitext(name)[1].lower()), []).append(name)
    told = []
    for (folder, ending), names in sorted(together.items()):
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        kind = f"*{ending}" if ending else "no ending"
        told.append(
            f"files that are no Parquet, ORC or table metadata ({kind}) in {folder}: {', '.join(names[:_LISTED])}{more}"
        )
    return told


def _kept_back(files: Sequence[FileFacts], nonces: Nonces | None) -> list[str]:
    """What keys would have shown."""
    kept = Counter(what for file in files for what in file.hidden)
    told = [f"{what} ({counted(count, 'file')})" for what, count in sorted(kept.items())]
    sealed = sum(1 for file in files if any(chunk.protection and chunk.values is None for chunk in file.chunks))
    blind = sum(1 for file in files if any(chunk.filter == Seen.HIDDEN for chunk in file.chunks))
    if sealed or blind:
        told.append(
            f"sealed metadata of encrypted columns, and whether they have a filter ({counted(max(sealed, blind), 'file')})"
        )
    problems = Counter(key.problem for file in files for key in file.keys if key.problem is not None)
    told += [f"{problem} ({counted(count, 'key')})" for problem, count in sorted(problems.items())[:_PROBLEMS]]
    if len(problems) > _PROBLEMS:
        told.append(f"and {len(problems) - _PROBLEMS} more reasons why keys could not be had")
    unasked = Counter(c.bloom.unasked for file in files for c in file.chunks if c.bloom is not None and c.bloom.unasked)
    told += [f"whether filters are right: {why} ({counted(count, 'filter')})" for why, count in sorted(unasked.items())]
    if nonces is not None and nonces.unseen:
        told.append(f"nonces of some modules ({counted(len(set(nonces.unseen)), 'file')})")
    return told
