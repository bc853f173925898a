"""Keys that sign, and verify: Ed25519 (RFC 8032), or ECDSA over P-256 or P-384 (FIPS 186-5). Private keys lie in PEM
files, or with a KMS or whoever else signs.

An ECDSA signature has a twin that holds too: the one of both with the smaller s is kept, in its one DER form, so that
nobody can alter what is signed without a key.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from ...core.errors import KeyAccessError, UsageError
from ...core.storage.local import need_own, read_small
from ..kms.registry import client_for
from ..kms_protocols import SigningKms
from ..lines import as_line, from_line

_LONGEST_PEM: Final = 1 << 14
_LINE: Final = "bsv1"
_FIELD: Final = 2**255 - 19
_DIGESTS: Final[dict[str, hashes.HashAlgorithm]] = {"secp256r1": hashes.SHA256(), "secp384r1": hashes.SHA384()}
_ALGORITHMS: Final = {"ed25519": 1, "ecdsa-p256": 2, "ecdsa-p384": 3}
"""A key's algorithm → its number in a line."""
_CURVES: Final[dict[str, ec.EllipticCurve]] = {"ecdsa-p256": ec.SECP256R1(), "ecdsa-p384": ec.SECP384R1()}


@runtime_checkable
class Signer(Protocol):
    """Whoever holds a private key: a file, a KMS, an HSM, a card."""

    def public_key(self) -> bytes:
        """The public key, of Ed25519 or of ECDSA over P-256 or P-384: PEM, or DER (SubjectPublicKeyInfo)."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The signature over the message itself: 64 bytes by Ed25519; or DER, by ECDSA over SHA-256 with P-256 and over
        SHA-384 with P-384.
        """
        ...


class PublicKey:
    """A public key.

    Args:
        source: a PEM file's path; or PEM or DER as bytes.

    Attributes:
        algorithm: ``ed25519``, ``ecdsa-p256`` or ``ecdsa-p384``.
        fingerprint: SHA-256 over its SubjectPublicKeyInfo, in hexadecimal.
        pem: the key.

    Raises:
        KeyAccessError: the file can't be read. UsageError: no public key of Ed25519, P-256 or P-384; or one that takes
            anybody's signature.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        data = source if isinstance(source, bytes) else read_signing_file(source, "the public key")
        name = None if isinstance(source, bytes) else os.fspath(source)
        key: object = None
        try:
            key = load_pem_public_key(data) if data.lstrip().startswith(b"-----") else load_der_public_key(data)
        except Exception:
            key = None
        known = isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _DIGESTS
        if not (known or isinstance(key, Ed25519PublicKey)):
            private = b"PRIVATE KEY" in data
            raise UsageError(
                "this is a private key; it belongs to its owner alone"
                if private
                else "no public key of Ed25519, P-256 or P-384 in PEM",
                file=name,
                hint="openssl pkey -in private.pem -pubout -out public.pem",
            )
        assert isinstance(key, ec.EllipticCurvePublicKey | Ed25519PublicKey)  # noqa: S101
        if isinstance(key, Ed25519PublicKey) and _of_small_order(key.public_bytes_raw()):
            raise UsageError("this public key takes anybody's signature: a point of small order", file=name)
        self._key = key
        self.algorithm = "ed25519" if isinstance(key, Ed25519PublicKey) else f"ecdsa-p{key.curve.key_size}"
        self.pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.fingerprint = hashlib.sha256(encoded).hexdigest()

    @classmethod
    @lru_cache(maxsize=256)
    def from_line(cls, line: str) -> PublicKey:
        """The key that a line of a policy holds, see `line`.

        Raises:
            UsageError: another text, or one that was mistyped.
        """
        if payload := from_line(_LINE, line):
            try:
                if (made := _from_raw(payload)).line == line:
                    return made
            except UsageError:
                raise
            except ValueError:
                pass
        raise UsageError("no signer's line, or a mistyped one", hint=f"{_LINE}…, as bloomseal keyring signer prints it")

    @property
    def line(self) -> str:
        """The key as one line of text, with its algorithm and a checksum."""
        if isinstance(self._key, Ed25519PublicKey):
            raw = self._key.public_bytes_raw()
        else:
            raw = self._key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        return as_line(_LINE, bytes([_ALGORITHMS[self.algorithm]]) + raw)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this is the key's signature over the message, in its one form."""
        try:
            if isinstance(self._key, Ed25519PublicKey):
                self._key.verify(signature, message)
                return True
            self._key.verify(signature, message, ec.ECDSA(_DIGESTS[self._key.curve.name]))
            return self.in_one_form(signature) == signature
        except (InvalidSignature, ValueError):
            return False

    def in_one_form(self, signature: bytes) -> bytes:
        """The signature as `verifies` wants it. Raises ValueError: it is none."""
        if isinstance(self._key, Ed25519PublicKey):
            return signature
        r, s = decode_dss_signature(signature)
        return encode_dss_signature(r, min(s, self._key.curve.group_order - s))

    def __repr__(self) -> str:
        return f"<PublicKey {self.fingerprint[:16]}>"


