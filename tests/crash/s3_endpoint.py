"""An S3 endpoint on this machine that fails where it is told to: moto's server with faults in front of it."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
from werkzeug.serving import make_server

__all__ = ["Endpoint", "Failure", "Request", "serving"]


class Failure(StrEnum):
    """How a request fails. TRUNCATED: the connection ends in the middle of the answer. STALE: a listing is the first
    one of that kind that was asked for.
    """

    INTERNAL = "500 Internal Server Error"
    SLOW_DOWN = "503 Slow Down"
    RESET = "reset"
    TRUNCATED = "truncated"
    STALE = "stale"


@dataclass(frozen=True)
class Request:
    """What came, and how many came before it."""

    number: int
    method: str
    path: str
    query: str

    @property
    def listing(self) -> bool:
        return self.method == "GET" and "list-type" in self.query


class Endpoint:
    """The WSGI application.

    Attributes:
        fault: called with each request; a failure, or None where it is answered.
        requests: since `reset`.
    """

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._listed: dict[str, tuple[str, list[Any], bytes]] = {}
        self._lock = threading.Lock()
        self.port = 0
        self.reset()

    def reset(self, fault: Callable[[Request], Failure | None] = lambda _: None) -> None:
        self.fault = fault
        self.requests: list[Request] = []

    def filesystem(self) -> S3FileSystem:
        """Without retries: every failure arrives."""
        return S3FileSystem(
            access_key="test", secret_key="test", region="us-east-1", scheme="http", allow_bucket_creation=True,
            endpoint_override=f"127.0.0.1:{self.port}", retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
        )  # fmt: skip

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            query = environ.get("QUERY_STRING", "")
            request = Request(len(self.requests), environ["REQUEST_METHOD"], environ["PATH_INFO"], query)
            self.requests.append(request)
        failure = self.fault(request)
        if failure in (Failure.INTERNAL, Failure.SLOW_DOWN):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(str(failure), [("Content-Type", "application/xml")])
            code = "SlowDown" if failure is Failure.SLOW_DOWN else "InternalError"
            return [f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()]
        if failure is Failure.RESET:
            with contextlib.suppress(OSError):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        said: list[Any] = []
        body = b"".join(self._moto(environ, lambda status, headers, _=None: said.extend((status, headers))))
        answer = (said[0], said[1], body)
        if request.listing:
            first = self._listed.setdefault(f"{request.path}?{query}", answer)
            answer = first if failure is Failure.STALE else answer
        start(answer[0], answer[1])
        return _half(answer[2]) if failure is Failure.TRUNCATED else [answer[2]]

    def forget_listings(self) -> None:
        self._listed.clear()


def _half(body: bytes) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    raise ConnectionResetError


@contextlib.contextmanager
def serving() -> Iterator[Endpoint]:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    endpoint = Endpoint()
    server = make_server("127.0.0.1", 0, endpoint, True, request_handler=MotoRequestHandler)
    endpoint.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()
