"""The facts in a file's key metadata, and those that the keys at hand and their KMS add."""

from __future__ import annotations

import base64
import binascii
import hashlib
import posixpath
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ...core.cached import cached_property
from ...core.encryption import SecretKey
from ...core.errors import BloomsealError, KeyAccessError
from ...core.keys.material import DEFAULT_INSTANCE, KeyMaterial, KeyMetadata
from ...core.keys.protocols import KeyRetriever
from ...core.storage.ref import FileRef
from ...keytools import KmsAccessError
from ...keytools.keyring.keyring import Keyring
from ...keytools.kms.common import claimed_version
from ...keytools.kms_protocols import MasterKeyFacts, MasterVersion
from ...keytools.local_keys import version_of
from ...keytools.material.store import MaterialStore
from ...keytools.tools import KeyTools
from ...storage.discovery.kinds import MATERIAL_PREFIX
from .iceberg import TableKek

_WRAPPING_BYTES: Final = 12 + 16
_OUTAGES: Final = 3
MANIFEST: Final = "manifest"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One data key of one file.

    Attributes:
        material: ``internal``, ``external``, ``opaque`` (an id that means something to its writer), ``manifest`` (of an
            encrypted Iceberg table), ``kek`` (of such a table, the KEK itself) or ``none``.
        key_id: an opaque id as text; the reference, where the material is external.
        data_key: says which data key it is, without saying the key: equal for equal keys.
        bits: length of the data key; None where it can't be told.
        master_key, version: what wrapped it, by the material's own account.
        kek_id: base64 of the KEK's id; None under single wrapping.
        kek_since: when the KEK was made, where that is told.
        kms_url: the KMS's address in the file; None where it names none.
        problem: why the key could not be had; None where it could, or nobody tried.
        state: ``enabled``, ``disabled``, ``pending deletion``, ``destroyed``, ``unknown``; None where nobody was asked.
        version_since: when the wrapping version was made, as far as the KMS tells.
        opened_by: the key and version that open it, where the KMS was asked and could tell.
        untold: why it could not.
        current: the version that the master key wraps with now, as far as the KMS tells.
        doubts: what was asked of the KMS about the master key and not answered.
        own_count: the version is counted as its file's format counts, and nobody told which of the KMS's it is.
    """

    material: str = "none"
    key_id: str | None = None
    data_key: str | None = None
    bits: int | None = None
    master_key: str | None = None
    version: str | None = None
    kek_id: str | None = None
    kek_since: datetime | None = None
    kms_url: str | None = None
    problem: str | None = None
    state: str | None = None
    version_since: datetime | None = None
    opened_by: MasterVersion | None = None
    untold: str | None = None
    current: str | None = None
    doubts: tuple[str, ...] = ()
    own_count: bool = False

    @classmethod
    def of(cls, key_metadata: bytes, sidecar: SidecarView, kms: Kms, url: str | None = None) -> KeyFacts:
        """The facts that stand in `key_metadata`, and for external material in the sidecar. Never raises.

        Args:
            url: the KMS that the file's footer key names, for the keys of its columns.
        """
        if not key_metadata:
            return cls()
        try:
            metadata = KeyMetadata.from_bytes(key_metadata)
        except KeyAccessError:
            text = key_metadata.decode(errors="backslashreplace")
            shown = text if text.isprintable() and len(text) <= 200 else f"{len(key_metadata)} opaque bytes"
            return cls("opaque", shown, f"id {_digest(key_metadata)}")
        if metadata.material is not None:
            return cls.of_material("internal", None, metadata.material, kms, url)
        reference = metadata.reference or ""
        try:
            material = sidecar.material(reference)
        except BloomsealError as error:
            return cls("external", reference, problem=error.what)
        return cls.of_material("external", reference, material, kms, url)

    @classmethod
    def of_kek(cls, kek: TableKek, kms: Kms, material: str = "kek") -> KeyFacts:
        """Of a KEK of an encrypted Iceberg table; or, as `MANIFEST`, of a file's key that hangs from it."""
        told = kms.opened_by(kek.wrapped, kek.master_key, None)
        version = told if isinstance(told, MasterVersion) else None
        return cls(
            material,
            data_key=None if material == MANIFEST else f"wrapped {_digest(kek.wrapped)}",
            master_key=_once(kek.master_key),
            version=None if version is None else _once(version.version),
            kek_id=_once(kek.id),
            kek_since=kek.made,
            opened_by=version,
            untold=told if isinstance(told, str) else None,
        )

    @classmethod
    def of_material(
        cls, where: str, key_id: str | None, material: KeyMaterial, kms: Kms, url: str | None = None
    ) -> KeyFacts:
        """The facts that stand in key material."""
        wrapped_bits = None
        if material.kek_id is not None:
            # Under double wrapping the data key is wrapped here, so that its length shows.
            try:
                length = len(base64.b64decode(material.wrapped_dek, validate=True)) - _WRAPPING_BYTES
                wrapped_bits = length * 8 if length in (16, 24, 32) else None
            except (binascii.Error, ValueError):
                wrapped_bits = None
        own = None if material.kms_instance_url in (None, "", DEFAULT_INSTANCE) else material.kms_instance_url
        wrapped = material.wrapped_kek or material.wrapped_dek
        told = kms.opened_by(wrapped, material.master_key, own or url)
        return cls(
            where,
            _once(key_id),
            f"wrapped {_digest(material.wrapped_dek.encode())}",
            wrapped_bits,
            _once(material.master_key),
            _once(claimed_version(wrapped)),
            _once(material.kek_id),
            kms_url=own,
            opened_by=told if isinstance(told, MasterVersion) else None,
            untold=told if isinstance(told, str) else None,
        )

    def resolved(self, key: SecretKey) -> KeyFacts:
        """With the key at hand."""
        return replace(
            self, data_key=f"key {key.fingerprint}", bits=key.bits, state="enabled" if self.master_key else None
        )

    def refused(self, error: BloomsealError) -> KeyFacts:
        """The key could not be had."""
        return replace(self, problem=self.problem or error.what, state=_state_by(error))


