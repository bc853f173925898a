"""The files of a table as its indexes see them: where each is, and which state of it is there now."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence

from ...core.cached import cached_property
from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ...read.file import SealedFile
from ...read.parquet import ParquetFile, need_parquet
from ...storage.versions import versions_below
from ..manifest import FileState
from .sameness import BY_CONTENT, Trust, authentic_content, state_at, state_by_log, state_of_version, states_below


class Members:
    """Files of one folder. Threads may share it.

    Args:
        root: the folder.
        refs, relative: where each file is, and its path below the folder.
        open: opens the file of a number; the caller closes it.
        logged: what a table's log tells of each file beside its name (`Found.told`); None: no log keeps the list. Delta
            and Iceberg make names that are never used twice; files that were there before the table have any.
        trust: which states prove something.
    """

    def __init__(
        self,
        root: FileRef,
        refs: Sequence[FileRef],
        relative: Sequence[str],
        open: Callable[[int], SealedFile],  # noqa: A002
        *,
        logged: Sequence[str] | None = None,
        trust: Trust = Trust.AUTO,
    ) -> None:
        self.trust = trust
        self.root, self.refs, self.relative, self._open = root, list(refs), list(relative), open
        self.logged = logged
        self._in_store: list[FileState | None] | None = None

    def __len__(self) -> int:
        return len(self.refs)

    def open(self, number: int) -> ParquetFile:
        """The file of a number; the caller closes it.

        Raises:
            UnsupportedError: an ORC file. And as `bloomseal.open_file`.
        """
        file = self._open(number)
        try:
            return need_parquet(file)
        except BaseException:
            file.close()
            raise

    @property
    def here(self) -> bool:
        """They are on this machine."""
        return self.root.filesystem is None

    @cached_property
    def _names(self) -> list[str]:
        """Of files on this machine, as `states_below` takes them. A log may name files outside of the folder."""
        base = posixpath.join(self.root.path, "")
        paths = (ref.path for ref in self.refs)
        return [path.removeprefix(base) if path.startswith(base) else os.path.abspath(path) for path in paths]  # noqa: PTH100

    def states(self) -> list[FileState | None]:
        """Of all files, as far as they are to be trusted; None where a file is gone, or nothing tells its state.

        On this machine they are those of this moment; in a store those of one listing, made when they are first asked
        for.

        Raises:
            UsageError: the store can't be listed.
        """
        if self.trust is Trust.IDENTITY:
            return [BY_CONTENT] * len(self)
        if self.here:
            return states_below(self.root.path, self._names)
        if self._in_store is None:
            self._in_store = self._listed()
        if self.trust is Trust.TIME:
            return self._in_store
        return [state if state is not None and state.tag else None for state in self._in_store]

    def _listed(self) -> list[FileState | None]:
        if self.logged is not None:
            return list(map(state_by_log, self.logged))
        found = versions_below(self.root)
        there = [found.get(ref.path.lstrip("/")) for ref in self.refs]
        return [None if one is None else state_of_version(one) for one in there]

    def state(self, number: int) -> FileState | None:
        """Of one file, now."""
        if not self.here and self.logged is not None:
            return state_by_log(self.logged[number])
        return state_at(self.refs[number])

    def contents(self, numbers: Sequence[int], column: str) -> list[bytes | None]:
        """Of these files what stays the same as long as no page of the column changes, from their authenticated
        footers; None where one can't be opened.
        """
        from concurrent.futures import ThreadPoolExecutor  # a first look-up waits for what it loads

        def content(number: int) -> bytes | None:
            try:
                with self.open(number) as file:
                    return authentic_content(file, column)
            except BloomsealError:
                return None

        with ThreadPoolExecutor() as pool:
            return list(pool.map(content, numbers))
