"""What a KMS client may offer beyond wrapping and unwrapping, found at run time: the contract (`KmsClient`) stays two
methods.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = [
    "AuthenticatingKms",
    "ChangingKms",
    "ClockedKms",
    "DatedKms",
    "KeyDates",
    "KeyState",
    "LocalKeyKms",
    "MasterVersion",
    "RewrappingKms",
    "SigningKms",
    "StatefulKms",
    "VersionFacts",
    "VersionedKms",
    "WitnessKms",
]


class KeyState(StrEnum):
    """A master key's (or one version's) state."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    PENDING_DELETION = "pending deletion"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class KeyDates:
    """When a master key was made and last rotated, in UTC; None where the KMS does not tell."""

    created: datetime | None
    rotated: datetime | None


@runtime_checkable
class VersionedKms(Protocol):
    """A KMS client that knows versions of master keys."""

    def current_version(self, master_key_identifier: str) -> str | None:
        """The version that `wrap_key` uses now; None where the KMS does not tell."""
        ...

    def wrapping_version(self, wrapped_key: str, master_key_identifier: str) -> str | None:
        """The version that wrapped this blob; None where it can't be told."""
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
class StatefulKms(Protocol):
    """A KMS client that tells whether a master key may be used."""

    def key_state(self, master_key_identifier: str) -> KeyState:
        """The master key's state."""
        ...


@runtime_checkable
class DatedKms(Protocol):
    """A KMS client that knows when master keys were made and rotated."""

    def key_dates(self, master_key_identifier: str) -> KeyDates:
        """Creation and latest rotation."""
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
class ChangingKms(Protocol):
    """A KMS client that notices, at no cost, that its keys have changed; cached keys are then asked for again."""

    def change_marker(self) -> Hashable:
        """Some value that differs from an earlier one if keys were made, rotated, disabled or destroyed in between."""
        ...


@runtime_checkable
class AuthenticatingKms(Protocol):
    """A KMS client that tells whether a wrapped key could have been made without a right to wrap.

    What a symmetric master key unwraps was wrapped by somebody whom the KMS let wrap. A public key (RSA) wraps in
    anybody's hands: a file that opens under it was not therefore written by a writer of the table.
    """

    def authenticates_writers(self, wrapped_key: str, master_key_identifier: str) -> bool | None:
        """True: the wrapped key proves a right to wrap. False: a public key wraps. None: it can't be told."""
        ...


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
    """

    version: str
    wraps: bool
    retired: datetime | None = None
    fingerprint: str | None = None


@runtime_checkable
class WitnessKms(Protocol):
    """A KMS client that tells which master key and version a wrapped key is under from opening it, not from its text.

    Whoever destroys a version relies on this: a wrapped key may claim another version than the one that wrapped it, and
    one master key may go by several names.
    """

    def versions(self, master_key_identifier: str) -> tuple[VersionFacts, ...]:
        """The versions that the KMS knows, oldest first, destroyed ones too if it tells; empty where it lists none.

        Raises:
            KmsAccessError: UNKNOWN where there is no such key.
        """
        ...

    def identify(self, master_key_identifier: str, version: str | None) -> MasterVersion:
        """The key, and the version if one is given, that these names stand for: equal for all names of one key."""
        ...

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> MasterVersion:
        """The key and version that open it, as `identify` has them.

        Raises:
            KmsAccessError: nothing that may be used opens it.
        """
        ...


@runtime_checkable
class ClockedKms(Protocol):
    """A KMS client that tells the time by which its KMS dates versions."""

    def clock(self, master_key_identifier: str) -> datetime | None:
        """The time there now, in UTC, as whoever may ask about that key learns it; None where it is not told."""
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
