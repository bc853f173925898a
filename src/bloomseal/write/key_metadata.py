"""Other key metadata for the keys of an existing file: its footer is sealed or signed again, no page is touched.

The data keys stay what they are, so every module opens as before. What column metadata is sealed under need not be
known: key metadata stands beside it, and the sealed bytes are spliced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..core.decryption import DecryptionSpec, unsigned
from ..core.encryption import ModuleCipher
from ..core.errors import FormatError, KeyAccessError
from ..core.parquet.footer import Footer, seal_footer, sign_footer
from ..core.parquet.layout import Column, FileMeta, Group
from ..core.parquet.walk import Protection, Walk
from ..core.storage.source import Source
from ..core.thrift import Struct
from ..format.opening import open_footer
from ..keytools.signatures.signers import TailSigner
from ..storage.atomic import AtomicFile, fault_point

_COLUMN_KEY: Final = 2
_KEY_METADATA: Final = 2


def key_metadata_in_use(walk: Walk) -> dict[tuple[str | None, bytes], int]:
    """The key metadata of an open file: column path (None: the footer) and bytes → number of column chunks with it."""
    crypto = walk.footer.crypto
    found: dict[tuple[str | None, bytes], int] = {}
    if crypto is not None:
        found[None, crypto.footer_key_metadata] = 0
    for group in range(len(walk.footer.row_groups)):
        for chunk in walk.chunks(group):
            if chunk.protection is Protection.COLUMN_KEY:
                name = chunk.leaf.name, chunk.key_metadata
                found[name] = found.get(name, 0) + 1
    return found


def rewrapped_footer(walk: Walk, replacements: Mapping[bytes, bytes]) -> bytes:
    """The file's bytes from the footer on, with old key metadata replaced by new (old → new).

    Raises:
        KeyAccessError: no footer key, which seals or signs the footer.
    """
    footer = walk.footer
    if footer.crypto is None:
        raise FormatError("a file without encryption has no key metadata", file=walk.source.name)
    cipher = footer_cipher(walk, "re-wrapping inside the file")
    old = footer.crypto.footer_key_metadata
    crypto = footer.crypto._replace(footer_key_metadata=replacements.get(old, old))
    metadata = footer.struct.copy()
    groups = [_group(walk, index, replacements) for index in range(len(footer.row_groups))]
    if groups != footer.row_groups:
        metadata.set_list(FileMeta.ROW_GROUPS, groups)
    if not crypto.plaintext_footer:
        return seal_footer(metadata.to_bytes(), crypto, cipher)
    if crypto.footer_key_metadata:
        metadata.set_binary(FileMeta.SIGNING_KEY, crypto.footer_key_metadata)
    return sign_footer(metadata.to_bytes(), crypto, cipher)


def footer_cipher(walk: Walk, what: str) -> ModuleCipher:
    """What seals or signs the footer again.

    Raises:
        KeyAccessError: there is no footer key; its message begins with `what` needs it.
    """
    try:
        return walk.keys.footer()
    except KeyAccessError as error:
        raise KeyAccessError(
            f"{what} needs the footer key, to seal or sign the footer again", file=walk.source.name, hint=error.hint
        ) from None


def exchange_key_metadata(
    walk: Walk,
    replacements: Mapping[bytes, bytes],
    decryption: DecryptionSpec,
    *,
    before: tuple[int, ...] | None,
    check: Callable[[Walk], None],
    sign: TailSigner | None = None,
) -> int:
    """Replace a file by one with other key metadata; its modules are copied by the kernel, as they are.

    Args:
        before: the file's identity, taken before it was opened.
        check: called with the new file, its footer opened through the new key metadata, before it takes its name.
        sign: signs the new file.

    Returns:
        The bytes written beyond that copy.

    Raises:
        KeyAccessError, IntegrityError; BloomsealError where the storage failed or somebody else changed the file. In
            every case the file is as it was.
    """
    end = rewrapped_footer(walk, replacements)
    with AtomicFile(walk.source.ref, replaces=before, like=walk.source, sign=sign) as out:
        out.copy_from(walk.source, walk.footer.offset)
        fault_point("copied")
        out.write(end)
        out.commit(lambda reopened: check(_reopened(walk, reopened, unsigned(decryption))))
    return len(end)


def _reopened(walk: Walk, reopened: Source, decryption: DecryptionSpec) -> Walk:
    footer, keys = open_footer(reopened, decryption)
    if not footer.verified or footer.offset != walk.footer.offset or not _same_file(footer, walk.footer):
        raise FormatError("the footer just written does not open as it was meant", file=reopened.name)
    return Walk(reopened, footer, keys)


def _same_file(new: Footer, old: Footer) -> bool:
    """Same identity, same prefix: only the key metadata may differ, or the copied modules would not open."""
    assert new.crypto is not None  # noqa: S101  # rewrapped_footer made it
    assert old.crypto is not None  # noqa: S101
    return (
        new.crypto.file_aad == old.crypto.file_aad
        and new.crypto.algorithm == old.crypto.algorithm
        and len(new.row_groups) == len(old.row_groups)
    )


def _group(walk: Walk, index: int, replacements: Mapping[bytes, bytes]) -> bytes:
    changed = {
        chunk.leaf.index: replacements[chunk.key_metadata]
        for chunk in walk.chunks(index)
        if chunk.protection is Protection.COLUMN_KEY and chunk.key_metadata in replacements
    }
    raw = walk.footer.row_groups[index]
    if not changed:
        return raw
    chunks = Struct.parse(raw).elements(Group.COLUMNS)
    return with_chunks(raw, {column: _rewrapped(chunks[column], metadata) for column, metadata in changed.items()})


def _rewrapped(raw: bytes, key_metadata: bytes) -> bytes:
    chunk = Struct.parse(raw)
    union = chunk.struct(Column.CRYPTO) or Struct()
    own = union.struct(_COLUMN_KEY) or Struct()
    own.set_binary(_KEY_METADATA, key_metadata)
    union.set_struct(_COLUMN_KEY, own)
    chunk.set_struct(Column.CRYPTO, union)
    return chunk.to_bytes()


def with_chunks(group: bytes, changed: Mapping[int, bytes]) -> bytes:
    """A raw RowGroup with other ones in place of some ColumnChunks (column → raw); all else is spliced."""
    struct = Struct.parse(group)
    chunks = struct.elements(Group.COLUMNS)
    for column, raw in changed.items():
        chunks[column] = raw
    struct.set_list(Group.COLUMNS, chunks)
    return struct.to_bytes()
