"""Footers of encrypted files changed by whoever can: what stands in clear by anybody, what is sealed by the footer
key's holder.
"""

from __future__ import annotations

from collections.abc import Callable

from bloomseal.core.encryption import Algorithm, ModuleCipher, ModuleType, module_aad
from bloomseal.core.parquet.footer import FileCrypto, FooterKind, peek, seal_footer, sign_footer
from bloomseal.core.parquet.layout import MAGIC, MAGIC_ENCRYPTED, FileMeta, Group
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct

__all__ = ["as_ctr", "change_algorithm", "change_clear_footer", "change_footer", "change_groups", "in_chunk", "rename"]

Change = Callable[[Struct], object]


def change_algorithm(data: bytes, change: Change, key_metadata: Callable[[bytes], bytes] = bytes) -> bytes:
    """The FileCryptoMetaData of an encrypted footer rewritten: its EncryptionAlgorithm, and the footer's key
    metadata.
    """
    seen = peek(Source.memory(data))
    assert seen.kind is FooterKind.ENCRYPTED
    assert seen.algorithm is not None
    change(seen.algorithm)
    head = Struct()
    head.set_struct(1, seen.algorithm)
    if seen.key_metadata:
        head.set_binary(2, key_metadata(seen.key_metadata))
    return _ended(data[: seen.offset], head.to_bytes() + seen.sealed, MAGIC_ENCRYPTED)


def as_ctr(algorithm: Struct) -> None:
    """An AES_GCM_V1 algorithm calls itself AES_GCM_CTR_V1."""
    inner = algorithm.struct(1)
    assert inner is not None
    algorithm.remove(1)
    algorithm.set_struct(2, inner)


def change_clear_footer(data: bytes, change: Change) -> bytes:
    """A signed footer changed, its signature left as it is."""
    seen = peek(Source.memory(data))
    assert seen.kind is FooterKind.SIGNED
    footer = Struct.parse(seen.clear, remember=FileMeta.ROW_GROUPS)
    change(footer)
    return _ended(data[: seen.offset], footer.to_bytes() + seen.sealed, MAGIC)


def change_footer(data: bytes, cipher: ModuleCipher, change: Change, prefix: bytes = b"") -> bytes:
    """A footer of either kind changed, and sealed or signed again by the holder of its key.

    Args:
        prefix: the AAD prefix, where the file does not store it.
    """
    seen = peek(Source.memory(data))
    algorithm, inner = seen.inner()
    unique, signed = inner.binary(2) or b"", seen.kind is FooterKind.SIGNED
    stored = inner.binary(1)
    crypto = FileCrypto(
        Algorithm(algorithm), stored or prefix, unique, stored is not None or not prefix, signed, seen.key_metadata
    )
    clear = seen.clear or cipher.open(seen.sealed, ModuleType.FOOTER, module_aad(crypto.file_aad, ModuleType.FOOTER))
    footer = Struct.parse(clear)
    change(footer)
    made = (sign_footer if signed else seal_footer)(footer.to_bytes(), crypto, cipher)
    return data[: seen.offset] + made


def change_groups(change: Callable[[list[bytes]], list[bytes]]) -> Change:
    """A change of the list of row groups."""
    return lambda footer: footer.set_list(FileMeta.ROW_GROUPS, change(footer.elements(FileMeta.ROW_GROUPS)))


def in_chunk(row_group: int, column: int, change: Change) -> Change:
    """A change of one ColumnChunk."""

    def groups(listed: list[bytes]) -> list[bytes]:
        group = Struct.parse(listed[row_group])
        chunks = group.elements(Group.COLUMNS)
        chunk = Struct.parse(chunks[column])
        change(chunk)
        chunks[column] = chunk.to_bytes()
        group.set_list(Group.COLUMNS, chunks)
        return [*listed[:row_group], group.to_bytes(), *listed[row_group + 1 :]]

    return change_groups(groups)


def rename(names: dict[str, str]) -> Change:
    """A change of the names in the schema."""

    def change(footer: Struct) -> None:
        changed = []
        for raw in footer.elements(FileMeta.SCHEMA):
            element = Struct.parse(raw)
            name = (element.binary(4) or b"").decode()
            element.set_binary(4, names.get(name, name).encode())
            changed.append(element.to_bytes())
        footer.set_list(FileMeta.SCHEMA, changed)
        footer.remove(FileMeta.KEY_VALUE)

    return change


def _ended(before: bytes, footer: bytes, magic: bytes) -> bytes:
    return before + footer + len(footer).to_bytes(4, "little") + magic
