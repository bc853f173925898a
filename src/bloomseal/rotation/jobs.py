"""The four depths of a rotation, each for one file at a time: `Rewrap`, `Rekey`, `Seal`, `Unseal`. Of ORC files there
is `Rekey` only (`orc`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..core.decryption import DecryptionSpec, unsigned
from ..core.errors import BloomsealError, Hint, KeyAccessError, UsageError
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..core.text import counted
from ..format.opening import open_footer
from ..index.place import is_signed
from ..keytools.material.store import MaterialStore
from ..policy import TablePolicy
from ..specs import EncryptionSpec, decryption_for, encryption_for
from ..storage.discovery.kinds import is_of_index
from ..storage.formats import Format
from ..storage.places import open_source
from ..write.convert import ConversionReport, convert
from ..write.writer import FilterRequest
from .files import DataFile, NewFile, below, make_folder
from .indexes import CarriedOver
from .job import Job, Progress
from .keys import Rewrapper, Target, key_tools, target_of
from .orc import plan_rekey, rekey_file
from .outcome import FileOutcome, FilePlan, Status
from .rewrap import rewrap_file
from .settings import (
    Decryption,
    Encryption,
    by_master_key,
    format_for,
    is_encrypted,
    like,
    new_keys_of,
    opened,
    opens_with,
    refuse_half_sealed,
    refuse_old_keys,
    wraps,
)


@dataclass
class Rewrap(Job):
    """New wrapping for the same data keys; see `bloomseal.rewrap`.

    Args:
        decryption: or a table's policy, which then also says which master key is to wrap what.
        master_keys: old name → new name. None: the policy's, or the current version of every key's own master key.
        check_keys: unwrap every new wrapping and compare.
    """

    decryption: Decryption
    master_keys: Mapping[str, str] | None = None
    check_keys: bool = False
    _rewrapper: Rewrapper = field(init=False, repr=False)
    _indexes: CarriedOver = field(default_factory=CarriedOver, init=False, repr=False, compare=False)
    operation: ClassVar[str] = "rewrap"
    done: ClassVar[Status] = Status.REWRAPPED
    keeps_identity: ClassVar[bool] = True
    indexes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._forget()

    def begin(self) -> None:
        super().begin()
        self._forget()

    def _forget(self) -> None:
        """Know of no version."""
        target = target_of(self.decryption, self.master_keys)
        self._rewrapper = Rewrapper(self.decryption.keys, target, check_keys=self.check_keys)

    def _spec(self, file: DataFile) -> DecryptionSpec:
        spec = decryption_for(self.decryption, file.ref)
        return spec if is_signed(file.ref) or not is_of_index(file.relative) else unsigned(spec)

    def plan(self, file: DataFile) -> FilePlan:
        report = rewrap_file(file.ref, self._spec(file), self._rewrapper, dry_run=True)
        if not report.keys:
            why = None if report.left else "every key is under the right version already"
            return FilePlan(file.name, "none", why, file.size, left=report.left, unreferenced=report.unreferenced)
        return FilePlan(
            file.name,
            self.operation,
            None,
            file.size,
            report.bytes_written,
            report.bytes_copied,
            report.left,
            report.unreferenced,
            report.calls,
        )

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:  # noqa: ARG002
        report = rewrap_file(file.ref, self._spec(file), self._rewrapper)
        if report.keys:
            self._indexes.touch(file.ref)
        told = report.to_dict()
        status = self.done if report.keys else Status.NOTHING
        return FileOutcome(
            file.name,
            Status.PARTLY if report.left else status,
            why=f"not wrapped anew: {counted(len(report.left), 'key')}" if report.left else None,
            old_size=file.size,
            # Nothing is copied where the material lies beside the file.
            new_size=_size(file.ref, file.size) if report.bytes_copied else file.size,
            bytes_written=report.bytes_written,
            keys=told["keys"],
            left=report.left,
            unreferenced=report.unreferenced,
            signed_by=report.signed_by,
            stamp=report.versions,
        )

    def still_good(self, stamp: Mapping[str, Any]) -> bool:
        """Not if a master key has another version now, or none that the KMS would tell."""
        calls = self._rewrapper.tools.calls
        try:
            return all(self._rewrapper.current_version(name, calls) == version for name, version in stamp.items())
        except KeyAccessError:
            return False

    def after(self) -> None:
        self._indexes.tell(self.decryption)


@dataclass
class Rekey(Job):
    """Fresh data keys for every module; see `bloomseal.rekey`.

    Args:
        decryption: what opens the files now, or a table's policy.
        encryption: what seals them, or a table's policy. None: as each file is now, under the same master keys.
        master_keys: old name → new name, where `encryption` is None.
        changes: arguments of `EncryptionSpec` that take the place of what a file has, where `encryption` is None:
            algorithm, key_bits, aad_prefix, store_aad_prefix, plaintext_footer.
        external: where the new key material goes; None: where the file's is.
        bloom_filters: filters to build besides.
        rebuild_filters: build filters anew that deny values of their own column, instead of refusing the file.
    """

    decryption: Decryption
    encryption: Encryption | None = None
    master_keys: Mapping[str, str] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    external: bool | None = None
    bloom_filters: FilterRequest | None = None
    rebuild_filters: bool = False
    _indexes: CarriedOver = field(default_factory=CarriedOver, init=False, repr=False, compare=False)
    operation: ClassVar[str] = "rekey"
    done: ClassVar[Status] = Status.REKEYED
    open_ended: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encryption is not None and (self.master_keys or self.changes or self.external is not None):
            raise UsageError("encryption= says all; master_keys=, changes= and external= go without it")

    def plan(self, file: DataFile) -> FilePlan:
        with open_source(file.ref) as source:
            if format_for(source, self.operation) is Format.ORC:
                return plan_rekey(file, self.decryption, self._orc_target(file))
            walk, decryption = self._open(source)
            spec = self.sealing(walk, decryption)
            calls = self._unwraps(walk, decryption) | wraps(spec, walk.footer.schema, file.name)
        return FilePlan(file.name, self.operation, None, file.size, file.size, calls=calls)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:
        with open_source(file.ref) as source:
            found = format_for(source, self.operation)
        if found is Format.ORC:
            return rekey_file(file, self.decryption, self._orc_target(file), progress)
        ref = file.ref
        before = MaterialStore(ref).read()
        if begun and self.encryption is not None and opens_with(ref, encryption_for(self.encryption, ref)):
            # Explicit keys open only the old file or only the new one, so this one is the new one.
            return FileOutcome(file.name, self.done, why="done just before the interruption", old_size=file.size)
        with open_source(ref) as source:
            walk, decryption = self._open(source)
            spec, filters = self.sealing(walk, decryption), self._filters(walk)
            refuse_old_keys(walk, spec)
        new = NewFile(ref, ref)
        report = convert(
            ref, None, decryption, spec, filters, progress,
            rebuild_filters=self.rebuild_filters, accept=_accepting(new, ref, self._indexes),
        )  # fmt: skip
        return converted(file, self.done, report, new, before)

    def after(self) -> None:
        self._indexes.tell(self.decryption if self.encryption is None else self.encryption)

    def _open(self, source: Source) -> tuple[Walk, DecryptionSpec]:
        """The file as it is, and what opened it."""
        decryption = decryption_for(self.decryption, source.ref)
        return opened(source, decryption), decryption

    def _filters(self, walk: Walk) -> FilterRequest | None:  # noqa: ARG002
        return self.bloom_filters

    def sealing(self, walk: Walk, decryption: DecryptionSpec) -> EncryptionSpec:
        """What the file's rows are to be sealed with. Raises as `like`."""
        if self.encryption is not None:
            return encryption_for(self.encryption, walk.source.ref)
        target = target_of(self.decryption, self.master_keys)
        tools = key_tools(decryption.keys)
        changes = {"access_log": decryption.access_log, "signers": decryption.signers, **self.changes}
        keys = new_keys_of(walk, tools, self.external)
        return like(walk, keys, by_master_key(walk, tools, target), changes)

    def _orc_target(self, file: DataFile) -> Target:
        """The master keys of an ORC file, which has nothing else of what a rekey may change. Raises UsageError."""
        sealed_so = self.encryption is None or isinstance(self.encryption, TablePolicy)
        if not sealed_so or self.changes or self.external is not None or self.bloom_filters or self.rebuild_filters:
            what = "of ORC files only local and master keys can be changed"
            raise UsageError(what, file=file.ref.path, hint="--from and --to, or a policy; attach builds filters")
        given = self.encryption if isinstance(self.encryption, TablePolicy) else self.decryption
        return target_of(given, self.master_keys)


