"""Spark with sealed filters, from Python alone: the key bridge for Spark's own Parquet reader and writer.

After `enable` a session reads and writes encrypted tables at native speed with any KMS that Bloomseal knows; `write`
takes its options from the policy and checks what was written. Loading this package loads no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .explaining import explain
    from .jar import build_jar
    from .jobs.audit import TableAudit, audit
    from .jobs.compaction import compact_index
    from .jobs.destruction import may_destroy
    from .jobs.evidence import evidence
    from .jobs.files import attach, verify
    from .jobs.indexing import update_index
    from .jobs.rotation import rekey, repair, rewrap
    from .reading import df_stats, metrics, read
    from .runtime import java_home
    from .semijoin.join import semi_join
    from .semijoin.pruning import prune
    from .semijoin.result import PruneResult
    from .session import advice, enable
    from .settings import options
    from .source.stats import SourceStats
    from .writing.catalog import protect_table
    from .writing.delta import write_delta
    from .writing.frames import WriteReport, check_table, write
    from .writing.streams import write_stream

__all__ = [
    "PruneResult",
    "SourceStats",
    "TableAudit",
    "WriteReport",
    "advice",
    "attach",
    "audit",
    "build_jar",
    "check_table",
    "compact_index",
    "df_stats",
    "enable",
    "evidence",
    "explain",
    "java_home",
    "may_destroy",
    "metrics",
    "options",
    "protect_table",
    "prune",
    "read",
    "rekey",
    "repair",
    "rewrap",
    "semi_join",
    "update_index",
    "verify",
    "write",
    "write_delta",
    "write_stream",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "PruneResult": "semijoin.result",
            "SourceStats": "source.stats",
            "TableAudit": "jobs.audit",
            "WriteReport": "writing.frames",
            "advice": "session",
            "attach": "jobs.files",
            "audit": "jobs.audit",
            "build_jar": "jar",
            "check_table": "writing.frames",
            "df_stats": "reading",
            "enable": "session",
            "evidence": "jobs.evidence",
            "explain": "explaining",
            "java_home": "runtime",
            "may_destroy": "jobs.destruction",
            "metrics": "reading",
            "options": "settings",
            "protect_table": "writing.catalog",
            "prune": "semijoin.pruning",
            "read": "reading",
            "rekey": "jobs.rotation",
            "repair": "jobs.rotation",
            "rewrap": "jobs.rotation",
            "semi_join": "semijoin.join",
            "compact_index": "jobs.compaction",
            "update_index": "jobs.indexing",
            "verify": "jobs.files",
            "write": "writing.frames",
            "write_delta": "writing.delta",
            "write_stream": "writing.streams",
        },
    )
