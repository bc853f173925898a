"""Key material beside a file that was written anew: the predecessor's entries go once the new file is in its place."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.decryption import DecryptionSpec
from ..core.errors import KeyAccessError
from ..core.keys.material import KeyMetadata
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..format.opening import open_footer
from ..keytools.material.store import MaterialStore
from ..storage.places import open_source
from ..write.key_metadata import key_metadata_in_use

__all__ = ["entries_beside", "prune"]


def entries_beside(ref: FileRef) -> dict[str, str]:
    """All key material beside a file, by reference."""
    return MaterialStore(ref).read()


def prune(ref: FileRef, before: Mapping[str, str], decryption: DecryptionSpec | None) -> int:
    """Drop entries that only the file's predecessor needed.

    Args:
        before: the entries as they were before the file was written anew. What has come since may be another writer's,
            and stays.
        decryption: opens the file as it is now; None for a file that needs no key.

    Returns:
        How many entries went.
    """
    if not before:
        return 0
    needed, footer = _references(ref, decryption)
    return MaterialStore(ref).supersede(before, needed, footer)


def _references(ref: FileRef, decryption: DecryptionSpec | None) -> tuple[set[str], str | None]:
    needed: set[str] = set()
    of_footer: str | None = None
    if decryption is None:
        return needed, of_footer
    with open_source(ref) as source:
        footer, keys = open_footer(source, decryption)
        if not footer.verified:
            keys.footer()  # raises: a footer that nobody has verified could name anything, or nothing
        for column, key_metadata in key_metadata_in_use(Walk(source, footer, keys)):
            try:
                reference = KeyMetadata.from_bytes(key_metadata).reference
            except KeyAccessError:
                continue  # an id of explicit keys
            if reference is not None:
                needed.add(reference)
                of_footer = reference if column is None else of_footer
    return needed, of_footer
