"""Where the index that a job works on is, on the driver and on executors."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError
from ...index.folder import IndexFolder
from ...index.place import MANIFEST
from ...table.open import open_table
from ..listing import open_filesystem, qualified, split_uri
from ..opening import table_of
from .common import job_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...index.manifest import Manifest
    from ...index.sealed import SealedIndex
    from ...policy import Policy, TablePolicy

__all__ = ["Place", "index_of"]


@dataclass(frozen=True)
class Place:
    """Where a table and its index are. Executors find the keys by themselves.

    Attributes:
        draft: name of the sealed manifest that has the secret; that of the index, or a draft.
    """

    policy: bytes
    base: str | None
    root: str
    column: str
    draft: str = MANIFEST

    @property
    def table(self) -> TablePolicy:
        return table_of(self.policy)

    @property
    def folder(self) -> IndexFolder:
        return IndexFolder(self.root, self.column, self.table, filesystem=open_filesystem(self.base))

    def manifest(self) -> Manifest:
        """The one that is there, or the draft."""
        folder = self.folder
        if (found := folder.load(self.draft)) is None:
            raise BloomsealError("the index is gone, or the draft of one", file=folder.path, hint="again")
        return found


def index_of(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None,
    table: str | None,
) -> tuple[SealedIndex, Place]:
    """The index of a column, there or not, and where executors find it."""
    chosen = job_table(spark, path, policy, table)
    base, inside = split_uri(qualified(spark, path))
    index = open_table(inside, filesystem=open_filesystem(base), decryption=chosen).index(column)
    return index, Place(pickle.dumps(chosen), base, index.files.root.path, column)
