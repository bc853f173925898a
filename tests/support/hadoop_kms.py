"""A stand-in for a Hadoop KMS: the documented REST interface with simple authentication, over keys in memory.

The Java client of Hadoop talks to it too, so that it is not only our own idea of the protocol.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["StandInKms", "hadoop_kms"]


@dataclass
class StandInKms:
    """The server.

    Attributes:
        keys: name → versions.
        denied: users who may use no key.
        status: answered to every request instead, if not 0.
        calls: method, path and user of every request.
    """

    port: int
    keys: dict[str, list[bytes]]
    denied: set[str] = field(default_factory=set)
    status: int = 0
    body: bytes = b""
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"hadoop-kms://127.0.0.1:{self.port}/kms?plain_http=true"

    @property
    def java_uri(self) -> str:
        return f"kms://http@127.0.0.1:{self.port}/kms"

    def answer(self, method: str, target: str, body: bytes, cookie: str) -> tuple[int, Any]:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        known = re.search(r'hadoop\.auth="?u=([^&"]+)', cookie)
        user = known[1] if known else query.get("user.name", [""])[0]
        self.calls.append((method, parts.path, user))
        if self.status:
            return self.status, self.body
        if method == "OPTIONS":
            return (200, None) if user else (401, None)
        if not user or user in self.denied:
            return 403, {"RemoteException": {"exception": "AuthorizationException", "message": "denied"}}
        steps = [unquote(step) for step in parts.path.split("/")[1:]]
        if steps[:2] != ["kms", "v1"]:
            return 404, None
        match steps[2:]:
            case ["key", name, "_metadata"]:
                versions = self.keys.get(name, [])
                told = {
                    "name": name,
                    "cipher": "AES/CTR/NoPadding",
                    "created": 1_700_000_000_000,
                    "versions": len(versions),
                }
                return 200, {**told, "length": 8 * len(versions[0])} if versions else {}
            case ["keyversion", version, "_eek"] if method == "POST" and query.get("eek_op") == ["decrypt"]:
                return self._decrypted(version, json.loads(body))
            case ["keys", "names"]:
                return 200, list(self.keys)
        return 404, None

    def _decrypted(self, version: str, request: dict[str, str]) -> tuple[int, Any]:
        name, _, number = version.rpartition("@")
        if name != request["name"] or int(number) >= len(self.keys.get(name, [])):
            return 404, {"RemoteException": {"exception": "IOException", "message": "no such version"}}
        iv, material = (_decoded(request[one]) for one in ("iv", "material"))
        mangled = bytes(0xFF ^ byte for byte in iv)
        opened = Cipher(algorithms.AES(self.keys[name][int(number)]), modes.CTR(mangled)).decryptor().update(material)
        return 200, {"name": "EK", "material": base64.urlsafe_b64encode(opened).decode().rstrip("=")}


def _decoded(text: str) -> bytes:
    plain = text.replace("-", "+").replace("_", "/").strip().rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


@contextmanager
def hadoop_kms(keys: dict[str, list[bytes]]) -> Iterator[StandInKms]:
    """A server on a free port of this machine."""
    stand_in = StandInKms(0, keys)

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = stand_in.answer(self.command, self.path, body, self.headers.get("Cookie") or "")
            data = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if self.command == "OPTIONS":
                user = stand_in.calls[-1][2]
                self.send_header("Set-Cookie", f'hadoop.auth="u={user}&p={user}&t=simple&e=9999999999999&s=x"; Path=/')
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_OPTIONS = _do  # noqa: N815

        def log_message(self, *told: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
