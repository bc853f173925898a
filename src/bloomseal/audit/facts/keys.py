"""The facts in a file's key metadata, and those that the keys at hand and their KMS add."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import sys
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from ...core.cached import cached_property
from ...core.encryption import SecretKey
from ...core.errors import BloomsealError, KeyAccessError
from ...core.keys.material import DEFAULT_INSTANCE, KeyMaterial, KeyMetadata
from ...core.keys.protocols import KeyRetriever
from ...core.storage.ref import FileRef
from ...keytools import Keyring, KmsAccessError, MasterVersion
from ...keytools.kms_protocols import DatedKms, StatefulKms, VersionedKms
from ...keytools.local_keys import version_of
from ...keytools.material.store import MaterialStore
from .witness import Witness

__all__ = ["Impatient", "KeyFacts", "Kms", "SidecarView"]

_WRAPPING_BYTES: Final = 12 + 16
_OUTAGES: Final = 3
_VAULT: Final = re.compile(r"vault:v(\d{1,9}):")


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One data key of one file.

    Attributes:
        material: ``internal``, ``external``, ``opaque`` (an id that means something to its writer) or ``none``.
        key_id: an opaque id as text; the reference, where the material is external.
        data_key: says which data key it is, without saying the key: equal for equal keys.
        bits: length of the data key; None where it can't be told.
        master_key, version: what wrapped it, by the material's own account.
        kek_id: base64 of the KEK's id; None under single wrapping.
        kms_url: the KMS's address in the file; None where it names none.
        problem: why the key could not be had; None where it could, or nobody tried.
        state: ``enabled``, ``disabled``, ``pending deletion``, ``destroyed``, ``unknown``; None where nobody was asked.
        version_since: when the wrapping version was made, as far as the KMS tells.
        opened_by: the key and version that open it, where a `Witness` was asked and could tell.
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
        told = kms.witness.opened_by(wrapped, material.master_key, own or url) if kms.witness is not None else None
        version = kms.version(wrapped, material.master_key)
        return cls(
            where,
            _once(key_id),
            f"wrapped {_digest(material.wrapped_dek.encode())}",
            wrapped_bits,
            _once(material.master_key),
            _once(version),
            _once(material.kek_id),
            own,
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
        state = None
        if isinstance(error, KmsAccessError) and error.problem.value in ("disabled", "destroyed", "unknown"):
            state = error.problem.value
        return replace(self, problem=self.problem or error.what, state=state)


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
    """A KMS client's answers about master keys; each question is asked once.

    Args:
        client: None where there is none; versions are then read from the wrapped keys of known clients.
        dated: also ask when versions were made.
        witness: also ask which version opens each wrapped key.
    """

    def __init__(self, client: Any = None, *, dated: bool = False, witness: Witness | None = None) -> None:
        self.witness = witness
        self._client = client
        # Asked for each key, where isinstance with a protocol takes longer than all the rest.
        self._versioned = client if isinstance(client, VersionedKms) else None
        self._dated = dated
        self._dates: dict[tuple[str, str | None], datetime | None] = {}
        self._states: dict[str, str | None] = {}
        self._currents: dict[str, str | None] = {}

    def version(self, wrapped: str, master_key: str) -> str | None:
        """The master key's version that wrapped this blob. Costs no call."""
        if self._versioned is not None:
            try:
                return self._versioned.wrapping_version(wrapped, master_key)
            except BloomsealError:
                pass
        return _claimed(wrapped)

    @property
    def names_local_versions(self) -> bool:
        """Is it known which version of the KMS an ORC file's number is?"""
        return isinstance(self._client, Keyring)

    def local_version(self, number: int) -> str:
        """How the KMS calls a version that an ORC file names; without a KMS, as the file has it."""
        return version_of(self._client, number)

    def judged(self, facts: KeyFacts) -> KeyFacts:
        """With the master key's state and its version's date, as far as the KMS tells."""
        if self._client is None or facts.master_key is None:
            return facts
        state = facts.state or self._state(facts.master_key)
        current = self._current(facts.master_key)
        if not self._dated:
            return replace(facts, state=state, current=current)
        since = self._since(facts.master_key, facts.version)
        # The policy limits ages: one that nobody tells is kept by nobody.
        doubts = () if since is not None else (f"the KMS does not tell the age of master key {facts.master_key}",)
        return replace(facts, state=state, current=current, version_since=since, doubts=doubts)

    def _state(self, master_key: str) -> str | None:
        if master_key not in self._states:
            state = None
            if isinstance(self._client, StatefulKms):
                try:
                    state = self._client.key_state(master_key).value
                except KmsAccessError as error:
                    state = error.problem.value if error.problem.value in ("disabled", "destroyed", "unknown") else None
                except Exception:
                    state = None  # a KMS that does not answer is no finding about the file
            self._states[master_key] = state
        return self._states[master_key]

    def _current(self, master_key: str) -> str | None:
        if master_key not in self._currents:
            current = None
            if isinstance(self._client, VersionedKms):
                try:
                    current = self._client.current_version(master_key)
                except Exception:
                    current = None  # who may unwrap need not be allowed to ask this
            self._currents[master_key] = current
        return self._currents[master_key]

    def _since(self, master_key: str, version: str | None) -> datetime | None:
        name = (master_key, version)
        if name not in self._dates:
            try:
                self._dates[name] = self._asked(master_key, version)
            except Exception:
                self._dates[name] = None
        return self._dates[name]

    def _asked(self, master_key: str, version: str | None) -> datetime | None:
        if isinstance(self._client, Keyring):
            key = next((key for key in self._client.list() if key.name == master_key), None)
            made = (one.created for one in key.versions if str(one.version) == version) if key else iter(())
            return next(made, None)
        if not isinstance(self._client, DatedKms):
            return None
        dates = self._client.key_dates(master_key)
        if dates.rotated is None or version is None:
            return dates.created
        current = self._client.current_version(master_key) if isinstance(self._client, VersionedKms) else None
        if version == current:
            return dates.rotated
        # An older version: made at some time before the latest rotation. The latest possible day raises no false alarm.
        return dates.created if version == "1" else dates.rotated


@lru_cache(maxsize=1024)
def _claimed(wrapped: str) -> str | None:
    """The version that a wrapped key names; one KEK serves many files."""
    if (match := _VAULT.match(wrapped)) is not None:
        return match[1]
    try:
        fields = json.loads(wrapped) if wrapped.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    found = fields.get("masterKeyVersion") if isinstance(fields, dict) else None
    # parquet-java's word for a KMS that does not count versions
    return found if isinstance(found, str) and found != "NO_VERSION" else None


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
