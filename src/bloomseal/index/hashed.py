"""One data file as fingerprints: its pages hashed undecoded, from the very handle whose state goes into the fact."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ..encryption import Algorithm
from ..errors import BloomsealError
from ..format.footer import plain_footer
from ..format.hashes.chunk_hashes import carries_filter, chunk_hashes
from ..format.layout import MAGIC, FileMeta
from ..format.walk import Walk
from ..read.file import SealedFile
from .folder import Clock
from .manifest import FileState, state_of

if TYPE_CHECKING:
    from ..format.schema import Leaf
    from .fingerprint import Fingerprints

__all__ = ["HashedFile", "NotCoveredError", "hash_file", "leaf_in", "seen_file"]

_UNKNOWN: Final = bytes(16)
_UNIQUE_BYTES: Final = 8


class NotCoveredError(BloomsealError):
    """No fact about this file would be safe; its own filters are asked, as ever."""


@dataclass(frozen=True)
class HashedFile:
    """What a fact says of one file.

    Attributes:
        state: of the file that was hashed.
        groups: its row groups.
        doc: its schema, as a Parquet file without rows.
        content: what stays the same as long as no page of the column changes.
        fingerprints: per row group, each once, ascending; None where nothing was hashed.
    """

    state: FileState
    groups: int
    doc: bytes
    content: bytes
    fingerprints: list[npt.NDArray[np.uint64]] | None = None


def seen_file(file: SealedFile, column: str, clock: Clock) -> HashedFile:
    """A file's facts but for its values.

    Raises:
        NotCoveredError: nothing authenticates the file; or its time lies ahead of the storage's clock.
    """
    state = _state(file)
    if not clock.settled(state):
        raise NotCoveredError("its time lies ahead of the storage's clock", file=file.path)
    crypto = file.walk.footer.crypto
    if crypto is None or not file.footer_verified:
        raise NotCoveredError("nothing authenticates its footer", file=file.path)
    if crypto.algorithm is not Algorithm.AES_GCM_V1:
        raise NotCoveredError("nothing authenticates its pages (AES_GCM_CTR_V1)", file=file.path)
    leaf = leaf_in(file, column)
    if leaf is not None:
        carries_filter(leaf)
        for group in range(file.num_row_groups):
            if not file.walk.chunk(group, leaf.index).encrypted:
                raise NotCoveredError("the column is in plaintext", file=file.path, column=column)
    found = HashedFile(state, file.num_row_groups, _doc(file.walk), _content(file.walk, leaf))
    _need_same(file, state)
    return found


def hash_file(file: SealedFile, seen: HashedFile, column: str, fingerprints: Fingerprints) -> HashedFile:
    """The same with the fingerprints of its values. A file without the column has none.

    Raises:
        NotCoveredError: somebody wrote to it meanwhile.
        FormatError, IntegrityError, KeyAccessError.
    """
    leaf = leaf_in(file, column)
    hashed: list[npt.NDArray[np.uint64]] = []
    for group in range(file.num_row_groups):
        hashes = np.empty(0, dtype=np.uint64) if leaf is None else chunk_hashes(file.walk, group, leaf)
        hashed.append(np.unique(fingerprints.of(np.asarray(hashes, dtype=np.uint64))))
    _need_same(file, seen.state)
    return HashedFile(seen.state, seen.groups, seen.doc, seen.content, hashed)


def leaf_in(file: SealedFile, column: str) -> Leaf | None:
    """The leaf of exactly this name; None where the file has none.

    Raises:
        UsageError: several have the name.
    """
    schema = file.walk.footer.schema
    leaf = schema.leaf(column) if schema.has(column) and column in file.columns else None
    return leaf if leaf is not None and leaf.name == column else None


def _state(file: SealedFile) -> FileState:
    fd = file.walk.source.fd
    if fd is None:
        raise NotCoveredError("it is not on this machine", file=file.path)
    return state_of(os.fstat(fd))


def _need_same(file: SealedFile, state: FileState) -> None:
    if _state(file) != state:
        raise NotCoveredError("somebody wrote to it while it was hashed", file=file.path, hint="index update")


def _doc(walk: Walk) -> bytes:
    """A plaintext Parquet file of the same schema and key-value metadata, without row groups."""
    footer = walk.footer.struct.copy()
    footer.remove(FileMeta.ALGORITHM, FileMeta.SIGNING_KEY)
    footer.set_list(FileMeta.ROW_GROUPS, [])
    footer.set_i64(FileMeta.NUM_ROWS, 0)
    return MAGIC + plain_footer(footer.to_bytes())


def _content(walk: Walk, leaf: Leaf | None) -> bytes:
    """Attached filters and keys wrapped anew leave a file its identity and its pages in their places."""
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
