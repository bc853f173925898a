"""Audits: what protects every module of many files, what lies open, and which master key versions are still needed."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .destruction.look import may_destroy as may_destroy
    from .facts.inventory import inventory as inventory
    from .history import compare as compare
    from .report import audit as audit
    from .rules.findings import Severity as Severity
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
