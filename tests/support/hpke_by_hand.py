"""HPKE's base mode and X-Wing as RFC 9180 and X-Wing's draft write them, out of a curve, a hash and a cipher: another
parent for what Bloomseal seals through a library's HPKE.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

X25519, X_WING = 0x0020, 0x647A
AES_128, AES_256, CHACHA = 1, 2, 3
_KEY = {AES_128: 16, AES_256: 32, CHACHA: 32}


def _extract(salt: bytes, suite: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")


def _expand(prk: bytes, suite: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    made, block = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(prk, block + labeled + bytes([counter]), "sha256")
        made += block
    return made[:length]


def _dh_kem(shared: bytes, enc: bytes, public: bytes) -> bytes:
    suite = b"KEM" + X25519.to_bytes(2, "big")
    return _expand(_extract(b"", suite, b"eae_prk", shared), suite, b"shared_secret", enc + public, 32)


def _combined(ml_kem: bytes, curve: bytes, enc: bytes, public: bytes) -> bytes:
    return hashlib.sha3_256(ml_kem + curve + enc[-32:] + public[-32:] + rb"\.//^\ "[:-1]).digest()


def _expanded(seed: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    whole = hashlib.shake_256(seed).digest(96)
    return MLKEM768PrivateKey.from_seed_bytes(whole[:64]), X25519PrivateKey.from_private_bytes(whole[64:])


def public_key(kem: int, seed: bytes) -> bytes:
    if kem == X25519:
        return X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    ml_kem, curve = _expanded(seed)
    return ml_kem.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()


def _encapsulate(kem: int, public: bytes) -> tuple[bytes, bytes]:
    own = X25519PrivateKey.generate()
    enc, shared = own.public_key().public_bytes_raw(), own.exchange(X25519PublicKey.from_public_bytes(public[-32:]))
    if kem == X25519:
        return _dh_kem(shared, enc, public), enc
    secret, ciphertext = MLKEM768PublicKey.from_public_bytes(public[:-32]).encapsulate()
    return _combined(secret, shared, ciphertext + enc, public), ciphertext + enc


def _decapsulate(kem: int, seed: bytes, enc: bytes) -> bytes:
    public, peer = public_key(kem, seed), X25519PublicKey.from_public_bytes(enc[-32:])
    if kem == X25519:
        return _dh_kem(X25519PrivateKey.from_private_bytes(seed).exchange(peer), enc, public)
    ml_kem, curve = _expanded(seed)
    return _combined(ml_kem.decapsulate(enc[:-32]), curve.exchange(peer), enc, public)


def _context(kem: int, aead: int, secret: bytes, info: bytes) -> tuple[AESGCM | ChaCha20Poly1305, bytes]:
    suite = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in (kem, 1, aead))
    hashed: Callable[[bytes, bytes], bytes] = lambda label, text: _extract(b"", suite, label, text)  # noqa: E731
    schedule = b"\0" + hashed(b"psk_id_hash", b"") + hashed(b"info_hash", info)
    whole = _extract(secret, suite, b"secret", b"")
    key = _expand(whole, suite, b"key", schedule, _KEY[aead])
    return (ChaCha20Poly1305 if aead == CHACHA else AESGCM)(key), _expand(whole, suite, b"base_nonce", schedule, 12)


def enc_length(kem: int) -> int:
    return 32 if kem == X25519 else 1088 + 32


def seal(kem: int, public: bytes, plaintext: bytes, info: bytes, aead: int = AES_256) -> bytes:
    secret, enc = _encapsulate(kem, public)
    cipher, nonce = _context(kem, aead, secret, info)
    return enc + cipher.encrypt(nonce, plaintext, b"")


def unseal(kem: int, seed: bytes, sealed: bytes, info: bytes, aead: int = AES_256, aad: bytes = b"") -> bytes:
    enc = sealed[: enc_length(kem)]
    cipher, nonce = _context(kem, aead, _decapsulate(kem, seed, enc), info)
    return cipher.decrypt(nonce, sealed[len(enc) :], aad)
