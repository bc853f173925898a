"""ORC files: their Bloom filter indexes read and probed (ORC specification, v1)."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .file import FilterInfo, OrcFile, RowGroupVerdicts, open_file
    from .index import BloomFilter
    from .schema import Column, Schema
    from .tail import Stripe

__all__ = ["BloomFilter", "Column", "FilterInfo", "OrcFile", "RowGroupVerdicts", "Schema", "Stripe", "open_file"]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "BloomFilter": "index",
            "Column": "schema",
            "FilterInfo": "file",
            "OrcFile": "file",
            "RowGroupVerdicts": "file",
            "Schema": "schema",
            "Stripe": "tail",
            "open_file": "file",
        },
    )
