"""Spark's data source as its tasks read, which are sent by pickle, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["by_tasks"]


def by_tasks(folder: Path) -> list[int]:
    """The values of the column ``n``, ascending."""
    pytest.importorskip("pyspark")
    from spark.test_source_read import read

    return sorted(read(folder)["n"].to_pylist())
