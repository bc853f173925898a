"""A certificate about a master key version that is to be gone: who needs it, what the KMS says of it, and what still
opens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from ..audit import may_destroy
from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError, KeyAccessError, UsageError
from ..core.keys.access import raised_by
from ..core.keys.material import KeyMaterial, KeyMetadata
from ..core.parquet.footer import FooterKind, peek
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..format.opening import open_footer
from ..keytools import KmsAccessError, Problem
from ..keytools.kms.calls import KmsCalls
from ..keytools.kms.common import claimed_version
from ..keytools.kms_protocols import LocalKeyKms
from ..keytools.local_keys import version_of
from ..keytools.material.store import MaterialStore
from ..orc import OrcFile
from ..storage.formats import Format, format_of
from ..storage.places import open_source
from ..write.key_metadata import key_metadata_in_use
from .claims import Observations
from .versions import ask

__all__ = ["Certificate", "certify", "named_version"]

_GONE: Final = Problem.DESTROYED.value


@dataclass
class Certificate:
    """One master key version.

    Attributes:
        master_key, version: the version in question.
        unneeded: what there is to say to the claim that no file needs it.
        files: how many files were looked at.
        looked_at, not_looked_at: the places that were named, and what lies outside of those.
        missing: files that snapshots name and that are gone.
        under: the versions that files are under.
        kms: the KMS's name.
        kms_state: its own word about this version; None where it gives none.
        look: the whole answer of `bloomseal.audit.may_destroy`; a member of its own in the bundle.
        tried: attempts to unwrap a data key under it: file, column, outcome (``refused``, ``opened``, ``not tried``),
            why.
        destroyed: what there is to say to the claim that the KMS has destroyed it: its own word, and the attempts.
        signatures_required: two where the policy wants dual control.
    """

    master_key: str
    version: str
    unneeded: Observations
    destroyed: Observations = field(default_factory=Observations)
    files: int = 0
    looked_at: list[str] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    under: list[str] = field(default_factory=list)
    kms: str | None = None
    kms_state: str | None = None
    look: dict[str, Any] = field(default_factory=dict, repr=False)
    tried: list[dict[str, Any]] = field(default_factory=list)
    signatures_required: int = 1

    @property
    def name(self) -> str:
        return f"{self.master_key}:{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without `look`."""
        told = asdict(self) | {"unneeded": self.unneeded.to_dict(), "destroyed": self.destroyed.to_dict()}
        del told["look"]
        return told


def named_version(text: str) -> tuple[str, str]:
    """``KEY:VERSION`` apart.

    Raises:
        UsageError: it is not of that form.
    """
    key, colon, version = text.rpartition(":")
    if not (key and colon and version):
        raise UsageError("a master key's version is named as KEY:VERSION", hint="pii:1")
    return key, version


def certify(
    master_key: str,
    version: str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    samples: Iterable[FileRef] = (),
    kms: KmsCalls | None = None,
    keys: Any = None,
    dual_control: bool = False,
    **look: Any,
) -> Certificate:
    """Look at all places once more, ask the KMS, and try to open samples.

    Args:
        paths: tables, and copies and backups of them.
        samples: files that were, or are, under the version: copies from before the rotation.
        kms: calls to the KMS; None where there is none.
        keys: as for `bloomseal.audit.may_destroy`.
        dual_control: two persons have to sign.
        look: other arguments of `bloomseal.audit.may_destroy`.
    """
    answer = may_destroy(master_key, version, list(paths), keys=keys, **look)
    found = Certificate(
        master_key,
        version,
        # The other question: may it be destroyed? Whatever keeps that from a yes was not seen here.
        Observations(
            tuple(f"{path} needs it" for path in answer.needed_by),
            answer.files,
            answer.files,
            tuple(answer.doubts) or (() if answer else (f"may it be destroyed: {answer.answer}",)),
        ),
        files=answer.files,
        looked_at=[os.fspath(path) for path in paths],
        not_looked_at=list(answer.not_looked_at),
        missing=list(answer.missing),
        under=list(answer.under),
        look=answer.to_dict(),
        kms=None if kms is None else kms.name,
        signatures_required=2 if dual_control else 1,
    )
    at_kms = ask(kms, master_key, [version])
    known = at_kms.of(version)
    found.kms_state = None if known is None else known.state
    for ref in samples:
        found.tried += _tried(ref, master_key, version, kms and kms.client, keys)
    found.destroyed = _destroyed(found, at_kms.problem)
    return found


def _destroyed(found: Certificate, problem: str | None) -> Observations:
    """Each attempt is one thing to see, and the KMS's word about the version another."""
    word = found.kms_state == "destroyed"
    against = [f"it unwrapped a data key of {one['file']}" for one in found.tried if one["outcome"] == "opened"]
    if found.kms_state is not None and not word:
        against.append(f"{found.kms} says that it is {found.kms_state}")
    # Refused for another reason than that it is gone: it may come back.
    gone = [one for one in found.tried if one["outcome"] == "refused" and (word or one["problem"] == _GONE)]
    others = [f"{one['file']}: {one['why']}" for one in found.tried if one not in gone and one["outcome"] != "opened"]
    silent = [] if found.tried or word else [problem or f"{found.kms} does not tell the state of single versions"]
    return Observations(tuple(against), len(gone) + word, len(found.tried) + word, (*others, *silent))


def _tried(ref: FileRef, master_key: str, version: str, client: Any, keys: Any) -> list[dict[str, Any]]:
    """Attempts with the footer's key and with those of columns, as far as the file lets see them."""
    attempts: list[tuple[str | None, Callable[[], object]]] = []
    try:
        if (local := _local_keys(ref)) is not None:
            if not isinstance(client, LocalKeyKms):
                return [_attempt(ref, None, "not tried", "the KMS opens no local keys of ORC files")]
            for root, name, held, encrypted in local:
                if (name, version_of(client, held)) == (master_key, version):
                    attempts.append((root, partial(client.open_local_key, encrypted, name, held)))
        else:
            for column, material in _materials(ref, keys):
                wrapped = material.wrapped_kek or material.wrapped_dek
                if material.master_key == master_key and claimed_version(wrapped) == version:
                    attempts.append((column, partial(client.unwrap_key, wrapped, master_key)))
    except BloomsealError as error:
        return [_attempt(ref, None, "not tried", error.what)]
    told = []
    for where, attempt in attempts:
        try:
            attempt()
        except KmsAccessError as error:
            sure = error.problem in (Problem.DESTROYED, Problem.DISABLED, Problem.UNKNOWN, Problem.INVALID)
            told.append(_attempt(ref, where, "refused" if sure else "not tried", error.what, error.problem.value))
        except BloomsealError as error:
            told.append(_attempt(ref, where, "not tried", error.what))
        except Exception as error:
            told.append(_attempt(ref, where, "not tried", f"the KMS client failed with {raised_by(error)}"))
        else:
            told.append(_attempt(ref, where, "opened", "the KMS unwrapped a data key of it"))
    return told or [_attempt(ref, None, "not tried", "no key that can be seen in it is under this version")]


def _attempt(ref: FileRef, column: str | None, outcome: str, why: str, problem: str | None = None) -> dict[str, Any]:
    return {"file": ref.path, "column": column, "outcome": outcome, "why": why, "problem": problem}


def _local_keys(ref: FileRef) -> list[tuple[str, str, int, bytes]] | None:
    """Column, master key, its version and the encrypted local key, of each encrypted column; None: no ORC file."""
    with open_source(ref) as source:
        if format_of(source) is not Format.ORC:
            return None
        encryption = OrcFile(source).encryption
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
