"""``vault://HOST[:PORT]/MOUNT`` (mount default: transit), optionally ``?namespace=NAME``: the transit engine of Vault
and OpenBao.

Needs ``bloomseal[vault]``. The token comes from ``$VAULT_TOKEN`` or ``~/.vault-token``, as for the vendor's own tools;
a private CA from ``$VAULT_CACERT``. ``?plain_http=true`` leaves TLS out, for a server on this machine; for another one
``&allow_http=true`` must be said too.

Master keys are named as in the engine, and must be of a symmetric type with authentication (the default, aes256-gcm96).

Policy: to read ``update`` on ``MOUNT/decrypt/KEY``; to write ``update`` on ``MOUNT/encrypt/KEY``; for audits ``read``
on ``MOUNT/keys/KEY``; to re-wrap ``update`` on ``MOUNT/rewrap/KEY``; to sign evidence, with an asymmetric key of its
own, ``update`` on ``MOUNT/sign/KEY`` and ``read`` on ``MOUNT/keys/KEY``. Without ``create`` on the encryption path no
key comes into being by a mistyped name.
"""

from __future__ import annotations

import base64
import os
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ...core.forked import renewed_in_child
from ...core.keys.access import KmsAccessError, Problem, shown
from ...core.keys.wrapping import unb64
from ..kms_protocols import KeyState, MasterKeyFacts, MasterVersion, VersionFacts
from .common import Diagnosis, VendorKms, address_in, by_type, is_here, vendor_library
from .signing import der

_WRAPPED: Final = re.compile(r"vault:v([0-9]{1,9}):[A-Za-z0-9+/=]+")
_TIMEOUT_SECONDS: Final = 10
_SIGNING: Final = {"ecdsa-p256": "sha2-256", "ecdsa-p384": "sha2-384"}
_PROBLEMS: Final = {
    "Forbidden": Problem.DENIED,
    "Unauthorized": Problem.DENIED,
    "InvalidPath": Problem.UNKNOWN,
    "BadGateway": Problem.UNREACHABLE,
    "InternalServerError": Problem.UNREACHABLE,
    "RateLimitExceeded": Problem.THROTTLED,
    "VaultDown": Problem.UNREACHABLE,
    "VaultNotInitialized": Problem.UNREACHABLE,
    "ConnectionError": Problem.UNREACHABLE,
    "Timeout": Problem.UNREACHABLE,
}


