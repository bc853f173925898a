"""Runs of a sealed index merged by Spark: each task reads one range of fingerprints, and seals it as shards.

Nothing goes through a shuffle. What travels are the new numbers of places, and the names of what was written; each task
opens the manifest, and so the runs, with keys of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Unpack

from ...core.errors import BloomsealError
from ...index.compact import CompactReport, Merge, compact
from ...index.manifest import IndexRun, Shard
from ...index.runs.writer import place_bits_for
from .common import JobOptions, TableJob
from .index_place import Place, index_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...index.sealed import SealedIndex

_PART_ENTRIES: Final = 7_900_000
"""About so many go to one task: a shard of 8,000,000, and no second one by chance."""


def compact_index(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    *,
    everything: bool = False,
    **options: Unpack[JobOptions],
) -> CompactReport:
    """Merge runs of a sealed index, as `SealedIndex.compact` does it, by a job: a task for each 7,900,000 entries.

    Args:
        path: the table's folder.
        column: dotted path.
        everything: into one run, under fresh keys.
        options: policy and table, whose keys: see `TableJob`.

    Raises:
        UsageError: there is no index.
        BloomsealError: a run can't be read, the storage failed, or somebody changed the index meanwhile. The index is
            as it was.
    """
    job = TableJob(spark, path, **options)
    index, place, _ = index_of(job, column)
    with job.described(f"compact the index {column} of"):
        return compacted(spark, index, place, everything=everything)


def compacted(
    spark: SparkSession, index: SealedIndex, place: Place, *, everything: bool = False, purge: bool = True
) -> CompactReport:
    """The work of `compact_index`; without `purge` that of an update."""

    def merged(merge: Merge) -> IndexRun:
        parts = max(1, -(-merge.entries // _PART_ENTRIES))
        if parts == 1:
            return merge.written(index.folder, index.manifest())
        task = _CompactionTask(place, replace(merge, bases={}), parts)
        told = spark.sparkContext.parallelize(range(parts), parts).mapPartitions(task.written).collect()
        made = [shard for one in told if not isinstance(one, BloomsealError) for shard in one]
        if failed := next((one for one in told if isinstance(one, BloomsealError)), None):
            for shard in made:
                index.folder.remove(shard.file)
            raise failed
        shards = tuple(index.folder.with_keys(shard) for shard in made)
        return IndexRun(os.urandom(8).hex(), place_bits_for(merge.count), merge.count, shards)

    return compact(index.folder, index.manifest(), everything=everything, purge=purge, merger=merged)


@dataclass(frozen=True)
class _CompactionTask:
    """A task, on an executor."""

    place: Place
    merge: Merge
    parts: int

    def written(self, numbers: Iterable[int]) -> Iterator[tuple[Shard, ...] | BloomsealError]:
        """Per part its shards, without their keys; or why not."""
        for number in numbers:
            try:
                run = self.merge.written(self.place.folder, self.place.manifest(), part=(number, self.parts))
                yield tuple(one._replace(keys={}) for one in run.shards)
            except BloomsealError as error:
                yield error
