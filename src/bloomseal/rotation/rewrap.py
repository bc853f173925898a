"""``rewrap``: one file's data keys under other master keys, or the current versions of the same ones."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError, FormatError, Hint, KeyAccessError, MissingFileError, UsageError
from ..core.keys.material import FOOTER_KEY_REFERENCE, KeyMaterial, KeyMetadata
from ..core.parquet.footer import FooterKind
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..format.opening import open_footer
from ..keytools.access_log import AccessLog
from ..keytools.kms.calls import KmsCalls
from ..keytools.material.store import MaterialStore
from ..keytools.signatures.signers import tail_signer
from ..notebook import ShownInNotebooks
from ..policy import PolicyChoice
from ..specs import PolicyArguments, decryption_for, resolve_policy
from ..storage.places import open_source, resolve_path
from ..write.key_metadata import exchange_key_metadata, key_metadata_in_use
from .files import ChangedError, in_turn, mark_of, need_unchanged
from .keys import Rewrapper, target_of, with_material
from .settings import end_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass
class RewrappedKey:
    """One key of a file.

    Attributes:
        column: dotted path; None for the footer key.
        master_key, version: what wrapped it; the version is None where the KMS does not tell.
        new_master_key, new_version: what wraps it now.
        external: its material lies beside the file.
    """

    column: str | None
    master_key: str
    version: str | None
    new_master_key: str
    new_version: str | None
    external: bool


@dataclass
class RewrapReport(ShownInNotebooks):
    """What `rewrap` did, or would do.

    Attributes:
        path: the file.
        dry_run: nothing was written, and nothing re-wrapped.
        keys: the keys that were wrapped anew.
        left: keys that were not, each with `column` and `why`; keys that are not due are not listed.
        unreferenced: entries beside the file to which its footer does not refer; they stay as they are.
        bytes_written: beyond what the kernel copied: the new footer, or the key material beside the file.
        bytes_copied: by the kernel, untouched.
        kms_calls: to be expected, at most; counted in a dry run only.
        signed_by: who signed the file anew, by his name in the policy; None where nobody has to, and where only key
            material beside the file was replaced.
        versions: master keys that are to wrap the file's keys → the version that they wrap with now.
    """

    path: str
    dry_run: bool
    keys: list[RewrappedKey] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    unreferenced: list[str] = field(default_factory=list)
    bytes_written: int = 0
    bytes_copied: int = 0
    kms_calls: int = 0
    signed_by: str | None = None
    versions: dict[str, str | None] = field(default_factory=dict)
    calls: dict[Hashable, int] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As plain data; wrapped keys are not among it."""
        told = {name: value for name, value in self.__dict__.items() if name != "calls"}
        return told | {"keys": [dict(key.__dict__) for key in self.keys]}


def rewrap(
    path: str | os.PathLike[str],
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    master_keys: Mapping[str, str] | None = None,
    check_keys: bool = False,
    filesystem: FileSystem | None = None,
    dry_run: bool = False,
    **policy: Unpack[PolicyArguments],
) -> RewrapReport:
    """Wrap a file's data keys anew; the data keys, and so all modules, stay as they are.

    Key material inside the file: footer and columns get new key metadata, the footer is sealed or signed again, and
    pages are
    copied by the kernel. Beside the file: only the material is replaced, at once. A data key that somebody has already
    got
    hold of goes on opening the file: against that only `rekey` helps.

    Only what the verified footer refers to is wrapped anew. Whoever can write to the folder could otherwise put another
    file's wrapped key there, and have it wrapped under a master key that he may use.

    Args:
        decryption: its ``keys`` have master keys behind them, and lead to the footer key. Or a policy, which then also
            says which master key is to wrap what; so do ``policy=`` and ``table=``, see
            `bloomseal.specs.PolicyArguments`.
        master_keys: old name → new name; keys under other master keys are left alone. None: what the policy says, or
            else every key under the current version of the master key that it is under now.
        check_keys: unwrap every new wrapping and compare. Without it the data keys stay in a KMS that re-wraps itself.
        dry_run: say what is due; ask the KMS for versions and for the footer key only.

    Raises:
        KeyAccessError: no footer key, or a KMS that can't be reached. A column that is refused is listed under `left`.
        UsageError: ``keys`` without master keys; a plaintext file.
        FormatError, IntegrityError, PolicyError: the file is broken, altered, or not as expected.
        BloomsealError: the storage failed, or somebody else changed the file. In every case the file opens as before.
    """
    ref = resolve_path(path, filesystem)
    if (opening := resolve_policy(DecryptionSpec, decryption, ref, **policy)) is None:
        raise UsageError("nothing says what to open with", hint=Hint.KEYS)
    rewrapper = Rewrapper(opening.keys, target_of(opening, master_keys), check_keys=check_keys)
    spec = decryption_for(opening, ref)
    try:
        if dry_run:
            return rewrap_file(ref, spec, rewrapper, dry_run=True)
        with in_turn(ref):
            return rewrap_file(ref, spec, rewrapper)
    except MissingFileError:
        raise
    except OSError as error:
        raise BloomsealError(f"the storage failed: {error.strerror or type(error).__name__}", file=ref.path) from error


