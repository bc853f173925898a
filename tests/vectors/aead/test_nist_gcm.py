"""NIST's AES-GCM vectors (CAVS 14.0, from the package `cryptography_vectors`) through the product's own open and seal.

Those with a nonce of 96 bits and a tag of 128: all that Parquet's modules have. What `seal` makes under a fresh nonce
is opened by a GCM written here from NIST SP 800-38D over bare AES blocks, which has to agree with the same vectors
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cryptography_vectors
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bloomseal import IntegrityError
from bloomseal.core.encryption import FRAME_BYTES, ModuleCipher, ModuleType, SecretKey

_FOLDER = Path(cryptography_vectors.__file__).parent / "ciphers" / "AES" / "GCM"
_SIZES = (128, 192, 256)
_SEALED = 40
"""Vectors per key size whose plaintext is sealed anew: the GCM written here is slow."""


@dataclass(frozen=True)
class Vector:
    """One vector; `plaintext` is None where it must not open."""

    key: bytes
    nonce: bytes
    aad: bytes
    ciphertext: bytes
    tag: bytes
    plaintext: bytes | None

    @property
    def framed(self) -> bytes:
        """As a module: u32le length ‖ nonce ‖ ciphertext ‖ tag (Parquet encryption, section 4.2)."""
        module = self.nonce + self.ciphertext + self.tag
        return len(module).to_bytes(4, "little") + module


def vectors(name: str) -> Iterator[Vector]:
    """The vectors of one file that Parquet's modules could be."""
    for block in (_FOLDER / name).read_text().replace("\r", "").split("\n\n"):
        lines = [line.strip() for line in block.splitlines() if not line.startswith(("[", "#", "Count"))]
        told = {name.strip(): bytes.fromhex(value) for name, _, value in (line.partition("=") for line in lines)}
        if "Key" not in told or len(told["IV"]) != 12 or len(told["Tag"]) != 16:
            continue
        plaintext = None if "FAIL" in told else told.get("PT", b"")
        yield Vector(told["Key"], told["IV"], told.get("AAD", b""), told.get("CT", b""), told["Tag"], plaintext)


def cipher(key: bytes) -> ModuleCipher:
    return ModuleCipher(SecretKey(key))


@pytest.mark.parametrize("bits", _SIZES)
def test_valid_vectors_open_and_invalid_ones_do_not(bits: int) -> None:
    opened = refused = 0
    for vector in vectors(f"gcmDecrypt{bits}.rsp"):
        into = bytearray(len(vector.ciphertext))
        if vector.plaintext is None:
            with pytest.raises(IntegrityError):
                cipher(vector.key).open(vector.framed, ModuleType.FOOTER, vector.aad)
            with pytest.raises(IntegrityError):
                cipher(vector.key).open_into(vector.framed, ModuleType.DATA_PAGE, vector.aad, memoryview(into))
            assert not cipher(vector.key).authenticates(vector.framed, vector.aad)
            refused += 1
        else:
            assert cipher(vector.key).open(vector.framed, ModuleType.FOOTER, vector.aad) == vector.plaintext
            cipher(vector.key).open_into(vector.framed, ModuleType.DATA_PAGE, vector.aad, memoryview(into))
            assert into == vector.plaintext
            assert cipher(vector.key).authenticates(vector.framed, vector.aad)
            opened += 1
    assert opened + refused == 375
    assert min(opened, refused) > 150


@pytest.mark.parametrize("bits", _SIZES)
def test_vectors_of_encryption_open(bits: int) -> None:
    found = list(vectors(f"gcmEncryptExtIV{bits}.rsp"))
    assert len(found) == 375
    for vector in found:
        assert cipher(vector.key).open(vector.framed, ModuleType.BLOOM_FILTER_BITSET, vector.aad) == vector.plaintext


@pytest.mark.parametrize("bits", _SIZES)
def test_a_signature_is_the_tag_over_the_footer_and_its_aad(bits: int) -> None:
    """Of a signed footer only nonce and tag are stored (section 5.2): those of the same vectors."""
    for vector in vectors(f"gcmDecrypt{bits}.rsp"):
        signature = vector.nonce + vector.tag
        if vector.plaintext is not None:
            cipher(vector.key).verify(vector.plaintext, signature, vector.aad)
            with pytest.raises(IntegrityError):
                cipher(vector.key).verify(vector.plaintext + b"\0", signature, vector.aad)


@pytest.mark.parametrize("bits", _SIZES)
def test_what_seal_makes_is_gcm_to_an_independent_cipher(bits: int) -> None:
    every = [vector for vector in vectors(f"gcmEncryptExtIV{bits}.rsp") if vector.plaintext is not None]
    for vector in every[:: len(every) // _SEALED]:
        assert vector.plaintext is not None
        theirs = _gcm(vector.key, vector.nonce, vector.plaintext, vector.aad)
        assert theirs == vector.ciphertext + vector.tag
        framed = bytes(cipher(vector.key).seal(vector.plaintext, ModuleType.DATA_PAGE, vector.aad))
        assert len(framed) == len(vector.plaintext) + FRAME_BYTES
        assert int.from_bytes(framed[:4], "little") == len(framed) - 4
        assert framed[16:] == _gcm(vector.key, framed[4:16], vector.plaintext, vector.aad)
        signature = cipher(vector.key).sign(vector.plaintext, vector.aad)
        assert signature[12:] == _gcm(vector.key, signature[:12], vector.plaintext, vector.aad)[-16:]


def _gcm(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes) -> bytes:
    """Ciphertext ‖ tag, by NIST SP 800-38D, section 7.1, over AES's bare blocks."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update  # noqa: S305  # GCM is built on it here
    stream = b"".join(block(nonce + n.to_bytes(4, "big")) for n in range(2, 2 + -(-len(plaintext) // 16)))
    ciphertext = bytes(a ^ b for a, b in zip(plaintext, stream, strict=False))
    hashed, subkey = 0, int.from_bytes(block(bytes(16)), "big")
    lengths = (8 * len(aad)).to_bytes(8, "big") + (8 * len(ciphertext)).to_bytes(8, "big")
    for data in (aad, ciphertext, lengths):
        for start in range(0, len(data), 16):
            hashed = _multiplied(hashed ^ int.from_bytes(data[start : start + 16].ljust(16, b"\0"), "big"), subkey)
    mask = int.from_bytes(block(nonce + b"\0\0\0\1"), "big")
    return ciphertext + (hashed ^ mask).to_bytes(16, "big")


def _multiplied(x: int, y: int) -> int:
    """In GF(2^128) as section 6.3 has it."""
    product = 0
    for bit in range(127, -1, -1):
        if x >> bit & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product
