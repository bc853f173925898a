"""ORC files: their Bloom filter indexes read and probed (ORC specification, v1)."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .asking.answers import RowGroupVerdicts
    from .encryption import Encryption
    from .file import OrcFile, open_file
    from .filters import BloomFilter
    from .index import FilterInfo
    from .rewrite.report import OrcRewriteReport
    from .rewrite.verbs import attach_filters, rekey, repair_filters
    from .schema import Column, Schema
    from .tail import Stripe

__all__ = [
    "BloomFilter",
    "Column",
    "Encryption",
    "FilterInfo",
    "OrcFile",
    "OrcRewriteReport",
    "RowGroupVerdicts",
    "Schema",
    "Stripe",
    "attach_filters",
    "open_file",
    "rekey",
    "repair_filters",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "BloomFilter": "filters",
            "Column": "schema",
            "Encryption": "encryption",
            "FilterInfo": "index",
            "OrcFile": "file",
            "OrcRewriteReport": "rewrite.report",
            "RowGroupVerdicts": "asking.answers",
            "Schema": "schema",
            "Stripe": "tail",
            "attach_filters": "rewrite.verbs",
            "open_file": "file",
            "rekey": "rewrite.verbs",
            "repair_filters": "rewrite.verbs",
        },
    )
