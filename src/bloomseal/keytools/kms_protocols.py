"""What a KMS client may offer beyond wrapping and unwrapping, found at run time: the contract (`KmsClient`) stays two
methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable


class KeyState(StrEnum):
    """A master key's (or one version's) state."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    PENDING_DELETION = "pending deletion"
    DESTROYED = "destroyed"


class MasterVersion(NamedTuple):
    """A version of a master key, by the one name that the KMS itself gives the key; None where it tells no version."""

    key: str
    version: str | None


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version of a master key.

    Attributes:
        version: its name, as `MasterVersion` has it.
        wraps: it may wrap new keys now.
        retired: since when it wraps none, in UTC; None where it does, and where the KMS does not tell.
        fingerprint: says which key it is, without saying the key; None where the KMS keeps the key to itself.
        created, state, bits: None where the KMS does not tell them of each version.
        same_as: the version of another master key that this one is as well.
    """

    version: str
    wraps: bool
    retired: datetime | None = None
    fingerprint: str | None = None
    created: datetime | None = None
    state: KeyState | None = None
    bits: int | None = None
    same_as: MasterVersion | None = None


@dataclass(frozen=True, slots=True)
class MasterKeyFacts:
    """What a KMS tells of a master key. None is *not told*, never *no*.

    Attributes:
        key: the one name that the KMS itself gives the key: equal for all of its names.
        current: the version that `wrap_key` uses now; where it wraps to recipients, these (`recipients.version_name`).
        state: of the key, or of its current version.
        created, rotated: when it was made and last rotated, in UTC.
        versions: those that the KMS knows, oldest first, destroyed ones too if it tells; None from a client that tells
            no versions, and that can't say which one opens a wrapped key.
        authenticates_writers: True: what it wraps proves a right to wrap. False: a public key wraps.
        clock: the time by which the KMS dates versions, in UTC, as it was when it answered.
    """

    key: str
    current: str | None = None
    state: KeyState | None = None
    created: datetime | None = None
    rotated: datetime | None = None
    versions: tuple[VersionFacts, ...] | None = None
    authenticates_writers: bool | None = None
    clock: datetime | None = None

    def identify(self, version: str | None) -> MasterVersion:
        """The key, and the version if one is given: equal for all names of one key."""
        version = self._own(version)
        aliases = {one.version: one.same_as for one in self.versions or () if one.same_as is not None}
        return aliases.get(version or "") or MasterVersion(self.key, version)

    def _own(self, version: str | None) -> str | None:
        """The newest version that is among the recipients, where these stand in the place of a version."""
        ids = (version or "").partition(":")[2].split("+")
        mine = [one.version for one in self.versions or () if one.fingerprint and one.fingerprint in ids]
        return mine[-1] if mine else version

    def since(self, version: str | None) -> datetime | None:
        """When a version was made, or the latest moment at which it can have been: that raises no false alarm."""
        made = {one.version: one.created for one in self.versions or ()}
        if made and None not in made.values():
            return made.get(self._own(version) or "")
        if self.rotated is None or version is None:
            return self.created
        return self.created if version == "1" and version != self.current else self.rotated


@runtime_checkable
class DescribingKms(Protocol):
    """A KMS client that tells about master keys more than what they open."""

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        """What the KMS tells of a master key.

        What a symmetric master key unwraps was wrapped by somebody whom the KMS let wrap. A public key (RSA) wraps in
        anybody's hands: a file that opens under it was not therefore written by a writer of the table.

        Args:
            wrapped_key: where given, whether it authenticates writers is told of the version that this one names.

        Raises:
            KmsAccessError: UNKNOWN where there is no such key.
        """
        ...

    def opened_by(self, wrapped_key: str | bytes, master_key_identifier: str) -> MasterVersion | None:
        """The key and version that open it, from opening it and not from its text; None where the KMS does not tell.

        Whoever destroys a version relies on this: a wrapped key may claim another version than the one that wrapped
        it, and one master key may go by several names.

        Args:
            wrapped_key: bytes, of a client that is a `BytesKms`, are what `BytesKms.unwrap_bytes` takes.

        Raises:
            KmsAccessError: nothing that may be used opens it.
        """
        ...


@runtime_checkable
class SigningKms(Protocol):
    """A KMS that signs, with asymmetric keys that are no master keys."""

    def public_key(self, key: str) -> bytes:
        """The public key: SubjectPublicKeyInfo in DER, of Ed25519 or of ECDSA over P-256 or P-384.

        Raises:
            KmsAccessError: no such key, or one of another kind.
        """
        ...

    def sign(self, message: bytes, key: str) -> bytes:
        """The signature over the message: 64 bytes by Ed25519 (RFC 8032), or ECDSA in DER, over SHA-256 with P-256 and
        over SHA-384 with P-384.

        Raises:
            KmsAccessError: refused, or not that kind of key.
        """
        ...


@runtime_checkable
class RewrappingKms(Protocol):
    """A KMS client that re-wraps by itself: the key never leaves it."""

    def rewrap_key(
        self, wrapped_key: str, master_key_identifier: str, new_master_key_identifier: str | None = None
    ) -> str:
        """The same key under the current version of `new_master_key_identifier` (default: the same master key)."""
        ...


@runtime_checkable
class BytesKms(Protocol):
    """A KMS client that opens the service's own ciphertext, as the encryption of Iceberg tables stores it: without the
    text around it, and the context, that `KmsClient.wrap_key` binds a key of a Parquet file with.
    """

    def unwrap_bytes(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """The key that `wrapped_key` holds.

        Raises:
            KmsAccessError: refused, or nothing that the master key has wrapped.
        """
        ...


@runtime_checkable
class LocalKeyKms(Protocol):
    """A KMS client that opens the local keys of ORC files (ORC specification, "Column Encryption").

    An encrypted local key is as many random bytes as the key has; it opens by AES-CTR under a version of a master key,
    with its own first 16 bytes as IV. So any random bytes make a new local key, and none can be made to hold a key that
    is given.
    """

    def open_local_key(self, encrypted_key: bytes, master_key_identifier: str, version: int) -> bytes:
        """What `encrypted_key` (16 or 32 bytes) opens to. Any other bytes open to something too.

        Args:
            version: counted from 0, as Hadoop does.
        """
        ...

    def newest_version(self, master_key_identifier: str) -> int:
        """The version that new local keys belong under."""
        ...
