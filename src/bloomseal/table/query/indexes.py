"""The sealed indexes of a table: found in its folder, loaded when a query is about their column."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ...errors import BloomsealError, BloomsealWarning, MissingFileError, UsageError
from ...index.folder import IndexFolder, columns_in
from ...index.lookup import Coverage, Found, IndexReader, now_at

if TYPE_CHECKING:
    from ...index.manifest import FileState
    from .query import TableParts

__all__ = ["Held", "Indexes", "UnreadableError", "UseIndex"]

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
        name: of its folder.
        coverage: which files it covers.
        again: it was loaded a second time.
    """

    def __init__(self, name: str, coverage: Coverage, again: bool) -> None:
        self.name, self.coverage, self.again = name, coverage, again

    @property
    def column(self) -> str:
        return self.coverage.column

    def find(self, hashes: npt.NDArray[np.uint64]) -> Found:
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

    Raises:
        UsageError: another word.
    """

    def __init__(self, parts: TableParts, use: str) -> None:
        try:
            self.use = UseIndex(use)
        except ValueError:
            raise UsageError(f"unknown use_index={use!r}", hint=" or ".join(UseIndex)) from None
        self._parts = parts
        self._readers: dict[str, IndexReader] = {}
        self._lock = threading.Lock()

    @cached_property
    def root(self) -> str | None:
        """The folder whose indexes count: on this machine, and the one that led to every file."""
        roots = {found.ref.root for found in self._parts.files}
        here = all(found.ref.filesystem is None for found in self._parts.files)
        return roots.pop() if here and len(roots) == 1 else None

    @cached_property
    def relative(self) -> list[str]:
        """The files' paths, as facts have them."""
        return [found.relative for found in self._parts.files]

    @cached_property
    def paths(self) -> list[str]:
        return [found.ref.path for found in self._parts.files]

    def names(self, columns: Collection[str] | None) -> list[str]:
        """The folders of indexes that may be of one of these columns, or of a leaf below it; None: all."""
        if self.use is UseIndex.NEVER or self.root is None or self._parts.decryption is None:
            return []
        found = columns_in(self.root)
        return [name for name in found if columns is None or len(name) == _HASHED or _below(unquote(name), columns)]

    def states(self) -> list[FileState | None]:
        """Of the table's files, as they are now."""
        return now_at(self.paths)

    def held(self, columns: Collection[str] | None, states: Sequence[FileState | None]) -> list[Held]:
        """The indexes of these columns, held against the files that are there now (`states`). Those that can't be read
        are passed over.

        Raises:
            BloomsealError: one can't be read, and an index is required.
        """
        found = (self._held(name, states) for name in self.names(columns))
        return [one for one in found if one is not None]

    def recovered(self, failed: UnreadableError, states: Sequence[FileState | None]) -> Held | None:
        """The index that could not be asked, loaded once more where one of its runs was gone: somebody has compacted
        it meanwhile. None where that is not the reason, or did not help.

        Raises:
            BloomsealError: an index is required.
        """
        if isinstance(failed.error, MissingFileError) and not failed.held.again:
            self._reader(failed.held.name).forget()
            return self._held(failed.held.name, states, again=True)
        self._pass_over(failed.held.name, failed.error)
        return None

    def _held(self, name: str, states: Sequence[FileState | None], *, again: bool = False) -> Held | None:
        try:
            found = self._reader(name).coverage(self.relative, states)
        except BloomsealError as error:
            self._pass_over(name, error)
            return None
        return None if found is None else Held(name, found, again)

    def _reader(self, name: str) -> IndexReader:
        assert self.root is not None  # noqa: S101
        with self._lock:
            if (reader := self._readers.get(name)) is None:
                folder = IndexFolder(self.root, name, named=True)
                reader = self._readers[name] = IndexReader(folder, self._parts.decryption)
            return reader

    def _pass_over(self, name: str, error: BloomsealError) -> None:
        if self.use is UseIndex.REQUIRE:
            raise error
        told = f"{self.root}: the index of {unquote(name)} can't be used; files are asked one by one: {error.what}"
        warnings.warn(told, BloomsealWarning, stacklevel=6)


def _below(leaf: str, columns: Collection[str]) -> bool:
    return any(leaf == column or leaf.startswith(column + ".") for column in columns)