class SidecarView:
    """The external key material beside one file, read once and only when it is asked for."""

    def __init__(self, ref: FileRef) -> None:
        self._ref = ref
        self._entries: dict[str, str] | None = None
        self.used: set[str] = set()

    @property
    def path(self) -> str:
        return self._store.path

    @cached_property
    def _store(self) -> MaterialStore:
        return MaterialStore(self._ref)  # most files keep their material inside

    def entries(self) -> dict[str, str]:
        """Raises KeyAccessError where there is a sidecar that can't be read."""
        if self._entries is None:
            self._entries = self._store.read()
        return self._entries

    def forget(self) -> None:
        """Let the entries go; who asks again reads again."""
        self._entries = None

    def material(self, reference: str) -> KeyMaterial:
        """Raises KeyAccessError: no such material."""
        self.used.add(reference)
        text = self.entries().get(reference)
        if text is None:
            raise KeyAccessError("there is no key material of this name beside the file")
        return KeyMaterial.from_json(text)


class Kms:
    """A KMS's answers about master keys and what they wrapped; each question is asked once.

    Args:
        tools: the way to it: they say which KMS serves an address that a file names, and bound and repeat the calls.
            None where there is none.
        dated: also ask when versions were made.
        witness: also ask which version opens each wrapped key, whatever the file says.
    """

    def __init__(self, tools: KeyTools | None = None, *, dated: bool = False, witness: bool = False) -> None:
        self.is_witness = witness and tools is not None
        self._tools = tools
        self._client = None if tools is None else tools.kms
        self._dated = dated
        self._described: dict[tuple[str, str | None], tuple[MasterKeyFacts | None, str | None]] = {}
        self._opened: dict[tuple[str, str | None, bool, bytes], MasterVersion | str] = {}

    @property
    def names_local_versions(self) -> bool:
        """Whether it is known which version of the KMS an ORC file's number is."""
        return isinstance(self._client, Keyring)

    def local_version(self, number: int) -> str:
        """How the KMS calls a version that an ORC file names; without a KMS, as the file has it."""
        return version_of(self._client, number)

    def resolved(self, facts: KeyFacts, resolve: Callable[[], SecretKey]) -> KeyFacts:
        """The facts of a key with that key, or with why it could not be had; then as `judged`."""
        try:
            facts = facts.resolved(resolve())
        except BloomsealError as error:
            facts = facts.refused(error)
        return self.judged(facts)

    def judged(self, facts: KeyFacts) -> KeyFacts:
        """With the master key's state and its version's date, as far as the KMS tells."""
        if self._tools is None or facts.master_key is None:
            return facts
        told, state = self._describe(self._tools, facts.master_key, None)
        # That a KMS does not answer, or that it may not be asked, is no finding about the file.
        told = told or MasterKeyFacts(facts.master_key)
        state = facts.state or state
        if not self._dated:
            return replace(facts, state=state, current=told.current)
        since = told.since(facts.version)
        # The policy limits ages: one that nobody tells is kept by nobody.
        doubts = () if since is not None else (f"the KMS does not tell the age of master key {facts.master_key}",)
        return replace(facts, state=state, current=told.current, version_since=since, doubts=doubts)

    def opened_by(self, wrapped: str | bytes, master_key: str, url: str | None) -> MasterVersion | str | None:
        """The key and version that open `wrapped`; a text where nobody can tell, and why; None where it is no witness.

        Args:
            url: the KMS that the footer's key names; None for the one that wraps new keys.
        """
        if self._tools is None or not self.is_witness:
            return None
        # By what was wrapped: a hostile file could claim another's KEK id.
        data = wrapped if isinstance(wrapped, bytes) else wrapped.encode()
        name = master_key, url, isinstance(wrapped, bytes), hashlib.sha256(data).digest()
        if (known := self._opened.get(name)) is None:
            try:
                known = self._tools.calls_for(url).opened_by(wrapped, master_key)
            except BloomsealError as error:
                known = error.what
            self._opened[name] = known
        return known

    def identify(self, master_key: str, version: str | None, url: str | None) -> MasterVersion | None:
        """The key and version that these names stand for; None where the KMS does not know them, or does not tell."""
        known = self._describe(self._tools, master_key, url)[0] if self._tools is not None else None
        return None if known is None else known.identify(version)

    def _describe(self, tools: KeyTools, master_key: str, url: str | None) -> tuple[MasterKeyFacts | None, str | None]:
        """What the KMS tells of a master key, and its state."""
        name = master_key, url
        if name not in self._described:
            try:
                told = tools.calls_for(url).describe(master_key)
                self._described[name] = told, told.state and told.state.value
            except BloomsealError as error:
                self._described[name] = None, _state_by(error)
        return self._described[name]


