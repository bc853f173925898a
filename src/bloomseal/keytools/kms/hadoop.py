"""``hadoop-kms://HOST:9600/kms``: a Hadoop or Ranger KMS, for encrypted columns of ORC files.

Through its REST interface, with simple authentication: the user is ``$HADOOP_USER_NAME``, or the one that the process
runs as. ``?plain_http=true`` leaves TLS out, for a server on this machine; for another one ``&allow_http=true`` must be
said too, for local keys would cross the network in clear. A private CA comes from ``$SSL_CERT_FILE``. Kerberos and
delegation tokens are not supported.

Permissions: ``DECRYPT_EEK`` on the key; to rotate also ``GET_METADATA``. The KMS opens local keys (`LocalKeyKms`); it
wraps nothing that is given to it, so that Parquet files can't use it.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import re
import ssl
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ...core.keys.access import KmsAccessError, Problem
from ..access_log import user_name
from .common import Diagnosis, VendorKms, address_in, by_status, is_here

_TIMEOUT_SECONDS: Final = 10
_MAX_ANSWER: Final = 1 << 20
_IV_BYTES: Final = 16


class HadoopKms(VendorKms):
    """A KMS.

    Args:
        url: ``https://HOST:PORT/kms``.
        user: None takes ``$HADOOP_USER_NAME``, or the process's user.
        allow_http: send local keys over plain HTTP to another machine than this one.

    Raises:
        UsageError: plain HTTP to another machine.
    """

    kms_name = "Hadoop KMS"
    # Names become part of a request's path: nothing in a file may lead to another one.
    names = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")

    def __init__(self, url: str, *, user: str | None = None, allow_http: bool = False) -> None:
        is_here(url, allow_http=allow_http)
        parts = urlsplit(url)
        self._url, self._host, self._port = url, parts.hostname or "", parts.port
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/") + "/v1"
        self._user = user or os.environ.get("HADOOP_USER_NAME") or user_name()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
        """Raises KmsAccessError, always."""
        raise self._refusal(master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
        """Raises KmsAccessError, always."""
        raise self._refusal(master_key_identifier)

    def _refusal(self, master_key: str) -> KmsAccessError:
        detail = "it opens encrypted columns of ORC files, and wraps no keys"
        return KmsAccessError.because(
            Problem.INVALID, master_key, self.kms_name, detail=detail, hint="another KMS", unauthentic=False
        )

    def open_local_key(self, encrypted_key: bytes, master_key_identifier: str, version: int) -> bytes:
        """As `LocalKeyKms`. Raises KmsAccessError."""
        # The KMS turns all bits of an IV over before it uses it.
        iv = bytes(0xFF ^ byte for byte in encrypted_key[:_IV_BYTES])
        request = {"name": master_key_identifier, "iv": _b64(iv), "material": _b64(encrypted_key)}
        place = f"keyversion/{quote(f'{master_key_identifier}@{version}', safe='')}/_eek?eek_op=decrypt"
        answer = self._call("POST", place, master_key_identifier, request)
        opened = _unb64(answer.get("material"))
        if len(opened) != len(encrypted_key):
            raise self._problem(Problem.INVALID, master_key_identifier, "no key of the right length")
        return opened

    def newest_version(self, master_key_identifier: str) -> int:
        """As `LocalKeyKms`. Raises KmsAccessError."""
        answer = self._call("GET", f"key/{quote(master_key_identifier, safe='')}/_metadata", master_key_identifier)
        versions = answer.get("versions")
        if not isinstance(versions, int) or versions < 1:
            raise self._problem(Problem.INVALID, master_key_identifier, "no number of versions")
        return versions - 1

    def _call(self, method: str, place: str, master_key: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        text = None if body is None else json.dumps(body)
        return self._understood(*self._answered(lambda: self._answer(method, place, text), master_key), master_key)

    def _diagnose(self, error: Exception) -> Diagnosis:
        gone = isinstance(error, OSError | http.client.HTTPException)
        return Problem.UNREACHABLE if gone else Problem.INVALID, type(error).__name__

    def _answer(self, method: str, place: str, body: str | None) -> tuple[int, bytes]:
        # One connection for a call: nothing is shared between threads, or with a forked child. No redirect is followed,
        # and no proxy asked: both would see local keys.
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._tls)
        )
        try:
            target = f"{self._path}/{place}{'&' if '?' in place else '?'}user.name={quote(self._user, safe='')}"
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_MAX_ANSWER)
        finally:
            connection.close()

    def _understood(self, status: int, data: bytes, master_key: str) -> dict[str, Any]:
        try:
            answer = json.loads(data) if data else {}
        except ValueError:
            answer = None
        if status != 200:
            raise self._problem(by_status(status), master_key, f"status {status}")
        if answer == {}:
            # Of a key that it does not have, it tells nothing, with status 200.
            raise self._problem(Problem.UNKNOWN, master_key, None)
        if not isinstance(answer, dict):
            raise self._problem(Problem.INVALID, master_key, "no JSON object")
        return answer

    def __repr__(self) -> str:
        return f"<HadoopKms at {self._url}>"


def from_uri(uri: str) -> HadoopKms:
    """The client for a KMS.

    Raises:
        UsageError: no such URI; or plain HTTP to another machine.
    """
    url, query = address_in(uri, "Hadoop KMS", "hadoop-kms://host:9600/kms")
    return HadoopKms(url if urlsplit(url).path else f"{url}/kms", allow_http=query.get("allow_http") == "true")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")


def _unb64(text: object) -> bytes:
    """Either alphabet, with padding or without: versions of the KMS differ."""
    if not isinstance(text, str):
        return b""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=\r\n")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
