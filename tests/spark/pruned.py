"""What `bloomseal.spark.prune` left, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def counts(pruned: DataFrame) -> dict[str, int]:
    """Files and row groups, seen and left, and what ruled the others out."""
    rows = pruned.collect()
    added = ("by_statistics", "by_filter", "by_index", "without_filter")
    return {
        "files": len(rows),
        "files_left": sum(bool(row.row_groups) or row.failure is not None for row in rows),
        "files_unopened": sum(0 < row.seen == row.by_index for row in rows),
        "failed": sum(row.failure is not None for row in rows),
        "row_groups": sum(row.seen for row in rows),
        "row_groups_left": sum(len(row.row_groups) for row in rows),
        **{name: sum(row[name] for row in rows) for name in added},
    }
