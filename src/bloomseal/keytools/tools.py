"""The key tools: data keys wrapped by a KMS, directly or through key encryption keys, kept in the file or beside it."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from ..core.encryption import SealCounter, SecretKey
from ..core.errors import BloomsealError, Hint, KeyAccessError, PolicyError, UsageError
from ..core.keys.access import KmsAccessError, Problem, shown
from ..core.keys.material import DEFAULT_INSTANCE, KeyMaterial, KeyMetadata
from ..core.keys.pins import Pins
from ..core.keys.protocols import KeyDescription, KmsClient
from ..core.keys.retriever import Unwrap
from ..core.keys.wrapping import Kek
from ..core.limits import MAX_GCM_SEALS
from ..core.storage.ref import FileRef
from .cache import Cache
from .fresh import FreshKeys
from .kms.calls import KmsCalls, client_of
from .kms.common import claimed_version
from .kms.counters import Counters
from .kms_protocols import KeyState
from .material.beside import MaterialBeside
from .recipients.recipient import parse_sealed
from .recipients_kms import RecipientsKms


class KeyTools:
    """A `KeySource` over a KMS, byte-compatible with the key tools of parquet-java and Arrow.

    Args:
        kms: the KMS client, or its URI.
        double_wrapping: wrap data keys under a key encryption key (KEK) made here, and only that by the KMS: one call
            serves many files.
        internal: keep key material in the file. Otherwise it goes to ``_KEY_MATERIAL_FOR_<name>.json`` beside the file,
            where master keys can be rotated without touching the file.
        kek_bits: length of KEKs: 128, 192 or 256.
        cache_lifetime: seconds that unwrapped keys are kept in this process, and that a KEK is used for new files; 0:
            not at all.
        allowed_urls: addresses that a file may name as its KMS. Either a collection, all served by `kms`; or a map from
            address to the client that serves it. A file that names any other address is refused: an address in a file
            is matched, never followed.
        instance_id, instance_url: what new files say about their KMS.
        authentic_writers: refuse master keys under which anybody can wrap, such as RSA's public halves, and KMS clients
            that can't tell (`DescribingKms`). Costs a look at the master key for each wrapped key.
        seal_limit: how often one fresh key, KEK or data key, may seal; at most, and by default, 2^32.
        timeout: seconds that one key may take, retries included.
        attempts: calls for one key at most, if the KMS can't be reached.
        max_parallel: calls to the KMS at the same time.

    Attributes:
        pins: the master keys that files may be sealed under; None: any. See `with_pins`.

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
    ) -> None:
        if kek_bits not in (128, 192, 256):
            raise UsageError(f"AES has no keys of {kek_bits} bits", hint="128, 192 or 256")
        if isinstance(allowed_urls, str):
            raise UsageError("allowed_urls is a collection of addresses, not one address")
        if min(seal_limit, attempts, max_parallel) < 1 or timeout <= 0 or cache_lifetime < 0:
            raise UsageError("limits and times are positive")
        self.double_wrapping = double_wrapping
        self.internal = internal
        self.pins: Pins | None = None
        self._own = False
        self.authentic_writers = authentic_writers
        self.seal_limit = min(seal_limit, MAX_GCM_SEALS)
        self._instance = (instance_id, instance_url)
        self._usable: set[str] = set()

        def calls(client: KmsClient | str) -> KmsCalls:
            return KmsCalls(client_of(client), timeout=timeout, attempts=attempts, max_parallel=max_parallel)

        self._kms = calls(kms)
        self._allowed = dict.fromkeys((DEFAULT_INSTANCE, "", instance_url or ""), self._kms)
        for url in allowed_urls:
            self._allowed[url] = calls(allowed_urls[url]) if isinstance(allowed_urls, Mapping) else self._kms
        self._unwrapped: Cache[SecretKey] = Cache(cache_lifetime)
        self._fresh = FreshKeys(
            self._kms, double_wrapping, kek_bits, self.seal_limit, Cache(cache_lifetime), Cache(math.inf)
        )

    @property
    def kms(self) -> KmsClient:
        """The KMS: the client that wraps new keys, or, where the policy's recipients do, the one that unwraps."""
        client = self._kms.client
        return (client.reader or client) if isinstance(client, RecipientsKms) else client

    @property
    def writes_only(self) -> bool:
        """New keys go to recipients, and nothing here opens any."""
        return self._kms.writes_only

    @property
    def all_calls(self) -> set[KmsCalls]:
        """Calls to each client."""
        return set(self._allowed.values())

    @property
    def counters(self) -> Counters:
        """Calls so far, over all clients; a snapshot."""
        hits = Counters(hits=self._unwrapped.hits + self._fresh.keks.hits)
        return sum((calls.counters for calls in self.all_calls), hits)

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
        self._fresh.forget()

    def renew(self) -> None:
        """Make new key encryption keys from now on: a master key may have another version by now, and not every KMS
        client tells when its keys have changed.
        """
        self._fresh.keks.forget()
        self._usable.clear()

    def need_usable(self, master_keys: Iterable[str]) -> None:
        """Refuse master keys by which nothing new can be wrapped: what a dry run asks, once for each. A KMS that tells
        nothing of its keys is believed.

        Raises:
            KmsAccessError: unknown, or the KMS can't be reached.
            PolicyError: disabled, destroyed, or to be so.
        """
        for name in set(master_keys) - self._usable:
            try:
                state = self._kms.describe(name).state
            except KmsAccessError as error:
                if error.problem is not Problem.DENIED:
                    raise
                state = None  # a right to look is not the right to use
            if state not in (None, KeyState.ENABLED):
                raise PolicyError(f"master key {name} is {state}", hint="enable it, or another key")
            self._usable.add(name)

    def storing(self, *, internal: bool) -> KeyTools:
        """These key tools, with their KMS, cache and counters, except for where they put new key material."""
        return self._copy(internal=internal)

    def with_pins(self, pins: Pins | None) -> KeyTools:
        """These key tools, with their KMS, cache and counters, which accept and make keys under agreed master keys
        only; None: any. They apply to the keys of files: what asks the KMS itself is not held to them.
        """
        return self._copy(pins=pins)

    def for_own_use(self) -> KeyTools:
        """These key tools, for what is believed because of its key, such as a sealed index: what a public key has
        wrapped, and so anybody, is refused and not made.
        """
        if not hasattr(self._kms.client, "wrap_own"):
            return self
        return self._copy(_own=True, _fresh=replace(self._fresh, keks=Cache(0)))

    def _copy(self, **changes: Any) -> KeyTools:
        made = KeyTools.__new__(type(self))
        made.__dict__.update(self.__dict__, **changes)
        return made

    @property
    def calls(self) -> KmsCalls:
        """Calls to the KMS that wraps new keys."""
        return self._kms

    def calls_for(self, url: str | None) -> KmsCalls:
        """The KMS of a file whose footer key names this address; None for the one that wraps new keys.

        Raises:
            KeyAccessError: the address is not among the allowed ones.
        """
        if (calls := self._allowed.get(url or "")) is not None:
            return calls
        raise KeyAccessError(
            f"the file names the KMS {shown(url or '')}, which is not among the allowed ones",
            hint=Hint.KMS_OF_FILE,
        )

    def unwrap(self, wrapped: str, master_key: str, calls: KmsCalls) -> SecretKey:
        """What the KMS has wrapped, from the cache where it is there.

        Raises:
            KeyAccessError: see `Problem`.
            PolicyError: `authentic_writers` or `for_own_use`, and anybody may have wrapped it.
        """
        if self._own and parse_sealed(wrapped) is not None:
            raise PolicyError(
                f"a public key has wrapped it under {shown(master_key)}, so anybody can have written what it opens",
                hint="for a sealed index: index rebuild, by a reader",
            )

        def load() -> SecretKey:
            self.check_writer(wrapped, master_key, calls)
            return calls.unwrap(wrapped, master_key)

        return self._unwrapped.get(calls.place(master_key, wrapped), load)

    def unwrap_bytes(self, wrapped: bytes, master_key: str) -> SecretKey:
        """What the KMS's own ciphertext holds (`BytesKms`), from the cache where it is there.

        Raises:
            KeyAccessError: see `Problem`.
            PolicyError: as `unwrap`.
            UnsupportedError: the KMS client opens no such ciphertext.
        """

        def load() -> SecretKey:
            self.check_writer(None, master_key, self._kms)
            return self._kms.unwrap_bytes(wrapped, master_key)

        return self._unwrapped.get(("bytes", self._kms.place(master_key, wrapped.hex())), load)

    def wrap(self, key: SecretKey, master_key: str) -> str:
        """`key` wrapped by the KMS that wraps new keys.

        Raises:
            KeyAccessError: see `Problem`.
        """
        if self._own:
            return self._kms.wrap_own(key, master_key)
        wrapped = self._kms.wrap(key, master_key)
        self.check_writer(wrapped, master_key, self._kms)
        # A process that may wrap but not unwrap can so still read back what it has written; not what is for recipients.
        if not self._kms.writes_for_others(master_key):
            self._unwrapped.put(self._kms.place(master_key, wrapped), key)
        return wrapped

    def check_writer(self, wrapped: str | None, master_key: str, calls: KmsCalls) -> None:
        """With `authentic_writers`, refuse what somebody without a right to wrap could have wrapped.

        Raises:
            PolicyError: a public key wraps, or the KMS client can't tell.
            KeyAccessError: see `Problem`.
        """
        if not self.authentic_writers or self._own:
            return
        if (answer := calls.describe(master_key, wrapped).authenticates_writers) is True:
            return
        raise PolicyError(
            f"master key {shown(master_key)} wraps by a public key, so anybody can have written what it opens"
            if answer is False
            else f"{calls.name} does not tell whether master key {shown(master_key)} authenticates writers",
            hint="a symmetric master key, and a KMS client that tells (DescribingKms); or authentic_writers = false",
        )

    def __repr__(self) -> str:
        wrapping = "double" if self.double_wrapping else "single"
        return f"<KeyTools over {self._kms.name}, {wrapping} wrapping, {'internal' if self.internal else 'external'} material>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("KeyTools are never pickled: they hold keys; let each process make its own")


