"""Add filters to an ORC file, repair those that lie in clear, give its columns new local keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ...core.decryption import DecryptionSpec
from ...core.errors import BloomsealError, UsageError
from ...core.storage.ref import FileRef
from ...sbbf import FilterSpec
from ...specs import decryption_for, resolve_policy
from ...storage.atomic import AtomicFile
from ...storage.places import open_source
from ..asking.trust import why_untrusted
from ..encryption import Variant
from ..layout import OrcLayout
from ..streams import StreamKind
from .build import Wish
from .report import OrcRewriteReport
from .rewrite import Progress, Rewriting

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ...policy import PolicyChoice, TablePolicy
    from ...specs import PolicyArguments

_Choose = Callable[[OrcLayout], list[Wish]]


def attach_filters(
    path: str | os.PathLike[str] | FileRef,
    bloom_filters: Mapping[str, FilterSpec | bool] | Collection[str],
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    drop_masked: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> OrcRewriteReport:
    """Add Bloom filters to a file, or replace those it has. Data streams are copied, never decoded and encoded again.

    A filter of an encrypted column lies under the column's local key, beside its row index. Its column gets a *new*
    local key, and all its streams are sealed anew: another stream under a key and IV that were used would show both.

    Args:
        bloom_filters: dotted paths of leaves → `FilterSpec` (only its ``fpp`` counts: sizes are for a whole row group,
            so that they tell nothing of its values) or True; or a list of such paths.
        decryption: must open the encrypted ones of these columns, and say ``allow_ctr``.
        policy: ``policy=`` and ``table=`` in its place, see `bloomseal.specs.PolicyArguments`.
        drop_masked: of filters in clear on these columns, leave out also those over masked values.
        dry_run: build the filters and report, but write nothing.
        progress: called with (stripes done, stripes in all).

    Raises:
        KeyAccessError, PolicyError: a column's key is not at hand, or ``allow_ctr`` was not said.
        UsageError: no such column, or one whose filters nobody believes.
        FormatError, IntegrityError, UnsupportedError; BloomsealError where the storage failed or somebody else changed
            the file meanwhile. In every case the file is as it was.
    """

    def wishes(file: OrcLayout) -> list[Wish]:
        return [_wish(file, name, fpp, drop_masked) for name, fpp in _asked(bloom_filters).items()]

    opening = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy)
    return _rewritten(path, filesystem, opening, wishes, dry_run=dry_run, progress=progress)


def repair_filters(
    path: str | os.PathLike[str] | FileRef,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    drop_masked: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> OrcRewriteReport:
    """Seal the filters that a writer left in clear on encrypted columns: built anew over the true values, as large as
    they were, under a new local key. A file without such filters stays as it is. Where none can be built that readers
    believe (over booleans, or moments before 1900), those in clear are left out: the report's ``left_out``.

    Arguments and errors are those of `attach_filters`. Copies of the old file still leak: the report's ``old_copies``.
    """

    def wishes(file: OrcLayout) -> list[Wish]:
        return [
            _wish(file, name, None, drop_masked, required=False)
            for name in file.encrypted_columns
            if _due(file, name, drop_masked)
        ]

    opening = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy)
    return _rewritten(path, filesystem, opening, wishes, dry_run=dry_run, progress=progress)


def rekey(
    path: str | os.PathLike[str] | FileRef,
    *,
    master_keys: Mapping[str, str] | None = None,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    **policy: Unpack[PolicyArguments],
) -> OrcRewriteReport:
    """New local keys for all encrypted columns, under the newest version of their master keys, or under other ones.

    ORC knows no other rotation: an encrypted local key is random bytes, and what they open to follows from the master
    key, so that a local key can't be wrapped anew under another version.

    Args:
        master_keys: name of a master key → name of the one to take its place; the others stay.
        decryption: must open all encrypted columns and the new master keys, and say ``allow_ctr``.

    Raises:
        BloomsealError: as `attach_filters`.
        UsageError: the file names no such master key.
    """

    def wishes(file: OrcLayout) -> list[Wish]:  # noqa: ARG001
        return []

    rotate = dict(master_keys or {})
    opening = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy)
    return _rewritten(path, filesystem, opening, wishes, dry_run=dry_run, progress=progress, rotate=rotate)


def _rewritten(
    path: str | os.PathLike[str] | FileRef,
    filesystem: FileSystem | None,
    decryption: DecryptionSpec | TablePolicy | None,
    choose: _Choose,
    *,
    dry_run: bool,
    progress: Progress | None,
    rotate: Mapping[str, str] | None = None,
) -> OrcRewriteReport:
    with open_source(path, filesystem) as source:
        spec = decryption_for(decryption, source.ref)
        file = OrcLayout(source, spec)
        report = OrcRewriteReport(file.path, dry_run, old_size=source.size, new_size=source.size)
        wishes = choose(file)
        fresh = {one.variant.index: one.variant for one in wishes if one.variant is not None}
        versions: dict[str, tuple[str, int]] = {}
        if rotate is not None:
            fresh, versions = _all_variants(file, rotate)
        if not wishes and not fresh:
            return report
        report.rekeyed = [variant.root.name for variant in fresh.values()]
        old = {(key.name, key.version) for key in file.encryption.keys} if file.encryption else set()
        report.versions = {name: version for name, version in versions.values() if (name, version) not in old}
        report.keys = [_exchanged(file, variant, versions) for variant in fresh.values()]
        rewriting = Rewriting(file, {wish.leaf.id: wish for wish in wishes}, fresh, versions, report)
        if dry_run:
            # New keys change no stream's length: whether they can be had is all that is to be found out.
            return rewriting.run(None, progress) if wishes else rewriting.ask()
        with AtomicFile(source.ref, replaces=source.identity, like=source) as out:
            rewriting.run(out, progress)
            out.commit(lambda reopened: rewriting.check(reopened, spec))
        return report


def _due(file: OrcLayout, name: str, drop_masked: bool) -> bool:
    """Whether a filter in clear tells the true values of an encrypted column, or has to go in any case. One entry per
    row group, beside a filter under the column's key, is over masked values.
    """
    column = file.schema.leaf(name).id
    variants = file.encryption.variants_of(column) if file.encryption else []
    for stripe in file.stripes:
        index = file.index(stripe.index)
        for stream in index.filter_streams(column, None):
            sealed = any(index.filter_stream(column, one.index) is not None for one in variants)
            if drop_masked or not sealed or index.masked_entries(stream) is not None:
                return True
    return False


def _all_variants(
    file: OrcLayout, master_keys: Mapping[str, str]
) -> tuple[dict[int, Variant], dict[str, tuple[str, int]]]:
    """All of them, and what takes the place of their master keys."""
    known = {variant.key.name for variant in file.encryption.variants} if file.encryption else set()
    if unknown := sorted(set(master_keys) - known):
        raise UsageError(f"no column is under master key {unknown[0]}", file=file.path)
    fresh: dict[int, Variant] = {}
    versions: dict[str, tuple[str, int]] = {}
    for variant in file.encryption.variants if file.encryption else ():
        try:
            file.keys.need_ctr(variant.root)
            file.keys.footer_key(variant)
            file.keys.statistics(variant)  # a wrong key would seal nonsense
            name = master_keys.get(variant.key.name, variant.key.name)
            versions[variant.key.name] = name, file.keys.newest_version(name)
        except BloomsealError as error:
            raise error.at(file=file.path, column=variant.root.name) from None
        fresh[variant.index] = variant
    return fresh, versions


def _exchanged(file: OrcLayout, variant: Variant, versions: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    before = variant.key.name, variant.key.version
    after = versions.get(variant.key.name, before)
    return {
        "column": variant.root.name,
        "master_key": before[0],
        "version": file.keys.version_of(before[1]),
        "new_master_key": after[0],
        "new_version": file.keys.version_of(after[1]),
    }


def _asked(given: Mapping[str, FilterSpec | bool] | Collection[str]) -> dict[str, float | None]:
    if isinstance(given, str):
        raise UsageError("bloom_filters= takes a list of columns, or a dict")
    if not isinstance(given, Mapping):
        return dict.fromkeys(given)
    found: dict[str, float | None] = {}
    for name, spec in given.items():
        if not isinstance(spec, FilterSpec | bool):
            raise UsageError("a filter is asked for by FilterSpec or True", column=name)
        if spec is not False:
            found[name] = spec.fpp if isinstance(spec, FilterSpec) else None
    return found


def _wish(file: OrcLayout, name: str, fpp: float | None, drop_masked: bool, *, required: bool = True) -> Wish:
    leaf, variant = file.opened_leaf(name)
    if variant is not None:
        try:
            file.keys.need_ctr(leaf)
        except BloomsealError as error:
            raise error.at(file=file.path) from None
    for stripe in file.stripes if required else ():
        zone = file.index(stripe.index).writer_timezone
        why = why_untrusted(leaf, StreamKind.BLOOM_FILTER_UTF8, file.tail, zone)
        if why is not None:
            raise UsageError(f"nobody would believe a filter here: {why}", file=file.path, column=name)
    return Wish(leaf, variant, fpp, drop_masked, required)
