"""What tasks are told of a file, and of the log that names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.errors import UnsupportedError

if TYPE_CHECKING:
    from ....index.facts.sameness import Kept
    from ....read.file import SealedFile
    from ....storage.logs.iceberg_keys import WrappedFileKey
    from ....storage.logs.snapshot import DeleteFile, Snapshot

__all__ = ["Piece", "Rules"]


class Piece(NamedTuple):
    """A file of a table, or a part of a big one. A plain tuple: a table has tens of thousands. It holds no key: those
    of an encrypted Iceberg table's files, and of its delete files, are wrapped.

    Attributes:
        base: its file system, as `...listing.SparkTableFiles.base`.
        name: its path on it.
        size: bytes.
        values: its partition values, in the order of the table's partition columns.
        part, parts: which part of how many, by the bytes of its row groups.
        root: the folder that it was found below; None where it was named itself.
        kept: the row groups that indexes leave of it; None: all.
        told, key, in_log, deletes: as `told`, `key`, `name` and `deletes` of `bloomseal.storage`'s `FoundFile`.
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
    key: WrappedFileKey | None = None
    in_log: str = ""
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def weight(self) -> int:
        """About the bytes that there are to read."""
        return self.size if self.kept is None else self.size * len(self.kept.groups) // max(self.kept.seen, 1)


@dataclass(frozen=True)
class Rules:
    """What must hold for each file of a table with a log.

    Attributes:
        snapshot: what the log says of all of them; it lists none.
        stored: partition columns that the files hold themselves: their own values count, not the log's.
    """

    snapshot: Snapshot
    stored: tuple[str, ...] = ()

    def check(self, file: SealedFile) -> None:
        """Refuse a file whose rows are not the table's as they are.

        Raises:
            UnsupportedError: a column that was renamed; or whose value only the log has.
        """
        # Executors of other tables' reads need not load this.
        from ....table.query.naming import need_names

        need_names(file, self.snapshot.naming)
        if lacking := [name for name in self.stored if not file.has(name)]:
            raise UnsupportedError(
                "only the table's log has the column's value for this file", column=lacking[0],
                hint="bloomseal.open_table",
            )  # fmt: skip
