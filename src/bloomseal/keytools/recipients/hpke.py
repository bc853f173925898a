"""Sealing to a public key (HPKE, RFC 9180, base mode), and the pairs of keys for it.

A private key is kept as its seed of 32 bytes: for X25519 the scalar; for X-Wing (ML-KEM-768 with X25519) the seed that
SHAKE-256 expands, as its draft has it. The KDF is HKDF-SHA256, the AEAD AES-256-GCM.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, hpke
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ...core.encryption import SecretKey
from ...core.errors import KeyAccessError, UnsupportedError

_MLKEM_SEED: Final = 64
_MLKEM_PUBLIC: Final = 1184
_TAG: Final = 16


class KeyKind(StrEnum):
    """What kind of key a master key is."""

    AES = "aes"
    HPKE = "hpke"
    X25519 = "x25519"
    ED25519 = "ed25519"

    @property
    def symmetric(self) -> bool:
        return self is KeyKind.AES

    @property
    def algorithm(self) -> str:
        """As reports call it."""
        return {"aes": "AES-GCM", "hpke": "ML-KEM-768+X25519", "x25519": "X25519", "ed25519": "Ed25519"}[self.value]

    @property
    def post_quantum(self) -> bool:
        """A quantum computer does not open what is recorded today."""
        return self in (KeyKind.AES, KeyKind.HPKE)

    @property
    def public_length(self) -> int:
        """Bytes of a public key."""
        return _MLKEM_PUBLIC + 32 if self is KeyKind.HPKE else 32

    @property
    def overhead(self) -> int:
        """Bytes by which what is sealed is longer."""
        return self._suite[1].enc_length() + _TAG

    @property
    def _suite(self) -> tuple[hpke.Suite, hpke.KEM]:
        kem = hpke.KEM.MLKEM768_X25519 if self is KeyKind.HPKE else hpke.KEM.X25519
        return hpke.Suite(kem, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM), kem


def public_bytes(kind: KeyKind, seed: SecretKey) -> bytes:
    """The public key of a pair, as X25519 and X-Wing encode it.

    Raises:
        UnsupportedError: the installed ``cryptography`` has no ML-KEM.
    """
    ml_kem, curve = _private(kind, seed)
    own = curve.public_key().public_bytes_raw()
    return own if ml_kem is None else ml_kem.public_key().public_bytes_raw() + own


def agrees(public: bytes) -> bool:
    """Whether a secret is agreed on with the X25519 half of a public key. With a point of small order everybody has the
    same one.
    """
    try:
        x25519.X25519PrivateKey.generate().exchange(x25519.X25519PublicKey.from_public_bytes(public[-32:]))
    except ValueError:
        return False
    return True


def own_key(seed: SecretKey) -> SecretKey:
    """An AES key that nobody but the private key's holder has, for what no holder of the public key is to forge."""
    return SecretKey(
        HKDF(hashes.SHA256(), 32, None, b"bloomseal key for the holder alone, version 1").derive(seed.reveal())
    )


def seal_to(kind: KeyKind, public: bytes, plaintext: bytes, info: bytes) -> bytes:
    """Encapsulated key and ciphertext.

    Raises:
        KeyAccessError: a public key of this kind that nobody can have a private one for.
        UnsupportedError: as `public_bytes`.
    """
    try:
        curve = x25519.X25519PublicKey.from_public_bytes(public[-32:])
        key: Any = curve
        if kind is KeyKind.HPKE:
            key = hpke.MLKEM768X25519PublicKey(mlkem.MLKEM768PublicKey.from_public_bytes(public[:-32]), curve)
        return kind._suite[0].encrypt(plaintext, key, info=info)
    except UnsupportedAlgorithm:
        raise _no_ml_kem() from None
    except ValueError:
        raise KeyAccessError(f"no public key of {kind.algorithm}") from None


def open_sealed(kind: KeyKind, seed: SecretKey, sealed: bytes, info: bytes) -> bytes:
    """What `seal_to` was given.

    Raises:
        KeyAccessError: sealed to another key, for another purpose, or altered.
        UnsupportedError: as `public_bytes`.
    """
    ml_kem, curve = _private(kind, seed)
    key: Any = curve if ml_kem is None else hpke.MLKEM768X25519PrivateKey(ml_kem, curve)
    try:
        return kind._suite[0].decrypt(sealed, key, info=info)
    except (InvalidTag, ValueError):
        pass
    raise KeyAccessError("a sealed key that does not open: to another public key, or altered", unauthentic=True)


def _private(kind: KeyKind, seed: SecretKey) -> tuple[mlkem.MLKEM768PrivateKey | None, x25519.X25519PrivateKey]:
    secret, ml_kem = seed.reveal(), None
    if kind is KeyKind.HPKE:
        expanded = hashlib.shake_256(secret).digest(_MLKEM_SEED + 32)
        secret = expanded[_MLKEM_SEED:]
        try:
            ml_kem = mlkem.MLKEM768PrivateKey.from_seed_bytes(expanded[:_MLKEM_SEED])
        except UnsupportedAlgorithm:
            raise _no_ml_kem() from None
    return ml_kem, x25519.X25519PrivateKey.from_private_bytes(secret)


def _no_ml_kem() -> UnsupportedError:
    return UnsupportedError("the installed cryptography has no ML-KEM", hint="its own wheel; or keys of kind x25519")
