"""Whole files from one protection to another, page by page, nothing decoded: seal, unseal, rekey."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack, cast

from ..core.decryption import DecryptionSpec
from ..core.encryption import ModuleType
from ..core.errors import BloomsealError, FormatError, Hint, UnsupportedError, UsageError
from ..core.keys.protocols import KeyDescription
from ..core.parquet.filter_bytes import FilterBytes
from ..core.parquet.keys_at_hand import need_verified
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Chunk, Protection, Walk
from ..core.sbbf import PhysicalType
from ..core.storage.ref import FileRef
from ..core.storage.source import Scratch, Source
from ..format.hashes.chunk_hashes import chunk_hashes
from ..format.hashes.truth import held_against_values
from ..format.opening import open_footer
from ..format.verify import verify_walk
from ..keytools.signatures.signers import tail_signer
from ..notebook import ShownInNotebooks
from ..sbbf import FilterSpec
from ..specs import EncryptionSpec, PolicyArguments, decryption_for, encryption_for, resolve_policy
from ..storage.atomic import AtomicFile, fault_point
from ..storage.places import open_source, resolve_path
from .assemble import AnyFilter, Assembler
from .key_metadata import key_metadata_in_use
from .output_keys import OutputKeys
from .writer import FilterRequest, resolve_filters

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..policy import PolicyChoice, TablePolicy

Progress = Callable[[int, int], None]


@dataclass
class ConversionReport(ShownInNotebooks):
    """What a conversion did.

    Attributes:
        path, output: the old and the new file.
        row_groups: converted.
        filters_kept, filters_built: filters taken over, and built anew on request.
        filters_replaced: of the built ones, those that took an older filter's place.
        filters_dropped: filters in clear that were not taken over: on encrypted columns, since nothing proves that they
            are whole; on columns that are encrypted from now on, where they can't be held against the values.
        dropped: one entry for each of them: row_group, column, why.
        unchecked: sealed filters that were taken over although they can't be held against the values: row_group,
            column, why.
        old_size, new_size: bytes.
        signed_by: who signed the new file, by his name in the policy; None where nobody has to.
        keys: one entry for each key: column (None: the footer), master_key and version before, new_master_key and
            new_version now; None where there is none, or nobody tells.
    """

    path: str
    output: str
    row_groups: int = 0
    filters_kept: int = 0
    filters_built: int = 0
    filters_replaced: int = 0
    filters_dropped: int = 0
    dropped: list[dict[str, Any]] = field(default_factory=list)
    unchecked: list[dict[str, Any]] = field(default_factory=list)
    old_size: int = 0
    new_size: int = 0
    signed_by: str | None = None
    keys: list[dict[str, Any]] = field(default_factory=list)


def seal_file(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    encryption: EncryptionSpec | PolicyChoice | None = None,
    bloom_filters: FilterRequest | None = None,
    rebuild_filters: bool = False,
    filesystem: FileSystem | None = None,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> ConversionReport:
    """Encrypt a plaintext Parquet file, written by anyone, its filters sealed with it, also those of an unknown kind.

    A filter that is taken over is asked for every value of its column chunk first: sealed, a wrong one would be
    believed. One that can't be asked is left out and reported. Pages, statistics and indexes are sealed as they are
    found.

    The new file has the old one's mode, group and access list, never more.

    Args:
        output: the new file; None replaces the old one, whose blocks stay on the disk until they are used again.
        encryption: keys and modes, or a policy.
        policy: ``policy=`` and ``table=`` in its place, see `bloomseal.specs.PolicyArguments`.
        bloom_filters: filters to build besides those that the file has, or in their place.
        rebuild_filters: build filters anew, as `FilterSpec()`, that can't be taken over.
        progress: called with (row groups done, row groups in all).

    Raises:
        UsageError: the file is encrypted already (`rekey` changes its keys).
        FormatError: broken; or a filter denies values of its own column chunk, without `rebuild_filters`.
        KeyAccessError, UnsupportedError: no key to write with, or a file that can't be sealed. In every case it is as
            it was.
    """
    ref, target = _places(path, output, filesystem)
    sealing = resolve_policy(EncryptionSpec, encryption, target or ref, **policy)
    if sealing is None:
        raise UsageError("nothing says what to seal with", hint=Hint.ENCRYPTION)
    return convert(ref, target, None, sealing, bloom_filters, progress, rebuild_filters=rebuild_filters)


def unseal_file(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> ConversionReport:
    """Decrypt a file to `output`, filters included: everything in it is then in clear, for those who may read the old
    file.

    Raises:
        KeyAccessError: the key of any column is not at hand.
        PolicyError: the file is not as expected; or a signed footer that can't be verified without its key.
        FormatError, IntegrityError: the file is broken or altered.
    """
    ref, target = _places(path, output, filesystem)
    opening = resolve_policy(DecryptionSpec, decryption, ref, **policy)
    if opening is None:
        raise UsageError("nothing says what to open with", hint=Hint.KEYS)
    return convert(ref, target, opening, None, progress=progress)


def rekey(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    encryption: EncryptionSpec | PolicyChoice | None = None,
    bloom_filters: FilterRequest | None = None,
    rebuild_filters: bool = False,
    filesystem: FileSystem | None = None,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> ConversionReport:
    """Seal a file's modules again under other data keys, with new nonces and a new file identity.

    Algorithm, key length, AAD prefix and footer mode may change on the way. The old keys open nothing of the new file.
    Filters are asked for every value of their column chunk before they are sealed anew, whoever wrote them.

    Args:
        bloom_filters, rebuild_filters: as `seal_file`.
        policy: as `seal_file`, in the place of `decryption`, of `encryption`, or of both.

    Raises:
        KeyAccessError: a key is not at hand.
        PolicyError: as `unseal_file`.
        FormatError: as `seal_file`.
        IntegrityError: the file is altered. In every case it is as it was.
    """
    ref, target = _places(path, output, filesystem)
    if decryption is None:
        opening = resolve_policy(DecryptionSpec, None, ref, **policy)
        sealing = resolve_policy(EncryptionSpec, encryption, target or ref) or cast("TablePolicy | None", opening)
    else:
        opening = resolve_policy(DecryptionSpec, decryption, ref)
        sealing = resolve_policy(EncryptionSpec, encryption, target or ref, **policy)
    if opening is None or sealing is None:
        raise UsageError("a file is opened, and sealed again", hint="policy=, or decryption= and encryption=")
    return convert(ref, target, opening, sealing, bloom_filters, progress, rebuild_filters=rebuild_filters)


def _places(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None, filesystem: FileSystem | None
) -> tuple[FileRef, FileRef | None]:
    return resolve_path(path, filesystem), None if output is None else resolve_path(output, filesystem)


def convert(
    ref: FileRef,
    target: FileRef | None,
    decryption: DecryptionSpec | TablePolicy | None,
    encryption: EncryptionSpec | TablePolicy | None,
    bloom_filters: FilterRequest | None = None,
    progress: Progress | None = None,
    *,
    rebuild_filters: bool = False,
    accept: Callable[[Walk, Walk], None] | None = None,
) -> ConversionReport:
    """`seal_file` without `decryption`, `unseal_file` without `encryption`, `rekey` with both.

    Args:
        target: where the new file goes; None: in the old one's place.
        rebuild_filters: build filters anew that can't be taken over.
        accept: called with the old file and the new one, all of whose modules opened, just before that is put in its
            place; what it raises keeps the old one. Whoever gives it drops the key material that only the old file
            needed.
    """
    with open_source(ref) as source:
        conversion = Conversion(source, target or ref, decryption, encryption, rebuild_filters)
        return conversion.run(bloom_filters or {}, progress, accept)


class Conversion:
    """One file on its way from one protection to another."""

    def __init__(
        self,
        source: Source,
        target: FileRef,
        decryption: DecryptionSpec | TablePolicy | None,
        encryption: EncryptionSpec | TablePolicy | None,
        rebuild: bool,
    ) -> None:
        in_place = target == source.ref and target.filesystem is None
        self._before = source.identity if in_place else None
        self._target = replace(target, like=source.ref.path) if source.ref.filesystem is None else target
        self._rebuild = rebuild
        opening, sealing = decryption_for(decryption, source.ref), encryption_for(encryption, self._target)
        footer, at_hand = open_footer(source, opening)
        if opening is None and footer.crypto is not None:
            raise UsageError("the file is encrypted already", file=source.name, hint="rekey")
        need_verified(footer, source, "the new file")
        if footer.schema.files:
            raise UnsupportedError(
                "values of type FILE may point to bytes of the file that are no column's, which are not taken over",
                file=source.name,
                column=footer.schema.files[0],
            )
        self._walk, self._template = Walk(source, footer, at_hand), footer.struct
        self._had = {column: at_hand.wrapped_by(metadata) for column, metadata in key_metadata_in_use(self._walk)}
        # A specification that says nothing of signers does not make a file unsigned that has to be signed.
        by = opening if target == source.ref and sealing is not None and sealing.signers is None else sealing
        self._sign = tail_signer(by, self._target)
        self._keys = None if sealing is None else OutputKeys(sealing, footer.schema, self._target)
        self._report = ConversionReport(source.name, self._target.path, old_size=source.size)
        self._report.signed_by = None if self._sign is None else self._sign.name

    def run(
        self, wanted: FilterRequest, progress: Progress | None, accept: Callable[[Walk, Walk], None] | None
    ) -> ConversionReport:
        """Write the new file, and put it in its place."""

        def check(reopened: Source) -> None:
            made = self._check(reopened)
            if accept is not None:
                accept(self._walk, made)

        keys, out = self._keys, None
        try:
            if keys is not None:
                # A KMS that wraps wrongly would lose what is in the old file: nobody could open the new one.
                keys.confirm()
            with AtomicFile(self._target, replaces=self._before, like=self._walk.source, sign=self._sign) as out:
                self._assemble(out, wanted, progress)
                if keys is not None:
                    keys.store()
                    fault_point("stored")
                out.commit(check)
            self._report.keys = _wrapped(self._had, keys.wrapped_by() if keys is not None else {})
            if keys is not None and accept is None:
                keys.committed()
        except BaseException:
            if keys is not None and not (out is not None and out.placed):
                keys.discard()
            raise
        return self._report

    def _assemble(self, out: AtomicFile, wanted: FilterRequest, progress: Progress | None) -> None:
        walk, report = self._walk, self._report
        specs = {leaf.index: (leaf, spec) for leaf, spec in resolve_filters(walk.footer.schema, wanted)}
        assembler, stored = Assembler(out, self._keys), Scratch()
        total = len(walk.footer.row_groups)
        for group in range(total):
            self._add(assembler, group, specs, stored)
            report.row_groups += 1
            if progress is not None:
                progress(group + 1, total)
        assembler.finish(self._template)
        report.new_size = assembler.position

    def _add(
        self, assembler: Assembler, group: int, specs: Mapping[int, tuple[Leaf, FilterSpec]], stored: Scratch
    ) -> None:
        """One row group, with its filters. `stored` is memory for what is read."""
        walk, report = self._walk, self._report
        filters: dict[int, AnyFilter] = {}
        for chunk in walk.chunks(group):
            if chunk.leaf.index in specs:
                leaf, spec = specs[chunk.leaf.index]
                filters[leaf.index] = spec.build(chunk_hashes(walk, group, leaf))
                report.filters_built += 1
                report.filters_replaced += walk.meta(chunk).bloom_filter_offset is not None
            # A filter stays until the row group is written: opened into memory of its own, or copied out of what was
            # read.
            elif (found := walk.stored_filter(chunk, (stored, Scratch()))) is not None:
                carried = found if found.sealed else found._replace(bitset=bytes(found.bitset))
                if (kept := self._carried(chunk, carried)) is not None:
                    filters[chunk.leaf.index] = kept
        assembler.add_row_group(walk, group, filters)

    def _carried(self, chunk: Chunk, found: FilterBytes) -> AnyFilter | None:
        """What the new file has in place of a filter that the old one has: the same one, one built anew, or none.

        A filter that is sealed is believed. Whoever altered one while it stood in clear, or seals wrong ones, would
        have it deny rows that are there, and the keys that told who did that are gone.

        Raises:
            FormatError: it denies values of its own column chunk, and is not to be built anew.
        """
        place = {"row_group": chunk.row_group, "column": chunk.leaf.name}
        stays_clear = self._keys is None or self._keys.protection(chunk.leaf) is Protection.PLAINTEXT
        why = None
        if chunk.encrypted and not found.sealed:
            why = "in clear on an encrypted column"
        elif not stays_clear:
            truth = held_against_values(self._walk, chunk, found)
            if (wrong := truth.wrong) is not None and not self._rebuild:
                raise FormatError(
                    wrong,
                    file=self._walk.source.name,
                    module=ModuleType.BLOOM_FILTER_BITSET.label,
                    hint=Hint.REBUILD_FILTERS,
                    **place,  # type: ignore[arg-type]
                )
            why = wrong
            if truth.unasked is not None:
                # Nobody believes a filter of an unknown kind, nor one of a column whose values have no hash.
                if found.sealed or found.unknown is not None or chunk.leaf.type.physical is PhysicalType.BOOLEAN:
                    self._report.unchecked.append(place | {"why": truth.unasked})
                else:
                    why = f"in clear until now, and can't be held against the column's values: {truth.unasked}"
        if why is None:
            self._report.filters_kept += 1
            return found
        if self._rebuild:
            self._report.filters_built += 1
            self._report.filters_replaced += 1
            return FilterSpec().build(chunk_hashes(self._walk, chunk.row_group, chunk.leaf))
        self._report.filters_dropped += 1
        self._report.dropped.append(place | {"why": why})
        return None

    def _check(self, reopened: Source) -> Walk:
        """Before the new file takes its name, every module of it opens."""
        walk = Walk(reopened, *open_footer(reopened, self._keys.decryption() if self._keys else None))
        report = verify_walk(walk)
        if report.failures:
            raise report.failures[0]
        if report.inaccessible:
            raise BloomsealError(f"the new file's column {next(iter(report.inaccessible))} does not open")
        return walk


def _wrapped(
    before: Mapping[str | None, KeyDescription | None], now: Mapping[str | None, KeyDescription]
) -> list[dict[str, Any]]:
    told = []
    for column in dict.fromkeys((*before, *now)):
        had, has = before.get(column), now.get(column)
        if had is not None or has is not None:
            told.append(
                {
                    "column": column,
                    "master_key": had and had.master_key,
                    "version": had and had.wrapping_version,
                    "new_master_key": has and has.master_key,
                    "new_version": has and has.wrapping_version,
                }
            )
    return told