class ToolsFileKeys(MaterialBeside):
    """The keys of one file, through `KeyTools`."""

    def __init__(self, tools: KeyTools, ref: FileRef) -> None:
        super().__init__(ref)
        self._tools = tools
        self._counters: list[SealCounter] = []
        self._made: list[tuple[str | None, KeyMaterial, SecretKey]] = []
        self._keks: dict[str, Kek] = {}

    def unwrapper(self, url: str | None) -> Unwrap:
        """The KMS that the file names, of those that the caller allows."""
        return functools.partial(self._tools.unwrap, calls=self._tools.calls_for(url))

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """As `KeyRetriever.retrieve_key`.

        Raises:
            PolicyError: sealed under another master key than agreed on; the KMS is not asked then.
        """
        if self._tools.pins is not None:
            self._tools.pins.check(self.material(key_metadata).master_key, column)
        return super().retrieve_key(key_metadata, column)

    def check_under_footer_key(self, key_metadata: bytes, column: str) -> None:
        """A column says that it is under the footer key, whose key metadata this is.

        Raises:
            PolicyError: the footer's master key is not one that was agreed on for the column. Whoever may use the
                footer key alone could else put values of his own in the place of a column that he can't read.
        """
        if self._tools.pins is not None:
            self._tools.pins.check(self.material(key_metadata).master_key, column)

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        """A fresh data key wrapped under `master_key`, and its key metadata.

        Raises:
            KeyAccessError: the KMS would not wrap.
            PolicyError: another master key than agreed on: what could not be read back is not written.
            UsageError: no such key size.
        """
        if self._tools.pins is not None:
            self._tools.pins.check(master_key, column)
        key = SecretKey.generate(bits)
        # Held as long as these keys are: a counter that nobody holds is forgotten, and its limit with it.
        self._counters.append(counter := SealCounter.of(key))
        counter.lower_limit(self._tools.seal_limit)
        try:
            material = self._tools._fresh.material_for(key, master_key, self._tools.wrap, self._keks)
        except BloomsealError as error:
            raise error.at(file=self._path, column=column) from None
        self._made.append((column, material, key))
        if column is None:
            instance_id, instance_url = self._tools._instance
            material = replace(material, is_footer_key=True, kms_instance_id=instance_id, kms_instance_url=instance_url)
        return key, self._metadata(material).to_bytes()

    def confirm(self) -> set[str]:
        """Have the KMS give back what it has wrapped for this file's new keys.

        Returns:
            Master keys whose recipients open it, of whom nobody is here.

        Raises:
            KeyAccessError: it wrapped another key, or won't unwrap; see `Problem`.
        """
        unseen = set()
        for column, material, key in self._made:
            try:
                if not self._tools._fresh.read_back(material, key):
                    unseen.add(material.master_key)
            except BloomsealError as error:
                raise error.at(file=self._path, column=column) from None
        return unseen

    def commit(self) -> None:
        """As `FileKeys.commit`; the file's keys are forgotten."""
        super().commit()
        self._made.clear()
        self._keks.clear()

    def describe(self, key_metadata: bytes) -> KeyDescription:
        """As `KeyTools.describe`."""
        reference, material = KeyMetadata.from_bytes(key_metadata).reference, self.material(key_metadata)
        return KeyDescription(
            master_key=material.master_key,
            internal=reference is None,
            reference=reference,
            is_footer_key=material.is_footer_key,
            kek_id=material.kek_id,
            kms_instance_url=material.kms_instance_url,
            wrapping_version=claimed_version(material.wrapped_kek or material.wrapped_dek),
        )

    def _metadata(self, material: KeyMaterial) -> KeyMetadata:
        return KeyMetadata(material=material) if self._tools.internal else self.add(material)

    def __repr__(self) -> str:
        return f"<keys of {self._ref.path!r} through {self._tools!r}>"
