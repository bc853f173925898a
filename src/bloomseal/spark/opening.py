"""One file of a table, opened: by the driver and by executors, by the data source and by jobs."""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import TYPE_CHECKING

from ..core.errors import PolicyError
from ..core.parquet.walk import Protection
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..policy import TablePolicy
from ..read.open import open_file
from ..storage.discovery.files import refuse_outside_of
from .listing import open_filesystem

if TYPE_CHECKING:
    from ..core.decryption import DecryptionSpec
    from ..core.parquet.walk import Chunk
    from ..read.file import SealedFile
    from ..read.parquet import ParquetFile


@lru_cache(maxsize=16)
def table_of(policy: bytes) -> TablePolicy:
    """One policy object, and so one key cache, for all tasks of a Python worker."""
    loaded: TablePolicy = pickle.loads(policy)  # noqa: S301 - our own driver's
    return loaded


def open_table_file(
    name: str,
    decryption: DecryptionSpec | TablePolicy | None,
    base: str | None,
    root: str | None = None,
) -> SealedFile:
    """Open a file where it was found.

    Args:
        base, name: as `listing.SparkTableFiles`.
        root: the table's folder on that file system; the policy's where this is None.

    Raises:
        UsageError: a link out of the table has taken its place; and as `bloomseal.open_file`.
    """
    if root is None and isinstance(decryption, TablePolicy):
        root = decryption.root
    ref = FileRef(name, open_filesystem(base), root)
    file = open_file(ref, decryption=decryption)
    try:
        refuse_links_out(file.source, root)
    except BaseException:
        file.close()
        raise
    return file


def check_protection(file: ParquetFile, chunk: Chunk, table: TablePolicy) -> None:
    """Whether a column chunk of a file, opened under the policy, is sealed as that says. One with a key of its own is
    opened too: its key metadata names a master key, and what the KMS unwraps under that name is the proof of it.

    Raises:
        PolicyError: it is in plaintext, or under another master key; or its name could be taken for another one.
        KeyAccessError: the key can't be had here; or it is not what the key metadata says.
        IntegrityError, FormatError: the column's metadata is not sealed under it.
    """
    name, wanted = chunk.leaf.name, table.master_key(chunk.leaf.name)
    if wanted is not None and not chunk.encrypted:
        raise PolicyError(f"column {name} is in plaintext")
    if chunk.protection is Protection.COLUMN_KEY:
        file.walk.meta(chunk)
    elif wanted not in (None, table.footer_key):
        raise PolicyError(f"column {name} is sealed under the footer's key and not under its own")
    file.walk.expected(chunk)


def refuse_links_out(source: Source, root: str | None) -> None:
    """As `refuse_outside`, for a table whose folder is `root`; None: the file was named itself."""
    if root is not None and source.ref.filesystem is None:
        refuse_outside_of(source, root)
