"""Audits: what protects every module of many files, what lies open, and which master key versions are still needed."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .facts import inventory
    from .findings import Finding, Rule, Severity
    from .history import Changes, Destruction, compare, may_destroy
    from .leaks import Demonstration, demonstrate
    from .report import Report, audit
    from .rules import RULES

__all__ = [
    "RULES",
    "Changes",
    "Demonstration",
    "Destruction",
    "Finding",
    "Report",
    "Rule",
    "Severity",
    "audit",
    "compare",
    "demonstrate",
    "inventory",
    "may_destroy",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "RULES": "rules",
            "Changes": "history",
            "Demonstration": "leaks",
            "Destruction": "history",
            "Finding": "findings",
            "Report": "report",
            "Rule": "findings",
            "Severity": "findings",
            "audit": "report",
            "compare": "history",
            "demonstrate": "leaks",
            "inventory": "facts",
            "may_destroy": "history",
        },
    )
