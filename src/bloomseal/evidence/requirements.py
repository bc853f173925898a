"""The items of standards that a policy's columns come under (``standards.toml``), held against findings and facts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..audit.rules.findings import Finding
from .claims import Observations
from .keys import UNKNOWN, KeyVersionFacts

__all__ = ["Scope", "requirements_of", "standard_of"]

_BELIEVED: Final = "BS2"
"""A finding of this kind says that a file, or a part of it, can't be read or believed."""


@dataclass(frozen=True)
class Scope:
    """What a standard's claims are held against.

    Attributes:
        standard: its name.
        columns: those under it, ``TABLE.COLUMN``, each with the requirements that the policy names.
        files: how many files of their tables were seen, of how many.
        keys: the versions that those files are under.
        findings: of the audit, about these tables and columns.
        unseen: what the audit did not see, and columns that no file seen has.
        nameless: uses of keys of which no master key is known, in words.
    """

    standard: str
    columns: dict[str, tuple[str, ...]]
    files: tuple[int, int]
    keys: Sequence[KeyVersionFacts]
    findings: Sequence[Finding]
    unseen: Sequence[str]
    nameless: Sequence[str]


_ITEMS: Final[list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("standards.toml").read_text("utf-8"))[
    "item"
]


def standard_of(requirement: str) -> str:
    """The standard that a policy's requirement is of; the requirement itself, where nobody here knows it."""
    known = {item["standard"] for item in _ITEMS}
    return next((name for name in sorted(known) if requirement.startswith(name)), requirement)


def requirements_of(scope: Scope) -> list[dict[str, Any]]:
    """Every item of the scope's standard, each with its claim, as plain data."""
    unknown = {"item": "", "title": scope.standard, "unseen": "what this requirement asks for: no item of it is known"}
    items = [item for item in _ITEMS if item["standard"] == scope.standard] or [unknown]
    return [
        {
            "standard": scope.standard,
            "item": item["item"],
            "title": item["title"],
            "columns": [
                name
                for name, texts in scope.columns.items()
                if any(_covers(text, scope.standard, item["item"]) for text in texts)
            ],
            "shown_by": item.get("shown_by", ""),
            **_claim(item, scope).to_dict(),
        }
        for item in items
    ]


def _claim(item: dict[str, Any], scope: Scope) -> Observations:
    rules = item.get("rules", ())
    found = _grouped(one for one in scope.findings if one.rule.id.startswith(tuple(rules)))
    found += [
        f"{key.name} {one['kind']}: {one['what']}" for key in scope.keys for one in key.findings if one["kind"] in rules
    ]
    unseen = [item["unseen"]] if "unseen" in item else []
    unseen += [*_grouped(one for one in scope.findings if one.rule.id.startswith(_BELIEVED)), *scope.unseen]
    if item.get("about") != "keys":
        seen, of = scope.files if "about" in item else (0, 0)
        return Observations(tuple(found), seen, of, tuple(unseen))
    untold = {key.name: [name for name in item.get("told", ()) if not _told(key, name)] for key in scope.keys}
    unseen += [*scope.nameless, *(f"{', '.join(names)} of {key}" for key, names in untold.items() if names)]
    return Observations(tuple(found), sum(not names for names in untold.values()), len(untold), tuple(unseen))


def _told(key: KeyVersionFacts, name: str) -> bool:
    return getattr(key, name) not in (None, UNKNOWN)


def _grouped(findings: Iterable[Finding]) -> list[str]:
    """One line for each rule, with its first place; the audit's reports in the bundle have them all."""
    first: dict[str, Finding] = {}
    count: dict[str, int] = {}
    for one in findings:
        first.setdefault(one.rule.id, one)
        count[one.rule.id] = count.get(one.rule.id, 0) + 1
    return [
        f"{name} {one.rule.name} ({one.severity.label}, {count[name]}): {', '.join(filter(None, (one.file, one.column))) or one.message}"
        for name, one in sorted(first.items())
    ]


def _covers(requirement: str, standard: str, item: str) -> bool:
    """``PCI DSS 3.6`` covers 3.6.1 and all below it; the bare name of a standard covers all of it."""
    rest = requirement.removeprefix(standard).strip()
    return not rest or any(name == rest or name.startswith((rest + ".", rest + " ")) for name in item.split(", "))
