"""Spark with sealed filters, from Python alone: the key bridge for Spark's own Parquet reader and writer.

After `enable` a session reads and writes encrypted tables at native speed with any KMS that Bloomseal knows; `write` takes its options
from the policy and checks what was written. Loading this package loads no PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explaining import explain
    from .jar import build_jar
    from .jobs import TableAudit, attach, audit, rekey, rewrap, verify
    from .pruning import PruneResult, prune
    from .reading import df_stats, read
    from .runtime import java_home
    from .semijoin import semi_join
    from .session import advice, enable
    from .settings import options
    from .source.stats import ReadStats
    from .writing import WriteReport, check_table, write

__all__ = [
    "PruneResult",
    "ReadStats",
    "TableAudit",
    "WriteReport",
    "advice",
    "attach",
    "audit",
    "build_jar",
    "check_table",
    "df_stats",
    "enable",
    "explain",
    "java_home",
    "options",
    "prune",
    "read",
    "rekey",
    "rewrap",
    "semi_join",
    "verify",
    "write",
]

_WHERE = {
    "PruneResult": "pruning",
    "ReadStats": "source.stats",
    "TableAudit": "jobs",
    "WriteReport": "writing",
    "advice": "session",
    "attach": "jobs",
    "audit": "jobs",
    "build_jar": "jar",
    "check_table": "writing",
    "df_stats": "reading",
    "enable": "session",
    "explain": "explaining",
    "java_home": "runtime",
    "options": "settings",
    "prune": "pruning",
    "read": "reading",
    "rekey": "jobs",
    "rewrap": "jobs",
    "semi_join": "semijoin",
    "verify": "jobs",
    "write": "writing",
}


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