class _OutputJob(Job):
    """What encrypts a whole file, or decrypts it, and may put the new one elsewhere.

    Attributes:
        output: folder for the new files; None: in place.
    """

    output: str | None
    already: ClassVar[str]

    def target(self, file: DataFile) -> FileRef:
        return file.ref if self.output is None else below(self.output, file)

    def _made_before(self, file: DataFile, begun: bool) -> FileOutcome:
        status = self.done if begun else Status.NOTHING
        return FileOutcome(file.name, status, why=self.already, old_size=file.size, new_size=file.size)

    def _place(self, file: DataFile) -> FileRef:
        """Where the new file goes, whose folder is there."""
        target = self.target(file)
        if target != file.ref:
            make_folder(target)
        return target


@dataclass
class Seal(_OutputJob):
    """Plaintext files become encrypted ones; see `bloomseal.seal_file`. A file that is encrypted in part, or not to be
    looked into, fails.

    Args:
        encryption: or a table's policy, whose filters are built too.
        bloom_filters: filters to build besides those that a file has.
        output: folder for the new files; None: in place.
        rebuild_filters: as of `Rekey`.
    """

    encryption: Encryption
    bloom_filters: FilterRequest | None = None
    output: str | None = None
    rebuild_filters: bool = False
    _indexes: CarriedOver = field(default_factory=CarriedOver, init=False, repr=False, compare=False)
    operation: ClassVar[str] = "seal"
    done: ClassVar[Status] = Status.SEALED
    already: ClassVar[str] = "encrypted already"

    def plan(self, file: DataFile) -> FilePlan:
        with open_source(file.ref) as source:
            if self._is_sealed(source):
                return FilePlan(file.name, "none", self.already, file.size)
            footer, _ = open_footer(source, None)
            calls = wraps(encryption_for(self.encryption, self.target(file)), footer.schema, file.name)
        return FilePlan(file.name, self.operation, None, file.size, file.size, calls=calls)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:
        with open_source(file.ref) as source:
            if self._is_sealed(source):
                return self._made_before(file, begun)
        filters = self.bloom_filters
        if filters is None and isinstance(self.encryption, TablePolicy):
            filters = self.encryption.bloom_filters()
        target = self._place(file)
        before, new = MaterialStore(target).read(), NewFile(file.ref, target)
        report = convert(
            file.ref, target, None, encryption_for(self.encryption, target), filters, progress,
            rebuild_filters=self.rebuild_filters, accept=_accepting(new, target, self._indexes),
        )  # fmt: skip
        return converted(file, self.done, report, new, before)

    def after(self) -> None:
        self._indexes.tell(self.encryption)

    def _is_sealed(self, source: Source) -> bool:
        sealed = is_encrypted(source, self.operation)
        if sealed:
            refuse_half_sealed(source, self.encryption)
        return sealed


