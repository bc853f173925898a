"""Where the index that a job works on is, on the driver and on executors."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError
from ...index.folder import IndexFolder
from ...index.place import MANIFEST
from ...table.open import open_table
from ..listing import open_filesystem
from ..opening import table_of
from ..source.files.piece import Piece

if TYPE_CHECKING:
    from ...index.manifest import Manifest
    from ...index.sealed import SealedIndex
    from ...policy import TablePolicy
    from ...storage.logs.snapshot import Snapshot
    from .common import TableJob


@dataclass(frozen=True)
class Place:
    """Where a table and its index are. Executors find the keys by themselves.

    Attributes:
        log: what names the table's files; None: their folder.
        draft: name of the sealed manifest that has the secret; that of the index, or a draft.
    """

    policy: bytes
    base: str | None
    root: str
    column: str
    log: Snapshot | None = None
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


def index_of(job: TableJob, column: str) -> tuple[SealedIndex, Place, list[Piece]]:
    """The index of a column, there or not, where executors find it, and the files of its table."""
    table = open_table(job.root, filesystem=open_filesystem(job.base), decryption=job.policy)
    index, parts = table.index(column), table.query([column], None, "ns").parts
    root = index.files.root.path
    # Whoever hashes values asks for no partition's.
    log = None if parts.snapshot is None else replace(parts.snapshot.without_files(), stored=())
    pieces = [Piece.of(one, job.base, root) for one in parts.files]
    return index, Place(pickle.dumps(job.policy), job.base, root, column, log), pieces
