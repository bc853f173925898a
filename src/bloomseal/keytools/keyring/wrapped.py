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
from ...core.keys.wrapping import unwrap_locally, wrap_locally
from ..kms.common import unpack
from ..kms_protocols import KeyState, MasterKeyFacts, VersionFacts
from ..recipients.hpke import KeyKind, open_sealed, own_key
from ..recipients.recipient import binding as recipient_binding
from ..recipients.recipient import parse_sealed, seal_to_all, version_name
from .keyfile import KeyVersion, MasterKey

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


def symmetric(version: KeyVersion, name: str) -> SecretKey:
    """As `usable`, of an AES key. The seed of a pair is never used as one.

    Raises:
        KmsAccessError: as there; or a pair.
    """
    if not version.kind.symmetric:
        raise KmsAccessError.because(
            Problem.INVALID, name, KMS, detail="it is a pair, for what is sealed to recipients"
        )
    return usable(version, name)


def _wrapping_key(version: KeyVersion, name: str) -> SecretKey:
    """As `usable`: an AES key, or that of a pair's holder alone."""
    if version.kind is KeyKind.ED25519:
        raise KmsAccessError.because(Problem.INVALID, name, KMS, detail="it signs, and wraps nothing")
    key = usable(version, name)
    return key if version.kind.symmetric else own_key(key)


def wrap(key: MasterKey, key_bytes: bytes, *, own: bool = False) -> str:
    """`key_bytes` under the current version.

    Args:
        own: not by a pair's public half, but so that nobody without its private one can have done it.

    Raises:
        KmsAccessError: disabled or destroyed.
        KeyAccessError: the version's invocation limit is reached.
    """
    version = key.current
    under = _wrapping_key(version, key.name)
    if not own and (recipient := version.recipient) is not None:
        return seal_to_all([recipient], key_bytes, key.name)
    wrapped = wrap_locally(SecretKey(key_bytes), under, binding(key.name, version.version))
    return json.dumps({"masterKeyVersion": str(version.version), "encryptedKey": wrapped}, separators=(",", ":"))


def unwrap(key: MasterKey, wrapped_key: str) -> bytes:
    """What `wrap` was given, or what was sealed to a version by its public half.

    Raises:
        KmsAccessError: disabled or destroyed; or another master key's text.
    """
    if (found := _unwrap_pair(key, wrapped_key)) is not None:
        return found[1]
    number, wrapped = _parse(wrapped_key, key.name)
    under = _wrapping_key(find(key, number), key.name)
    with contextlib.suppress(KeyAccessError):
        return unwrap_locally(wrapped, under, binding(key.name, number)).reveal()
    raise KmsAccessError.because(Problem.INVALID, key.name, KMS, detail="the wrapped key does not open")


def _unwrap_pair(key: MasterKey, wrapped_key: str, *, disabled: bool = False) -> tuple[int, bytes] | None:
    """The version that opens what is sealed to recipients, the newest of several, and what it opens; None where the
    text is no such one.

    Args:
        disabled: try disabled versions, too: to find out, not to use it.

    Raises:
        KeyAccessError: broken. KmsAccessError: sealed to others, or to a version that may not be used.
    """
    if (parsed := parse_sealed(wrapped_key)) is None:
        return None
    kind, entries = parsed
    ours: list[KeyVersion] = []
    for version in reversed(key.versions):
        sealed = entries.get(version.recipient_id or "") if version.kind is kind else None
        if sealed is None:
            continue
        ours.append(version)
        if version.key is not None and (disabled or version.state is KeyState.ENABLED):
            with contextlib.suppress(KeyAccessError):
                return version.version, open_sealed(kind, version.key, sealed, recipient_binding(key.name))
    others = sorted(entries.keys() - {version.recipient_id for version in ours})
    alive = [version for version in ours if version.key is not None]
    for version in alive or (ours if not others else ()):  # what others open is not lost with a tombstone
        usable(version, key.name)
    if alive:
        raise KmsAccessError.because(Problem.INVALID, key.name, KMS, detail="what is sealed to it does not open")
    raise KmsAccessError.because(
        Problem.DENIED,
        key.name,
        KMS,
        detail=f"it is sealed to other recipients: {', '.join(others)}",
        hint="the keyring that has one of these recipients' keys, under the master key's name",
    )


def binding(name: str, version: int) -> bytes:
    """The AAD of a wrapped key, which binds it to its master key and version."""
    return json.dumps(["keyring wrap", name, version]).encode()


def _parse(wrapped_key: str, name: str) -> tuple[int, str]:
    """The version and the encrypted key. Raises KmsAccessError: no key that a keyring wrapped."""
    version, _, fields = unpack(wrapped_key, name, KMS)
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise KmsAccessError.because(Problem.INVALID, name, KMS, detail="not a key that it wrapped")
    return int(version), fields["encryptedKey"]


def witness(key: MasterKey, wrapped_key: str | bytes) -> int:
    """The version of `key` that opens a wrapped key, whatever it says of itself. A disabled one is tried too: nothing
    is done with what it opens.

    Raises:
        KmsAccessError: none does.
    """
    if isinstance(wrapped_key, bytes):
        return open_unbound(key, wrapped_key, disabled=True)[0]
    if (found := _unwrap_pair(key, wrapped_key, disabled=True)) is not None:
        return found[0]
    claimed, wrapped = _parse(wrapped_key, key.name)
    for version in sorted(key.versions, key=lambda one: one.version != claimed):
        if version.key is None or version.kind is KeyKind.ED25519:
            continue
        under = version.key if version.kind.symmetric else own_key(version.key)
        # The number that was bound may be the one of the version, or the one that the text now claims.
        for number in dict.fromkeys((version.version, claimed)):
            try:
                unwrap_locally(wrapped, under, binding(key.name, number))
            except KeyAccessError:
                continue
            return version.version
    raise KmsAccessError.because(Problem.INVALID, key.name, KMS, detail="no version of it opens the wrapped key")


def open_unbound(key: MasterKey, wrapped_key: bytes, *, disabled: bool = False) -> tuple[int, bytes]:
    """The version under which this is wrapped, bound to nothing, and what it holds. Raises KmsAccessError: none opens
    it.

    Args:
        disabled: try disabled versions too.
    """
    wrapped = base64.b64encode(wrapped_key).decode()
    for version in reversed(key.versions):
        wanted = version.kind.symmetric and (disabled or version.state is KeyState.ENABLED)
        if version.key is not None and wanted:
            with contextlib.suppress(KeyAccessError):
                return version.version, unwrap_locally(wrapped, version.key, b"").reveal()
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
        fingerprint = version.recipient_id or (version.key.fingerprint if version.key else None)
        name = str(version.version)
        versions.append(VersionFacts(name, wraps, retired, fingerprint, version.created, version.state, version.bits))
    current = key.current.recipient
    return MasterKeyFacts(
        key.name,
        str(key.current.version) if current is None else version_name([current]),
        key.state,
        key.created,
        key.rotated,
        tuple(versions),
        authenticates_writers=all(version.kind.symmetric for version in key.versions),
    )
