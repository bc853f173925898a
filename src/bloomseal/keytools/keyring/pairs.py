"""The pairs of keys in a keyring: their public halves, and signatures."""

from __future__ import annotations

from abc import abstractmethod

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ...core.keys.access import KmsAccessError, Problem
from ..recipients.hpke import KeyKind
from .keyfile import KeyVersion
from .wrapped import KMS, usable


class Pairs:
    """The part of `Keyring` that is about pairs."""

    @abstractmethod
    def _current(self, name: str) -> KeyVersion:
        """A master key's current version. Raises KmsAccessError: there is none of this name."""

    def recipient(self, name: str) -> str:
        """The line that names the current version's public key: what a policy's ``recipients`` has.

        Raises:
            KmsAccessError: no such pair; unknown, disabled or destroyed.
        """
        version = self._current(name)
        usable(version, name)
        if (found := version.recipient) is not None:
            return found.line
        raise KmsAccessError.because(
            Problem.INVALID,
            name,
            KMS,
            detail=f"a key of kind {version.kind} has no public half to seal to",
            hint="bloomseal keyring add --kind hpke",
        )

    def public_key(self, key: str) -> bytes:
        """As `SigningKms`, of the current version."""
        return self._signing(key).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, message: bytes, key: str) -> bytes:
        """As `SigningKms`, by the current version."""
        return self._signing(key).sign(message)

    def _signing(self, name: str) -> Ed25519PrivateKey:
        version = self._current(name)
        secret = usable(version, name)
        if version.kind is KeyKind.ED25519:
            return Ed25519PrivateKey.from_private_bytes(secret.reveal())
        raise KmsAccessError.because(
            Problem.INVALID,
            name,
            KMS,
            detail=f"a key of kind {version.kind} does not sign",
            hint="bloomseal keyring add --kind ed25519",
        )
