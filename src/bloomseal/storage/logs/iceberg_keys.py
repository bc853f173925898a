"""Keys of encrypted Iceberg tables: the key metadata of a file, and what a table's metadata hold of keys.

The bytes are those of Iceberg's standard encryption manager. The table specification (format version 3, "Encryption
Keys") leaves key metadata to implementations.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...core.decryption import IcebergSpec
from ...core.encryption import SecretKey
from ...core.encryption.cipher import NONCE_BYTES
from ...core.errors import FormatError, IntegrityError, PolicyError
from ...core.keys.access import shown
from ...core.keys.wrapping import unwrap_locally, wrap_locally
from ...core.limits import MAX_KEY_METADATA_BYTES

UnwrapBytes = Callable[[bytes, str], SecretKey]
"""What a KMS gives for its own ciphertext, and the master key's name."""

_VERSION: Final = 1
MASTER_KEY: Final = "encryption.key-id"
KEK_TIMESTAMP: Final = "KEY_TIMESTAMP"


@dataclass(frozen=True)
class IcebergFileKey:
    """The key metadata of one file: ``0x01`` and an Avro datum of key, AAD prefix and length of the file. Pickled it is
    a `WrappedFileKey`.

    Attributes:
        key: of the file: the footer key of Parquet, the key of an AGS1 stream.
        prefix: the AAD prefix; empty: none.
        length: of the file in bytes; None where it is not told.
        path: of the file.
        kek: what the key hangs from.
    """

    key: SecretKey
    prefix: bytes = field(repr=False)
    length: int | None
    path: str = field(default="", repr=False, compare=False)
    kek: IcebergKek | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> Any:
        if self.kek is None:
            return self.key.__reduce__()  # which refuses: no key travels as it is
        wrapped = wrap_locally(self.key, self.kek.key, _binding(self.path, self.prefix))
        return WrappedFileKey, (self.kek.wrapped, wrapped, self.prefix)

    @classmethod
    def parse(cls, data: bytes) -> IcebergFileKey:
        """Both layouts of version 1: that of before Iceberg 1.11 has no length.

        Raises:
            FormatError: another version, or bytes too few or too many. Messages hold none of them.
        """
        if data[:1] != bytes((_VERSION,)):
            raise FormatError("key metadata of another version than 1")
        cursor = _AvroCursor(data, 1)
        key = cursor.bytes()
        if len(key) not in (16, 24, 32):
            raise FormatError(f"key metadata with a key of {len(key)} bytes")
        prefix = cursor.bytes() if cursor.branch() else b""
        length = cursor.long() if not cursor.done and cursor.branch() else None
        if not cursor.done or (length is not None and length < 0):
            raise FormatError("key metadata with bytes left over, or a negative length")
        return cls(SecretKey(key), prefix, length)


@dataclass(frozen=True)
class IcebergKek:
    """A key encryption key, opened.

    Attributes:
        id: as the metadata have it.
        wrapped: what the KMS has made of it.
    """

    id: str
    wrapped: bytes = field(repr=False)
    key: SecretKey


@dataclass(frozen=True)
class WrappedFileKey:
    """A file's key on its way to another process, which has to ask the KMS for the KEK.

    Attributes:
        kek: as the KMS has wrapped it.
        wrapped: the file's key under the KEK, bound to the file's place and its prefix.
        prefix: the file's AAD prefix, which is no secret.
    """

    kek: bytes = field(repr=False)
    wrapped: str = field(repr=False)
    prefix: bytes = field(repr=False)

    def open(self, unwrap: UnwrapBytes, master_key: str, path: str) -> IcebergFileKey:
        """The key.

        Raises:
            KeyAccessError: the KMS refuses; or it is another file's.
        """
        key = unwrap_locally(self.wrapped, unwrap(self.kek, master_key), _binding(path, self.prefix))
        return IcebergFileKey(key, self.prefix, None)


def _binding(path: str, prefix: bytes) -> bytes:
    """An AAD that no manifest list's key has, which is bound to a number."""
    return b"\x00".join([b"bloomseal file key", path.encode(errors="surrogateescape"), prefix])


