"""``jceks://file/absolute/path.jceks``: a Hadoop key store, read without a JVM, for encrypted columns of ORC files.

Its password comes from ``$HADOOP_KEYSTORE_PASSWORD``; without it, it is ``none``, as Hadoop has it. Such a store is
what a Hadoop KMS commonly keeps its keys in. Keys are protected by MD5 and Triple DES, which hold nobody up: guard the
file as you would the keys.

The store opens local keys (`LocalKeyKms`); it wraps nothing, so that Parquet files can't use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.padding import PKCS7

from ....core.encryption import SecretKey
from ....core.errors import FormatError, KeyAccessError, UsageError
from ....core.keys.access import KmsAccessError, Problem, shown
from ....core.keys.wrapping import open_by_ctr
from ....core.storage.local import need_own, read_small
from ..common import LocalKeysOnly
from .java_objects import Reader

__all__ = ["PASSWORD_VARIABLE", "JceksStore", "from_uri"]

PASSWORD_VARIABLE: Final = "HADOOP_KEYSTORE_PASSWORD"  # noqa: S105  # its name
_DEFAULT: Final = "none"
_MAGIC: Final = 0xCECECECE
_DIGEST_BYTES: Final = 20
_MAX_BYTES: Final = 16 << 20
_MAX_ROUNDS: Final = 5_000_000
_CERTIFICATE, _SECRET = 2, 3


class JceksStore(LocalKeysOnly):
    """A key store. Keys are Hadoop's: ``name@0``, ``name@1``, ….

    Args:
        path: the file.
        password: None takes ``$HADOOP_KEYSTORE_PASSWORD``, or Hadoop's own.

    Raises:
        KeyAccessError: the file can't be read, is no key store, or the password is another one.
        PolicyError: others than its owner can use the file.
    """

    kms_name = "the JCEKS key store"

    def __init__(self, path: str | os.PathLike[str], *, password: str | None = None) -> None:
        self._path = Path(path)
        self._password = os.environ.get(PASSWORD_VARIABLE, _DEFAULT) if password is None else password
        self._sealed: dict[str, Any] = {}
        # Opened when they are asked for: the JDK's 200,000 rounds take a tenth of a second for each.
        self._keys: dict[str, SecretKey] = {}
        with self._readable():
            self._load(_content(self._path), self._password)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
            return
        except (FormatError, ValueError) as error:
            reason = error.what if isinstance(error, FormatError) else type(error).__name__
        raise KeyAccessError(
            f"the key store {self._path} can't be opened: {reason}", hint=f"check its password: ${PASSWORD_VARIABLE}"
        )

    def open_local_key(self, encrypted_key: bytes, master_key_identifier: str, version: int) -> bytes:
        """As `LocalKeyKms`. Raises KmsAccessError."""
        alias = f"{master_key_identifier}@{version}".lower()
        if alias not in self._sealed:
            raise KmsAccessError.because(
                Problem.UNKNOWN, master_key_identifier, self.kms_name, detail=f"version {version}"
            )
        if alias not in self._keys:
            with self._readable():
                self._keys[alias] = _opened(self._sealed[alias], self._password)
        return open_by_ctr(encrypted_key, self._keys[alias])

    def newest_version(self, master_key_identifier: str) -> int:
        """As `LocalKeyKms`. Raises KmsAccessError."""
        parts = [alias.rpartition("@") for alias in self._sealed]
        versions = [int(number) for name, _, number in parts if name == master_key_identifier.lower()]
        if not versions:
            raise KmsAccessError.because(Problem.UNKNOWN, master_key_identifier, self.kms_name)
        return max(versions)

    def _load(self, data: bytes, password: str) -> None:
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        made = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
        reader = Reader(body)
        if len(body) < 12 or reader.number("I") != _MAGIC:
            raise FormatError("not a JCEKS key store")
        if not hmac.compare_digest(made, digest):
            raise FormatError("another password, or altered")
        if reader.number("I") != 2:
            raise FormatError("a version of the format that is not known")
        for _ in range(reader.number("I")):
            kind, alias = reader.number("I"), reader.text()
            reader.number("Q")
            if kind == _CERTIFICATE:
                reader.text()
                reader.take(reader.number("I"))
            elif kind == _SECRET:
                sealed = reader.stream()
                name, at, number = alias.rpartition("@")
                if name and at and number.isdecimal():
                    self._sealed[alias.lower()] = sealed
            else:
                raise FormatError("a private key among the entries")

    def __repr__(self) -> str:
        return f"<JceksStore {str(self._path)!r}>"


def from_uri(uri: str) -> JceksStore:
    """The store that the URI names, as Hadoop writes it.

    Raises:
        UsageError: a store that is no local file.
        KeyAccessError, PolicyError: as `JceksStore`.
    """
    parts = urlsplit(uri)
    if parts.netloc.rstrip("@") != "file" or len(parts.path) < 2 or parts.query or parts.fragment:
        raise UsageError(f"{shown(uri)} is no key store here", hint="jceks://file/absolute/path/to/store.jceks")
    return JceksStore(unquote(parts.path))


def _content(path: Path) -> bytes:
    try:
        data = read_small(path, _MAX_BYTES, lambda status: need_own(status, "the key store", path))
    except OSError as error:
        raise KeyAccessError(f"the key store {path} can't be read: {error.strerror or type(error).__name__}") from None
    if len(data) > _MAX_BYTES:
        raise FormatError(f"more than {_MAX_BYTES} bytes")
    return data


def _opened(sealed: Any, password: str) -> SecretKey:
    """The key in a ``SealedObject``: PBEWithMD5AndTripleDES, as the JDK's provider SunJCE has it."""
    if not isinstance(sealed, dict) or not isinstance(sealed.get("encryptedContent"), bytes):
        raise FormatError("an entry that is no sealed key")
    if sealed.get("sealAlg") != "PBEWithMD5AndTripleDES":
        raise FormatError(f"a key sealed by {sealed.get('sealAlg')}")
    salt, rounds = _parameters(sealed.get("encodedParams"))
    derived = _derived(salt, rounds, bytes(ord(char) & 0x7F for char in password))
    opener = Cipher(TripleDES(derived[:24]), modes.CBC(derived[24:])).decryptor()
    padding = PKCS7(64).unpadder()
    content = padding.update(opener.update(sealed["encryptedContent"]) + opener.finalize()) + padding.finalize()
    key = Reader(content).stream()
    if not isinstance(key, dict) or not isinstance(key.get("key"), bytes):
        raise FormatError("an entry that holds no key")
    return SecretKey(key["key"])


