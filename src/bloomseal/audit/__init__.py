"""Audits: what protects every module of many files, what lies open, and which master key versions are still needed."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .destruction.answer import Destruction, Reason
    from .destruction.look import may_destroy
    from .facts.inventory import inventory
    from .history import Changes, compare
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
    "Reason",
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
            "Destruction": "destruction.answer",
            "Finding": "rules.findings",
            "Reason": "destruction.answer",
            "Report": "report",
            "Rule": "rules.findings",
            "Severity": "rules.findings",
            "audit": "report",
            "compare": "history",
            "demonstrate": "leaks",
            "inventory": "facts.inventory",
            "may_destroy": "destruction.look",
        },
    )
