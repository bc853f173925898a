"""SARIF 2.1.0, for code-scanning dashboards (OASIS, Static Analysis Results Interchange Format)."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from ..._version import __version__
from ...core.text import safe_text
from ..report import Report
from ..rules.catalogue import RULES
from ..rules.findings import Finding, Severity
from ..streamed import Lazily, pieces

_LEVELS: Final = {
    Severity.INFO: "note",
    Severity.WARNING: "warning",
    Severity.ERROR: "error",
    Severity.CRITICAL: "error",
}
_SECURITY: Final = {Severity.INFO: "1.0", Severity.WARNING: "4.0", Severity.ERROR: "7.0", Severity.CRITICAL: "9.5"}


def to_sarif(report: Report, *, base: str | os.PathLike[str] | None = None) -> str:
    """The findings as a SARIF log.

    Args:
        base: a folder; files below it are named relative to it, as dashboards want it.
    """
    return "".join(sarif_pieces(report, base=base))


def sarif_pieces(report: Report, *, base: str | os.PathLike[str] | None = None) -> Iterator[str]:
    """The text of `to_sarif`, piece by piece."""
    order = list(RULES)
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "bloomseal audit",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": [_rule(rule_id) for rule_id in order],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": Lazily(
                    len(report.findings), lambda: (_result(finding, order, base) for finding in report.findings)
                ),
                "invocations": [
                    {
                        # Not seen is not absent, and not judged is not clean: a dashboard must not take an empty list
                        # for a clean table.
                        "executionSuccessful": not report.unseen and report.with_policy,
                        "toolExecutionNotifications": [
                            *([] if report.ok is not None else [_notification("warning", report.verdict)]),
                            *(_notification("error", f"Could not look: {text}") for text in report.unseen),
                            *(_notification("note", f"Not seen: {text}") for text in report.hidden),
                        ],
                    }
                ],
            }
        ],
    }
    return pieces(log)


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": safe_text(text)}}


def _rule(rule_id: str) -> dict[str, Any]:
    rule = RULES[rule_id]
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why} Each result says how to mend it."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"security-severity": _SECURITY[rule.severity], "tags": ["security", "encryption"]},
    }


def _result(finding: Finding, order: list[str], base: str | os.PathLike[str] | None) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if finding.file is not None:
        place["physicalLocation"] = {"artifactLocation": {"uri": _uri(finding.file, base)}}
    if finding.column is not None:
        place["logicalLocations"] = [{"fullyQualifiedName": finding.column, "kind": "member"}]
    text = finding.message + (f" (column {finding.column})" if finding.column else "")
    identity = "\x00".join((finding.rule.id, finding.file or "", finding.column or ""))
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": order.index(finding.rule.id),
        "level": _LEVELS[finding.severity],
        "message": {"text": safe_text(f"{text}. {_mend(finding)}")},
        "locations": [place] if place else [],
        "partialFingerprints": {"placeAndRule/v1": hashlib.sha256(identity.encode()).hexdigest()[:32]},
        "properties": {
            "severity": finding.severity.label,
            "rowGroups": list(finding.row_groups),
            "fix": finding.fix or None,
        },
    }


def _mend(finding: Finding) -> str:
    return f"Mend it: {finding.fix}" if finding.fix else finding.advice


def _uri(path: str, base: str | os.PathLike[str] | None) -> str:
    if base is not None:
        with contextlib.suppress(ValueError):
            path = str(PurePath(path).relative_to(base))
    text = quote(path.replace(os.sep, "/"), safe="/:")
    return f"file://{text}" if text.startswith("/") else text
