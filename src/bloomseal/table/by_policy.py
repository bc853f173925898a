"""The sealed indexes that a policy wants of a table, built or brought up to date."""

from __future__ import annotations

import posixpath
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.errors import BloomsealError, BloomsealWarning
from ..core.storage.ref import FileRef
from ..read.open import open_file
from .open import open_table

if TYPE_CHECKING:
    from ..index.update import UpdateReport
    from ..policy import TablePolicy


def index_by_policy(folder: FileRef, policy: TablePolicy) -> dict[str, UpdateReport]:
    """Column → what was done. An index that can't be made is told by a BloomsealWarning: the rows are there
    without it.
    """
    done: dict[str, UpdateReport] = {}
    if policy.keys.writes_only:
        return done  # the index has a secret, which such a writer lacks; a reader's job covers the files
    for column, wanted in policy.indexes().items():
        try:
            index = open_table(folder.path, filesystem=folder.filesystem, decryption=policy).index(column)
            if index.exists:
                done[column] = index.update()
            else:
                done[column] = index.build(false_places=wanted.false_places, pad=wanted.pad, max_keys=wanted.max_keys)
        except BloomsealError as error:
            _tell(folder.path, column, error)
    return done


def add_by_policy(ref: FileRef, policy: TablePolicy) -> None:
    """Add a new file to the indexes of its table, which are in its folder or in one above it. Nothing else of the
    table is looked at, and no index is made: one file does not tell where its table begins.
    """
    for column in () if policy.keys.writes_only else policy.indexes():
        try:
            for root in _above(ref):
                if _add(ref, root, column, policy):
                    break
        except BloomsealError as error:
            _tell(ref.path, column, error)


def _add(ref: FileRef, root: FileRef, column: str, policy: TablePolicy) -> bool:
    from ..index.facts.members import Members
    from ..index.sealed import SealedIndex

    relative = posixpath.relpath(ref.path, root.path or "/")
    files = Members(root, [ref], [relative], lambda _: open_file(ref, decryption=policy))
    index = SealedIndex(files, column, policy)
    if not index.exists:
        return False
    for why in index.update().left.values():
        raise BloomsealError(why, file=ref.path)
    return True


def _above(ref: FileRef) -> Iterator[FileRef]:
    """The folders that the file is in, from the nearest; in a store, where to look is a request, no further than its
    partitions' folders (``country=DE``) go.
    """
    path = posixpath.dirname(ref.path)
    while path.strip("/"):
        yield FileRef(path, ref.filesystem)
        if ref.filesystem is not None and "=" not in posixpath.basename(path):
            return
        path = posixpath.dirname(path)


def _tell(path: str, column: str, error: BloomsealError) -> None:
    told = f"{path}: the index of {column} is not up to date: {error.what}"
    warnings.warn(told, BloomsealWarning, stacklevel=4)
