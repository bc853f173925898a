"""The key tools: data keys wrapped by a KMS, directly or through key encryption keys, kept in the file or beside it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import os
import secrets
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from ..encryption import SealCounter, SecretKey
from ..errors import BloomsealError, KeyAccessError, PolicyError, UsageError
from ..limits import MAX_GCM_SEALS
from ..storage.ref import FileRef
from .access import raised_by, shown
from .cache import Cache
from .calls import Counters, KmsCalls
from .material import COLUMN_KEY_REFERENCE, DEFAULT_INSTANCE, FOOTER_KEY_REFERENCE, KeyMaterial, KeyMetadata
from .protocols import KmsClient, VersionedKms
from .store import MaterialStore
from .wrapping import unwrap_locally, wrap_locally

__all__ = ["KeyDescription", "KeyTools", "ToolsFileKeys"]

_KEK_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """What key metadata tells without any key.

    Attributes:
        master_key: the master key's identifier.
        internal: the material stands in the file itself.
        reference: the material's name in the external store; None where it is internal.
        is_footer_key: as the material says.
        kek_id: base64 of the KEK's 16-byte id; None under single wrapping.
        kms_instance_url: the KMS's address by the writer's account; footer keys only.
        wrapping_version: the master key's version that wrapped the key, where the KMS client can tell from the text alone.
    """

    master_key: str
    internal: bool
    reference: str | None
    is_footer_key: bool
    kek_id: str | None
    kms_instance_url: str | None
    wrapping_version: str | None

    @property
    def double_wrapping(self) -> bool:
        return self.kek_id is not None


@dataclass(frozen=True, slots=True)
class _Kek:
    """A KEK of this process's making. It holds its counter, which would be forgotten between wrappings otherwise."""

    key: SecretKey
    id: bytes
    wrapped: str
    counter: SealCounter


