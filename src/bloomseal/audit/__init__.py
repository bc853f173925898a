"""Audits: what protects every module of many files, what lies open, and which master key versions are still needed."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .facts.inventory import inventory
    from .history import Changes, Destruction, compare, may_destroy
    from .leaks import Demonstration, demonstrate
    from .report import Report, audit
    from .rules.catalogue import RULES
    from .rules.findings import Finding, Rule, Severity

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
            "RULES": "rules.catalogue",
            "Changes": "history",
            "Demonstration": "leaks",
            "Destruction": "history",
            "Finding": "rules.findings",
            "Report": "report",
            "Rule": "rules.findings",
            "Severity": "rules.findings",
            "audit": "report",
            "compare": "history",
            "demonstrate": "leaks",
            "inventory": "facts.inventory",
            "may_destroy": "history",
        },
    )
