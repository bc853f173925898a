"""`SealedIndex`: build, update, compact, check, show and drop the index of one column of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import BloomsealError, UsageError
from ..notebook import ShownInNotebooks
from ..policy import IndexPolicy
from .check import Checking, CheckReport
from .compact import CompactReport, compact
from .facts.members import Members
from .folder import IndexFolder
from .lookup import Coverage, IndexReader
from .manifest import Manifest
from .update import Carried, ColumnSurvey, Progress, UpdateReport, index_policy, new_manifest, update

if TYPE_CHECKING:
    from .folder import Decryption, Encryption


@dataclass
class IndexFacts(ShownInNotebooks):
    """What an index is.

    Attributes:
        column: dotted path.
        folder: where its files are.
        files, covered: of the table, and those that the index covers as they are now.
        row_groups: of the covered files.
        runs: one entry each: id, entries, shards, bytes.
        entries, bytes: of all runs.
        fingerprint_bits: length of a fingerprint.
        false_places: as asked for, per value and in the whole table.
        expected_false_places: as the index is now. Where it is above `false_places`, rebuild.
        pad: runs are filled up to a power of two.
        max_keys: the most values for which one query asks the index.
    """

    column: str
    folder: str
    files: int
    covered: int
    row_groups: int
    runs: list[dict[str, Any]]
    entries: int
    bytes: int
    fingerprint_bits: int
    false_places: float
    expected_false_places: float
    pad: bool
    max_keys: int | None = None


class SealedIndex:
    """The index of one column; make one with `SealedTable.index`. docs/sealed-index.md says what it is good for.

    Args:
        files: of the table.
        column: dotted path of a leaf.
        decryption: of the table.
        encryption: what seals the index; None: `decryption`, where that is a table's policy.

    Attributes:
        folder: where the index is, or would be.
    """

    def __init__(self, files: Members, column: str, decryption: Decryption, encryption: Encryption = None) -> None:
        if not column or not isinstance(column, str):
            raise UsageError("an index is of one column", hint='index("ssn")')
        self.column = column
        self.files = files
        self.folder = IndexFolder(files.root.path, column, decryption, encryption, filesystem=files.root.filesystem)

    @property
    def exists(self) -> bool:
        """Whether there is one. Nothing is opened."""
        return self.folder.state() is not None

    def build(
        self,
        *,
        false_places: float = 0.001,
        pad: bool = False,
        max_keys: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> UpdateReport:
        """Make the index. Values are hashed straight from the pages; filters are not needed.

        Args:
            false_places: row groups in which a value that is nowhere is expected, per value asked for and in the whole
                table.
            pad: fill runs up to a power of two, so that sizes tell less.
            max_keys: a query for more values than so many asks the files' own filters; None: every query asks the
                index.
            dry_run: tell which files would be hashed; write nothing.
            progress: called with (files done, files in all).

        Raises:
            UsageError: there is one already; no such column; nothing seals the column; a BOOLEAN column.
            BloomsealError: the storage failed. A file that can't be hashed is in the report, and the rest goes on.
        """
        if self.exists:
            raise UsageError("the column has an index", column=self.column, hint="index update, or index rebuild")
        return self._build(IndexPolicy(false_places, pad, max_keys), dry_run, progress)

    def rebuild(
        self,
        *,
        false_places: float | None = None,
        pad: bool | None = None,
        max_keys: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> UpdateReport:
        """Make the index anew, under a new secret and fresh keys, whatever is there. Look-ups use the old one until
        then.

        Args:
            false_places, pad, max_keys: as for `build`; None: as they were, where the old manifest tells.

        Raises:
            BloomsealError: as `build`.
        """
        return self._build(index_policy(false_places, pad, max_keys, self.folder.readable()), dry_run, progress)

    def update(
        self, *, dry_run: bool = False, progress: Progress | None = None, carried: Carried | None = None
    ) -> UpdateReport:
        """Cover the files that are new or were replaced. More than 8 runs are compacted.

        Args:
            carried: what a rekey made of files, whose values need not be hashed again; a rotation says so by itself.

        Raises:
            UsageError: there is none. BloomsealError: as `build`.
        """
        manifest = self.manifest()
        wanted = self.uncovered()
        if dry_run:
            return self._planned(wanted, len(manifest.runs))
        report = update(self.folder, manifest, self.files, wanted, fresh=False, progress=progress, carried=carried)
        if report.runs > 1:
            report.runs = compact(self.folder, self.manifest(), purge=False).runs
        return report

    def compact(self, *, everything: bool = False, progress: Progress | None = None) -> CompactReport:
        """Merge runs of like size, and write those anew that hold fingerprints of files that are gone.

        Args:
            everything: into one run, even if there is one only: fresh keys for all files of the index, which is how it
                is moved to another master key.

        Raises:
            UsageError: there is none. BloomsealError: a run can't be read, or the storage failed.
        """
        return compact(self.folder, self.manifest(), everything=everything, progress=progress)

    def check(
        self, *, sample: float | None = None, seed: int | None = None, progress: Progress | None = None
    ) -> CheckReport:
        """Hold the index against every value of the files that it covers.

        Args:
            sample: the share of files to look at, in 0 to 1, and one at least; None: all.
            seed: which ones; None: others each time.

        Raises:
            UsageError: there is none, or no such share. BloomsealError: the index can't be read.
        """
        if sample is not None and not 0 < sample <= 1:
            raise UsageError("sample= is the share of files to look at, in 0 to 1", hint="0.1")
        manifest = self.manifest()
        uncovered = set(self.uncovered())
        report = CheckReport(self.column, uncovered=len(uncovered))
        wanted = [number for number in range(len(self.files)) if number not in uncovered]
        if sample is not None:
            some = Random(seed).sample(wanted, math.ceil(sample * len(wanted)))  # noqa: S311
            wanted = sorted(some)
        work = Checking(self.folder, manifest, report)
        try:
            for done, number in enumerate(wanted):
                if progress is not None:
                    progress(done, len(wanted))
                try:
                    work.take(self.files, number)
                except BloomsealError as error:
                    report.left[self.files.relative[number]] = error.what
            work.compare()
        finally:
            work.close()
        return report

    def show(self) -> IndexFacts:
        """What the index is, and how much of the table it covers.

        Raises:
            UsageError: there is none. BloomsealError: it can't be read.
        """
        manifest = self.manifest()
        coverage = self._coverage()
        runs: list[dict[str, Any]] = []
        for run in manifest.runs:
            size = sum(shard.size for shard in run.shards)
            runs.append({"id": run.id, "entries": run.entries, "shards": len(run.shards), "bytes": size})
        return IndexFacts(
            manifest.column,
            self.folder.path,
            len(self.files),
            int(coverage.covered.sum()),
            int(coverage.groups.sum()),
            runs,
            manifest.entries,
            sum(run["bytes"] for run in runs),
            manifest.bits,
            manifest.false_places,
            manifest.entries / (1 << manifest.bits),
            manifest.pad,
            manifest.max_keys,
        )

    def drop(self) -> list[str]:
        """Remove the index. Needs no key.

        Returns:
            The names of the files that are gone.

        Raises:
            UsageError: there is none, or a link lies in its place.
        """
        gone = self.folder.drop()
        if not gone:
            raise self._none()
        return gone

    def __repr__(self) -> str:
        return f"<SealedIndex of {self.column}>"

    def _build(self, policy: IndexPolicy, dry_run: bool, progress: Progress | None) -> UpdateReport:
        manifest = new_manifest(ColumnSurvey.of(self.files, self.column), self.column, policy)
        every = range(len(self.files))
        if dry_run:
            return self._planned(every, 0)
        self.folder.make()
        return update(self.folder, manifest, self.files, every, fresh=True, progress=progress)

    def _planned(self, wanted: Sequence[int], runs: int) -> UpdateReport:
        self.folder.need_usable(self.column)
        report = UpdateReport(self.column, len(self.files), len(self.files) - len(wanted), runs=runs)
        report.left = {self.files.relative[number]: "not covered yet" for number in wanted}
        return report

    def manifest(self) -> Manifest:
        """What the index is, with its secret.

        Raises:
            UsageError: there is none. BloomsealError: it can't be read.
        """
        if (found := self.folder.load()) is None:
            raise self._none()
        return found

    def uncovered(self) -> list[int]:
        """The numbers of the files that no fact is about.

        Raises:
            BloomsealError: as `manifest`.
        """
        return [int(number) for number in np.flatnonzero(~self._coverage().covered)]

    def _coverage(self) -> Coverage:
        if (found := IndexReader(self.folder).coverage(self.files)) is None:
            raise self._none()
        return found

    def _none(self) -> UsageError:
        return UsageError("the column has no index", column=self.column, file=self.folder.root, hint="index build")