class IcebergTableKeys:
    """The keys that a table's metadata hold, wrapped: master key → KEK → key metadata of manifest lists.

    Args:
        metadata: the table's metadata, decoded from JSON.
        spec: what the caller expects.
        unwrap: the KMS. It is asked once, whatever the table's size, for the one KEK that is needed.

    Raises:
        PolicyError: the table is not encrypted, or under another master key than expected.
        FormatError: the list of keys can't be understood.
    """

    def __init__(self, metadata: Mapping[str, Any], spec: IcebergSpec, unwrap: UnwrapBytes) -> None:
        properties = metadata.get("properties") or {}
        if (named := properties.get(MASTER_KEY)) != spec.encryption_key:
            what = "no encryption key" if named is None else f"the encryption key {shown(str(named))}"
            raise PolicyError(f"the table names {what}, and {shown(spec.encryption_key)} is expected")
        if int(metadata.get("format-version", 0)) < 3:
            raise PolicyError("an encrypted table of a format version below 3")
        try:
            self._entries = {str(one["key-id"]): one for one in metadata.get("encryption-keys") or ()}
        except (TypeError, KeyError):
            raise FormatError("encryption-keys of the metadata that can't be understood") from None
        self._spec, self._unwrap = spec, unwrap

    def manifest_list(self, snapshot: Mapping[str, Any]) -> tuple[IcebergKek, IcebergFileKey]:
        """The key metadata of a snapshot's manifest list, and the KEK that they hang from.

        Raises:
            PolicyError: the snapshot's manifest list is in clear, or its KEK hangs from another master key.
            FormatError, IntegrityError: keys that are not there, or that don't open.
            KeyAccessError: the KMS refuses.
        """
        if (key_id := snapshot.get("key-id")) is None:
            raise PolicyError("the snapshot has no key-id: its manifest list is in clear, or its key was taken away")
        entry = self._entry(str(key_id))
        kek = self._entry(name := str(entry.get("encrypted-by-id")))
        if kek.get("encrypted-by-id") != self._spec.encryption_key:
            raise PolicyError("the table's KEK is not wrapped by the expected master key")
        told = kek.get("properties")
        if not isinstance(told, Mapping) or not isinstance(timestamp := told.get(KEK_TIMESTAMP), str):
            raise FormatError("the table's KEK has no timestamp")
        under = self._unwrap(wrapped := _wrapped(kek), self._spec.encryption_key)
        sealed = _wrapped(entry)
        try:
            opened = AESGCM(under.reveal()).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], timestamp.encode())
        except (InvalidTag, ValueError):
            pass
        else:
            return IcebergKek(name, wrapped, under), IcebergFileKey.parse(opened)
        raise IntegrityError("the key of the manifest list does not open: another KEK's, or altered")

    def _entry(self, key_id: str) -> Mapping[str, Any]:
        entry = self._entries.get(key_id)
        if not isinstance(entry, Mapping):
            raise FormatError(f"the metadata have no encryption key {shown(key_id)}")
        return entry


def _wrapped(entry: Mapping[str, Any]) -> bytes:
    try:
        wrapped = base64.b64decode(entry["encrypted-key-metadata"], validate=True)
    except (KeyError, TypeError, binascii.Error, ValueError):
        raise FormatError("an encryption key of the metadata that is not base64") from None
    if len(wrapped) > MAX_KEY_METADATA_BYTES:
        raise FormatError(f"an encryption key of the metadata of {len(wrapped)} bytes")
    return wrapped


class _AvroCursor:
    """Avro's binary encoding of longs, bytes and unions with null (Avro specification, "Binary Encoding")."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._position = data, position

    @property
    def done(self) -> bool:
        return self._position == len(self._data)

    def long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self.done:
                break
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise FormatError("key metadata that end too early, or a number that does not end")

    def bytes(self) -> bytes:
        size = self.long()
        if not 0 <= size <= len(self._data) - self._position:
            raise FormatError("key metadata that end too early")
        self._position += size
        return self._data[self._position - size : self._position]

    def branch(self) -> bool:
        """Whether a union with null has a value."""
        if (number := self.long()) not in (0, 1):
            raise FormatError("key metadata with an unknown branch of a union")
        return number == 1
