# ruff: noqa: ARG002  # an answer may depend on less than it is given
"""Small servers that speak the documented protocols of Vault's transit engine, Google Cloud KMS and Azure Key Vault.

They stand in for services that can't run here. The vendors' real client libraries talk to them; what they prove is that
the clients ask and understand as the public API documentation says, not that the services behave so. They encrypt for
real.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import grpc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from google.cloud import kms as google_kms

__all__ = ["AzureStub", "GcpStub", "VaultStub"]

Answer = tuple[int, dict[str, Any]]


class _Stub:
    """A server; `override` answers in its place when set, `requests` is what it was asked."""

    def __init__(self) -> None:
        self.override: Callable[[str, str], Answer | None] | None = None
        self.requests: list[tuple[str, str]] = []
        self.challenge: str | None = None
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                path = unquote(urlsplit(self.path).path)
                stub.requests.append((self.command, path))
                answer = stub.override(self.command, path) if stub.override else None
                status, content = answer or stub.answer(self.command, path, body, dict(self.headers))
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status == 401 and stub.challenge:
                    self.send_header("WWW-Authenticate", stub.challenge)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _seal(key: bytes, data: bytes, aad: bytes = b"") -> bytes:
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, data, aad)


def _open(key: bytes, sealed: bytes, aad: bytes = b"") -> bytes | None:
    try:
        return AESGCM(key).decrypt(sealed[:12], sealed[12:], aad)
    except (InvalidTag, ValueError):
        return None


class VaultStub(_Stub):
    """The transit engine's HTTP API: encrypt, decrypt, rewrap, read key, sign."""

    def __init__(self, token: str, mount: str = "transit") -> None:
        super().__init__()
        self.token, self.mount = token, mount
        self.keys: dict[str, list[tuple[bytes, int]]] = {}
        self.pairs: dict[str, list[Any]] = {}
        self.min_decryption_version = 1
        self.time: int | None = int(time.time())

    def new_key(self, name: str) -> None:
        """Makes a key, or its next version."""
        versions = self.keys.setdefault(name, [])
        versions.append((os.urandom(32), int(time.time()) + len(versions)))

    def answer(self, method: str, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        if {name.lower(): value for name, value in headers.items()}.get("x-vault-token") != self.token:
            return 403, {"errors": ["permission denied"]}
        if path.startswith("/v1/sys/health"):
            return 200, {"initialized": True, "sealed": False, "standby": False} | (
                {} if self.time is None else {"server_time_utc": self.time}
            )
        match = re.fullmatch(rf"/v1/{self.mount}/(encrypt|decrypt|rewrap|keys|sign)/([^/]+)(?:/(sha2-\d+))?", path)
        if match is None:
            return 404, {"errors": []}
        operation, name, digest = match.groups()
        if name in self.pairs and operation in ("keys", "sign"):
            return 200, {"data": self._of_pair(operation, self.pairs[name], body, digest)}
        versions = self.keys.get(name)
        if versions is None:
            return (404, {"errors": []}) if operation == "keys" else (400, {"errors": ["encryption key not found"]})
        if operation == "keys":
            made = {str(number): moment for number, (_, moment) in enumerate(versions, 1)}
            data = {"name": name, "type": "aes256-gcm96", "latest_version": len(versions), "keys": made}
            return 200, {"data": data}
        if operation == "encrypt":
            return 200, {"data": self._encrypted(versions, base64.b64decode(body["plaintext"]))}
        parts = str(body["ciphertext"]).split(":")
        number = int(parts[1][1:])
        if number < self.min_decryption_version:
            return 400, {"errors": ["ciphertext or signature version is disallowed by policy (too old)"]}
        if not 1 <= number <= len(versions):
            return 400, {"errors": ["invalid key version"]}
        try:
            sealed = base64.b64decode(parts[2], validate=True)
        except ValueError:
            return 400, {"errors": ["invalid ciphertext: could not decode base64"]}
        if (plain := _open(versions[number - 1][0], sealed)) is None:
            return 400, {"errors": ["cipher: message authentication failed"]}
        if operation == "rewrap":
            return 200, {"data": self._encrypted(versions, plain)}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}

    def _of_pair(self, operation: str, versions: list[Any], body: dict[str, Any], digest: str | None) -> dict[str, Any]:
        """As the engine answers for asymmetric keys: ed25519's public key is its bytes in base64, others' are PEM."""
        edwards = isinstance(versions[-1], Ed25519PrivateKey)
        if operation == "keys":
            raw, pem = (Encoding.Raw, PublicFormat.Raw), (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            publics = [key.public_key().public_bytes(*(raw if edwards else pem)) for key in versions]
            texts = [base64.b64encode(one).decode() if edwards else one.decode() for one in publics]
            kind = "ed25519" if edwards else f"ecdsa-p{versions[-1].curve.key_size}"
            keys = {str(number): {"public_key": text} for number, text in enumerate(texts, 1)}
            return {"name": "pair", "type": kind, "latest_version": len(versions), "keys": keys}
        key, message = versions[int(body["key_version"]) - 1], base64.b64decode(body["input"])
        if edwards:
            signature = key.sign(message)
        else:
            assert body["marshaling_algorithm"] == "asn1"
            algorithm = digest or body.get("hash_algorithm")
            signature = key.sign(message, ECDSA({"sha2-256": SHA256(), "sha2-384": SHA384()}[str(algorithm)]))
        return {"signature": f"vault:v{body['key_version']}:{base64.b64encode(signature).decode()}"}

    def _encrypted(self, versions: list[tuple[bytes, int]], plain: bytes) -> dict[str, Any]:
        sealed = base64.b64encode(_seal(versions[-1][0], plain)).decode()
        return {"ciphertext": f"vault:v{len(versions)}:{sealed}", "key_version": len(versions)}


class GcpStub:
    """Cloud KMS's gRPC API, v1: encrypt, decrypt, get crypto key, get crypto key version."""

    def __init__(self, ring: str) -> None:
        self.ring = ring
        self.keys: dict[str, list[bytes]] = {}
        self.states: dict[tuple[str, int], str] = {}
        self.requests: list[str] = []
        self.failing: str | None = None  # a status code that every call is answered with
        self._server = grpc.server(ThreadPoolExecutor(4))
        methods = {
            "Encrypt": (self._encrypt, google_kms.EncryptRequest, google_kms.EncryptResponse),
            "Decrypt": (self._decrypt, google_kms.DecryptRequest, google_kms.DecryptResponse),
            "GetCryptoKey": (self._key, google_kms.GetCryptoKeyRequest, google_kms.CryptoKey),
            "GetCryptoKeyVersion": (
                self._version_asked,
                google_kms.GetCryptoKeyVersionRequest,
                google_kms.CryptoKeyVersion,
            ),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._guarded(call), asked.deserialize, answer.serialize)
            for name, (call, asked, answer) in methods.items()
        }
        service = grpc.method_handlers_generic_handler("google.cloud.kms.v1.KeyManagementService", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def new_key(self, name: str) -> None:
        """Makes a key, or its next version, which becomes primary."""
        self.keys.setdefault(name, []).append(os.urandom(32))

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    def _guarded(self, call: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            self.requests.append(request.name)
            try:
                if self.failing is not None:
                    raise _RefusedError(self.failing)
                return call(request)
            except _RefusedError as refusal:
                context.abort(grpc.StatusCode[str(refusal)], "told in words AAECAwQFBgc")

        return answer

    def _found(self, name: str) -> tuple[str, list[bytes]]:
        short = name.removeprefix(f"{self.ring}/cryptoKeys/").partition("/")[0]
        if not name.startswith(f"{self.ring}/cryptoKeys/") or short not in self.keys:
            raise _RefusedError("NOT_FOUND")
        return short, self.keys[short]

    def _encrypt(self, request: Any) -> Any:
        name, versions = self._found(request.name)
        self._check(name, len(versions))
        sealed = _seal(versions[-1], request.plaintext, request.additional_authenticated_data)
        return google_kms.EncryptResponse(
            name=f"{request.name}/cryptoKeyVersions/{len(versions)}",
            ciphertext=len(versions).to_bytes(2, "big") + sealed,
        )

    def _decrypt(self, request: Any) -> Any:
        name, versions = self._found(request.name)
        number = int.from_bytes(request.ciphertext[:2], "big")
        if not 1 <= number <= len(versions):
            raise _RefusedError("INVALID_ARGUMENT")
        self._check(name, number)
        plain = _open(versions[number - 1], request.ciphertext[2:], request.additional_authenticated_data)
        if plain is None:
            raise _RefusedError("INVALID_ARGUMENT")
        return google_kms.DecryptResponse(plaintext=plain)

    def _check(self, name: str, number: int) -> None:
        if self.states.get((name, number), "ENABLED") != "ENABLED":
            raise _RefusedError("FAILED_PRECONDITION")

    def _key(self, request: Any) -> Any:
        name, versions = self._found(request.name)
        made = datetime(2025, 1, 1, tzinfo=UTC)
        return google_kms.CryptoKey(
            name=request.name,
            create_time=made,
            primary=self._version(name, len(versions)),
            purpose=google_kms.CryptoKey.CryptoKeyPurpose.ENCRYPT_DECRYPT,
        )

    def _version_asked(self, request: Any) -> Any:
        name, _ = self._found(request.name)
        return self._version(name, int(request.name.rpartition("/")[2]))

    def _version(self, name: str, number: int) -> Any:
        return google_kms.CryptoKeyVersion(
            name=f"{self.ring}/cryptoKeys/{name}/cryptoKeyVersions/{number}",
            state=self.states.get((name, number), "ENABLED"),
            create_time=datetime(2025, 1, number, tzinfo=UTC),
        )


class _RefusedError(Exception):
    """Carries the name of a gRPC status code."""


class AzureStub(_Stub):
    """Key Vault's REST API for RSA keys: get key, wrap key, unwrap key. `answer` checks the bearer token, after one
    challenge.
    """

    def __init__(self, url: str, token: str) -> None:
        super().__init__()
        self.url, self.token = url, token
        self.challenge = (
            'Bearer authorization="https://login.microsoftonline.com/tenant", resource="https://vault.azure.net"'
        )
        self.keys: dict[str, list[tuple[str, rsa.RSAPrivateKey]]] = {}
        self.disabled: set[str] = set()

    def new_key(self, name: str) -> None:
        """Makes a key, or its next version."""
        private = rsa.generate_private_key(65537, 2048)
        self.keys.setdefault(name, []).append((os.urandom(16).hex(), private))

    def answer(self, method: str, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        match = re.fullmatch(r"/keys/([^/]+)(?:/([0-9a-f]*))?(?:/(wrapkey|unwrapkey))?/?", path)
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"error": {"code": "Unauthorized", "message": "no token"}}
        if match is None or (versions := self.keys.get(match[1])) is None:
            return 404, {"error": {"code": "KeyNotFound", "message": "not there"}}
        name, asked, operation = match.groups()
        found = [one for one in versions if one[0] == asked] if asked else versions[-1:]
        if not found:
            return 404, {"error": {"code": "KeyNotFound", "message": "no such version"}}
        version, private = found[0]
        kid = f"{self.url}/keys/{name}/{version}"
        if operation is None:
            numbers = private.public_key().public_numbers()
            jwk = {
                "kid": kid,
                "kty": "RSA",
                "key_ops": ["wrapKey", "unwrapKey"],
                "n": _number(numbers.n),
                "e": _number(numbers.e),
            }
            attributes = {
                "enabled": name not in self.disabled,
                "created": 1_735_689_600 + len(versions),
                "updated": 1_735_689_600,
            }
            return 200, {"key": jwk, "attributes": attributes}
        if name in self.disabled:
            inner = {"code": "KeyDisabled"}
            return 403, {
                "error": {
                    "code": "Forbidden",
                    "message": "Operation is not allowed on a disabled key.",
                    "innererror": inner,
                }
            }
        value = base64.urlsafe_b64decode(body["value"] + "==")
        oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
        try:
            done = private.public_key().encrypt(value, oaep) if operation == "wrapkey" else private.decrypt(value, oaep)
        except ValueError:
            return 400, {"error": {"code": "BadParameter", "message": "could not be decrypted"}}
        return 200, {"kid": kid, "value": base64.urlsafe_b64encode(done).rstrip(b"=").decode()}


def _number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()
