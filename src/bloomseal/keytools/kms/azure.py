"""``azure-kv://NAME.vault.azure.net`` or ``azure-kv://NAME.managedhsm.azure.net``: Azure Key Vault and Managed HSM.

Needs ``bloomseal[azure]``. Credentials come from ``DefaultAzureCredential``.

Master keys are named as in the vault: RSA keys wrap with RSA-OAEP-256, the HSM's symmetric keys with AES key wrap. Only
that vault's keys can be reached, whatever a file says.

Permissions (data plane): to read ``keys/unwrap/action``; to write ``keys/wrap/action``; for both, and for audits,
``keys/read``. The role "Key Vault Crypto Service Encryption User" has all three.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from ...core.errors import UsageError
from ...core.keys.access import Problem, shown
from ..kms_protocols import KeyState, MasterKeyFacts
from .common import Diagnosis, VendorKms, by_status, is_here, pack, unpack, vendor_library

_VERSION: Final = re.compile(r"[0-9A-Fa-f]{32}")
_HOSTS: Final = (".vault.azure.net", ".managedhsm.azure.net", ".vault.azure.cn", ".vault.usgovcloudapi.net")
_ALGORITHMS: Final = {"RSA": "RSA-OAEP-256", "RSA-HSM": "RSA-OAEP-256", "oct": "A256KW", "oct-HSM": "A256KW"}
_TIMEOUT_SECONDS: Final = 10


class AzureKeyVault(VendorKms):
    """One vault or managed HSM.

    Args:
        vault_url: ``https://NAME.vault.azure.net``.
        credential: a token credential; None takes ``DefaultAzureCredential``.
        options: for the vendor's clients, such as a transport of the caller's own.

    Raises:
        UsageError: an address without TLS.
        MissingDependencyError: azure-keyvault-keys or azure-identity isn't installed.
    """

    kms_name = "Azure Key Vault"
    names = re.compile(r"[A-Za-z0-9-]{1,127}")

    def __init__(self, vault_url: str, credential: Any = None, **options: Any) -> None:
        is_here(vault_url)  # the vendor's client refuses to send a token without TLS, even to this machine
        keys = vendor_library("azure.keyvault.keys", "azure")
        self._crypto = vendor_library("azure.keyvault.keys.crypto", "azure")
        self._url = vault_url.rstrip("/")
        self._credential = credential or vendor_library("azure.identity", "azure").DefaultAzureCredential()
        self._options = {
            "retry_total": 0,  # the key tools retry, and count it
            "connection_timeout": _TIMEOUT_SECONDS,
            "read_timeout": _TIMEOUT_SECONDS,
            **options,
        }
        self._keys = keys.KeyClient(self._url, self._credential, **self._options)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` under the key's latest version."""
        key = self._get(master_key_identifier)
        algorithm = _algorithm(key)
        if algorithm is None:
            raise self._problem(Problem.INVALID, master_key_identifier, "it is no key that wraps")
        if not key.properties.enabled:
            # An RSA key's public half wraps in this process, where the vault could not object.
            raise self._problem(Problem.DISABLED, master_key_identifier)
        result = self._answered(
            lambda: self._client_of(key).wrap_key(self._crypto.KeyWrapAlgorithm(algorithm), key_bytes),
            master_key_identifier,
        )
        return pack(str(key.properties.version), result.encrypted_key, algorithm=algorithm)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        version, wrapped, fields = unpack(wrapped_key, master_key_identifier, self.kms_name)
        algorithm = fields.get("algorithm")
        if not _VERSION.fullmatch(version) or algorithm not in _ALGORITHMS.values():
            raise self._not_ours(master_key_identifier)
        key_id = f"{self._url}/keys/{master_key_identifier}/{version}"
        answer = self._answered(
            lambda: self._client_of(key_id).unwrap_key(self._crypto.KeyWrapAlgorithm(algorithm), wrapped),
            master_key_identifier,
        )
        return bytes(answer.key)

    def unwrap_bytes(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """As `BytesKms`: by the key's latest version and the algorithm of its kind. The bytes do not say which version
        wrapped them.
        """
        key = self._get(master_key_identifier)
        if (algorithm := _algorithm(key)) is None:
            raise self._problem(Problem.INVALID, master_key_identifier, "it is no key that wraps")
        answer = self._answered(
            lambda: self._client_of(key).unwrap_key(self._crypto.KeyWrapAlgorithm(algorithm), wrapped_key),
            master_key_identifier,
        )
        return bytes(answer.key)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        """By the latest version; the vault does not tell the first one's date without a right to list versions.

        What an RSA key unwraps anybody may have wrapped who has its public half. Versions may differ in this, so that
        the algorithm of the wrapped key counts; the vault refuses AES key wrap under a version that is an RSA key.
        """
        key = self._get(master_key_identifier)
        if wrapped_key is None:
            algorithm = _algorithm(key)
        else:
            algorithm = unpack(wrapped_key, master_key_identifier, self.kms_name)[2].get("algorithm")
        return MasterKeyFacts(
            master_key_identifier,
            key.properties.version,
            KeyState.ENABLED if key.properties.enabled else KeyState.DISABLED,
            rotated=key.properties.created_on,
            authenticates_writers={"A256KW": True, "RSA-OAEP-256": False}.get(str(algorithm)),
        )

    def opened_by(self, wrapped_key: str | bytes, master_key_identifier: str) -> None:
        """None: the vault does not tell which version opened it."""

    def _get(self, master_key: str) -> Any:
        return self._answered(lambda: self._keys.get_key(master_key), master_key)

    def _client_of(self, key: Any) -> Any:
        return self._crypto.CryptographyClient(key, self._credential, **self._options)

    def _diagnose(self, error: Exception) -> Diagnosis:
        name = type(error).__name__
        bases = {base.__name__ for base in type(error).__mro__}
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            if "disabled" in str(getattr(getattr(error, "error", None), "innererror", "")).lower():
                return Problem.DISABLED, None
            return by_status(status), f"status {status}"
        if bases & {"ClientAuthenticationError", "CredentialUnavailableError"}:
            return Problem.DENIED, "there are no usable credentials"
        if bases & {"ServiceRequestError", "ServiceResponseError"}:
            return Problem.UNREACHABLE, name
        return Problem.INVALID, name

    def __repr__(self) -> str:
        return f"<AzureKeyVault {self._url}>"


def from_uri(uri: str) -> AzureKeyVault:
    """The client for a vault.

    Raises:
        UsageError: no such URI, or a host outside Azure's domains.
        MissingDependencyError: azure-keyvault-keys or azure-identity isn't installed.
    """
    parts = urlsplit(uri)
    host = (parts.hostname or "").lower()
    if parts.path.strip("/") or parts.query or parts.port or parts.username or not host.endswith(_HOSTS):
        raise UsageError(f"{shown(uri)} is no Azure Key Vault URI", hint="azure-kv://NAME.vault.azure.net")
    return AzureKeyVault(f"https://{host}")


def _algorithm(key: Any) -> str | None:
    return _ALGORITHMS.get(str(getattr(key.key_type, "value", key.key_type)))
