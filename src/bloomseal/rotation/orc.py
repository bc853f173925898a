"""ORC files in a rotation: new local keys, which is what `Rekey` does with them, and filters that lie in clear put
right (`Repair`).

Nothing else is possible: a local key can't be wrapped anew (docs/adr/0015-orc-rewrites-make-new-local-keys.md), and the
engine that writes ORC files encrypts them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

from ..core.errors import PolicyError, UsageError
from ..core.text import counted
from ..orc.layout import OrcLayout
from ..orc.rewrite.report import OrcRewriteReport
from ..orc.rewrite.verbs import rekey, repair_filters
from ..specs import decryption_for
from ..storage.places import open_source
from .files import DataFile
from .job import Job, Progress
from .keys import Target
from .outcome import FileOutcome, FilePlan, Status
from .settings import Decryption, format_for

_NONE: Final = "no filter of an encrypted column lies in clear"
_BEFORE: Final = "done just before the interruption; copies of the old file still tell true values: destroy them"


def plan_rekey(file: DataFile, decryption: Decryption, target: Target) -> FilePlan:
    """What `rekey_file` would do: the keys are asked for, old and new, and no stream is read.

    Raises:
        As `rekey_file`.
    """
    names, calls = _master_keys(file, decryption, target)
    rekey(file.ref, master_keys=names, decryption=decryption, dry_run=True)
    return FilePlan(file.name, "rekey", None, file.size, file.size, calls=calls)


def rekey_file(file: DataFile, decryption: Decryption, target: Target, progress: Progress | None) -> FileOutcome:
    """New local keys for all encrypted columns.

    Args:
        decryption: what opens the file, or a table's policy; must say ``allow_ctr``.
        target: the master key that a column is to be under.

    Raises:
        PolicyError: nothing in the file is encrypted, or as `bloomseal.orc.rekey`.
        UsageError: columns under one master key are to go under several.
        KeyAccessError, FormatError, IntegrityError, UnsupportedError; the file is as it was.
    """
    names, _ = _master_keys(file, decryption, target)
    return _outcome(file, Status.REKEYED, rekey(file.ref, master_keys=names, decryption=decryption, progress=progress))


def _master_keys(file: DataFile, decryption: Decryption, target: Target) -> tuple[dict[str, str], dict[Hashable, int]]:
    """Master key → the one to take its place, and the calls to the KMS."""
    path = file.ref.path
    with open_source(file.ref) as source:
        found = OrcLayout(source, decryption_for(decryption, file.ref))
        if found.encryption is None or not found.tail.sealed:
            hint = "the engine that writes ORC files encrypts them"
            raise PolicyError("a plaintext file where an encrypted one was expected", file=path, hint=hint)
        wanted: dict[str, set[str]] = {}
        for variant in found.encryption.variants:
            name, root = variant.key.name, variant.root
            leaves = [leaf.name for leaf in found.schema.leaves if root.id <= leaf.id <= root.last]
            wanted.setdefault(name, set()).update(target(name, leaf) or name for leaf in leaves)
        opened = {one.encrypted_key for one in found.encryption.variants}
        opened |= {key for stripe in found.stripes for key in stripe.encrypted_keys}
    for name, new in wanted.items():
        if len(new) > 1:
            what = f"columns under master key {name} are to go under {' and '.join(sorted(new))}"
            raise UsageError(what, file=path, hint="one master key in the place of each, or write the data anew")
    names = {name: next(iter(new)) for name, new in wanted.items() if new}
    # Each key is opened, and so is a new one in its place.
    return names, {("local keys", file.name): 2 * len(opened) + len(set(names.values()))}


@dataclass
class Repair(Job):
    """Seal the filters that writers of ORC files leave in clear on encrypted columns; see `bloomseal.orc`'s
    `repair_filters`. A file without such filters stays as it is; one of another format fails.

    Args:
        decryption: what opens the files, or a table's policy; must say ``allow_ctr``.
        drop_masked: leave out the filters over masked values too.
    """

    decryption: Decryption
    drop_masked: bool = False
    operation: ClassVar[str] = "repair"
    done: ClassVar[Status] = Status.REPAIRED

    def plan(self, file: DataFile) -> FilePlan:
        report = self._repaired(file, dry_run=True)
        if not report.rekeyed:
            return FilePlan(file.name, "none", _NONE, file.size)
        why = f"{counted(report.clear_filters, 'filter')} in clear, on {', '.join(report.rekeyed)}{_left_out(report)}"
        return FilePlan(file.name, self.operation, why, file.size, report.new_size)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:
        report = self._repaired(file, progress=progress)
        if report.rekeyed:
            return _outcome(file, self.done, report)
        # Done just before an interruption: which columns it was can't be told any more.
        status, why = (self.done, _BEFORE) if begun else (Status.NOTHING, _NONE)
        return FileOutcome(file.name, status, why, old_size=file.size, new_size=file.size)

    def _repaired(self, file: DataFile, *, dry_run: bool = False, progress: Progress | None = None) -> OrcRewriteReport:
        with open_source(file.ref) as source:
            format_for(source, self.operation)
        return repair_filters(
            file.ref, decryption=self.decryption, drop_masked=self.drop_masked, dry_run=dry_run, progress=progress
        )


def _left_out(report: OrcRewriteReport) -> str:
    """Filters in clear that none takes the place of, in words."""
    names = dict.fromkeys(one["column"] for one in report.left_out)
    return f"; none takes the place of those on {', '.join(names)}" if names else ""


def _outcome(file: DataFile, done: Status, report: OrcRewriteReport) -> FileOutcome:
    return FileOutcome(
        file.name,
        done,
        old_size=report.old_size,
        new_size=report.new_size,
        bytes_written=report.new_size,
        keys=report.keys,
        filters_dropped=len(report.left_out),
        filters_replaced=len(report.filters),
        dropped=[{"row_group": one["stripe"], "column": one["column"], "why": one["why"]} for one in report.left_out],
        old_copies=report.old_copies,
    )
