"""Whether a file that was, or is, under a master key version still opens. Tried with copies from before a rotation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core.decryption import DecryptionSpec
from ...core.errors import BloomsealError, KeyAccessError, UsageError
from ...core.keys.access import raised_by
from ...core.keys.material import KeyMaterial, KeyMetadata
from ...core.parquet.footer import FooterKind, peek
from ...core.parquet.walk import Walk
from ...core.storage.ref import FileRef
from ...format.opening import open_footer
from ...keytools import KmsAccessError, Problem
from ...keytools.kms.common import claimed_version
from ...keytools.kms_protocols import LocalKeyKms
from ...keytools.local_keys import version_of
from ...keytools.material.store import MaterialStore
from ...orc.layout import OrcLayout
from ...storage.formats import Format, format_of
from ...storage.places import open_source
from ...write.key_metadata import key_metadata_in_use
from ..facts.auditor import Auditor


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to unwrap a data key: `outcome` is ``refused``, ``opened`` or ``not tried``, `problem` the KMS's kind
    of refusal.
    """

    file: str
    column: str | None
    outcome: str
    why: str
    problem: str | None = None


def attempts(ref: FileRef, master_key: str, version: str, auditor: Auditor) -> list[Attempt]:
    """Attempts with the footer's key and with those of columns, as far as the file lets see them."""
    tools, keys = auditor.tools, auditor.keys
    client: Any = None if tools is None else tools.kms
    ways: list[tuple[str | None, Callable[[], object]]] = []
    try:
        if (local := _local_keys(ref)) is not None:
            if not isinstance(client, LocalKeyKms):
                return [Attempt(ref.path, None, "not tried", "the KMS opens no local keys of ORC files")]
            for root, name, held, encrypted in local:
                if (name, version_of(client, held)) == (master_key, version):
                    ways.append((root, partial(client.open_local_key, encrypted, name, held)))
        else:
            for column, material in _materials(ref, keys):
                wrapped = material.wrapped_kek or material.wrapped_dek
                if material.master_key == master_key and claimed_version(wrapped) == version:
                    ways.append((column, partial(client.unwrap_key, wrapped, master_key)))
    except BloomsealError as error:
        return [Attempt(ref.path, None, "not tried", error.what)]
    told = []
    for where, attempt in ways:
        try:
            attempt()
        except KmsAccessError as error:
            sure = error.problem in (Problem.DESTROYED, Problem.DISABLED, Problem.UNKNOWN, Problem.INVALID)
            told.append(Attempt(ref.path, where, "refused" if sure else "not tried", error.what, error.problem.value))
        except BloomsealError as error:
            told.append(Attempt(ref.path, where, "not tried", error.what))
        except Exception as error:
            told.append(Attempt(ref.path, where, "not tried", f"the KMS client failed with {raised_by(error)}"))
        else:
            told.append(Attempt(ref.path, where, "opened", "the KMS unwrapped a data key of it"))
    return told or [Attempt(ref.path, None, "not tried", "no key that can be seen in it is under this version")]


def _local_keys(ref: FileRef) -> list[tuple[str, str, int, bytes]] | None:
    """Column, master key, its version and the encrypted local key, of each encrypted column; None: no ORC file."""
    with open_source(ref) as source:
        if format_of(source) is not Format.ORC:
            return None
        encryption = OrcLayout(source).encryption
    if encryption is None:
        raise UsageError("a plaintext file has no keys")
    return [(one.root.name, one.key.name, one.key.version, bytes(one.encrypted_key)) for one in encryption.variants]


def _materials(ref: FileRef, keys: Any) -> list[tuple[str | None, KeyMaterial]]:
    with open_source(ref) as source:
        seen = peek(source)
        if seen.kind is FooterKind.PLAINTEXT:
            raise UsageError("a plaintext file has no keys")
        metadata: list[tuple[str | None, bytes]] = [(None, seen.key_metadata)]
        decryption = (
            DecryptionSpec(keys, allow_plaintext=True, allow_unverified_footer=True) if keys is not None else None
        )
        try:
            footer, hand = open_footer(source, decryption, keyless=True)
            metadata = list(key_metadata_in_use(Walk(source, footer, hand)))
        except BloomsealError:
            pass  # an encrypted footer under this very key, or a prefix that nobody gave: the footer's key is enough
        entries = MaterialStore(ref).read()
    found = []
    for column, data in metadata:
        try:
            named = KeyMetadata.from_bytes(data)
            text = entries.get(named.reference or "")
            material = named.material or (KeyMaterial.from_json(text) if text is not None else None)
        except KeyAccessError:
            continue
        if material is not None:
            found.append((column, material))
    return found
