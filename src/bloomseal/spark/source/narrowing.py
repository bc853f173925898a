"""What a table's sealed indexes leave of a read, asked on the driver each time that a run is planned.

Files that they rule out are opened by nobody; `bloomseal.table.query.sift` says what is ruled out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ...core.cached import cached_property
from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ...index.folder import columns_in
from ...storage.discovery.kinds import Found, Kind
from ...table.query.indexes import Indexes
from ...table.query.sift import Sifted, sifted
from ..listing import open_filesystem

if TYPE_CHECKING:
    from ...core.decryption import DecryptionSpec
    from ...core.parquet.schema import Leaf
    from ...index.facts.sighting import Sighting
    from ...policy import TablePolicy
    from ...read.file import SealedFile
    from ...sbbf import KeySet
    from .files.live import Rules
    from .options import Placed

__all__ = ["Files", "OneOf", "Watched", "one_of", "spelled"]

PlaceOf = Callable[["SealedFile"], "int | None"]


@dataclass(frozen=True)
class Files:
    """Files as Spark's planning has listed them, for indexes to be held against.

    Attributes:
        placed: in order.
        decryption: of the table's indexes.
        rules: of the log that keeps the list of files; None: there is none.
        folder: the table's, where the files were found below parts of it.
        open_placed: opens one of them; the caller closes it.
    """

    placed: Sequence[Placed]
    decryption: DecryptionSpec | TablePolicy | None
    rules: Rules | None
    folder: str | None
    open_placed: Callable[[Placed], SealedFile]

    @cached_property
    def files(self) -> Sequence[Found]:
        """As `bloomseal.storage` lists them."""
        return [self._found(one) for one in self.placed]

    @property
    def without_index(self) -> bool:
        """Has none of their folders an index? As far as that is told at once, on this machine: a plan need not list
        thousands of files again to learn that nobody is to be asked about them.
        """
        roots = {(one.base, self._root(one)) for one in self.placed}
        return not any(base is not None or (root is not None and columns_in(root)) for base, root in roots)

    @property
    def logged(self) -> bool:
        """Does a table's log keep the list of files?"""
        return self.rules is not None

    def open_named(self, number: int) -> SealedFile:
        """The file of this number."""
        return self.open_placed(self.placed[number])

    def need_names(self, file: SealedFile) -> None:
        """As `Rules.check`, of a file or one of its schema."""
        if self.rules is not None:
            self.rules.check(file)

    def _root(self, one: Placed) -> str | None:
        below = self.folder is not None and one.name.startswith(self.folder.rstrip("/") + "/")
        return self.folder if below else one.root

    def _found(self, one: Placed) -> Found:
        root = self._root(one)
        relative = one.name if root is None else one.name[len(root.rstrip("/")) + 1 :]
        told = "" if self.rules is None else self.rules.told.get(one.name, "")
        return Found(FileRef(one.name, open_filesystem(one.base), root), relative, Kind.DATA, told=told)


@dataclass(frozen=True)
class Watched:
    """Files that indexes rule out. Spark plans a frame once, and runs it as often as it is asked to: so that each run
    gives what is there, its first task looks at their states again. A file that is another one by then is read whole.

    Attributes:
        names: of the files.
        sightings: of each, as indexes were asked about it.
    """

    names: tuple[str, ...] = ()
    sightings: tuple[Sighting, ...] = ()

    @classmethod
    def of(cls, files: Files, found: Sifted) -> Watched:
        """Those that were ruled out."""
        numbers = [number for _, excluded in found.excluded for number in excluded]
        # What a log names stays what it is.
        if files.logged or found.sighting is None or not numbers:
            return cls()
        names = tuple(files.placed[number].name for number in numbers)
        return cls(names, tuple(map(found.sighting, numbers)))

    def changed(self, files: Files, trust: str) -> Iterator[Placed]:
        """Those that are not the same any more.

        Args:
            files: the ones of `names`, in order.
        """
        states = Indexes(files, "auto", trust).states()
        for number, (sighting, state) in enumerate(zip(self.sightings, states, strict=True)):
            if not (self._is_same(files, number) if sighting.by_identity else state == sighting.state):
                yield files.placed[number]

    def _is_same(self, files: Files, number: int) -> bool:
        try:
            with files.open_named(number) as file:
                return self.sightings[number].is_same(file)
        except BloomsealError:
            return False  # whoever reads it says why


def spelled(indexes: Indexes, columns: Collection[str]) -> list[str]:
    """The columns as indexes call them: Spark spells a column in another case than a file does."""
    wanted = {column.lower() for column in columns}
    return list({column: None for _, name in indexes.names(None) if (column := unquote(name)).lower() in wanted})


@dataclass(frozen=True)
class OneOf:
    """That a leaf is one of many values; see `bloomseal.table.query.sift.Equal`."""

    leaf: Leaf
    probe_set: Hashes


@dataclass(frozen=True)
class Hashes:
    """A set of keys as what an index is asked for."""

    keys: KeySet

    def hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """As `ProbeSet.hashes`; nobody asks which key each is of."""
        found = self.keys.between(None, None)
        return found, np.zeros(len(found), dtype=np.intp), np.array([self.keys.undecided])


def one_of(
    files: Files, indexes: Indexes, column: str, keys_for: Callable[[SealedFile, int], KeySet | None], place_of: PlaceOf
) -> Sifted:
    """The files and row groups in which one of many keys can be, as far as indexes know.

    Args:
        keys_for: the keys, hashed for a leaf of a file; None where they are not to be had for that.
        place_of: the column's leaf in a file; None where it has none.

    Raises:
        UsageError: keys of the wrong kind; an index is required, and does not answer for every file.
    """
    known: dict[Any, Hashes | None] = {}

    def ask(_: int, stand_in: SealedFile) -> list[list[OneOf]]:
        if (place := place_of(stand_in)) is None:
            return [[]]  # who opens such a file says what it is
        leaf = stand_in.walk.footer.schema.leaves[place]
        if leaf.type not in known:
            keys = keys_for(stand_in, place)
            known[leaf.type] = None if keys is None else Hashes(keys)
        return [[]] if (asked := known[leaf.type]) is None else [[OneOf(leaf, asked)]]

    return sifted(range(len(files.placed)), indexes, spelled(indexes, [column]), ask)
