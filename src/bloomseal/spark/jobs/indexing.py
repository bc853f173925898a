"""Sealed indexes built and brought up to date by Spark: each task hashes some files and writes runs of them, as one
process does with all; then the runs are merged, by tasks again.

No fingerprint travels: entries leave the task that hashes values as sealed files only. The secret of a new index waits
in a sealed draft of the manifest, which each executor opens with keys of its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

from ...core.errors import BloomsealError
from ...index.place import MANIFEST
from ...index.update import ColumnSurvey, FoundFacts, IndexUpdate, UpdateReport, hash_files, index_policy, new_manifest
from ...table.query.indexes import Indexes
from ..source.files.piece import Piece, parts_of
from .common import JobOptions, TableJob
from .compaction import compacted
from .index_place import Place, index_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...index.facts.members import Members
    from ...index.manifest import Manifest
    from ...index.sealed import SealedIndex

_MOST_TASKS: Final = 256
"""Each writes a run, and whoever merges them has all of them open."""


def update_index(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    *,
    rebuild: bool = False,
    false_places: float | None = None,
    pad: bool | None = None,
    max_keys: int | None = None,
    **options: Unpack[JobOptions],
) -> UpdateReport:
    """Build the sealed index of a column, or bring it up to date: as `bloomseal.SealedTable.index` does it, by a job.

    Files that are covered are not opened. One that can't be hashed is left out and reported; the rest goes on.

    Args:
        path: the table's folder.
        column: dotted path of a leaf.
        rebuild: hash all files again, under a new secret.
        false_places, pad, max_keys: of a new index, as for `SealedIndex.build`; None: as the policy says, and of a
            rebuilt one as they were.
        options: policy and table, whose keys open the files, and seal the index; files_per_task: see `TableJob`; more
            where that would make more than 256 tasks.

    Raises:
        UsageError: no such column; nothing seals it; and as `SealedIndex.build`.
        BloomsealError: the storage failed, or somebody rebuilt the index meanwhile. The index is as it was.
    """
    job = TableJob(spark, path, **options)
    index, place, pieces = index_of(job, column)
    folder = index.folder
    job.files_per_task = max(job.files_per_task, -(-len(index.files) // _MOST_TASKS))
    with job.described(f"index {column} of"):
        old = folder.readable() if rebuild else folder.load()
        if not rebuild and old is not None:
            report = _updated(job, index, old, [pieces[number] for number in index.uncovered()], place)
        else:
            survey = sum(job.collect(pieces, _IndexTask(place).survey), ColumnSurvey())
            wish = index_policy(false_places, pad, max_keys, place.table.indexes().get(column) or old)
            base = new_manifest(survey, column, wish)
            draft = f"run-{secrets.token_hex(8)}-0.parquet"  # what a killed job leaves is cleared away like such
            folder.make()
            folder.write_manifest(base, draft)
            try:
                report = _updated(job, index, base, pieces, replace(place, draft=draft))
            finally:
                folder.remove(draft)
        if report.runs > 1:
            report.runs = compacted(spark, index, place, purge=False).runs
    return report


class _IndexTask(NamedTuple):
    """What executors do."""

    place: Place

    def members(self, pieces: Iterable[Piece]) -> Members:
        found = Indexes(parts_of([*pieces], self.place.table, self.place.log), "auto", "auto").only
        assert found is not None  # noqa: S101 - one folder, by which `index_of` has them
        return found

    def survey(self, files: Iterable[Piece]) -> Iterator[ColumnSurvey]:
        """What the footers say."""
        yield ColumnSurvey.of(self.members(files), self.place.column)

    def hash(self, files: Iterable[Piece]) -> Iterator[FoundFacts | BloomsealError]:
        """Values as runs."""
        members = self.members(files)
        try:
            found = IndexUpdate(self.place.folder, self.place.manifest(), members, fresh=False)
            hash_files(found, range(len(members)))
        except BloomsealError as error:
            yield error  # raised, it would leave the runs of other tasks behind
        else:
            yield found.found()


def _updated(job: TableJob, index: SealedIndex, base: Manifest, pieces: Sequence[Piece], place: Place) -> UpdateReport:
    """The manifest with what tasks find of these files, and no more than before where one fails."""
    update = IndexUpdate(index.folder, base, index.files, fresh=place.draft != MANIFEST)
    told = job.collect(pieces, _IndexTask(place).hash)
    try:
        for found in told:
            if isinstance(found, BloomsealError):
                raise found
            update.take(found)
    except BaseException:
        index.folder.remove_runs(run for one in told if isinstance(one, FoundFacts) for run in one.runs)
        raise
    return update.commit()
