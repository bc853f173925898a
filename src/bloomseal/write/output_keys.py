"""The keys that a new file is sealed with: an `EncryptionSpec` made concrete for one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

from ..core.columns import nearest_entry
from ..core.decryption import DecryptionSpec
from ..core.encryption import Algorithm, ModuleCipher, ModuleType, SecretKey, module_aad, page_aads
from ..core.errors import BloomsealError, PolicyError
from ..core.keys.protocols import FileKeys, KeyDescription, wrapped_by
from ..core.parquet.expectation import UNIQUE_BYTES, Expectation
from ..core.parquet.footer import FileCrypto
from ..core.parquet.schema import Leaf, Schema
from ..core.parquet.walk import Protection
from ..core.storage.ref import FileRef
from ..core.thrift import Struct, WireType, encode_binary
from ..keytools.access_log import AccessLog
from ..keytools.sources import as_key_source
from ..specs import EncryptionSpec, KeyChoice


def sealed_leaves(spec: EncryptionSpec, schema: Schema) -> list[Leaf]:
    """The columns that a file of this schema has encrypted under `spec`, in schema order.

    Raises:
        UsageError: a column key for a column that does not exist.
    """
    if not spec.column_keys or spec.complete:
        return list(schema.leaves)
    named = {leaf.index for name in spec.column_keys for leaf in schema.below(name)}
    return [leaf for leaf in schema.leaves if leaf.index in named]


class OutputKeys:
    """Which cipher seals what in one new file.

    Args:
        spec: what the caller asked for.
        schema: the file's schema.
        ref: the final place of the file, for key sources that store material beside it.

    Raises:
        UsageError: a column key for a column that does not exist.
        PolicyError: a column whose name differs from a keyed one's in case or Unicode form alone, or has a dot and
            reads as a field of a keyed one: it would not be under that key. Readers refuse such a file.
        KeyAccessError: the KMS would not wrap a data key.
    """

    def __init__(self, spec: EncryptionSpec, schema: Schema, ref: FileRef) -> None:
        expected = Expectation(encrypted_columns=frozenset(spec.column_keys or ()))
        for leaf in schema.leaves:
            expected.name(leaf.name)
        self._choices = _choices(spec, schema)
        self._source: FileKeys | None = None
        if spec.keys is not None:
            self._source = as_key_source(spec.keys).for_file(ref, writing=True)
        self.spec = spec
        self._log = AccessLog.of(spec.access_log, ref.path)
        self._leaves = schema.leaves
        algorithm = Algorithm(spec.algorithm)
        try:
            footer_key, footer_metadata = self._new_key(spec.footer_key, None)
            prefix = spec.aad_prefix if isinstance(spec.aad_prefix, bytes) else b""
            self.crypto = FileCrypto(
                algorithm,
                prefix,
                os.urandom(UNIQUE_BYTES),
                spec.store_aad_prefix,
                spec.plaintext_footer,
                footer_metadata,
            )
            self.footer = ModuleCipher(footer_key, algorithm)
            self._columns = self._resolve_columns(schema)
        except BaseException:
            self.discard()
            raise

    def _resolve_columns(self, schema: Schema) -> dict[int, tuple[ModuleCipher, bytes]]:
        columns: dict[int, tuple[ModuleCipher, bytes]] = {}
        for index, choice in self._choices.items():
            key, metadata = self._new_key(choice, schema.leaves[index].name)
            columns[index] = (ModuleCipher(key, self.crypto.algorithm), metadata)
        return columns

    def _new_key(self, choice: KeyChoice, column: str | None) -> tuple[SecretKey, bytes]:
        try:
            key, metadata = self._made(choice, column)
        except BloomsealError as error:
            if self._log is not None:
                self._log.say("seal", column, choice if isinstance(choice, str) else None, error=error)
            raise
        if self._log is not None:
            self._log.used("seal", self._source, metadata, column)
        return key, metadata

    def _made(self, choice: KeyChoice, column: str | None) -> tuple[SecretKey, bytes]:
        if isinstance(choice, str):
            assert self._source is not None  # noqa: S101  # EncryptionSpec refuses a name without keys=
            return self._source.new_key(choice, column, self.spec.key_bits)
        key, metadata = choice if isinstance(choice, tuple) else (choice, b"")
        return cast(SecretKey, key), metadata.encode() if isinstance(metadata, str) else metadata

    def protection(self, leaf: Leaf) -> Protection:
        """Which key a column gets."""
        if leaf.index in self._columns:
            return Protection.COLUMN_KEY
        if not self._columns or self.spec.complete:
            return Protection.FOOTER_KEY
        return Protection.PLAINTEXT

    def cipher(self, leaf: Leaf) -> ModuleCipher | None:
        """The column's cipher; None for plaintext."""
        match self.protection(leaf):
            case Protection.COLUMN_KEY:
                return self._columns[leaf.index][0]
            case Protection.FOOTER_KEY:
                return self.footer
            case Protection.PLAINTEXT:
                return None

    def aad(self, kind: ModuleType, row_group: int, leaf: Leaf) -> bytes:
        return module_aad(self.crypto.file_aad, kind, row_group, leaf.index)

    def page_aads(self, row_group: int, leaf: Leaf) -> Callable[[ModuleType, int], bytes]:
        """As `aad`, for the many pages of one column chunk."""
        return page_aads(self.crypto.file_aad, row_group, leaf.index)

    def column_crypto(self, leaf: Leaf) -> Struct:
        """ColumnCryptoMetaData of an encrypted column (Parquet encryption, section 5.1)."""
        union = Struct()
        if leaf.index not in self._columns:
            union.set_struct(1, Struct())
            return union
        inner = Struct()
        inner.set_list(1, [encode_binary(part.encode()) for part in leaf.path], WireType.BINARY)
        if metadata := self._columns[leaf.index][1]:
            inner.set_binary(2, metadata)
        union.set_struct(2, inner)
        return union

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """A `KeyRetriever` over the keys just made, to reopen and check the file before it gets its name."""
        if column is None:
            return self.footer.key
        # A column named "a.b" and the field b of a column a have the same name, but not the same key.
        named = (
            self._columns[leaf.index] for leaf in self._leaves if leaf.name == column and leaf.index in self._columns
        )
        return next(cipher.key for cipher, metadata in named if metadata == key_metadata)

    def decryption(self) -> DecryptionSpec:
        """What opens the file just written."""
        supplied = self.crypto.aad_prefix if not self.crypto.prefix_stored else b""
        return DecryptionSpec(
            self, aad_prefix=supplied or None, allow_ctr=self.crypto.algorithm is Algorithm.AES_GCM_CTR_V1
        )

    def wrapped_by(self) -> dict[str | None, KeyDescription]:
        """Column (None: the footer) → what its key metadata says of its master key, where it does."""
        named: dict[str | None, bytes] = {None: self.crypto.footer_key_metadata}
        named |= {leaf.name: self._columns[leaf.index][1] for leaf in self._leaves if leaf.index in self._columns}
        told = {column: wrapped_by(self._source, metadata) for column, metadata in named.items()}
        return {column: one for column, one in told.items() if one is not None}

    def confirm(self) -> set[str]:
        """Whether the wrapped keys lead back to the keys. A new file is checked with those at hand, and would open.

        Returns:
            Master keys of which nobody here could tell.

        Raises:
            KeyAccessError: the KMS wrapped other keys, or won't unwrap.
        """
        return (self._source.confirm() if self._source is not None else None) or set()

    def store(self) -> None:
        """Make external key material durable, before the file appears under its name."""
        if self._source is not None:
            self._source.store()

    def committed(self) -> None:
        """The file has its name: a source may drop what only the file before it needed."""
        if self._source is not None:
            self._source.commit()

    def discard(self) -> None:
        """Writing failed."""
        if self._source is not None:
            self._source.discard()


def _choices(spec: EncryptionSpec, schema: Schema) -> dict[int, KeyChoice]:
    """Leaf → its key, of those that have one."""
    given = spec.column_keys or {}
    named: dict[int, str] = {}
    # Longest path first: a key for one leaf wins over a key for the group above it.
    for name in sorted(given, key=lambda name: -len(name)):
        for leaf in schema.below(name):
            named.setdefault(leaf.index, name)
    names = {name: name for name in given}
    for leaf in schema.leaves:
        # Readers have nothing but dotted names to go by: to them a column "a.b" is the field b of a.
        above = nearest_entry(names, leaf.name)
        if above is not None and named.get(leaf.index) != above:
            raise PolicyError(
                f"the column's name reads as a field of {above}, which has a key, and it is none",
                column=leaf.name,
                hint="a key of its own, or another name",
            )
    return {index: given[name] for index, name in named.items()}
