"""``aws-kms://REGION`` (or ``aws-kms://``: the environment's region), optionally ``?profile=NAME``, ``?endpoint=URL``:
AWS KMS.

Needs ``bloomseal[aws]``. Credentials come from boto3's own chain: environment, profile, instance or web identity role.
An endpoint has TLS, unless it is on this machine or ``&allow_http=true`` is said.

Master keys are named by key id, ARN, or alias (``alias/NAME``, or an alias's ARN), and must be symmetric.

Permissions on the master key: to read ``kms:Decrypt``; to write ``kms:Encrypt``; for audits ``kms:DescribeKey`` and
``kms:ListKeyRotations``; to re-wrap ``kms:ReEncryptFrom`` and ``kms:ReEncryptTo``. They can be bound to
``kms:EncryptionContext:bloomseal:master-key``. To sign evidence, on an asymmetric key of its own: ``kms:Sign`` and
``kms:GetPublicKey``.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from ...core.errors import UsageError
from ...core.forked import renewed_in_child
from ...core.keys.access import KmsAccessError, Problem, shown
from ...core.keys.wrapping import unb64
from ..kms_protocols import KeyState, MasterKeyFacts, MasterVersion, VersionFacts
from .common import Diagnosis, VendorKms, by_status, is_here, vendor_library
from .signing import DIGESTS, curve_of

_CONTEXT: Final = "bloomseal:master-key"
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PROBLEMS: Final = {
    "AccessDeniedException": Problem.DENIED,
    "ExpiredTokenException": Problem.DENIED,
    "IncompleteSignature": Problem.DENIED,
    "InvalidClientTokenId": Problem.DENIED,
    "InvalidSignatureException": Problem.DENIED,
    "MissingAuthenticationToken": Problem.DENIED,
    "OptInRequired": Problem.DENIED,
    "UnrecognizedClientException": Problem.DENIED,
    "DisabledException": Problem.DISABLED,
    "KMSInvalidStateException": Problem.DISABLED,
    "NotFoundException": Problem.UNKNOWN,
    "InvalidArnException": Problem.UNKNOWN,
    "DependencyTimeoutException": Problem.UNREACHABLE,
    "KMSInternalException": Problem.UNREACHABLE,
    "KeyUnavailableException": Problem.UNREACHABLE,
    "LimitExceededException": Problem.UNREACHABLE,
    "RequestLimitExceeded": Problem.THROTTLED,
    "ServiceUnavailableException": Problem.UNREACHABLE,
    "Throttling": Problem.THROTTLED,
    "ThrottlingException": Problem.THROTTLED,
}
_UNREACHABLE: Final = (
    "EndpointConnectionError",
    "ConnectionError",
    "HTTPClientError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
)
_NO_CREDENTIALS: Final = (
    "NoCredentialsError",
    "CredentialRetrievalError",
    "PartialCredentialsError",
    "TokenRetrievalError",
)
_SIGNING: Final = {"secp256r1": "ECDSA_SHA_256", "secp384r1": "ECDSA_SHA_384", None: "ED25519_SHA_512"}
_MOST_SIGNED: Final = 4096
_STATES: Final = {
    "Enabled": KeyState.ENABLED,
    "PendingDeletion": KeyState.PENDING_DELETION,
    "PendingReplicaDeletion": KeyState.PENDING_DELETION,
}


class AwsKms(VendorKms):
    """AWS KMS. The encryption context binds every wrapped key to the name of its master key, exactly as it was given.

    Args:
        region: None takes the environment's.
        profile: a profile of the shared configuration; None takes the environment's.
        endpoint: another address than the region's: a VPC endpoint, or a stand-in for tests.
        allow_http: send data keys over plain HTTP to another machine than this one.

    Raises:
        UsageError: an endpoint, also one from the environment, with plain HTTP on another machine.
        MissingDependencyError: boto3 isn't installed.
    """

    kms_name = "AWS KMS"

    def __init__(
        self,
        region: str | None = None,
        *,
        profile: str | None = None,
        endpoint: str | None = None,
        allow_http: bool = False,
    ) -> None:
        boto3 = vendor_library("boto3", "aws")
        config = vendor_library("botocore.config", "aws").Config(
            connect_timeout=5,
            read_timeout=10,
            # The key tools retry, and count it.
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=32,
        )
        session = boto3.session.Session(profile_name=profile)
        self._client = session.client("kms", region_name=region, endpoint_url=endpoint, config=config)
        # Asked of the client: the environment and the profile can name an endpoint too.
        if is_here(self._client.meta.endpoint_url, allow_http=allow_http):
            direct = config.merge(type(config)(proxies={}))
            self._client = session.client("kms", region_name=region, endpoint_url=endpoint, config=direct)
        renewed_in_child(self)

    def _renew(self) -> None:
        # In a forked child: an answer on a connection that both use could be the other one's.
        self._client.close()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` encrypted under the master key."""
        answer = self._call(
            "encrypt",
            master_key_identifier,
            "CiphertextBlob",
            Plaintext=key_bytes,
            EncryptionContext=_context(master_key_identifier),
        )
        return base64.b64encode(answer["CiphertextBlob"]).decode("ascii")

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        answer = self._call(
            "decrypt",
            master_key_identifier,
            "Plaintext",
            CiphertextBlob=self._blob(wrapped_key, master_key_identifier),
            EncryptionContext=_context(master_key_identifier),
        )
        return bytes(answer["Plaintext"])

    def unwrap_bytes(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """As `BytesKms`: a ``CiphertextBlob`` without an encryption context."""
        answer = self._call("decrypt", master_key_identifier, "Plaintext", CiphertextBlob=wrapped_key)
        return bytes(answer["Plaintext"])

    def rewrap_key(
        self, wrapped_key: str, master_key_identifier: str, new_master_key_identifier: str | None = None
    ) -> str:
        """By ReEncrypt: the key never leaves AWS."""
        new = new_master_key_identifier or master_key_identifier
        request = {
            "CiphertextBlob": self._blob(wrapped_key, master_key_identifier),
            "SourceKeyId": master_key_identifier,
            "SourceEncryptionContext": _context(master_key_identifier),
            "DestinationKeyId": new,
            "DestinationEncryptionContext": _context(new),
        }
        answer = self._answered(lambda: self._client.re_encrypt(**request), master_key_identifier)
        return base64.b64encode(answer["CiphertextBlob"]).decode("ascii")

    def public_key(self, key: str) -> bytes:
        """Of an asymmetric key for signatures, as SubjectPublicKeyInfo; by GetPublicKey."""
        return bytes(self._call("get_public_key", key, "PublicKey")["PublicKey"])

    def sign(self, message: bytes, key: str) -> bytes:
        """By Sign, with a key of the spec ECC_NIST_P256, ECC_NIST_P384 or ECC_NIST_EDWARDS25519. The latter signs 4,096
        bytes at most: AWS wants the message itself.
        """
        curve = curve_of(self.public_key(key))
        if curve not in _SIGNING:
            detail = "not a key for Ed25519, or ECDSA over P-256 or P-384"
            raise self._problem(Problem.INVALID, key, detail)
        if curve is None and len(message) > _MOST_SIGNED:
            detail = (
                f"it signs {_MOST_SIGNED} bytes at most by Ed25519, and these are {len(message)}: take a key of P-256"
            )
            raise self._problem(Problem.INVALID, key, detail)
        given, kind = (message, "RAW") if curve is None else (DIGESTS[curve](message), "DIGEST")
        request = {"Message": given, "MessageType": kind, "SigningAlgorithm": _SIGNING[curve]}
        answer = self._call("sign", key, "Signature", **request)
        return bytes(answer["Signature"])

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:  # noqa: ARG002
        """By DescribeKey, which takes ids, ARNs and aliases for one key, and by ListKeyRotations where that is allowed.

        Versions are key materials, by their ids, as far as AWS lists them: of keys that rotate. It tells no date of
        disabling. A state that is neither enabled nor to be deleted counts as disabled: the key can't be used. An
        asymmetric key authenticates no writers, and the clock is the head of the answer's.
        """
        answer = self._call("describe_key", master_key_identifier, "KeyMetadata")
        described: dict[str, Any] = answer["KeyMetadata"]
        arn = described.get("Arn", master_key_identifier)
        state, current = described.get("KeyState", ""), described.get("CurrentKeyMaterialId")
        # The first material was never rotated to: it has no date. The listing knows no aliases.
        listed = sorted(self._rotations(arn), key=lambda one: one.get("RotationDate", _LONG_AGO))
        known = {one["KeyMaterialId"]: one.get("RotationDate") for one in listed if "KeyMaterialId" in one}
        if current is not None:
            known.setdefault(current, None)
        ends = [*list(known.values())[1:], None]
        spec = described.get("KeySpec")
        return MasterKeyFacts(
            _key_of(arn),
            current,
            _STATES.get(state, KeyState.DISABLED),
            described.get("CreationDate"),
            max((one["RotationDate"] for one in listed if "RotationDate" in one), default=None),
            tuple(
                VersionFacts(
                    name, state == "Enabled" and name == current, None if name == current else end, created=made
                )
                for (name, made), end in zip(known.items(), ends, strict=False)
            ),
            None if spec is None else bool(spec == "SYMMETRIC_DEFAULT"),
            _moment(answer),
        )

    def _rotations(self, arn: str) -> list[dict[str, Any]]:
        """All key materials; none where listing them is not allowed, or not for this kind of key."""
        listed: list[dict[str, Any]] = []
        more: dict[str, Any] = {"IncludeKeyMaterial": "ALL_KEY_MATERIAL"}
        try:
            while True:
                page = self._call("list_key_rotations", arn, "Rotations", **more)
                listed += page["Rotations"]
                if not page.get("Truncated"):
                    return listed
                more["Marker"] = page["NextMarker"]
        except KmsAccessError as error:
            if error.retryable:
                raise
            return []

    def opened_by(self, wrapped_key: str | bytes, master_key_identifier: str) -> MasterVersion:
        """By Decrypt, which tells the key and its material. Whatever key opens it is wanted, so none is named: an alias
        may lead to another key by now.
        """
        bare = isinstance(wrapped_key, bytes)
        request: dict[str, Any] = {
            "CiphertextBlob": wrapped_key if bare else self._blob(str(wrapped_key), master_key_identifier)
        }
        request |= {} if bare else {"EncryptionContext": _context(master_key_identifier)}
        answer = self._answered(lambda: self._client.decrypt(**request), master_key_identifier)
        return MasterVersion(_key_of(answer["KeyId"]), answer.get("KeyMaterialId"))

    def _call(self, operation: str, master_key: str, needed: str, **request: Any) -> dict[str, Any]:
        def call() -> dict[str, Any]:
            answer: dict[str, Any] = getattr(self._client, operation)(KeyId=master_key, **request)
            answer[needed]  # an answer without it is none
            return answer

        return self._answered(call, master_key)

    def _blob(self, wrapped_key: str, master_key: str) -> bytes:
        if not (blob := unb64(wrapped_key)):
            raise self._not_ours(master_key)
        return blob

    def _diagnose(self, error: Exception) -> Diagnosis:
        name = type(error).__name__
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return _PROBLEMS.get(code, by_status(status)), code or None
        if any(base.__name__ in _UNREACHABLE for base in type(error).__mro__):
            return Problem.UNREACHABLE, name
        if name in _NO_CREDENTIALS:
            return Problem.DENIED, "there are no usable credentials"
        return Problem.INVALID, name

    def __repr__(self) -> str:
        return f"<AwsKms in {self._client.meta.region_name}>"


def from_uri(uri: str) -> AwsKms:
    """The client for a region.

    Raises:
        UsageError: no such URI; or no region, and none in the environment.
        MissingDependencyError: boto3 isn't installed.
    """
    parts = urlsplit(uri)
    query = parse_qs(parts.query)
    if parts.path.strip("/") or set(query) - {"allow_http", "endpoint", "profile"}:
        raise UsageError(
            f"{shown(uri)} is no AWS KMS URI", hint="aws-kms://eu-central-1?profile=NAME; keys are named elsewhere"
        )
    return AwsKms(
        parts.netloc or None,
        profile=query.get("profile", [None])[0],
        endpoint=query.get("endpoint", [None])[0],
        allow_http=query.get("allow_http", ["false"])[0] == "true",
    )


def _key_of(arn: str) -> str:
    """One name for a key, and for all replicas of a multi-Region key: they share their material."""
    name = arn.rpartition("/")[2]
    return name if name.startswith("mrk-") else arn


def _moment(answer: dict[str, Any]) -> datetime | None:
    """AWS's time, by the head of its answer."""
    try:
        moment = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, TypeError, ValueError):
        return None
    return None if moment.tzinfo is None else moment


def _context(master_key: str) -> dict[str, str]:
    return {_CONTEXT: master_key}
