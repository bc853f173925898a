"""Audits: what protects every module of many files, what lies open, and which master key versions are still needed."""

from typing import TYPE_CHECKING, Any

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

_WHERE = {
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
}


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
