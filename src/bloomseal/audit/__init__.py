"""Audits: what protects every module of many files, what lies open, and which master key versions are still needed."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .destruction.answer import Destruction as Destruction
    from .destruction.look import may_destroy as may_destroy
    from .destruction.question import Reason as Reason
    from .facts.inventory import inventory as inventory
    from .history import Changes as Changes
    from .history import compare as compare
    from .leaks import Demonstration as Demonstration
    from .leaks import demonstrate as demonstrate
    from .report import Report as Report
    from .report import audit as audit
    from .rules.catalogue import RULES as RULES
    from .rules.findings import Finding as Finding
    from .rules.findings import Rule as Rule
    from .rules.findings import Severity as Severity
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
