"""``gcp-kms://projects/P/locations/L/keyRings/R``: Google Cloud KMS.

Needs ``bloomseal[gcp]``. Credentials come from Application Default Credentials.

Master keys are named by their short name within the key ring of the URI, and must have the purpose ENCRYPT_DECRYPT.
Only that ring's keys can be reached, whatever a file says.

Permissions: to read ``cloudkms.cryptoKeyVersions.useToDecrypt`` (roles/cloudkms.cryptoKeyDecrypter); to write
``cloudkms.cryptoKeyVersions.useToEncrypt`` (roles/cloudkms.cryptoKeyEncrypter); for audits, and to tell a disabled
version from a destroyed one, ``cloudkms.cryptoKeys.get`` and ``cloudkms.cryptoKeyVersions.get``
(roles/cloudkms.viewer). Re-wrapping needs the first two.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ...core.errors import UsageError
from ...core.keys.access import KmsAccessError, Problem, shown
from ..kms_protocols import KeyState, MasterKeyFacts
from .common import Diagnosis, VendorKms, by_type, pack, unpack, vendor_library

_RING: Final = re.compile(r"projects/[^/?#\s]+/locations/[A-Za-z0-9-]+/keyRings/[A-Za-z0-9_-]{1,63}")
_TIMEOUT_SECONDS: Final = 10.0
_PROBLEMS: Final = {
    "PermissionDenied": Problem.DENIED,
    "Forbidden": Problem.DENIED,
    "Unauthenticated": Problem.DENIED,
    "Unauthorized": Problem.DENIED,
    "DefaultCredentialsError": Problem.DENIED,
    "RefreshError": Problem.DENIED,
    "FailedPrecondition": Problem.DISABLED,
    "NotFound": Problem.UNKNOWN,
    "InvalidArgument": Problem.INVALID,
    "TooManyRequests": Problem.THROTTLED,
    "ServerError": Problem.UNREACHABLE,
    "RetryError": Problem.UNREACHABLE,
    "TransportError": Problem.UNREACHABLE,
    "ConnectionError": Problem.UNREACHABLE,
    "Timeout": Problem.UNREACHABLE,
}
_STATES: Final = {
    "ENABLED": KeyState.ENABLED,
    "DESTROY_SCHEDULED": KeyState.PENDING_DELETION,
    "DESTROYED": KeyState.DESTROYED,
}


class GcpKms(VendorKms):
    """One key ring. The additional authenticated data bind every wrapped key to the name of its master key.

    Args:
        key_ring: ``projects/P/locations/L/keyRings/R``.
        client: a ``google.cloud.kms.KeyManagementServiceClient`` of the caller's making; None makes one from the
            environment.
    """

    kms_name = "Google Cloud KMS"
    names = re.compile(r"[A-Za-z0-9_-]{1,63}")

    def __init__(self, key_ring: str, client: Any = None) -> None:
        if not _RING.fullmatch(key_ring):
            raise UsageError(f"{shown(key_ring)} is no key ring", hint="projects/P/locations/L/keyRings/R")
        self._ring = key_ring
        self._client = client or vendor_library("google.cloud.kms", "gcp").KeyManagementServiceClient()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` under the primary version."""
        answer = self._call(
            "encrypt",
            master_key_identifier,
            plaintext=key_bytes,
            additional_authenticated_data=_aad(master_key_identifier),
        )
        return pack(_last(answer.name), bytes(answer.ciphertext))

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        version, wrapped, _ = unpack(wrapped_key, master_key_identifier, self.kms_name)
        try:
            answer = self._call(
                "decrypt",
                master_key_identifier,
                ciphertext=wrapped,
                additional_authenticated_data=_aad(master_key_identifier),
            )
        except KmsAccessError as error:
            failure = error
        else:
            return bytes(answer.plaintext)
        if failure.problem is Problem.DISABLED and self._is_gone(master_key_identifier, version):
            failure = self._problem(Problem.DESTROYED, master_key_identifier, f"version {version}")
        raise failure

    def unwrap_bytes(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """As `BytesKms`: a ciphertext without additional authenticated data."""
        return bytes(self._call("decrypt", master_key_identifier, ciphertext=wrapped_key).plaintext)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:  # noqa: ARG002
        """By the key and its primary version. What a key of the purpose ASYMMETRIC_DECRYPT unwraps anybody may have
        wrapped.
        """
        key = self._call("get_crypto_key", master_key_identifier)
        primary = _last(key.primary.name)
        return MasterKeyFacts(
            master_key_identifier,
            primary or None,
            _state(key.primary),
            key.create_time,
            key.primary.create_time if primary not in ("", "1") else None,
            authenticates_writers={"ENCRYPT_DECRYPT": True, "ASYMMETRIC_DECRYPT": False}.get(key.purpose.name),
        )

    def opened_by(self, wrapped_key: str | bytes, master_key_identifier: str) -> None:
        """None: the service does not tell which version opened it."""

    def _is_gone(self, master_key: str, version: str) -> bool:
        if not (version.isascii() and version.isdigit()):
            return False
        name = f"{self._ring}/cryptoKeys/{master_key}/cryptoKeyVersions/{version}"
        try:
            found = self._client.get_crypto_key_version(request={"name": name}, timeout=_TIMEOUT_SECONDS)
        except Exception:
            # The right to look may be missing; then it stays "disabled".
            return False
        return _state(found) is KeyState.DESTROYED

    def _call(self, operation: str, master_key: str, **request: Any) -> Any:
        name = f"{self._ring}/cryptoKeys/{master_key}"
        method = getattr(self._client, operation)
        # The key tools retry, and count it.
        return self._answered(
            lambda: method(request={"name": name, **request}, timeout=_TIMEOUT_SECONDS, retry=None), master_key
        )

    def _diagnose(self, error: Exception) -> Diagnosis:
        return by_type(error, _PROBLEMS) or super()._diagnose(error)

    def __repr__(self) -> str:
        return f"<GcpKms {self._ring}>"


def from_uri(uri: str) -> GcpKms:
    """The client for a key ring.

    Raises:
        UsageError: no such URI, or no credentials in the environment.
        MissingDependencyError: google-cloud-kms isn't installed.
    """
    return GcpKms(uri.partition(":")[2].strip("/"))


def _aad(master_key: str) -> bytes:
    return master_key.encode()


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _state(version: Any) -> KeyState:
    return _STATES.get(version.state.name, KeyState.DISABLED)
