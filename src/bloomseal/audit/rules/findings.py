"""A finding: a rule, a place, what was seen there, and the remedy of its rule in its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from ...storage.formats import Format


class Severity(IntEnum):
    """INFO is worth knowing, WARNING weakens, ERROR breaks a promise, CRITICAL lets values out."""

    INFO = 1
    WARNING = 2
    ERROR = 3
    CRITICAL = 4

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def named(cls, name: str) -> Severity:
        """The severity of a label."""
        return cls[name.upper()]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        id: stable; never used again for another rule.
        name: stable too, for people.
        title: what is wrong, in a sentence.
        severity: the usual one. A finding may differ where `levels` says when.
        why: why it matters.
        fix: the command that mends it, a template over the values of `remedies`; empty where no command does.
        orc_fix: the same for ORC files.
        needs: what must be at hand for it to be seen: ``nothing``, ``keys``, ``policy``, ``keys and policy``,
            ``--deep``.
        levels: when the severity is another one.
        advice: what a person does, where no command is sure to mend it, or before it is run.
    """

    id: str
    name: str
    title: str
    severity: Severity
    why: str
    fix: str
    needs: str = "nothing"
    levels: str = ""
    advice: str = ""
    orc_fix: str = ""

    def fix_for(self, file_format: Format) -> str:
        """The command for files of a format."""
        return self.orc_fix if file_format is Format.ORC else self.fix


@dataclass(frozen=True, slots=True)
class Remedy:
    """What mends the findings of a rule in a table.

    Attributes:
        command: run as it stands, it removes them. Empty where there is none.
        advice: what a person does instead, or before.
    """

    command: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        rule: its rule.
        severity: how bad it is here.
        message: what was seen. Never a key, never a value.
        file, column, row_groups: the place; None and () where it is wider.
        details: what the remedy is made of, beside the place.
        mendable: a command can mend it here, if the rule has one.
        remedy: of the rule, in this table.
    """

    rule: Rule
    severity: Severity
    message: str
    file: str | None = None
    column: str | None = None
    row_groups: tuple[int, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    mendable: bool = field(default=True, repr=False, compare=False)
    remedy: Remedy = field(default=Remedy(), repr=False)

    @property
    def fix(self) -> str:
        """The remedy's command."""
        return self.remedy.command

    @property
    def advice(self) -> str:
        return self.remedy.advice

    @property
    def mend(self) -> str:
        """The command, or the advice where there is none: never empty."""
        return self.fix or self.advice

    def unmendable(self) -> Finding:
        """The same, where no command mends it."""
        return replace(self, mendable=False)

    @property
    def order(self) -> tuple[Any, ...]:
        """Worst first, then by rule and place."""
        return -self.severity, self.rule.id, self.file or "", self.column or "", self.row_groups, self.message

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "rule": self.rule.id,
            "name": self.rule.name,
            "severity": self.severity.label,
            "file": self.file,
            "column": self.column,
            "row_groups": list(self.row_groups),
            "message": self.message,
            "fix": self.fix or None,
            "advice": self.advice or None,
        }


@dataclass(frozen=True, slots=True)
class RuleFindings:
    """The findings of one rule, worst first: what a report about many files tells of them."""

    findings: Sequence[Finding]

    @property
    def worst(self) -> Finding:
        return self.findings[0]

    @property
    def files(self) -> int:
        """How many files they are in."""
        return len({one.file for one in self.findings if one.file is not None})

    @property
    def commands(self) -> list[str]:
        """One for each table that a command mends."""
        return list(dict.fromkeys(one.fix for one in self.findings if one.fix))

    @property
    def advice(self) -> list[str]:
        """What a person does, where no command mends it, or before it is run."""
        return list(dict.fromkeys(one.advice for one in self.findings if one.advice))

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        worst = self.worst.to_dict()
        return {
            **{name: worst[name] for name in ("rule", "name", "severity")},
            "findings": len(self.findings),
            "files": self.files,
            "such_as": {name: worst[name] for name in ("file", "column", "row_groups", "message")},
            "commands": self.commands,
            "advice": self.advice,
        }
