"""What a table's sealed indexes leave of a set of keys, asked on the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ...core.errors import UnsupportedError
from ...core.exclusion import Exclusion, by_index
from ...read.plan import ReadStats
from ..opening import open_table_file
from .sealed_keyset import place_of

if TYPE_CHECKING:
    from ...index.facts.sighting import Kept
    from ...index.manifest import FileState
    from ...policy import TablePolicy
    from ...read.file import SealedFile
    from ...sbbf import KeySet
    from ...table.query.indexes import Indexes
    from ..source.files.live import Rules
    from ..source.narrowing import Files, Watched

__all__ = ["AskedIndexes", "Left", "replaced"]


class _Placed(NamedTuple):
    name: str
    base: str | None
    root: str | None


@dataclass(frozen=True)
class Left:
    """What indexes leave of a table.

    Attributes:
        names: the files to open → the row groups to look at; None: all.
        gone: the files that are ruled out → their row groups.
        stats: of both.
        watched: tells the files that are another one than they were.
    """

    names: dict[str, Kept | None]
    gone: dict[str, int] = field(default_factory=dict)
    stats: ReadStats = field(default_factory=ReadStats)
    watched: Watched | None = None

    @property
    def ruled_out(self) -> float:
        """The share of the table's row groups that is, about: of files without an index nobody has counted them."""
        kept = [one for one in self.names.values() if one is not None]
        known = sum(self.gone.values()) + sum(one.seen for one in kept)
        left = sum(len(one.groups) for one in kept)
        covered = (len(self.gone) + len(kept)) / max(len(self.gone) + len(self.names), 1)
        return covered * (1 - left / known) if known else 0.0


def replaced(file: str | None = None) -> UnsupportedError:
    """What is said of a file that is not the one that was asked."""
    what = "the file was" if file is not None else "files of the table were"
    return UnsupportedError(f"{what} replaced while the query was under way", file=file, hint="run the query again")


@dataclass(frozen=True)
class AskedIndexes:
    """Whether indexes are asked of a table, and how. Goes to the process that plans a run.

    Attributes:
        use, trust: as `bloomseal.open_table` has them.
        rules: of the log that keeps the list of files; None: there is none.
        case_sensitive: of names of columns.
        pinned: where the keys are those that an index knows, name of each file → its state then: of a file in another
            state nobody has looked for the other keys. None: the keys are all there are.
        known: what indexes left of those files. Facts about files that are the same don't change.
    """

    use: str = "auto"
    trust: str = "auto"
    rules: Rules | None = None
    case_sensitive: bool = False
    pinned: Mapping[str, FileState] | None = field(default=None, repr=False)
    known: Left | None = field(default=None, repr=False)

    def left(
        self,
        names: Sequence[str],
        base: str | None,
        table: TablePolicy,
        column: str,
        keys_for: Callable[[SealedFile, int], KeySet | None],
        indexes: Indexes | None = None,
    ) -> Left:
        """The files and row groups in which one of many keys can be.

        Args:
            names, base: as `..listing.TableFiles`.
            keys_for: as `..source.narrowing.one_of`.
            indexes: of these files, where some are loaded already.

        Raises:
            UsageError: keys of the wrong kind; an index is required, and does not answer for every file.
            UnsupportedError: a file is another one than when the index was asked for the keys.
        """
        if self.use == "never":
            return Left(dict.fromkeys(names))
        from ...table.query.indexes import Indexes, UseIndex
        from ..source.narrowing import Watched, one_of

        files = self.files(names, base, table)
        if indexes is None:
            indexes = Indexes(files, self.use if self.pinned is None else "auto", self.trust)
        if self.known is not None:
            self._need_pinned(names, indexes.states())
            return self.known
        if self.pinned is None and indexes.use is UseIndex.AUTO and files.without_index:
            return Left(dict.fromkeys(names))
        found = one_of(
            files,
            indexes,
            column,
            keys_for,
            lambda file: place_of(file, column, case_sensitive=self.case_sensitive),
        )
        if self.pinned is not None and names:
            if found.stats.files_not_covered or (seen := found.sighting) is None:
                raise replaced()
            self._need_pinned(names, [seen(number).state for number in range(len(names))])
        gone = {names[number]: found.row_groups[number] for _, of in found.excluded for number in of}
        left = {names[number]: kept for number, kept in found.left.items()}
        return Left(left, gone, found.stats, Watched.of(files, found))

    def _need_pinned(self, names: Sequence[str], states: Sequence[FileState | None]) -> None:
        """Each file is in the state in which it was asked for the keys.

        Raises:
            UnsupportedError: one is not.
        """
        pinned = self.pinned or {}
        if any(state is None or pinned.get(name) != state for name, state in zip(names, states, strict=True)):
            raise replaced()

    def changed(self, watched: Watched, base: str | None, table: TablePolicy) -> list[str]:
        """Names of the files that are another one than the indexes were asked about."""
        names = [one.name for one in watched.changed(self.files(watched.names, base, table), self.trust)]
        if names and self.pinned is not None:
            raise replaced(names[0])
        return names

    def excluded(self, kept: Kept | None, file: SealedFile) -> dict[int, Exclusion] | None:
        """The row groups of an open file that indexes rule out; None where they can't be asked about it.

        Raises:
            UnsupportedError: the keys at hand are not all that could be in it.
        """
        found = None if kept is None else by_index(kept, file, file.num_row_groups, kept.groups)
        if found is None and self.pinned is not None:
            raise replaced(file.path)
        return found

    @property
    def brief(self) -> AskedIndexes:
        """The same for tasks, which ask of each file what was kept of it, and not in which state it was."""
        return self if self.pinned is None else replace(self, pinned={}, known=None)

    def files(self, names: Sequence[str], base: str | None, table: TablePolicy) -> Files:
        """As indexes are held against them."""
        from ..source.narrowing import Files

        placed = [_Placed(name, base, table.root) for name in names]
        return Files(
            placed, table, self.rules, table.root, lambda one: open_table_file(one.name, table, one.base, one.root)
        )