class VaultKms(VendorKms):
    """A transit engine.

    Args:
        url: ``https://HOST:PORT``.
        mount: where the engine is mounted.
        namespace: of Vault Enterprise or OpenBao.
        token: None takes the environment's, and takes it again once it is refused.
        allow_http: send tokens and data keys over plain HTTP to another machine than this one.

    Raises:
        UsageError: plain HTTP to another machine.
        MissingDependencyError: hvac isn't installed.
    """

    kms_name = "Vault"
    # Names become part of a request's path: nothing in a file may lead to another one.
    names = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")

    def __init__(
        self,
        url: str,
        *,
        mount: str = "transit",
        namespace: str | None = None,
        token: str | None = None,
        allow_http: bool = False,
    ) -> None:
        here = is_here(url, allow_http=allow_http)
        hvac = vendor_library("hvac", "vault")
        self._url, self._mount, self._given = url, mount, token is not None
        # A redirect would carry the token to an address that nobody has named.
        self._client = hvac.Client(
            url=url,
            token=token,
            namespace=namespace,
            timeout=_TIMEOUT_SECONDS,
            verify=os.environ.get("VAULT_CACERT") or True,
            allow_redirects=False,
            # Empty ones win over the environment's; TLS's settings still come from there.
            proxies={"http": "", "https": ""} if here else None,
        )
        renewed_in_child(self)

    def _renew(self) -> None:
        # In a forked child: an answer on a connection that both use could be the other one's.
        self._client.session.close()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """``vault:vN:…``, as the engine gives it."""
        plaintext = base64.b64encode(key_bytes).decode("ascii")
        return str(self._call("encrypt_data", master_key_identifier, "ciphertext", plaintext=plaintext)["ciphertext"])

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        self._version(wrapped_key, master_key_identifier)
        return unb64(
            self._call("decrypt_data", master_key_identifier, "plaintext", ciphertext=wrapped_key)["plaintext"]
        )

    def rewrap_key(
        self, wrapped_key: str, master_key_identifier: str, new_master_key_identifier: str | None = None
    ) -> str:
        """Under the same master key by the engine itself, the key never reaching this process; under another one
        through here.
        """
        if new_master_key_identifier not in (None, master_key_identifier):
            return self.wrap_key(self.unwrap_key(wrapped_key, master_key_identifier), str(new_master_key_identifier))
        self._version(wrapped_key, master_key_identifier)
        return str(self._call("rewrap_data", master_key_identifier, "ciphertext", ciphertext=wrapped_key)["ciphertext"])

    def public_key(self, key: str) -> bytes:
        """Of the latest version of an ed25519, ecdsa-p256 or ecdsa-p384 key, as SubjectPublicKeyInfo."""
        return self._signing_key(key)[1]

    def sign(self, message: bytes, key: str) -> bytes:
        """By the latest version, whose public key `public_key` gives."""
        latest, _, digest = self._signing_key(key)
        more = {} if digest is None else {"hash_algorithm": digest, "marshaling_algorithm": "asn1"}
        given = base64.b64encode(message).decode("ascii")
        answer = self._call("sign_data", key, "signature", hash_input=given, key_version=latest, **more)
        return unb64(str(answer["signature"]).rpartition(":")[2])

    def _signing_key(self, key: str) -> tuple[str, bytes, str | None]:
        """The latest version, its public key, the digest of a message that it signs."""
        data = self._call("read_key", key, "latest_version")
        latest, kind = str(data["latest_version"]), str(data.get("type"))
        try:
            text = str(data["keys"][latest]["public_key"])
            if kind == "ed25519":
                return latest, der(Ed25519PublicKey.from_public_bytes(unb64(text))), None
            return latest, der(load_pem_public_key(text.encode())), _SIGNING[kind]
        except (KeyError, TypeError, ValueError):
            detail = f"{shown(kind)} is no type of keys for Ed25519, or ECDSA over P-256 or P-384"
        raise self._problem(Problem.INVALID, key, detail)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:  # noqa: ARG002
        """By the key's entry: the versions that were not trimmed, and their dates. An engine has one name for a key.

        It is enabled where it exists (deleting a transit key is immediate), and disabled where it was soft-deleted.
        What an RSA key unwraps anybody may have wrapped.
        """
        data = self._call("read_key", master_key_identifier, "keys")
        made = {number: _moment(data["keys"][number]) for number in sorted(data["keys"], key=int)}
        dates = list(made.values())
        latest = None if data.get("latest_version") is None else str(data["latest_version"])
        state = KeyState.DISABLED if data.get("soft_deleted") else KeyState.ENABLED
        kind = str(data.get("type"))
        return MasterKeyFacts(
            master_key_identifier,
            latest,
            state,
            dates[0] if dates else None,
            dates[-1] if len(dates) > 1 else None,
            tuple(
                VersionFacts(number, state is KeyState.ENABLED and number == latest, end, created=made[number])
                for number, end in zip(made, (*dates[1:], None), strict=False)
            ),
            False if kind.startswith("rsa") else kind.startswith(("aes", "chacha20")) or None,
            self._clock(),
        )

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> MasterVersion:
        """The N of ``vault:vN:``, once the engine has opened it: it takes the key of that version and no other."""
        self.unwrap_key(wrapped_key, master_key_identifier)
        return MasterVersion(master_key_identifier, str(int(self._version(wrapped_key, master_key_identifier))))

    def _version(self, wrapped_key: str, master_key: str) -> str:
        if (match := _WRAPPED.fullmatch(wrapped_key)) is None:
            raise self._not_ours(master_key)
        return match[1]

    def _clock(self) -> datetime | None:
        """The server's time, by ``sys/health``; None where that is not to be had, as below a namespace."""
        try:
            told = self._client.sys.read_health_status(standby_ok=True, performance_standby_code=200, method="GET")
            return datetime.fromtimestamp(int(told["server_time_utc"]), UTC)
        except Exception:
            return None

    def _call(self, operation: str, master_key: str, needed: str, **request: Any) -> dict[str, Any]:
        def call() -> dict[str, Any]:
            method = getattr(self._client.secrets.transit, operation)
            answer = method(name=master_key, mount_point=self._mount, **request)
            data = dict(answer["data"])
            data[needed]  # an answer without it is none
            return data

        try:
            return self._answered(call, master_key)
        except KmsAccessError as refused:
            if refused.problem is not Problem.DENIED or not self._has_new_token():
                raise
        return self._answered(call, master_key)

    def _has_new_token(self) -> bool:
        """Something may have renewed the environment's token since it was taken."""
        try:
            token = None if self._given else vendor_library("hvac.utils", "vault").get_token_from_env()
        except OSError:
            return False
        if not token or token == self._client.token:
            return False
        self._client.token = token
        return True

    def _diagnose(self, error: Exception) -> Diagnosis:
        if (known := by_type(error, _PROBLEMS)) is not None:
            return known
        told = " ".join(str(text) for text in getattr(error, "errors", None) or ())
        if "encryption key not found" in told or "no existing key named" in told:
            return Problem.UNKNOWN, None
        if "soft deleted" in told:
            return Problem.DISABLED, None
        if (
            "ciphertext version is disallowed by policy" in told
            or "ciphertext or signature version is disallowed" in told
        ):
            return Problem.DISABLED, "the version is below min_decryption_version"
        if "key version not found" in told or "invalid key version" in told:
            return Problem.DESTROYED, "the version was trimmed"
        return super()._diagnose(error)

    def __repr__(self) -> str:
        return f"<VaultKms at {self._url}, mount {self._mount}>"


def from_uri(uri: str) -> VaultKms:
    """The client for an engine.

    Raises:
        UsageError: no such URI; or plain HTTP to another machine.
        MissingDependencyError: hvac isn't installed.
    """
    url, query = address_in(uri, "Vault URI", "vault://host:8200/transit", "namespace")
    parts = urlsplit(url)
    return VaultKms(
        f"{parts.scheme}://{parts.netloc}",
        mount=parts.path.strip("/") or "transit",
        namespace=query.get("namespace"),
        allow_http=query.get("allow_http") == "true",
    )


def _moment(made: Any) -> datetime | None:
    """Symmetric keys have seconds since 1970 here, asymmetric ones an object."""
    return datetime.fromtimestamp(made, UTC) if isinstance(made, int | float) else None