@dataclass
class Unseal(_OutputJob):
    """Encrypted files become plaintext ones: everything in them is then in clear; see `bloomseal.unseal_file`.

    Args:
        decryption: or a table's policy.
        output: folder for the new files.
        in_place: replace the files, and remove their external key material. Exactly one of the two.
    """

    decryption: Decryption
    output: str | None = None
    in_place: bool = False
    operation: ClassVar[str] = "unseal"
    done: ClassVar[Status] = Status.UNSEALED
    signs: ClassVar[bool] = False
    already: ClassVar[str] = "plaintext already"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.output is None) != self.in_place:
            raise UsageError("either a folder for the plaintext files, or in place", hint=Hint.UNSEAL_PLACE)

    def plan(self, file: DataFile) -> FilePlan:
        decryption = decryption_for(self.decryption, file.ref)
        with open_source(file.ref) as source:
            if not is_encrypted(source, self.operation):
                return FilePlan(file.name, "none", self.already, file.size)
            calls = self._unwraps(opened(source, decryption), decryption)
        return FilePlan(file.name, self.operation, None, file.size, file.size, calls=calls)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:
        ref = file.ref
        if self.in_place and ref.filesystem is not None:
            raise UsageError("in place only on a local file system", file=ref.path, hint=Hint.OUTPUT)
        with open_source(ref) as source:
            encrypted = is_encrypted(source, self.operation)
        before = MaterialStore(ref).read() if self.in_place or (begun and not encrypted) else {}
        if not encrypted:
            if begun:
                MaterialStore(ref).supersede(before)
            return self._made_before(file, begun)
        target = self._place(file)
        new = NewFile(ref, target)
        report = convert(
            ref, target, decryption_for(self.decryption, ref), None, None, progress, accept=lambda _, made: new.accept(made),
        )  # fmt: skip
        return converted(file, self.done, report, new, before)


def _accepting(new: NewFile, place: FileRef, indexes: CarriedOver) -> Callable[[Walk, Walk], None]:
    """A last look before the new file is put in its place."""

    def accept(old: Walk, made: Walk) -> None:
        indexes.note(place, old, made)
        new.accept(made)

    return accept


def converted(
    file: DataFile, done: Status, report: ConversionReport, new: NewFile, before: Mapping[str, str]
) -> FileOutcome:
    """What came out, once the key material that was beside the place before is gone."""
    outcome = FileOutcome(
        file.name,
        done,
        output=report.output if report.output != report.path else None,
        old_size=report.old_size,
        new_size=report.new_size,
        bytes_written=report.new_size,
        filters_dropped=report.filters_dropped,
        filters_replaced=report.filters_replaced,
        dropped=report.dropped,
        unchecked=report.unchecked,
        signed_by=report.signed_by,
        keys=report.keys,
    )
    try:
        MaterialStore(new.place).supersede(before, valid=new.is_there)
    except BloomsealError as error:
        # The new file is in its place and opens. What is left beside it leads to data keys that open nothing any more.
        outcome.status, outcome.why = Status.PARTLY, f"old key material is still beside the file: {error.what}"
    return outcome


def _size(ref: FileRef, otherwise: int) -> int:
    if ref.filesystem is not None:
        return otherwise
    return Path(ref.path).stat().st_size