class KeyTools:
    """A `KeySource` over a KMS, byte-compatible with the key tools of parquet-java and Arrow.

    Args:
        kms: the KMS client, or its URI.
        double_wrapping: wrap data keys under a key encryption key (KEK) made here, and only that by the KMS: one call serves
            many files.
        internal: keep key material in the file. Otherwise it goes to ``_KEY_MATERIAL_FOR_<name>.json`` beside the file, where
            master keys can be rotated without touching the file.
        kek_bits: length of KEKs: 128, 192 or 256.
        cache_lifetime: seconds that unwrapped keys are kept in this process, and that a KEK is used for new files; 0: not at all.
        allowed_urls: addresses that a file may name as its KMS. Either a collection, all served by `kms`; or a map from
            address to the client that serves it. A file that names any other address is refused: an address in a file is
            matched, never followed.
        instance_id, instance_url: what new files say about their KMS.
        authentic_writers: refuse master keys under which anybody can wrap, such as RSA's public halves, and KMS clients that
            can't tell (`AuthenticatingKms`). Costs one more call for each wrapped key.
        seal_limit: how often one fresh key, KEK or data key, may seal; at most, and by default, 2^32.
        timeout: seconds that one key may take, retries included.
        attempts: calls for one key at most, if the KMS can't be reached.
        max_parallel: calls to the KMS at the same time.
        max_cached: keys kept at most.

    Raises:
        UsageError: contradicting arguments.

    Threads may share it; it can't be pickled.
    """

    def __init__(
        self,
        kms: KmsClient | str,
        *,
        double_wrapping: bool = True,
        internal: bool = True,
        kek_bits: int = 128,
        cache_lifetime: float = 600.0,
        allowed_urls: Collection[str] | Mapping[str, KmsClient | str] = (),
        instance_id: str | None = None,
        instance_url: str | None = None,
        authentic_writers: bool = False,
        seal_limit: int = MAX_GCM_SEALS,
        timeout: float = 30.0,
        attempts: int = 4,
        max_parallel: int = 16,
        max_cached: int = 10_000,
    ) -> None:
        if kek_bits not in (128, 192, 256):
            raise UsageError(f"AES has no keys of {kek_bits} bits", hint="128, 192 or 256")
        if isinstance(allowed_urls, str):
            raise UsageError("allowed_urls is a collection of addresses, not one address")
        if min(seal_limit, attempts, max_parallel, max_cached) < 1 or timeout <= 0 or cache_lifetime < 0:
            raise UsageError("limits and times are positive")
        self.double_wrapping = double_wrapping
        self.internal = internal
        self.authentic_writers = authentic_writers
        self._kek_bits = kek_bits
        self.seal_limit = min(seal_limit, MAX_GCM_SEALS)
        self._instance = (instance_id, instance_url)

        def calls(client: KmsClient | str) -> KmsCalls:
            return KmsCalls(_client(client), timeout=timeout, attempts=attempts, max_parallel=max_parallel)

        self._kms = calls(kms)
        self._allowed = dict.fromkeys((DEFAULT_INSTANCE, "", instance_url or ""), self._kms)
        for url in allowed_urls:
            self._allowed[url] = calls(allowed_urls[url]) if isinstance(allowed_urls, Mapping) else self._kms
        self._unwrapped: Cache[SecretKey] = Cache(cache_lifetime, max_entries=max_cached)
        self._keks: Cache[_Kek] = Cache(cache_lifetime, max_entries=max_cached)

    @property
    def kms(self) -> KmsClient:
        """The client that wraps new keys."""
        return self._kms.client

    @property
    def counters(self) -> Counters:
        """Calls so far, over all clients; a snapshot."""
        total = Counters(hits=self._unwrapped.hits + self._keks.hits)
        for calls in set(self._allowed.values()):
            one = calls.counters
            total = Counters(
                **{name: value + getattr(one, name) for name, value in total.to_dict().items() if name != "slowest"},
                slowest=max(total.slowest, one.slowest),
            )
        return total

    def for_file(self, ref: FileRef, *, writing: bool = False) -> ToolsFileKeys:  # noqa: ARG002
        """The keys of one file; costs nothing until one is asked for."""
        return ToolsFileKeys(self, ref)

    def describe(self, key_metadata: bytes, ref: FileRef | None = None) -> KeyDescription:
        """What `key_metadata` says, without any key and without asking the KMS.

        Args:
            key_metadata: the bytes in the file.
            ref: the file, needed where the material is external.

        Raises:
            KeyAccessError: not of key tools; or external material that can't be had.
        """
        return ToolsFileKeys(self, ref or FileRef("")).describe(key_metadata)

    def forget(self) -> None:
        """Drop all cached keys, refusals too: after rights have changed, for instance."""
        self._unwrapped.forget()
        self._keks.forget()

    def storing(self, *, internal: bool) -> KeyTools:
        """These key tools, with their KMS, cache and counters, except for where they put new key material."""
        made = KeyTools.__new__(type(self))
        made.__dict__.update(self.__dict__, internal=internal)
        return made

    def calls_for(self, url: str | None) -> KmsCalls:
        """The KMS of a file whose footer key names this address; None for the one that wraps new keys.

        Raises:
            KeyAccessError: the address is not among the allowed ones.
        """
        if (calls := self._allowed.get(url or "")) is not None:
            return calls
        raise KeyAccessError(
            f"the file names the KMS {shown(url or '')}, which is not among the allowed ones",
            hint="if you trust it: KeyTools(kms, allowed_urls=[...])",
        )

    def data_key(self, material: KeyMaterial, calls: KmsCalls) -> SecretKey:
        """The data key that `material` holds, through its KEK where there is one.

        Raises:
            KeyAccessError: see `Problem`; or broken material.
        """
        if material.kek_id is None or material.wrapped_kek is None:
            return self.unwrap(material.wrapped_dek, material.master_key, calls)
        kek = self.unwrap(material.wrapped_kek, material.master_key, calls)
        return unwrap_locally(material.wrapped_dek, kek, _kek_id(material.kek_id))

    def unwrap(self, wrapped: str, master_key: str, calls: KmsCalls) -> SecretKey:
        """What the KMS has wrapped, from the cache where it is there.

        Raises:
            KeyAccessError: see `Problem`.
            PolicyError: `authentic_writers`, and anybody may have wrapped it.
        """

        def load() -> SecretKey:
            self.check_writer(wrapped, master_key, calls)
            return calls.unwrap(wrapped, master_key)

        return self._unwrapped.get(_place(calls, master_key, wrapped), load)

    def wrap(self, key: SecretKey, master_key: str) -> str:
        """`key` wrapped by the KMS that wraps new keys.

        Raises:
            KeyAccessError: see `Problem`.
        """
        wrapped = self._kms.wrap(key, master_key)
        self.check_writer(wrapped, master_key, self._kms)
        # A process that may wrap but not unwrap can so still read back what it has written.
        self._unwrapped.put(_place(self._kms, master_key, wrapped), key)
        return wrapped

    def check_writer(self, wrapped: str, master_key: str, calls: KmsCalls) -> None:
        """With `authentic_writers`, refuse what somebody without a right to wrap could have wrapped.

        Raises:
            PolicyError: a public key wraps, or the KMS client can't tell.
            KeyAccessError: see `Problem`.
        """
        if not self.authentic_writers or (answer := calls.authenticates(wrapped, master_key)) is True:
            return
        raise PolicyError(
            f"master key {shown(master_key)} wraps by a public key, so anybody can have written what it opens"
            if answer is False
            else f"{calls.name} does not tell whether master key {shown(master_key)} authenticates writers",
            hint="a symmetric master key, and a KMS client that is an AuthenticatingKms; or authentic_writers = false",
        )

    # What a file's keys need

    def _material_for(self, key: SecretKey, master_key: str) -> KeyMaterial:
        if not self.double_wrapping:
            return KeyMaterial(master_key, self.wrap(key, master_key), is_footer_key=False)
        kek = self._kek(master_key)
        return KeyMaterial(
            master_key,
            wrap_locally(key, kek.key, kek.id),
            is_footer_key=False,
            kek_id=base64.b64encode(kek.id).decode("ascii"),
            wrapped_kek=kek.wrapped,
        )

    def _kek(self, master_key: str) -> _Kek:
        name = (_epoch(self._kms.client), master_key)
        kek = self._keks.get(name, lambda: self._new_kek(master_key))
        if kek.counter.count >= kek.counter.limit:
            self._keks.forget(name)
            kek = self._keks.get(name, lambda: self._new_kek(master_key))
        return kek

    def _new_kek(self, master_key: str) -> _Kek:
        key = SecretKey.generate(self._kek_bits)
        counter = SealCounter.of(key)
        counter.lower_limit(self.seal_limit)
        return _Kek(key, os.urandom(_KEK_ID_BYTES), self.wrap(key, master_key), counter)

    def __repr__(self) -> str:
        wrapping = "double" if self.double_wrapping else "single"
        return f"<KeyTools over {self._kms.name}, {wrapping} wrapping, {'internal' if self.internal else 'external'} material>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("KeyTools are never pickled: they hold keys; let each process make its own")