def _state_by(error: BloomsealError) -> str | None:
    """The master key's state, where a refusal tells it."""
    told = error.problem.value if isinstance(error, KmsAccessError) else None
    return told if told in ("disabled", "destroyed", "unknown") else None


def _once(text: str | None) -> str | None:
    """The same object for the same text, which a hundred thousand files have."""
    return sys.intern(text) if type(text) is str else text  # a client of somebody's own may tell more than text


def _digest(data: bytes) -> str:
    return hashlib.sha256(b"bloomseal audit\x00" + data).hexdigest()[:16]


class Impatient:
    """A file's keys, until the KMS could not be reached a few times: a thousand files must not wait for it a thousand
    times.
    """

    def __init__(self, keys: KeyRetriever, outages: list[KmsAccessError]) -> None:
        self._keys = keys
        self._outages = outages
        self.describe = getattr(keys, "describe", None)

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes | SecretKey:
        if len(self._outages) >= _OUTAGES:
            raise copy(self._outages[-1])
        try:
            return self._keys.retrieve_key(key_metadata, column)
        except KmsAccessError as error:
            if error.retryable:
                self._outages.append(error)
            raise


def file_of(sidecar: str) -> str:
    """The path of the data file that a sidecar stands beside."""
    folder, name = posixpath.split(sidecar)
    return posixpath.join(folder, name.removeprefix(MATERIAL_PREFIX).removesuffix(".json"))