def rewrap_file(
    ref: FileRef, decryption: DecryptionSpec, rewrapper: Rewrapper, *, dry_run: bool = False
) -> RewrapReport:
    """As `rewrap`, with a `Rewrapper` that other files share; the caller keeps other rotations away."""
    # Before it is opened: a file put in its place afterwards then differs.
    before = mark_of(ref)
    with open_source(ref) as source:
        try:
            one = _One(source, decryption, rewrapper, dry_run)
            one.collect()
            if dry_run:
                one.estimate()
            else:
                one.write(before)
        except BloomsealError as error:
            raise error.at(file=ref.path) from error.__cause__
    return one.report


@dataclass
class _Held:
    """A key of the file: where its material is, and whose it is."""

    column: str | None
    material: KeyMaterial
    text: str | bytes
    reference: str | None


class _One:
    def __init__(self, source: Source, decryption: DecryptionSpec, rewrapper: Rewrapper, dry_run: bool) -> None:
        self.source = source
        self.decryption = decryption
        self.rewrapper = rewrapper
        self.report = RewrapReport(source.name, dry_run)
        self._store = MaterialStore(source.ref)
        self._entries: dict[str, str] = {}
        self._due: list[tuple[_Held, str]] = []
        self._walk: Walk
        self._calls: KmsCalls
        self._footer_material: KeyMaterial

    def collect(self) -> None:
        """Which keys are due."""
        seen = end_of(self.source, "rewrap")
        if seen.kind is FooterKind.PLAINTEXT:
            raise UsageError("a plaintext file has no keys", hint="seal")
        footer, keys = open_footer(self.source, self.decryption, seen=seen)
        if not footer.verified:
            # Key metadata in a footer that nobody has verified may be anybody's.
            try:
                keys.footer()
            except KeyAccessError as error:
                error.what = f"re-wrapping needs the footer key, to know which keys are the file's: {error.what}"
                raise
        assert footer.crypto is not None  # noqa: S101  # the file is encrypted
        self._walk, self._entries = Walk(self.source, footer, keys), keys.beside()
        self._footer_metadata = KeyMetadata.from_bytes(footer.crypto.footer_key_metadata)
        self._footer_material, _ = _material_of(self._footer_metadata, self._entries)
        self._calls = self.rewrapper.tools.calls_for(self._footer_material.kms_instance_url)
        for held in self._held():
            try:
                new = self.rewrapper.due(held.material, held.column, self._calls)
            except BloomsealError as error:
                self._leave(held.column, error)
                continue
            if new is not None:
                self._due.append((held, new))
            name = new or held.material.master_key
            self.report.versions[name] = self.rewrapper.current_version(name, self._calls)

    def write(self, before: tuple[int, ...] | None) -> None:
        """Wrap anew what is due, and put it in its place."""
        log = AccessLog.of(self.decryption.access_log, self.source.name)
        inside: dict[bytes, bytes] = {}
        beside: dict[str, tuple[str, str]] = {}
        done: list[tuple[_Held, KeyMaterial]] = []
        for held, new in self._due:
            try:
                material = self.rewrapper.rewrap(held.material, new, self._calls)
            except BloomsealError as error:
                if log is not None:
                    log.say("wrap", held.column, new, error=error)
                self._leave(held.column, error)
                continue
            if log is not None:
                log.say("wrap", held.column, new, self.rewrapper.version(material))
            text = with_material(held.text, material)
            if held.reference is None:
                inside[bytes(held.text)] = text.encode()  # type: ignore[arg-type]  # inside the file it is bytes
            else:
                beside[held.reference] = str(held.text), text
            done.append((held, material))
        lost = self._write_beside(beside, done) if beside else set()
        if inside:
            self._write_inside(inside, before)
        self.report.keys = [
            self._told(held, material.master_key, self.rewrapper.version(material))
            for held, material in done
            if held.reference not in lost
        ]

    def _held(self) -> list[_Held]:
        held, named = [], set()
        for column, key_metadata in key_metadata_in_use(self._walk):
            try:
                metadata = KeyMetadata.from_bytes(key_metadata)
                named.add(metadata.reference)
                material, text = _material_of(metadata, self._entries)
            except KeyAccessError as error:
                self._leave(column, error)
                continue
            held.append(_Held(column, material, key_metadata if text is None else text, metadata.reference))
        if self._has_copy():
            named.add(FOOTER_KEY_REFERENCE)
        self.report.unreferenced = sorted(self._entries.keys() - named)
        return held

    def _has_copy(self) -> bool:
        """Does the footer key's material stand under its usual name too, for the rotations of parquet-java and of
        Arrow?
        """
        mine = self._entries.get(self._footer_metadata.reference or "")
        return mine is not None and mine == self._entries.get(FOOTER_KEY_REFERENCE)

    def estimate(self) -> None:
        """What `write` will do and ask of the KMS."""
        report = self.report
        cost = self.rewrapper.cost(self._calls)
        report.calls = {self.rewrapper.wrapping(held.material, new): cost for held, new in self._due}
        # Opening the footer to begin with, and the new one to check it.
        for step in ("open", "check")[: 1 + bool(self._due)]:
            report.calls[step, *self.rewrapper.wrapping(self._footer_material, "")] = 1
        report.kms_calls = sum(report.calls.values())
        if any(held.reference is None for held, _ in self._due):
            report.bytes_copied = self._walk.footer.offset
            report.bytes_written = self.source.size - report.bytes_copied
        if any(held.reference is not None for held, _ in self._due):
            report.bytes_written += sum(len(name) + len(text) for name, text in self._entries.items())
        report.keys = [
            self._told(held, new, self.rewrapper.current_version(new, self._calls)) for held, new in self._due
        ]

    def _told(self, held: _Held, new: str, version: str | None) -> RewrappedKey:
        old = held.material
        had = self.rewrapper.version(old)
        return RewrappedKey(held.column, old.master_key, had, new, version, held.reference is not None)

    def _leave(self, column: str | None, error: BloomsealError) -> None:
        # A KMS that did not answer is no property of the key: the file is tried again as a whole.
        if isinstance(error, KeyAccessError) and error.retryable:
            raise error
        self.report.left.append({"column": column, "why": error.what})

    def _write_inside(self, replacements: dict[bytes, bytes], before: tuple[int, ...] | None) -> None:
        ref = self.source.ref

        def check(walk: Walk) -> None:
            present = {key_metadata for _, key_metadata in key_metadata_in_use(walk)}
            if present & replacements.keys() or not present.issuperset(replacements.values()):
                raise FormatError("the footer just written does not hold the new key metadata", file=ref.path)
            if ref.filesystem is not None:
                need_unchanged(ref, before)

        local = before if ref.filesystem is None else None
        sign = tail_signer(self.decryption, ref)
        self.report.bytes_written += exchange_key_metadata(
            self._walk, replacements, self.decryption, before=local, check=check, sign=sign
        )
        self.report.signed_by = None if sign is None else sign.name
        self.report.bytes_copied = self._walk.footer.offset

    def _write_beside(self, edits: dict[str, tuple[str, str]], done: list[tuple[_Held, KeyMaterial]]) -> set[str]:
        """Exchange entries beside the file, all at once; those that someone else has changed meanwhile stay."""
        self._check_footer_key(done)
        lost: set[str] = set()

        def edit(entries: dict[str, str]) -> None:
            for reference, (old, new) in edits.items():
                if entries.get(reference) == old:
                    entries[reference] = new
                    if reference == self._footer_metadata.reference and entries.get(FOOTER_KEY_REFERENCE) == old:
                        entries[FOOTER_KEY_REFERENCE] = new
                else:
                    lost.add(reference)
            self.report.bytes_written += sum(len(name) + len(text) for name, text in entries.items())

        self._store.change(edit)
        for held, _ in done:
            if held.reference in lost:
                self._leave(held.column, ChangedError("the key material was changed by someone else meanwhile"))
        return lost

    def _check_footer_key(self, done: list[tuple[_Held, KeyMaterial]]) -> None:
        """Before the old wrapping is gone, the new one must lead to the key that opened the footer."""
        for held, material in done:
            if held.column is None and self.rewrapper.unwrap(material, self._calls) != self._walk.keys.footer().key:
                raise KeyAccessError("the new wrapping of the footer key holds another key")


def _material_of(metadata: KeyMetadata, entries: Mapping[str, str]) -> tuple[KeyMaterial, str | None]:
    """The material, from the key metadata itself or from the entries beside the file, and its text there.

    Raises:
        KeyAccessError: there is none of that name, or it is broken.
    """
    if metadata.material is not None:
        return metadata.material, None
    text = entries.get(metadata.reference or "")
    if text is None:
        raise KeyAccessError("there is no key material of that name beside the file")
    return KeyMaterial.from_json(text), text