class KmsSigner:
    """A key that never leaves its KMS.

    Args:
        uri: the KMS's URI as everywhere, then ``#`` and the key's name: ``aws-kms://eu-central-1#alias/evidence``,
            ``vault://host:8200/transit#evidence``, ``pkcs11:token=LABEL?module-path=/path/to/library.so#evidence``.

    Raises:
        UsageError: no such URI, or a KMS that does not sign.
        MissingDependencyError: the library of the KMS is not installed.
        KeyAccessError: from its methods: the KMS refuses, or the key is of another kind.
    """

    def __init__(self, uri: str) -> None:
        kms, _, self._name = uri.rpartition("#")
        if not kms or not self._name:
            raise UsageError(
                "the signing key is not named", hint="a KMS's URI, #, the key's name: aws-kms://REGION#alias/NAME"
            )
        self._client = _signing(client_for(kms))

    @classmethod
    def at(cls, client: Any, name: str) -> KmsSigner:
        """A key by its name, in a KMS whose client is at hand.

        Raises:
            UsageError: a KMS that does not sign.
        """
        made = cls.__new__(cls)
        made._client, made._name = _signing(client), name
        return made

    def public_key(self) -> bytes:
        """In PEM."""
        return PublicKey(self._client.public_key(self._name)).pem

    def sign(self, message: bytes) -> bytes:
        """By the KMS."""
        return self._client.sign(message, self._name)

    def __repr__(self) -> str:
        return f"<KmsSigner {self._name} at {self._client!r}>"


def _signing(client: Any) -> SigningKms:
    if not isinstance(client, SigningKms):
        raise UsageError("this KMS does not sign here", hint="aws-kms:, keyring:, pkcs11: and vault: do; or a PEM file")
    return client


class FileSigner:
    """A private Ed25519 key in a PEM file (PKCS #8).

    Args:
        path: the file; nobody but its owner may read it.
        passphrase: where the file is encrypted.

    Raises:
        KeyAccessError: the file can't be read, or the passphrase does not open it.
        PolicyError: others than its owner can use the file.
        UsageError: no private Ed25519 key. Nothing of the file is ever part of a message.
    """

    def __init__(self, path: str | os.PathLike[str], *, passphrase: str | None = None) -> None:
        data = read_signing_file(path, "the signing key", private=True)
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


def _from_raw(payload: bytes) -> PublicKey:
    algorithm = next((name for name, number in _ALGORITHMS.items() if number == payload[0]), "")
    if algorithm == "ed25519":
        key: Any = Ed25519PublicKey.from_public_bytes(payload[1:])
    elif algorithm:
        key = ec.EllipticCurvePublicKey.from_encoded_point(_CURVES[algorithm], payload[1:])
    else:
        raise ValueError
    return PublicKey(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _of_small_order(key: bytes) -> bool:
    """Whether a key of Ed25519 is one of the eight points whose order divides 8. Doubled three times they are neutral:
    the neutral point and that of order 2 have y = 1 and -1, those of order 4 have y = 0, those of order 8 by the
    formula for doubling d*y^4 + 2*y^2 = 1, with d = -121665/121666.
    """
    y = int.from_bytes(key, "little") & ~(1 << 255)
    return y * (y**2 - 1) * (121665 * y**4 - 243332 * y**2 + 121666) % _FIELD == 0


def read_signing_file(path: str | os.PathLike[str], what: str, *, private: bool = False) -> bytes:
    """A small file. Raises KeyAccessError: it can't be read. PolicyError: a private one that others can use."""
    try:
        return read_small(path, _LONGEST_PEM, (lambda status: need_own(status, what, path)) if private else None)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise KeyAccessError(f"{what} can't be read: {reason}", file=os.fspath(path))
