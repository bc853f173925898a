"""The sealed indexes of a table: found in its folder, loaded when a query is about their column."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ...core.cached import cached_property
from ...core.columns import covers
from ...core.errors import BloomsealError, BloomsealWarning, MissingFileError, UsageError
from ...core.forked import new_lock
from ...core.storage.ref import FileRef
from ...index.facts.members import Members
from ...index.facts.sameness import Sighting, Trust
from ...index.folder import IndexFolder
from ...index.lookup import Coverage, IndexHits, IndexReader, ghost
from ...index.place import columns_in

if TYPE_CHECKING:
    from ...index.manifest import FileState
    from .parts import TableParts

_HASHED: Final = 64
"""The length of a folder's name that does not tell its column."""


class UseIndex(StrEnum):
    """Whether look-ups ask indexes."""

    NEVER = "never"
    AUTO = "auto"
    """Where there is one. One that can't be read is passed over with a BloomsealWarning."""
    REQUIRE = "require"
    """A look-up that an index can't answer for every file is refused."""


class UnreadableError(Exception):
    """An index that could not be asked, and why."""

    def __init__(self, held: Held, error: BloomsealError) -> None:
        super().__init__()
        self.held, self.error = held, error


class Held:
    """An index, held against the files of a table.

    Attributes:
        place: number of the folder that it is in, and its name there.
        coverage: which files it covers.
        again: it was loaded a second time.
        most: values for which one query asks it.
    """

    def __init__(self, place: tuple[int, str], coverage: Coverage, again: bool, most: int | None) -> None:
        self.place, self.coverage, self.again, self._most = place, coverage, again, most

    @property
    def column(self) -> str:
        return self.coverage.column

    def too_many(self, keys: int) -> bool:
        """Whether these are too many values for the index in one query."""
        return self._most is not None and keys > self._most

    def find(self, hashes: npt.NDArray[np.uint64]) -> IndexHits:
        """As `Coverage.find`.

        Raises:
            UnreadableError: it can't be read.
        """
        try:
            return self.coverage.find(hashes)
        except BloomsealError as error:
            raise UnreadableError(self, error) from None


