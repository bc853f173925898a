"""Signatures over the bytes of a manifest, whoever makes them (`bloomseal.keytools.signatures.keys`)."""

from __future__ import annotations

import os
from typing import Final

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from ...keytools.signatures.keys import read_signing_file

_ED25519_BYTES: Final = 64
_LONGEST_ECDSA: Final = 104


def has_form(signature: bytes) -> bool:
    """Whether it could be some key's signature."""
    if len(signature) == _ED25519_BYTES:
        return True
    try:
        return len(signature) <= _LONGEST_ECDSA and encode_dss_signature(*decode_dss_signature(signature)) == signature
    except ValueError:
        return False


class Detached:
    """A signature that was made elsewhere, over the bytes of ``manifest.json``: by a KMS, an HSM, a card, openssl.

    Args:
        signature: the file with its bytes.
        public_key: the signer's public key, in PEM.

    Raises:
        KeyAccessError: a file can't be read.
    """

    def __init__(self, signature: str | os.PathLike[str], public_key: str | os.PathLike[str]) -> None:
        self._signature = read_signing_file(signature, "the signature")
        self._public_key = read_signing_file(public_key, "the public key")

    def public_key(self) -> bytes:
        return self._public_key

    def sign(self, message: bytes) -> bytes:  # noqa: ARG002
        """The signature; whoever takes it checks it against the message."""
        return self._signature
