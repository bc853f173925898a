"""Signatures as KMSs make them: Ed25519 (RFC 8032), or ECDSA (FIPS 186-5) over P-256 with SHA-256 or P-384 with
SHA-384.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from ...core.keys.access import KmsAccessError, Problem

DIGESTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "secp256r1": lambda message: hashlib.sha256(message).digest(),
    "secp384r1": lambda message: hashlib.sha384(message).digest(),
}
"""A curve's name → what is signed of a message."""
_CURVES: Final[dict[bytes, tuple[ec.EllipticCurve, int]]] = {
    bytes.fromhex("06082a8648ce3d030107"): (ec.SECP256R1(), 65),
    bytes.fromhex("06052b81040022"): (ec.SECP384R1(), 97),
}
"""The curve's object identifier in DER (CKA_EC_PARAMS) → the curve, and the length of an uncompressed point."""
_ED25519_BYTES: Final = 32


def der(key: Any) -> bytes:
    """SubjectPublicKeyInfo."""
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def curve_of(public_key: bytes) -> str | None:
    """The curve of a SubjectPublicKeyInfo; None for Ed25519, and empty for what is neither."""
    try:
        key = load_der_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    if isinstance(key, Ed25519PublicKey):
        return None
    return key.curve.name if isinstance(key, ec.EllipticCurvePublicKey) else ""


def public_key_in(session: Any, pkcs11: Any, name: str, kms: str) -> bytes:
    """The public key of a pair in a token, by its label, as SubjectPublicKeyInfo.

    Raises:
        KmsAccessError: there is none, or one of another kind.
    """
    return der(_public(session, pkcs11, name, kms))


def signature_in(session: Any, pkcs11: Any, message: bytes, name: str, kms: str) -> bytes:
    """A signature by a pair's private key: CKM_EDDSA, or CKM_ECDSA over the digest, r and s then in DER.

    Raises:
        KmsAccessError: there is none, or one of another kind.
    """
    public = _public(session, pkcs11, name, kms)
    private = _found(session, pkcs11, name, kms, pkcs11.ObjectClass.PRIVATE_KEY)
    if isinstance(public, Ed25519PublicKey):
        return bytes(private.sign(message, mechanism=pkcs11.Mechanism.EDDSA))
    both = bytes(private.sign(DIGESTS[public.curve.name](message), mechanism=pkcs11.Mechanism.ECDSA))
    half = len(both) // 2
    return encode_dss_signature(int.from_bytes(both[:half], "big"), int.from_bytes(both[half:], "big"))


def _found(session: Any, pkcs11: Any, name: str, kms: str, kind: Any) -> Any:
    names = pkcs11.Attribute
    found = list(session.get_objects({names.CLASS: kind, names.LABEL: name}))
    if len(found) != 1:
        detail = "more than one key pair has its label" if found else "no key pair has its label"
        raise KmsAccessError.because(Problem.UNKNOWN, name, kms, detail=detail)
    return found[0]


def _public(session: Any, pkcs11: Any, name: str, kms: str) -> Any:
    held = _found(session, pkcs11, name, kms, pkcs11.ObjectClass.PUBLIC_KEY)
    names = pkcs11.Attribute
    point = bytes(held[names.EC_POINT]) if held.key_type.name.startswith("EC") else b""
    curve, length = _CURVES.get(bytes(held[names.EC_PARAMS]) if point else b"", (None, _ED25519_BYTES))
    try:
        # Most tokens wrap the point into an OCTET STRING, as PKCS #11 asks; some don't.
        if curve is not None:
            return ec.EllipticCurvePublicKey.from_encoded_point(curve, point[-length:])
        if held.key_type.name == "EC_EDWARDS" and len(point) in (_ED25519_BYTES, _ED25519_BYTES + 2):
            return Ed25519PublicKey.from_public_bytes(point[-length:])
    except ValueError:
        pass
    raise KmsAccessError.because(Problem.INVALID, name, kms, detail="not an Ed25519, P-256 or P-384 key")
