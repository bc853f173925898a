"""The one rule of sameness: when a fact is about the file that is there.

A fact bears two things of its file. Its *state* is the storage's word: whoever changes the file, or puts another one in
its place, changes the state. Its *content* is the file's own word, from an authenticated footer: it stays the same as
long as no page of the column changes. A fact counts where the state is the same; where states prove nothing, where the
content is. Every doubt says no.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.storage.ref import FileRef
from ...read.parquet import ParquetFile
from ...storage.folder import Folder
from ...storage.versions import ObjectVersion, version_at
from ..manifest import FileState, state_of

if TYPE_CHECKING:
    from ...core.parquet.schema import Leaf
    from ...core.parquet.walk import Walk
    from ...read.file import SealedFile

_UNKNOWN: Final = bytes(16)
_UNIQUE_BYTES: Final = 8
_FINE, _COARSE = 20_000_000, 2_000_000_000
"""Nanoseconds: two changes within that time may bear the same time. Kernels tick every 1 to 10 ms; some file systems
keep whole seconds, or every other one."""
_PATIENCE: Final = 5.0
_SECOND: Final = 1_000_000_000
BY_CONTENT: Final = FileState(0, 0, 0, 0, "identity")
"""In the place of a state that proves nothing."""


class Trust(StrEnum):
    """Which states prove something."""

    AUTO = "auto"
    """On this machine inode, size and times; in a store a version's tag, or the name, where a table's log keeps it."""
    TIME = "time"
    """In a store also size and time, where the client tells no tag."""
    IDENTITY = "identity"
    """None: each covered file's footer is opened and authenticated at each look-up."""


class Sighting(NamedTuple):
    """The file that indexes were asked about. It holds no secret, and may go to another process.

    Attributes:
        state: of the file, then.
        contents: column and `SeenFile.content`, of each index that knows the file.
    """

    state: FileState
    contents: tuple[tuple[str, bytes], ...]

    @property
    def by_identity(self) -> bool:
        """States prove nothing of this table."""
        return self.state == BY_CONTENT

    def is_same(self, file: SealedFile, state: FileState | None = None) -> bool:
        """Whether the open file is that one.

        Args:
            state: of the file that is there, which an open object in a store does not tell.
        """
        if not self.by_identity and (state := open_state(file) or state) is not None:
            return state == self.state
        # Of no content nothing would be compared.
        known = bool(self.contents)
        return known and all(authentic_content(file, column) == content for column, content in self.contents)


class Kept(NamedTuple):
    """The row groups that indexes leave of a file, if it is the file that they were asked about.

    Attributes:
        groups: ascending.
        seen: row groups in the file.
        sighting: of the file.
        pages: row group → column → the only data pages, ascending, on which the column can have a value asked for.
    """

    groups: tuple[int, ...]
    seen: int
    sighting: Sighting
    pages: Mapping[int, Mapping[str, tuple[int, ...]]] = {}

    def is_same(self, file: SealedFile) -> bool:
        """As `Sighting.is_same`."""
        return self.sighting.is_same(file)


# States --------------------------------------------------------------------------------------------------------------


def state_at(ref: FileRef) -> FileState | None:
    """Of the file that is there now; None where there is none, or nobody tells.

    Raises:
        UsageError: a store could not be asked.
    """
    if ref.filesystem is not None:
        found = version_at(ref)
        return None if found is None else state_of_version(found)
    try:
        return state_of(os.stat(ref.path))  # noqa: PTH116
    except OSError:
        return None


def states_below(folder: str, names: Sequence[str]) -> list[FileState | None]:
    """As `state_at`, of many files on this machine.

    Args:
        folder: opened once, so that the system need not find the way to it for each file.
        names: below the folder, or absolute paths.
    """
    found: list[FileState | None] = []
    try:
        opened = Folder.at(folder)
    except OSError:
        return [None] * len(names)
    with opened:
        # Most of a look-up in many files is spent here, so no function is called for each.
        for name in names:
            try:
                status = os.stat(name, dir_fd=opened.fd)
            except OSError:
                found.append(None)
            else:
                found.append(FileState(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return found


def open_state(file: SealedFile) -> FileState | None:
    """Of an open file; None where that does not tell: of an object in a store."""
    fd = file.source.fd
    return None if fd is None else state_of(os.fstat(fd))


def state_of_version(version: ObjectVersion) -> FileState:
    """An object's version as a fact has it. A tag says all; clients may tell times of one object in two ways."""
    return FileState(0, version.size, 0 if version.tag else version.mtime, 0, version.tag)


def state_by_log(told: str) -> FileState | None:
    """Of a file in a store that a table's log names, by what the log tells of it."""
    return FileState(0, 0, 0, 0, f"log {told}") if told else None


class Clock:
    """When a file's time says that nobody has changed it since: git's rule for racy files, turned round.

    Args:
        now: the clock of the storage, by which its files bear their times.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._ask = now
        self._now = 0
        self._grain = _FINE

    def settled(self, state: FileState) -> bool:
        """Wait until a change to a file, from now on, would bear another state than its last one.

        Returns:
            False where that does not come about: the file's time lies ahead of the clock, or nothing tells its time.

        Raises:
            BloomsealError: no file can be made there; times of change are not the storage's own.
        """
        if state.tag:
            return True
        changed = state.ctime or state.mtime
        until = time.monotonic() + _PATIENCE
        while changed and self._now <= changed + self._grain:
            self._now = self._ask()
            self._grain = _COARSE if self._now % _SECOND == 0 else _FINE
            if time.monotonic() > until:
                return False
            if (left := changed + self._grain - self._now) >= 0:
                time.sleep(min(left / _SECOND + 0.0005, 0.2))
        return changed > 0


# Contents ------------------------------------------------------------------------------------------------------------


def authentic_content(file: SealedFile, column: str) -> bytes | None:
    """As `content_of`; None where nothing authenticates the file's footer, or tells the file from others."""
    if not isinstance(file, ParquetFile) or not file.footer_verified:
        return None
    found = content_of(file.walk, leaf_in(file, column))
    return found if any(found) else None


def content_of(walk: Walk, leaf: Leaf | None) -> bytes:
    """What stays the same as long as no page of the column changes; zeros where nothing tells the file from others.

    Attached filters and keys wrapped anew leave a file its identity and its pages in their places.
    """
    crypto = walk.footer.crypto
    if crypto is None or len(crypto.aad_unique) < _UNIQUE_BYTES:
        return _UNKNOWN
    digest = hashlib.sha256(len(crypto.aad_prefix).to_bytes(4, "little") + crypto.file_aad)
    for group in range(len(walk.footer.row_groups)):
        told: tuple[int | None, ...] = (walk.footer.row_group(group).num_rows,)
        if leaf is not None:
            chunk = walk.chunk(group, leaf.index)
            told += (*walk.extent(chunk), walk.meta(chunk).num_values)
        digest.update(repr(told).encode())
    return digest.digest()[:16]


def leaf_in(file: SealedFile, column: str) -> Leaf | None:
    """The leaf of exactly this name; None where the file has none.

    Raises:
        UsageError: several have the name.
    """
    schema = file.leaves
    leaf = schema.leaf(column) if schema.has(column) and column in file.columns else None
    return leaf if leaf is not None and leaf.name == column else None