class Indexes:
    """The indexes of one table. Threads may share it.

    Args:
        use: ``never``, ``auto`` or ``require``.
        trust: see `Trust`.

    Raises:
        UsageError: another word.
    """

    def __init__(self, parts: TableParts, use: str, trust: str) -> None:
        try:
            self.use = UseIndex(use)
        except ValueError:
            raise UsageError(f"unknown use_index={use!r}", hint=" or ".join(UseIndex)) from None
        try:
            self._trust = Trust(trust)
        except ValueError:
            raise UsageError(f"unknown trust={trust!r}", hint=" or ".join(Trust)) from None
        self._parts = parts
        self._readers: dict[tuple[int, str], IndexReader] = {}
        self._names: dict[int, list[str]] = {}
        self._lock = new_lock()

    @cached_property
    def folders(self) -> list[tuple[Members, list[int]]]:
        """The folders whose indexes count, each with its files, and their numbers in the table."""
        numbers: dict[tuple[int | None, str], list[int]] = {}
        for number, found in enumerate(self._parts.files):
            if found.ref.root is not None:
                where = None if found.ref.filesystem is None else id(found.ref.filesystem)
                numbers.setdefault((where, found.ref.root), []).append(number)
        return [(self._members(root, of), of) for (_, root), of in numbers.items()]

    def _members(self, root: str, numbers: list[int]) -> Members:
        # Not by self: files that stay open would wait for the collector of garbage, where somebody drops the table.
        parts = self._parts
        files = [parts.files[number] for number in numbers]
        return Members(
            FileRef(root, files[0].ref.filesystem),
            [found.ref for found in files],
            [found.relative for found in files],
            lambda number: parts.open_named(numbers[number]),
            logged=[found.told for found in files] if parts.logged else None,
            trust=self._trust,
        )

    @property
    def only(self) -> Members | None:
        """The files, where one folder led to all of them."""
        alone = len(self.folders) == 1 and len(self.folders[0][1]) == len(self._parts.files)
        return self.folders[0][0] if alone else None

    def names(self, columns: Collection[str] | None) -> list[tuple[int, str]]:
        """The places of indexes that may be of one of these columns, or of a leaf below it; None: all."""
        if self.use is UseIndex.NEVER or self._parts.decryption is None:
            return []
        return [
            (folder, name)
            for folder in range(len(self.folders))
            for name in self._names_in(folder)
            if columns is None or len(name) == _HASHED or any(covers(column, unquote(name)) for column in columns)
        ]

    def _names_in(self, folder: int) -> list[str]:
        files = self.folders[folder][0]
        if files.here:
            return columns_in(files.root.path)
        with self._lock:
            # In a store they are those of the first look: each look is a request.
            if folder not in self._names:
                self._names[folder] = columns_in(files.root.path, files.root.filesystem)
            return self._names[folder]

    def states(self) -> list[FileState | None]:
        """Of the table's files, as they are now; see `Members.states`."""
        states: list[FileState | None] = [None] * len(self._parts.files)
        for files, numbers in self.folders:
            for number, state in zip(numbers, files.states(), strict=True):
                states[number] = state
        return states

    def path(self, number: int) -> str:
        """Of the file of this number."""
        return self._parts.files[number].ref.path

    def sighting(self, number: int, held: Sequence[Held], states: Sequence[FileState | None]) -> Sighting:
        """Of a file that one of these indexes covers."""
        state = states[number]
        assert state is not None  # noqa: S101
        told = tuple((one.column, one.coverage.content(number)) for one in held if one.coverage.covered[number])
        return Sighting(state, told)

    def held(self, columns: Collection[str] | None, states: Sequence[FileState | None]) -> list[Held]:
        """The indexes of these columns, held against the files that are there now (`states`). Those that can't be read
        are passed over.

        Raises:
            BloomsealError: one can't be read, and an index is required.
        """
        found = (self._held(place, states) for place in self.names(columns))
        return [one for one in found if one is not None]

    def recovered(self, failed: UnreadableError, states: Sequence[FileState | None]) -> Held | None:
        """The index that could not be asked, loaded once more where one of its runs was gone: somebody has compacted
        it meanwhile. None where that is not the reason, or did not help.

        Raises:
            BloomsealError: an index is required.
        """
        if isinstance(failed.error, MissingFileError) and not failed.held.again:
            self._reader(failed.held.place).forget()
            return self._held(failed.held.place, states, again=True)
        self._pass_over(failed.held.place, failed.error)
        return None

    def _held(self, place: tuple[int, str], states: Sequence[FileState | None], *, again: bool = False) -> Held | None:
        files, numbers = self.folders[place[0]]
        try:
            found = self._reader(place).coverage(files, [states[number] for number in numbers])
            if found is not None and self._parts.logged:
                found = found.only(self._named)
        except BloomsealError as error:
            self._pass_over(place, error)
            return None
        if found is None:
            return None
        most = None if self.use is UseIndex.REQUIRE else found.max_keys
        return Held(place, found.among(numbers, len(states)), again, most)

    def _named(self, doc: bytes) -> bool:
        """Whether a file of this schema has the table's columns by the table's names. Facts are about names: whoever
        opens another one says what it is.
        """
        try:
            self._parts.need_names(ghost(doc, ""))
        except BloomsealError:
            return False
        return True

    def _reader(self, place: tuple[int, str]) -> IndexReader:
        with self._lock:
            if (reader := self._readers.get(place)) is None:
                root = self.folders[place[0]][0].root
                keys = self._parts.decryption
                folder = IndexFolder(root.path, place[1], keys, named=True, filesystem=root.filesystem)
                reader = self._readers[place] = IndexReader(folder)
            return reader

    def _pass_over(self, place: tuple[int, str], error: BloomsealError) -> None:
        if self.use is UseIndex.REQUIRE:
            raise error
        root, name = self.folders[place[0]][0].root.path, unquote(place[1])
        told = f"{root}: the index of {name} can't be used; files are asked one by one: {error.what}"
        warnings.warn(told, BloomsealWarning, stacklevel=6)
