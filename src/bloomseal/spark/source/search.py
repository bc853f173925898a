"""The keys of a semi-join as the reader has them: asked of indexes, statistics and filters, and then of decoded rows.

Spark joins what is left with the keys all the same: here nothing is decided but what is not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...core.errors import UnsupportedError, UsageError
from ...core.exclusion import by_index
from ...core.sbbf import ProbeSet
from ...read.parquet import need_parquet
from ...read.predicate.predicate import column_at
from ...read.prune import RowGroupSelection
from .sealed_keyset import SealedKeys, place_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ...core.parquet.schema import Leaf
    from ...index.facts.sameness import Kept
    from ...index.manifest import FileState
    from ...read.file import SealedFile
    from ...sbbf import KeySet
    from .sealed_keyset import Opens


@dataclass(frozen=True)
class OneOf:
    """That a leaf is one of many values; see `bloomseal.table.query.sift.Equal`."""

    leaf: Leaf
    probe_set: ProbeSet


class KeySearch:
    """Keys that are looked for in one column. Goes to the processes that plan and read; each opens the keys itself.

    Args:
        sealed: the keys.
        settings: how the file is opened that they are sealed with.
        marks: where the keys are only those that an index knows, a `mark` of each file then: in a file that has another
            one nobody has looked for the others. None: the keys are all there are.
        prunes: False: all files are read, and only rows are chosen.
    """

    def __init__(
        self,
        sealed: SealedKeys,
        settings: Opens,
        marks: frozenset[bytes] | None = None,
        *,
        prunes: bool = True,
    ) -> None:
        self.sealed, self.marks, self.prunes = sealed, marks, prunes
        self._settings = settings
        self._keys: KeySet | None = None
        self._asked: ProbeSet | None = None
        self._known: npt.NDArray[np.uint64] | None = None

    @property
    def column(self) -> str:
        return self.sealed.column

    @property
    def keys(self) -> KeySet:
        """Opened with the keys of whoever asks.

        Raises:
            As `SealedKeys.open`.
        """
        if self._keys is None:
            self._keys = self.sealed.open(self._settings)
        return self._keys

    def of_all(self) -> KeySearch:
        """The same where nothing is to be ruled out by the keys."""
        return KeySearch(self.sealed, self._settings, self.marks, prunes=False)

    def leaf(self, file: SealedFile) -> Leaf | None:
        """The column in a file; None where it has none, or one of another type than the keys are hashed for."""
        place = place_of(file, self.column)
        found = None if place is None else file.leaves.leaves[place]
        return found if found is not None and found.type == self.sealed.column_type else None

    def ways(self, stand_in: SealedFile, ways: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """What else is asked of a file (`bloomseal.table.query.sift.Ask`), and that the column is one of the keys."""
        # Of a file without the column, or with another type, who opens it says what it is.
        if not self.prunes or self.sealed.is_empty or (leaf := self.leaf(stand_in)) is None:
            return ways
        self._asked = self._asked or self.keys.within(None)
        return [[*way, OneOf(leaf, self._asked)] for way in ways]

    def ask(self, file: SealedFile, kept: Kept | None = None, groups: Sequence[int] | None = None) -> RowGroupSelection:
        """The row groups of an open file that may hold a key.

        Args:
            kept: what indexes leave of it.
            groups: those in question; None: all.

        Raises:
            UnsupportedError: the keys at hand are not all that could be in it.
        """
        every = range(file.num_row_groups) if groups is None else groups
        excluded = None if kept is None else by_index(kept, file, file.num_row_groups, kept.groups)
        if excluded is not None:
            # A filter knows no more: an index errs in fewer row groups of a whole table than a filter in one of a file.
            left = tuple(group for group in every if group not in excluded)
            return RowGroupSelection(left, {group: excluded[group] for group in every if group in excluded}, len(left))
        if self.marks is not None:
            raise replaced(file.path)
        if not self.prunes or not every or (leaf := self.leaf(file)) is None:
            return RowGroupSelection(tuple(every), without_filter=len(every))
        return need_parquet(file).survivors(leaf.name, self.keys, every)

    def rows(self, file: SealedFile, found: pa.Table) -> npt.NDArray[np.intp] | None:
        """The rows whose value has the hash of a key; None where that can't be told."""
        if (leaf := self.leaf(file)) is None or self.keys.undecided:
            return None
        try:
            probe = ProbeSet.of(column_at(found, leaf.path), leaf.type)
        except UsageError:
            return None
        if self._known is None:
            self._known = np.sort(self.keys.between(None, None))
        known = self._known
        hashes, owners, undecided = probe.hashes()
        hit = undecided.copy()
        if len(known):
            # Not np.isin, which would sort all keys again for each row group.
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            hit[owners[known[at] == hashes]] = True
        return np.flatnonzero(hit)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_keys": None, "_asked": None, "_known": None}


def mark(name: str, state: FileState) -> bytes:
    """Tells a file from what is there under its name later."""
    return hashlib.sha256(repr((name, *state)).encode(errors="surrogateescape")).digest()[:16]


def replaced(file: str | None = None) -> UnsupportedError:
    """What is said of a file that is not the one that was asked."""
    what = "the file was" if file is not None else "files of the table were"
    return UnsupportedError(f"{what} replaced while the query was under way", file=file, hint="run the query again")
