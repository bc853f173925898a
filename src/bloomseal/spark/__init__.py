"""Spark with sealed filters, from Python alone: the key bridge for Spark's own Parquet reader and writer.

After `enable` a session reads and writes encrypted tables at native speed with any KMS that Bloomseal knows; `write` takes its options
from the policy and checks what was written. Loading this package loads no PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jar import build_jar
    from .jobs import attach, verify
    from .runtime import java_home
    from .session import advice, enable
    from .settings import options
    from .writing import WriteReport, check_table, write

__all__ = [
    "WriteReport",
    "advice",
    "attach",
    "build_jar",
    "check_table",
    "enable",
    "java_home",
    "options",
    "verify",
    "write",
]

_WHERE = {
    "WriteReport": "writing",
    "advice": "session",
    "attach": "jobs",
    "build_jar": "jar",
    "check_table": "writing",
    "enable": "session",
    "java_home": "runtime",
    "options": "settings",
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
