"""The sealed indexes that a policy wants of a table, built or brought up to date."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..errors import BloomsealError, BloomsealWarning
from .open import open_table

if TYPE_CHECKING:
    from ..index.update import UpdateReport
    from ..policy import TablePolicy
    from ..storage.ref import FileRef

__all__ = ["index_by_policy"]


def index_by_policy(folder: FileRef, policy: TablePolicy) -> dict[str, UpdateReport]:
    """Column → what was done. An index that can't be made is told by a BloomsealWarning: the rows are there
    without it.
    """
    done: dict[str, UpdateReport] = {}
    for column, wanted in policy.indexes().items():
        try:
            index = open_table(folder.path, filesystem=folder.filesystem, decryption=policy).index(column)
            if index.exists:
                done[column] = index.update()
            else:
                done[column] = index.build(false_places=wanted.false_places, pad=wanted.pad)
        except BloomsealError as error:
            told = f"{folder.path}: the index of {column} is not up to date: {error.what}"
            warnings.warn(told, BloomsealWarning, stacklevel=3)
    return done
