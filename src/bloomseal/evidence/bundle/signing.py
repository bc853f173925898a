"""Ed25519 signatures (RFC 8032) over the bytes of a manifest: keys in PEM files, or whoever signs elsewhere."""

from __future__ import annotations

import hashlib
import os
from typing import Final, Protocol, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from ...errors import KeyAccessError, UsageError
from ...storage.source import open_regular

__all__ = ["Detached", "FileSigner", "PublicKey", "Signer"]

_LONGEST_PEM: Final = 1 << 14
SIGNATURE_BYTES: Final = 64


@runtime_checkable
class Signer(Protocol):
    """Whoever holds a private Ed25519 key: a file, a KMS, an HSM, a card."""

    def public_key(self) -> bytes:
        """The public key: PEM, or DER (SubjectPublicKeyInfo)."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The signature (64 bytes) over the message itself, not over a digest of it."""
        ...


class PublicKey:
    """A public Ed25519 key.

    Args:
        source: a PEM file's path; or PEM or DER as bytes.

    Attributes:
        fingerprint: SHA-256 over its SubjectPublicKeyInfo, in hexadecimal.

    Raises:
        KeyAccessError: the file can't be read. UsageError: no public Ed25519 key.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        data = source if isinstance(source, bytes) else _read(source, "the public key")
        name = None if isinstance(source, bytes) else os.fspath(source)
        key = None
        try:
            key = load_pem_public_key(data) if data.lstrip().startswith(b"-----") else load_der_public_key(data)
        except Exception:
            key = None
        if not isinstance(key, Ed25519PublicKey):
            private = b"PRIVATE KEY" in data
            raise UsageError(
                "this is a private key; it belongs to its owner alone" if private else "no public Ed25519 key in PEM",
                file=name,
                hint="openssl pkey -in private.pem -pubout -out public.pem",
            )
        self._key = key
        encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.fingerprint = hashlib.sha256(encoded).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Is this the key's signature over the message?"""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __repr__(self) -> str:
        return f"<PublicKey {self.fingerprint[:16]}>"


class FileSigner:
    """A private Ed25519 key in a PEM file (PKCS #8).

    Args:
        path: the file; nobody but its owner may read it.
        passphrase: where the file is encrypted.

    Raises:
        KeyAccessError: the file can't be read, or the passphrase does not open it.
        UsageError: no private Ed25519 key. Nothing of the file is ever part of a message.
    """

    def __init__(self, path: str | os.PathLike[str], *, passphrase: str | None = None) -> None:
        data = _read(path, "the signing key", private=True)
        secret = None if passphrase is None else passphrase.encode()
        problem: type[KeyAccessError] | type[UsageError] = UsageError
        key: object = None
        try:
            key = load_pem_private_key(data, secret)
        except TypeError:
            problem = KeyAccessError  # a passphrase is missing, or there is one too many
        except Exception:
            problem = KeyAccessError if b"ENCRYPTED" in data else UsageError
        if not isinstance(key, Ed25519PrivateKey):
            raise problem(
                "no private Ed25519 key in PEM, or a wrong passphrase",
                file=os.fspath(path),
                hint="openssl genpkey -algorithm ed25519 -out private.pem",
            )
        self._key = key

    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"<FileSigner {PublicKey(self.public_key()).fingerprint[:16]}>"

    def __reduce__(self) -> str:
        raise TypeError("a signing key is not pickled")


class Detached:
    """A signature that was made elsewhere, over the bytes of ``manifest.json``: by a KMS, an HSM, a card, openssl.

    Args:
        signature: the file with its 64 bytes.
        public_key: the signer's public key, in PEM.

    Raises:
        KeyAccessError: a file can't be read.
    """

    def __init__(self, signature: str | os.PathLike[str], public_key: str | os.PathLike[str]) -> None:
        self._signature = _read(signature, "the signature")
        self._public_key = _read(public_key, "the public key")

    def public_key(self) -> bytes:
        return self._public_key

    def sign(self, message: bytes) -> bytes:  # noqa: ARG002
        """The signature; whoever takes it checks it against the message."""
        return self._signature


def _read(path: str | os.PathLike[str], what: str, *, private: bool = False) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:
            if private and os.fstat(file.fileno()).st_mode & 0o077:
                raise KeyAccessError(
                    f"{what} can be used by others than its owner", file=os.fspath(path), hint="chmod 600"
                )
            return file.read(_LONGEST_PEM)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise KeyAccessError(f"{what} can't be read: {reason}", file=os.fspath(path))