def _parameters(encoded: Any) -> tuple[bytes, int]:
    """Salt and rounds: ``SEQUENCE { OCTET STRING, INTEGER }`` in DER (RFC 8018, appendix A.3)."""
    if not isinstance(encoded, bytes) or encoded[:1] != b"\x30" or len(encoded) < 14 or encoded[2:4] != b"\x04\x08":
        raise FormatError("parameters that are not understood")
    salt, rest = encoded[4:12], encoded[12:]
    if rest[:1] != b"\x02" or rest[1] != len(rest) - 2:
        raise FormatError("parameters that are not understood")
    rounds = int.from_bytes(rest[2:], "big", signed=True)
    if not 0 < rounds <= _MAX_ROUNDS:
        raise FormatError(f"{rounds} rounds")
    return salt, rounds


def _derived(salt: bytes, rounds: int, password: bytes) -> bytes:
    halves = [salt[:4], salt[4:]]
    if halves[0] == halves[1]:
        # The provider means to turn the first half around, and does this.
        first = bytearray(halves[0])
        for place in range(2):
            first[place], first[2] = first[3 - place], first[place]
        halves[0] = bytes(first)
    made = b""
    for half in halves:
        for _ in range(rounds):
            half = hashlib.md5(half + password, usedforsecurity=False).digest()
        made += half
    return made
