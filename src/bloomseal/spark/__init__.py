"""Spark with sealed filters, from Python alone: the key bridge for Spark's own Parquet reader and writer.

After `enable` a session reads and writes encrypted tables at native speed with any KMS that Bloomseal knows; `write`
takes its options from the policy and checks what was written. Loading this package loads no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .explaining import explain as explain
    from .jobs.audit import audit as audit
    from .jobs.compaction import compact_index as compact_index
    from .jobs.destruction import may_destroy as may_destroy
    from .jobs.erasing import erase as erase
    from .jobs.evidence import evidence as evidence
    from .jobs.files import attach as attach
    from .jobs.files import verify as verify
    from .jobs.indexing import update_index as update_index
    from .jobs.rotation import rekey as rekey
    from .jobs.rotation import repair as repair
    from .jobs.rotation import rewrap as rewrap
    from .reading import df_stats as df_stats
    from .reading import read as read
    from .runtime import use_java as use_java
    from .semijoin.join import semi_join as semi_join
    from .semijoin.pruning import prune as prune
    from .session import advice as advice
    from .session import enable as enable
    from .settings import options as options
    from .writing.catalog import protect_table as protect_table
    from .writing.delta import write_delta as write_delta
    from .writing.frames import check_table as check_table
    from .writing.frames import write as write
    from .writing.streams import write_stream as write_stream
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
