"""A key that introduces itself by fingerprint and keeps its bytes out of reprs, pickles and comparisons by time."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import NoReturn

from ..errors import KeyAccessError, UsageError

_LENGTHS = (16, 24, 32)


class SecretKey:
    """An AES key of 128, 192 or 256 bits.

    Args:
        value: 16, 24 or 32 bytes.
        generated: True where this process has just made the key, so that nobody else can have sealed with it yet.

    Raises:
        KeyAccessError: another length. The message names the length only.
    """

    __slots__ = ("__weakref__", "_fingerprint", "_value", "generated")

    def __init__(self, value: bytes, *, generated: bool = False) -> None:
        value = bytes(value)
        if len(value) not in _LENGTHS:
            raise KeyAccessError(
                f"a key of {len(value)} bytes; AES keys have 16, 24 or 32",
                hint="check the key that was given, or that the KMS returned",
            )
        self._value = value
        self.generated = generated
        self._fingerprint: str | None = None

    @classmethod
    def generate(cls, bits: int = 128) -> SecretKey:
        """A fresh random key of `bits` bits from the system's generator (it can't be seeded)."""
        if bits not in (128, 192, 256):
            raise UsageError(f"keys of {bits} bits do not exist in AES", hint="128, 192 or 256")
        return cls(os.urandom(bits // 8), generated=True)

    @property
    def fingerprint(self) -> str:
        """Says which key it is, without saying the key."""
        if self._fingerprint is None:
            # A hash under a label of its own, which can't be confused with any other digest of the key.
            self._fingerprint = hashlib.sha256(b"bloomseal key fingerprint\x00" + self._value).hexdigest()[:16]
        return self._fingerprint

    @property
    def bits(self) -> int:
        return len(self._value) * 8

    def reveal(self) -> bytes:
        """The key bytes, for a cipher or a wrapping. Nothing else may call this."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretKey) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<SecretKey {self.bits} bits, fingerprint {self.fingerprint}>"

    def __reduce__(self) -> NoReturn:
        # Spark pickles what it ships to executors; a key must never ride along.
        raise TypeError("a SecretKey is never pickled; let each process resolve its own keys")

    def __copy__(self) -> SecretKey:
        return self

    def __deepcopy__(self, memo: object) -> SecretKey:
        return self
