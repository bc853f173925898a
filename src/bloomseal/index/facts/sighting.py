"""What an index leaves of a file, and how whoever opens the file tells that it is the one the index was asked about."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..manifest import FileState, state_of

if TYPE_CHECKING:
    from ...core.parquet.schema import Leaf
    from ...core.parquet.walk import Walk
    from ...read.file import SealedFile

__all__ = ["Kept", "Sighting", "authentic_content", "content_of", "leaf_in"]

_UNKNOWN: Final = bytes(16)
_UNIQUE_BYTES: Final = 8


class Sighting(NamedTuple):
    """The file that indexes were asked about. It holds no secret, and may go to another process.

    Attributes:
        state: of the file, then.
        by_identity: states prove nothing of this table.
        contents: column and `SeenFile.content`, of each index that knows the file.
    """

    state: FileState
    by_identity: bool
    contents: tuple[tuple[str, bytes], ...]

    def is_same(self, file: SealedFile) -> bool:
        """Is the open file that one? Every doubt says no."""
        fd = file.source.fd
        if fd is not None and not self.by_identity:
            return state_of(os.fstat(fd)) == self.state
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


def authentic_content(file: SealedFile, column: str) -> bytes | None:
    """As `content_of`; None where nothing authenticates the file's footer, or tells the file from others."""
    if not file.footer_verified:
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
    schema = file.walk.footer.schema
    leaf = schema.leaf(column) if schema.has(column) and column in file.columns else None
    return leaf if leaf is not None and leaf.name == column else None
