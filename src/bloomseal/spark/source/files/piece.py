"""Files of a table on their way to tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.storage.ref import FileRef
from ....storage.discovery.kinds import FileKind, FoundFile
from ....storage.logs.iceberg_keys import IcebergFileKey
from ....table.query.partitions import Partitions
from ....table.query.parts import TableParts
from ...listing import open_filesystem

if TYPE_CHECKING:
    from ....core.decryption import DecryptionSpec
    from ....index.facts.sameness import Kept
    from ....policy import TablePolicy
    from ....storage.logs.iceberg_keys import WrappedFileKey
    from ....storage.logs.snapshot import DeleteFile, Snapshot


class Piece(NamedTuple):
    """A file of a table, or a part of a big one. A plain tuple: a table has tens of thousands. Keys of an encrypted
    Iceberg table's files, and of its delete files, travel wrapped.

    Attributes:
        base: its file system, as `...listing.SparkTableFiles.base`.
        name: its path on it.
        size: bytes.
        values: its partition values, in the order of the table's partition columns; where the files store those, what
            the log has of columns that deletes compare, in the order of `Snapshot.stored`.
        part, parts: which part of how many, by the bytes of its row groups.
        root: the folder that it was found below; None where it was named itself.
        kept: the row groups that indexes leave of it; None: all.
        told, key, in_log, deletes: as `told`, `key`, `name` and `deletes` of a `FoundFile`.
    """

    base: str | None
    name: str
    size: int
    values: tuple[Any, ...] = ()
    part: int = 0
    parts: int = 1
    root: str | None = None
    kept: Kept | None = None
    told: str = ""
    key: IcebergFileKey | WrappedFileKey | None = None
    in_log: str = ""
    deletes: tuple[DeleteFile, ...] = ()

    @classmethod
    def of(cls, found: FoundFile, base: str | None, root: str | None, values: tuple[Any, ...] = ()) -> Piece:
        """A file that was listed."""
        path, named, key = found.ref.path, found.name if found.deletes else "", found.key
        size = os.stat(path).st_size if found.size is None else found.size  # noqa: PTH116
        if isinstance(key, IcebergFileKey) and key.path != path:
            key = replace(key, path=path)  # a link in the table led to the file, and tasks open it here
        return cls(base, path, size, values, 0, 1, root, None, found.told, key, named, found.deletes)

    def found(self, folder: str | None) -> FoundFile:
        """The file as it was listed.

        Args:
            folder: as for `root_in`.
        """
        root = self.root_in(folder)
        relative = self.name if root is None else self.name[len(root.rstrip("/")) + 1 :]
        ref = FileRef(self.name, open_filesystem(self.base), root)
        return FoundFile(ref, relative, FileKind.DATA, None, self.told, self.key, self.in_log, self.deletes)

    def root_in(self, folder: str | None) -> str | None:
        """The table's folder: `folder`, where that was said and the file is in it, or else what led to the file."""
        return folder if folder is not None and self.name.startswith(f"{folder.rstrip('/')}/") else self.root

    @property
    def weight(self) -> int:
        """About the bytes that there are to read."""
        return self.size if self.kept is None else self.size * len(self.kept.groups) // max(self.kept.seen, 1)


def parts_of(
    pieces: Sequence[Piece],
    decryption: DecryptionSpec | TablePolicy | None,
    log: Snapshot | None = None,
    folder: str | None = None,
) -> TableParts:
    """Files as the parts of their table, by which the driver and tasks open them.

    Args:
        log: what names them; None: their folder.
        folder: the table's, where that was said.
    """
    files, known = [one.found(folder) for one in pieces], Partitions({})
    if log is not None and log.stored:
        from ....storage.logs.snapshot import LiveFile  # few tables need it

        told = {one.name: LiveFile(one.name, dict(zip(log.stored, one.values, strict=True))) for one in pieces}
        known = Partitions.of_log(files, told, log)
    parts = TableParts(files, known, log, decryption)
    if not any(one.deletes for one in pieces):
        return parts
    from ....table.query.deletes import DeleteReader  # few tables need it

    return replace(parts, deletes=DeleteReader())
