"""Wrap and unwrap one key under another in this process: ``base64(nonce(12) ‖ ciphertext ‖ tag(16))``, AES-GCM."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..encryption import SealCounter, SecretKey
from ..errors import KeyAccessError

_NONCE_BYTES: Final = 12
_CTR_IV_BYTES: Final = 16
_WRAPPED_BYTES: Final = frozenset(_NONCE_BYTES + key + 16 for key in (16, 24, 32))


def wrap_locally(key: SecretKey, under: SecretKey, aad: bytes) -> str:
    """`key` sealed under another key, bound to `aad`. Counts as one seal of `under`.

    Raises:
        KeyAccessError: the wrapping key's invocation limit is reached.
    """
    SealCounter.of(under).add()
    nonce = os.urandom(_NONCE_BYTES)
    return base64.b64encode(nonce + AESGCM(under.reveal()).encrypt(nonce, key.reveal(), aad)).decode("ascii")


def unwrap_locally(wrapped: str, under: SecretKey, aad: bytes) -> SecretKey:
    """The key that `wrap_locally` was given.

    Raises:
        KeyAccessError: not base64, a length that no wrapped AES key has, or authentication failed.
    """
    blob = unb64(wrapped)
    if len(blob) not in _WRAPPED_BYTES:
        raise KeyAccessError(
            "a wrapped key that is not base64 of nonce, key and tag",
            hint="it is altered or truncated",
            unauthentic=True,
        )
    try:
        return SecretKey(AESGCM(under.reveal()).decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], aad))
    except InvalidTag:
        pass
    raise KeyAccessError("a wrapped key that does not open: another wrapping key's, or altered", unauthentic=True)


def open_by_ctr(encrypted: bytes, under: SecretKey) -> bytes:
    """An ORC local key: AES-CTR, the encrypted key's first 16 bytes as IV. Any key opens it to something."""
    return Cipher(algorithms.AES(under.reveal()), modes.CTR(encrypted[:_CTR_IV_BYTES])).decryptor().update(encrypted)


@dataclass(frozen=True, slots=True)
class Kek:
    """A KEK of this process's making. It holds its counter, which would be forgotten between wrappings otherwise."""

    key: SecretKey
    id: bytes
    wrapped: str
    counter: SealCounter


def kek_id(text: str) -> bytes:
    """A KEK's id, which binds what is wrapped under it, from its base64.

    Raises:
        KeyAccessError: it is not base64.
    """
    if not (found := unb64(text)) and text:
        raise KeyAccessError("key material whose KEK id is not base64", unauthentic=True)
    return found


def unb64(text: object) -> bytes:
    """Base64 decoded; nothing where it isn't base64."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""
