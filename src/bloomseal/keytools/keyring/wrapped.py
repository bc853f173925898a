"""What a keyring's master keys wrap: the text of a wrapped key, and which version opens it."""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import datetime
from typing import Final

from ...core.encryption import SecretKey
from ...core.errors import KeyAccessError
from ...core.keys.access import KmsAccessError, Problem
from ...core.keys.wrapping import unwrap_locally
from ..kms.common import unpack
from ..kms_protocols import KeyState, MasterKeyFacts, VersionFacts
from .keyfile import KeyVersion, MasterKey

__all__ = ["KMS", "binding", "facts", "find", "open_unbound", "parse", "usable", "witness"]

KMS: Final = "the keyring"


def find(key: MasterKey, number: int) -> KeyVersion:
    """The version of this number. Raises KmsAccessError: there is none."""
    if not 1 <= number <= len(key.versions):
        raise KmsAccessError.because(Problem.UNKNOWN, key.name, KMS, detail=f"it has no version {number}")
    return key.versions[number - 1]


def usable(version: KeyVersion, name: str) -> SecretKey:
    """The key of a version. Raises KmsAccessError: the version is destroyed or disabled."""
    if version.key is None:
        raise KmsAccessError.because(Problem.DESTROYED, name, KMS, detail=f"version {version.version}")
    if version.state is not KeyState.ENABLED:
        raise KmsAccessError.because(Problem.DISABLED, name, KMS, detail=f"version {version.version}")
    return version.key


def binding(name: str, version: int) -> bytes:
    """The AAD of a wrapped key, which binds it to its master key and version."""
    return json.dumps(["keyring wrap", name, version]).encode()


def parse(wrapped_key: str, name: str) -> tuple[int, str]:
    """The version and the encrypted key. Raises KmsAccessError: no key that a keyring wrapped."""
    version, _, fields = unpack(wrapped_key, name, KMS)
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise KmsAccessError.because(Problem.INVALID, name, KMS, detail="not a key that it wrapped")
    return int(version), fields["encryptedKey"]


def witness(key: MasterKey, wrapped_key: str) -> int:
    """The version of `key` that opens a wrapped key, whatever it says of itself. A disabled one is tried too: nothing
    is done with what it opens.

    Raises:
        KmsAccessError: none does.
    """
    claimed, wrapped = parse(wrapped_key, key.name)
    for version in sorted(key.versions, key=lambda one: one.version != claimed):
        if version.key is None:
            continue
        # The number that was bound may be the one of the version, or the one that the text now claims.
        for number in dict.fromkeys((version.version, claimed)):
            try:
                unwrap_locally(wrapped, version.key, binding(key.name, number))
            except KeyAccessError:
                continue
            return version.version
    raise KmsAccessError.because(Problem.INVALID, key.name, KMS, detail="no version of it opens the wrapped key")


def open_unbound(key: MasterKey, wrapped_key: bytes) -> bytes:
    """What is wrapped under a version of `key` without a word on which. Raises KmsAccessError: none opens it."""
    wrapped = base64.b64encode(wrapped_key).decode()
    for version in reversed(key.versions):
        if version.key is not None and version.state is KeyState.ENABLED:
            with contextlib.suppress(KeyAccessError):
                return unwrap_locally(wrapped, version.key, b"").reveal()
    raise KmsAccessError.because(Problem.INVALID, key.name, KMS, detail="no version of it opens the wrapped key")


def facts(key: MasterKey, changed: datetime) -> MasterKeyFacts:
    """What a keyring tells of a master key.

    Args:
        changed: when the keyring was last changed; the latest moment at which its current version can have been
            disabled.
    """
    versions = []
    for version, later in zip(key.versions, (*key.versions[1:], None), strict=True):
        wraps = later is None and version.state is KeyState.ENABLED
        retired = later.created if later is not None else None if wraps else changed
        fingerprint = version.key.fingerprint if version.key else None
        name = str(version.version)
        versions.append(VersionFacts(name, wraps, retired, fingerprint, version.created, version.state, version.bits))
    return MasterKeyFacts(
        key.name,
        str(key.current.version),
        key.state,
        key.created,
        key.rotated,
        tuple(versions),
        authenticates_writers=True,  # its keys are symmetric
    )
