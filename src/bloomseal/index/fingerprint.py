"""Keyed fingerprints of values: whoever reads an index's places must not be able to try candidates.

XXH64 is not keyed. A fingerprint is the first bits of AES of it, under a key that the sealed manifest alone leads to.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

U64 = npt.NDArray[np.uint64]

SECRET_BYTES: Final = 32
_INFO: Final = b"bloomseal index fingerprint 1"
_HEADROOM: Final = 4
"""Bits beyond those needed now: the table may grow to 16 times its size before there are more false places than asked.
"""
_LEAST, _MOST = 36, 44
"""At most 44 bits leave 19 for the place in a signed number of 64."""


def bits_for(entries: int, false_places: float) -> int:
    """The length of fingerprints with which a value that is nowhere is expected in `false_places` row groups of the
    whole table: each of `entries` has the same fingerprint by chance with probability 2^-bits.
    """
    return min(max(math.ceil(math.log2(max(entries, 1) / false_places)) + _HEADROOM, _LEAST), _MOST)


class Fingerprints:
    """Fingerprints under one secret.

    Args:
        secret: random bytes.
        bits: length of a fingerprint.
    """

    def __init__(self, secret: bytes, bits: int) -> None:
        key = HKDF(SHA256(), 32, salt=None, info=_INFO).derive(secret)
        # One block each, every block another value: the mode's fault, that equal blocks look equal, is the very use.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
        self._shift = np.uint64(64 - bits)

    def of(self, hashes: U64) -> U64:
        """The fingerprints of values by their XXH64, shape (n,) → (n,)."""
        blocks = np.zeros((len(hashes), 2), dtype="<u8")
        blocks[:, 0] = hashes
        sealed = self._cipher.encryptor().update(blocks.data.cast("B") if len(hashes) else b"")
        return np.frombuffer(sealed, dtype="<u8")[::2] >> self._shift

    def __repr__(self) -> str:
        return "<Fingerprints>"