class ToolsFileKeys:
    """The keys of one file, through `KeyTools`."""

    def __init__(self, tools: KeyTools, ref: FileRef) -> None:
        self._tools = tools
        self._ref = ref
        self._calls = tools._kms
        self._stored: dict[str, str] | None = None
        self._new: dict[str, str] = {}
        self._counters: list[SealCounter] = []

    @functools.cached_property
    def _store(self) -> MaterialStore:
        return MaterialStore(self._ref)  # only for external material: most files keep theirs inside

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """The data key that `key_metadata` stands for.

        Raises:
            KeyAccessError: see `Problem`; or no key metadata of key tools; or a KMS that is not allowed.
        """
        try:
            material = self._material(KeyMetadata.from_bytes(key_metadata))
            if column is None:
                # The footer key's KMS is the file's. What a column's material says of itself chooses none: nothing but the
                # footer authenticates it.
                self._calls = self._tools.calls_for(material.kms_instance_url)
            return self._tools.data_key(material, self._calls)
        except BloomsealError as error:
            raise error.at(file=self._ref.path or None, column=column) from None

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        """A fresh data key wrapped under `master_key`, and its key metadata.

        Raises:
            KeyAccessError: the KMS would not wrap.
            UsageError: no such key size.
        """
        key = SecretKey.generate(bits)
        # Held as long as these keys are: a counter that nobody holds is forgotten, and its limit with it.
        self._counters.append(counter := SealCounter.of(key))
        counter.lower_limit(self._tools.seal_limit)
        try:
            material = self._tools._material_for(key, master_key)
        except BloomsealError as error:
            raise error.at(file=self._ref.path or None, column=column) from None
        if column is None:
            instance_id, instance_url = self._tools._instance
            material = replace(material, is_footer_key=True, kms_instance_id=instance_id, kms_instance_url=instance_url)
        return key, self._metadata(material).to_bytes()

    def describe(self, key_metadata: bytes) -> KeyDescription:
        """As `KeyTools.describe`."""
        metadata = KeyMetadata.from_bytes(key_metadata)
        material = self._material(metadata)
        kms = self._calls.client
        version = None
        if isinstance(kms, VersionedKms):
            try:
                version = kms.wrapping_version(material.wrapped_kek or material.wrapped_dek, material.master_key)
            except Exception:
                version = None  # another KMS's wrapping; or a foreign client that fails as it likes
        return KeyDescription(
            master_key=material.master_key,
            internal=metadata.reference is None,
            reference=metadata.reference,
            is_footer_key=material.is_footer_key,
            kek_id=material.kek_id,
            kms_instance_url=material.kms_instance_url,
            wrapping_version=version,
        )

    def store(self) -> None:
        """Make external key material durable; nothing where it is internal.

        What an older file of the same name refers to stays: until the new file has taken its name, the old one must open.

        Raises:
            KeyAccessError: the material can't be written, or another process is writing the same file.
        """
        if not self._new:
            return

        def add(entries: dict[str, str]) -> None:
            if any(entries.get(reference, material) != material for reference, material in self._new.items()):
                raise KeyAccessError(
                    "another process has written key material for this file meanwhile", file=self._ref.path
                )
            entries.update(self._new)

        self._store.change(add)

    def discard(self) -> None:
        """Remove what `store` added; nothing where material is internal."""
        if not self._new:
            return

        def remove(entries: dict[str, str]) -> None:
            for reference, material in self._new.items():
                if entries.get(reference) == material:
                    del entries[reference]

        # It is called while something else has failed already, and material without its file harms nobody.
        with contextlib.suppress(KeyAccessError):
            self._store.change(remove)

    def commit(self) -> None:
        """The data file is in place: drop the material that only its predecessor needed. Leaving it out harms nobody."""
        if not self._new or not self._existing():
            return

        def keep_mine(entries: dict[str, str]) -> None:
            # What came meanwhile is another writer's, and the file in place may be its.
            for reference in self._existing():
                entries.pop(reference, None)
            entries.update(self._new)
            # Under the usual name too, because the rotation of parquet-java and of Arrow starts from it.
            footer = next((text for name, text in self._new.items() if name.startswith(FOOTER_KEY_REFERENCE)), None)
            if footer is not None:
                entries[FOOTER_KEY_REFERENCE] = footer

        self._store.change(keep_mine)

    def _material(self, metadata: KeyMetadata) -> KeyMaterial:
        if metadata.material is not None:
            return metadata.material
        reference = metadata.reference or ""
        if (text := self._new.get(reference)) is None and (text := self._existing().get(reference)) is None:
            raise KeyAccessError(
                f"there is no key material {shown(reference)} beside the file",
                hint=f"{self._store.path} must be there, and belong to the file",
            )
        return KeyMaterial.from_json(text)

    def _metadata(self, material: KeyMaterial) -> KeyMetadata:
        if self._tools.internal:
            return KeyMetadata(material=material)
        reference = FOOTER_KEY_REFERENCE if material.is_footer_key else f"{COLUMN_KEY_REFERENCE}{len(self._new)}"
        if self._existing():
            # Not the plain names: those may be the old file's, which must open until the new one has taken its place.
            reference = f"{reference}-{secrets.token_hex(4)}"
        self._new[reference] = material.to_json(internal=False)
        return KeyMetadata(reference=reference)

    def _existing(self) -> dict[str, str]:
        if self._stored is None:
            self._stored = self._store.read()
        return self._stored

    def __repr__(self) -> str:
        return f"<keys of {self._ref.path!r} through {self._tools!r}>"


def _client(kms: KmsClient | str) -> KmsClient:
    if isinstance(kms, str):
        from .registry import client_for

        return client_for(kms)
    if not isinstance(kms, KmsClient):
        raise UsageError(f"a {type(kms).__name__} is no KMS client", hint="it needs wrap_key and unwrap_key")
    return kms


def _epoch(client: KmsClient) -> Hashable:
    # Asked for with every key, where isinstance with a protocol would take longer than all the rest.
    change_marker = getattr(client, "change_marker", None)
    if not callable(change_marker):
        return None
    try:
        marker: Hashable = change_marker()
        return marker
    except BloomsealError:
        raise
    except Exception as error:
        # Raised below, so that the chain ends there: a foreign message may hold a secret.
        failed = raised_by(error)
    raise KeyAccessError(f"the KMS client's change_marker failed with {failed}")


def _place(calls: KmsCalls, master_key: str, wrapped: str) -> Hashable:
    # By what was wrapped, never by the KEK's id: a hostile file could claim another file's id, and put its refusal in the way.
    return id(calls), _epoch(calls.client), master_key, hashlib.sha256(wrapped.encode()).digest()


def _kek_id(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise KeyAccessError("key material whose KEK id is not base64")
