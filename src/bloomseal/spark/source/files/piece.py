"""What tasks are told of a file, and of the log that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.errors import UnsupportedError

if TYPE_CHECKING:
    from ....index.facts.sameness import Kept
    from ....read.file import SealedFile
    from ....storage.logs.iceberg_keys import WrappedFileKey
    from ....storage.logs.snapshot import Naming

__all__ = ["Piece", "Rules"]


class Piece(NamedTuple):
    """A file of a table, or a part of a big one. A plain tuple: a table has tens of thousands.

    Attributes:
        base: its file system, as `...listing.SparkTableFiles.base`.
        name: its path on it.
        size: bytes.
        values: its partition values, in the order of the table's partition columns.
        part, parts: which part of how many, by the bytes of its row groups.
        root: the folder that it was found below; None where it was named itself.
        kept: the row groups that indexes leave of it; None: all.
        key: of a file of an encrypted Iceberg table, wrapped.
    """

    base: str | None
    name: str
    size: int
    values: tuple[Any, ...] = ()
    part: int = 0
    parts: int = 1
    root: str | None = None
    kept: Kept | None = None
    key: WrappedFileKey | None = None

    @property
    def weight(self) -> int:
        """About the bytes that there are to read."""
        return self.size if self.kept is None else self.size * len(self.kept.groups) // max(self.kept.seen, 1)


@dataclass(frozen=True)
class Rules:
    """What must hold for each file of a table with a log.

    Attributes:
        naming: how the log finds its columns in a file.
        stored: partition columns that the files hold themselves: their own values count, not the log's.
        told: path → what the log tells of the file beside its name, for indexes; tasks do without it.
    """

    naming: Naming
    stored: tuple[str, ...] = ()
    told: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "told": {}}

    def check(self, file: SealedFile) -> None:
        """Refuse a file whose rows are not the table's as they are.

        Raises:
            UnsupportedError: a column that was renamed; or whose value only the log has.
        """
        # Executors of other tables' reads need not load this.
        from ....table.query.naming import need_names

        need_names(file, self.naming)
        tops = {name.partition(".")[0] for name in file.columns}
        if lacking := [name for name in self.stored if name not in tops]:
            raise UnsupportedError(
                "only the table's log has the column's value for this file", column=lacking[0],
                hint="bloomseal.open_table",
            )  # fmt: skip
