"""KMS clients for tests. They wrap for real (AES-GCM), hold their master keys in memory, and can be slow or broken on
demand.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping

import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MASTER_KEYS = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}


class InMemoryKms:
    """Wraps as parquet-testing's in-memory KMS does: AES-GCM, the AAD is the master key's id.

    `calls` counts per method; `latency` is slept in every call; `failing` is raised by every call.
    """

    def __init__(self, keys: Mapping[str, bytes] = MASTER_KEYS, *, latency: float = 0.0) -> None:
        self.keys = dict(keys)
        self.latency = latency
        self.failing: BaseException | None = None
        self.calls: Counter[str] = Counter()
        self.running = self.most_running = 0
        self._lock = threading.Lock()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        with self._Call(self, "wrap"):
            nonce = os.urandom(12)
            sealed = AESGCM(self.keys[master_key_identifier]).encrypt(nonce, key_bytes, master_key_identifier.encode())
            return base64.b64encode(nonce + sealed).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        with self._Call(self, "unwrap"):
            blob = base64.b64decode(wrapped_key, validate=True)
            return AESGCM(self.keys[master_key_identifier]).decrypt(
                blob[:12], blob[12:], master_key_identifier.encode()
            )

    class _Call:
        def __init__(self, kms: InMemoryKms, method: str) -> None:
            self.kms, self.method = kms, method

        def __enter__(self) -> None:
            with self.kms._lock:
                self.kms.calls[self.method] += 1
                self.kms.running += 1
                self.kms.most_running = max(self.kms.most_running, self.kms.running)
            if self.kms.latency:
                time.sleep(self.kms.latency)
            if self.kms.failing is not None:
                self.__exit__()
                raise self.kms.failing

        def __exit__(self, *_: object) -> None:
            with self.kms._lock:
                self.kms.running -= 1


class PyArrowKms(pe.KmsClient):
    """A user's client for pyarrow, as pyarrow's documentation shows one: an unchanged subclass, answering in bytes."""

    def __init__(self, _config: pe.KmsConnectionConfig | None = None, keys: Mapping[str, bytes] = MASTER_KEYS) -> None:
        super().__init__()
        self.kms = InMemoryKms(keys)

    def wrap_key(self, key_bytes, master_key_identifier):  # type: ignore[no-untyped-def]
        return self.kms.wrap_key(key_bytes, master_key_identifier).encode()

    def unwrap_key(self, wrapped_key, master_key_identifier):  # type: ignore[no-untyped-def]
        return self.kms.unwrap_key(wrapped_key, master_key_identifier)
