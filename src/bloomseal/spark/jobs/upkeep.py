"""The sealed indexes that a policy wants of a table, brought up to date by the write that adds to it."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError, BloomsealWarning
from ...index.folder import IndexFolder
from ..listing import open_filesystem, qualified, split_uri
from .indexing import update_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...index.update import UpdateReport
    from ...policy import TablePolicy


def keep_indexes(
    spark: SparkSession, path: str | os.PathLike[str], table: TablePolicy, *, make: bool = True
) -> dict[str, UpdateReport]:
    """Column → what was done, by a job. The rows are there without an index too: one that can't be kept is told by a
    BloomsealWarning.

    Args:
        make: build those that the policy wants, and that are not there.
    """
    if table.keys.writes_only:
        return {}  # the index has a secret, which such a writer lacks; a reader's job covers the files
    base, folder = split_uri(qualified(spark, path))
    done: dict[str, UpdateReport] = {}
    for column in table.indexes():
        if not make and IndexFolder(folder, column, filesystem=open_filesystem(base)).state() is None:
            continue
        try:
            done[column] = update_index(spark, path, column, policy=table)
        except BloomsealError as error:
            told = f"{os.fspath(path)}: the index of {column} is not up to date: {error.what}"
            warnings.warn(told, BloomsealWarning, stacklevel=3)
    return done
