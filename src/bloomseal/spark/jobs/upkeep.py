"""The sealed indexes that a policy wants of a table, brought up to date by the write that adds to it."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError, BloomsealWarning
from ...core.storage.ref import FileRef
from ...index.folder import IndexFolder
from ...table.by_policy import index_by_policy
from ..listing import in_folder, open_filesystem, qualified, split_uri
from .indexing import seals_spill, update_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...index.update import UpdateReport
    from ...policy import TablePolicy

__all__ = ["keep_indexes"]


def keep_indexes(
    spark: SparkSession, path: str | os.PathLike[str], table: TablePolicy, *, make: bool = True
) -> dict[str, UpdateReport]:
    """Column → what was done. By a job where the session seals what it spills, on the driver otherwise. The rows are
    there without an index too: one that can't be kept is told by a BloomsealWarning.

    Args:
        make: build those that the policy wants, and that are not there.
    """
    if not table.indexes():
        return {}
    where = qualified(spark, path)
    base, folder = split_uri(where)
    place = FileRef(folder, open_filesystem(base))
    there = (IndexFolder(folder, column, filesystem=place.filesystem).state() for column in table.indexes())
    wanted = [column for column, state in zip(table.indexes(), there, strict=True) if make or state is not None]
    if wanted and not seals_spill(spark):
        return index_by_policy(place, in_folder(table, where))
    done: dict[str, UpdateReport] = {}
    for column in wanted:
        try:
            done[column] = update_index(spark, path, column, policy=table)
        except BloomsealError as error:
            told = f"{os.fspath(path)}: the index of {column} is not up to date: {error.what}"
            warnings.warn(told, BloomsealWarning, stacklevel=3)
    return done
