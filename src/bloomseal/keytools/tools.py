"""Key tools: fresh data keys per file and column, wrapped under master keys that a KMS guards.

Byte-compatible with parquet-java's and Arrow's key tools (PKMT1): each reads what the other wrote, given the same master keys.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from ..encryption import SealCounter, SecretKey
from ..errors import KeyAccessError, UsageError
from . import calls
from .access import shown
from .material import DEFAULT_INSTANCE, KeyMaterial, KeyMetadata
from .protocols import FileKeys, FileRef, KeyRetriever, KeySource, KmsClient
from .wrapping import unwrap_locally, wrap_locally

__all__ = ["KeyTools", "as_key_source"]

_KEK_ID_BYTES: Final = 16


class KeyTools:
    """A `KeySource` over a KMS client.

    Args:
        kms: wraps and unwraps under master keys: a `Keyring`, any other `KmsClient`, a subclass of pyarrow's.
        double_wrapping: data keys are wrapped here under a key encryption key (KEK), and only that by the KMS: one KMS call
            per master key and process instead of one per data key.
        internal: key material stands in the data file. Otherwise in ``_KEY_MATERIAL_FOR_<name>.json`` beside it, so that
            master keys can be rotated without touching data files.
        kek_bits: 128, 192 or 256.
        cache_lifetime: seconds for which unwrapped KEKs (or data keys, under single wrapping) are remembered.
        allowed_urls: KMS addresses that files may name besides `instance_url` and "DEFAULT". An address in a file is
            never followed: keys go to `kms` or nowhere.
        instance_id, instance_url: what new files say about the KMS. Peers need both to be non-empty.
    """

    def __init__(
        self,
        kms: KmsClient,
        *,
        double_wrapping: bool = True,
        internal: bool = True,
        kek_bits: int = 128,
        cache_lifetime: float = 600.0,
        allowed_urls: Iterable[str] = (),
        instance_id: str = DEFAULT_INSTANCE,
        instance_url: str = DEFAULT_INSTANCE,
    ) -> None:
        if not isinstance(kms, KmsClient):
            raise UsageError(f"a KMS client has wrap_key and unwrap_key; {type(kms).__name__} has not")
        if kek_bits not in (128, 192, 256):
            raise UsageError(f"key encryption keys of {kek_bits} bits do not exist in AES", hint="128, 192 or 256")
        self.kms = kms
        self.double_wrapping = double_wrapping
        self.internal = internal
        self.kek_bits = kek_bits
        self.cache_lifetime = cache_lifetime
        self.instance_id = instance_id
        self.instance_url = instance_url
        self.allowed_urls = frozenset({*allowed_urls, instance_url, DEFAULT_INSTANCE, ""})
        self._lock = threading.Lock()
        self._unwrapped: dict[tuple[str, ...], SecretKey] = {}
        self._keks: dict[str, _Kek] = {}

    def for_file(self, ref: FileRef, *, writing: bool = False) -> FileKeys:  # noqa: ARG002
        """The keys of one file."""
        return _ToolsFileKeys(self, ref)

    def open_material(self, material: KeyMaterial) -> SecretKey:
        """The data key in `material`.

        Raises:
            KeyAccessError: the material names a KMS that is not allowed, the KMS refuses, or what it holds does not open.
        """
        url = material.kms_instance_url
        if url is not None and url not in self.allowed_urls:
            # A file that chose the address would choose where credentials go.
            raise KeyAccessError(
                f"the file names the KMS at {shown(url)}, which is not among the allowed addresses",
                hint="add it to allowed_urls if it is the same KMS as the client's",
            )
        if material.kek_id is None or material.wrapped_kek is None:
            return self._unwrap(material.master_key, material.wrapped_dek)
        kek = self._unwrap(material.master_key, material.wrapped_kek, material.kek_id)
        return unwrap_locally(material.wrapped_dek, kek, _kek_id_bytes(material.kek_id))

    def seal_material(self, data_key: SecretKey, master_key: str, *, is_footer_key: bool) -> KeyMaterial:
        """`data_key` wrapped under `master_key`.

        Raises:
            KeyAccessError: the KMS refuses.
        """
        kek_id = wrapped_kek = None
        if self.double_wrapping:
            kek = self._kek_for(master_key)
            kek_id, wrapped_kek = kek.id, kek.wrapped
            wrapped = wrap_locally(data_key, kek.key, _kek_id_bytes(kek.id))
        else:
            wrapped = calls.wrap_key(self.kms, data_key, master_key)
        return KeyMaterial(
            master_key=master_key,
            wrapped_dek=wrapped,
            is_footer_key=is_footer_key,
            kek_id=kek_id,
            wrapped_kek=wrapped_kek,
            kms_instance_id=self.instance_id if is_footer_key else None,
            kms_instance_url=self.instance_url if is_footer_key else None,
        )

    def _unwrap(self, master_key: str, wrapped: str, kek_id: str = "") -> SecretKey:
        # The wrapped text is part of the name: a KEK id alone comes from the file and could claim another file's KEK.
        name = (master_key, kek_id, wrapped)
        if (key := self._unwrapped.get(name)) is None:
            key = self._unwrapped[name] = calls.unwrap_key(self.kms, wrapped, master_key)
        return key

    def _kek_for(self, master_key: str) -> _Kek:
        with self._lock:
            kek = self._keks.get(master_key)
            if kek is None or kek.exhausted:
                key = SecretKey.generate(self.kek_bits)
                kek_id = base64.b64encode(os.urandom(_KEK_ID_BYTES)).decode("ascii")
                kek = self._keks[master_key] = _Kek(key, kek_id, calls.wrap_key(self.kms, key, master_key))
            return kek

    def __repr__(self) -> str:
        wrapping = "double" if self.double_wrapping else "single"
        return f"<KeyTools {wrapping} wrapping, {'internal' if self.internal else 'external'} material, {calls.kms_name(self.kms)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Keys stay behind; whether the client may travel is for the client to say.
        options = {
            name: getattr(self, name)
            for name in (
                "double_wrapping",
                "internal",
                "kek_bits",
                "cache_lifetime",
                "allowed_urls",
                "instance_id",
                "instance_url",
            )
        }
        return (_rebuild, (self.kms, options))


def _rebuild(kms: KmsClient, options: dict[str, Any]) -> KeyTools:
    return KeyTools(kms, **options)


class _Kek:
    __slots__ = ("counter", "id", "key", "wrapped")

    def __init__(self, key: SecretKey, kek_id: str, wrapped: str) -> None:
        self.key, self.id, self.wrapped = key, kek_id, wrapped
        self.counter = SealCounter.of(key)

    @property
    def exhausted(self) -> bool:
        return self.counter.count >= self.counter.limit


class _ToolsFileKeys:
    """The keys of one file, by key tools."""

    def __init__(self, tools: KeyTools, ref: FileRef) -> None:
        self._tools = tools
        self._ref = ref

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        try:
            metadata = KeyMetadata.from_bytes(key_metadata)
            if metadata.material is None:
                raise KeyAccessError("key material in an external store")
            return self._tools.open_material(metadata.material)
        except KeyAccessError as error:
            error.at(file=self._ref.path, column=column)
            raise

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        if not isinstance(master_key, str) or not master_key:
            raise UsageError("a master key is named by a non-empty text")
        key = SecretKey.generate(bits)
        material = self._tools.seal_material(key, master_key, is_footer_key=column is None)
        return key, KeyMetadata(material=material).to_bytes()

    def store(self) -> None:
        """Nothing to do: the material stands in the file."""

    def discard(self) -> None:
        """Nothing to undo."""


class _RetrieverSource:
    """Adapts a plain retriever, which needs no file and makes no keys."""

    def __init__(self, retriever: KeyRetriever) -> None:
        self._retriever = retriever

    def for_file(self, ref: FileRef, *, writing: bool = False) -> FileKeys:  # noqa: ARG002
        return self

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes | SecretKey:
        return calls.retrieve_key(self._retriever, key_metadata, column)

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:  # noqa: ARG002
        raise UsageError(
            f"{type(self._retriever).__name__} reads keys and makes none, so master key {shown(master_key)} can't be used",
            hint="give a Keyring or KeyTools as keys=, or the data key itself as bytes",
        )

    def store(self) -> None:
        pass

    def discard(self) -> None:
        pass


# One KeyTools per client object, so that opening many files with it shares one cache. Told apart by identity: two clients
# may act for two people. The few that are kept hold their clients alive.
_SHARED_TOOLS: Final = 32
_shared: OrderedDict[int, KeyTools] = OrderedDict()
_shared_lock = threading.Lock()


def as_key_source(keys: object) -> KeySource:
    """Whatever a caller may pass as ``keys=``, as a `KeySource`.

    Accepted: a `KeySource` such as `KeyTools`; a KMS client such as `Keyring`; a plain `KeyRetriever` such as `ExplicitKeys`
    (for reading).

    Raises:
        UsageError: none of these.
    """
    if isinstance(keys, KeySource):
        return keys
    if isinstance(keys, KmsClient):
        return _shared_tools(keys)
    if isinstance(keys, KeyRetriever):
        return _RetrieverSource(keys)
    raise UsageError(
        f"{type(keys).__name__} offers no keys",
        hint="a Keyring, KeyTools, ExplicitKeys, or an object with retrieve_key",
    )


def _shared_tools(kms: KmsClient) -> KeyTools:
    with _shared_lock:
        tools = _shared.pop(id(kms), None) or KeyTools(kms)
        _shared[id(kms)] = tools
        if len(_shared) > _SHARED_TOOLS:
            _shared.popitem(last=False)
        return tools


def _kek_id_bytes(kek_id: str) -> bytes:
    try:
        raw = base64.b64decode(kek_id, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEK_ID_BYTES:
        raise KeyAccessError("a key encryption key's id is not base64 of 16 bytes")
    return raw
