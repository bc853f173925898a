"""Sealed indexes built and brought up to date by Spark: values are hashed on the executors, and sorted between them.

What goes through the shuffle are keyed fingerprints, never XXH64. Their secret travels in no plan: it waits in a sealed
draft of the manifest, which each executor opens with keys of its own.
"""

from __future__ import annotations

import os
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.accumulators import AccumulatorParam

from ...core.errors import BloomsealError, UsageError
from ...core.storage.ref import FileRef
from ...index.facts.hashed import SeenFile, hashed_places, seen_file, still_same
from ...index.facts.members import Members
from ...index.facts.sameness import Clock
from ...index.manifest import FACTS, IndexRun, Manifest, Shard
from ...index.numbers import as_numpy
from ...index.runs.writer import RunWriter, filled_up, most_places, place_bits_for
from ...index.update import IndexUpdate, UpdateReport, index_policy, manifest_for, settled_state
from ...policy import IndexPolicy, Policy, TablePolicy
from ..listing import open_filesystem
from ..opening import open_table_file
from .common import described, packs
from .compaction import compacted
from .index_place import Place, index_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

    from ...index.sealed import SealedIndex

__all__ = ["seals_spill", "update_index"]

I64 = npt.NDArray[np.int64]

_SHARD_ENTRIES: Final = 4_000_000
"""About so many go to one task, which sorts them in memory."""
_SPILL: Final = "spark.io.encryption.enabled"
_WRITTEN: Final = (
    "shard int, file string, seal binary, size bigint, entries bigint, first bigint, last bigint, done binary"
)


def update_index(
    spark: SparkSession,
    path: str | os.PathLike[str],
    column: str,
    *,
    policy: Policy | TablePolicy | str | os.PathLike[str] | None = None,
    table: str | None = None,
    rebuild: bool = False,
    false_places: float | None = None,
    pad: bool | None = None,
    max_keys: int | None = None,
    files_per_task: int = 20,
) -> UpdateReport:
    """Build the sealed index of a column, or bring it up to date: as `bloomseal.SealedTable.index` does it, by a job.

    Files that are covered are not opened. One that can't be hashed is left out and reported; the rest goes on.

    Args:
        path: the table's folder.
        column: dotted path of a leaf.
        policy, table: whose keys open the files, and seal the index; default: the policy that `enable` was given.
        rebuild: hash all files again, under a new secret.
        false_places, pad, max_keys: of a new index, as for `SealedIndex.build`; None: as the policy says, and of a
            rebuilt one as they were.
        files_per_task: files that one task looks at.

    Raises:
        UsageError: the session does not seal what it spills (``spark.io.encryption.enabled``); no such column; nothing
            seals it; and as `SealedIndex.build`.
        BloomsealError: the storage failed, or somebody rebuilt the index meanwhile. The index is as it was.
    """
    if not seals_spill(spark):
        raise UsageError(
            "fingerprints would lie on disks in clear", column=column, hint=f"{_SPILL}=true, or bloomseal index update"
        )
    index, place = index_of(spark, path, column, policy, table)
    wish = place.table.indexes().get(column)
    with described(spark, f"index {column} of {os.fspath(path)}"):
        return _Job(spark, index, _Tasks(**vars(place)), files_per_task).run(
            lambda old: index_policy(false_places, pad, max_keys, wish or old), rebuild=rebuild
        )


def seals_spill(spark: SparkSession) -> bool:
    """Whether the session seals what it writes to local disks."""
    return str(spark.sparkContext.getConf().get(_SPILL, "false")).lower() == "true"


class _FileToIndex(NamedTuple):
    """A file to look at, or to hash; `number` is that among the table's; `told` as `Members.logged` has it."""

    number: int
    name: str
    relative: str
    seen: SeenFile | None = None
    base: int = 0
    told: str | None = None


class _FileFinding(NamedTuple):
    """What a task found of a file: `seen` and the column's `path` (None: it lacks it), or `why` not."""

    number: int
    seen: SeenFile | None
    rows: int = 0
    path: tuple[str, ...] | None = None
    why: str = ""


class _Tasks(Place):
    """What executors do."""

    def members(self, files: Sequence[_FileToIndex]) -> Members:
        filesystem = open_filesystem(self.base)
        return Members(
            FileRef(self.root, filesystem),
            [FileRef(one.name, filesystem, self.root) for one in files],
            [one.relative for one in files],
            lambda number: open_table_file(files[number].name, self.table, self.base, self.root),
            logged=[one.told or "" for one in files] if any(one.told is not None for one in files) else None,
        )

    def look(self, part: Iterable[_FileToIndex]) -> Iterator[_FileFinding]:
        """Footers: states, schemas and row groups."""
        files, clock = list(part), Clock(self.folder.now)
        members = self.members(files)
        for place, one in enumerate(files):
            try:
                state = settled_state(members, place, clock)
                with members.open(place) as file:
                    seen = seen_file(file, self.column, state)
                    still_same(file, seen, members.state(place))
                    schema = file.leaves
                    path = schema.leaf(self.column).path if schema.has(self.column) else None
                    yield _FileFinding(one.number, seen, file.num_rows, path)
            except BloomsealError as error:
                yield _FileFinding(one.number, None, why=error.what)

    def hashed(self, batches: Iterator[pa.RecordBatch], shards: int, failed: Failed) -> Iterator[pa.RecordBatch]:
        """Per value the shard and the entry; and, when a file is done, its number for each shard, below zero.

        A task that is done twice may fail the second time: only a file of which every shard has the number is covered.
        """
        import pyarrow as pa

        like = self.manifest()
        for batch in batches:
            for bits, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                one: _FileToIndex = pickle.loads(data)  # noqa: S301 - our own driver's
                members = self.members([one])
                assert one.seen is not None  # noqa: S101
                try:
                    with members.open(0) as file:
                        still_same(file, one.seen, members.state(0))
                        for place, found in hashed_places(file, like.column, like.fingerprints, one.seen.stride):
                            of = (found * np.uint64(shards)) >> np.uint64(like.bits)
                            entries = (found.astype(np.int64) << bits) | (one.base + place)
                            yield pa.record_batch({"shard": of.astype(np.int32), "entry": entries})
                        still_same(file, one.seen, members.state(0))
                except BloomsealError as error:
                    failed.add({one.number: error.what})
                else:
                    every = np.arange(shards, dtype=np.int32)
                    marks = np.full(shards, -1 - one.number, dtype=np.int64)
                    yield pa.record_batch({"shard": every, "entry": marks})

    def written(self, shard: int, rows: pa.Table, shards: int, places: int) -> pa.Table:
        """One shard's entries, sorted and sealed."""
        import pyarrow as pa

        entries = as_numpy(rows.column("entry"))
        done = -1 - entries[entries < 0]
        entries = np.sort(entries[entries >= 0])
        like, bits = self.manifest(), place_bits_for(places)
        if like.pad:
            low, high = (-(-(edge << like.bits) // shards) for edge in (shard, shard + 1))
            entries = filled_up(entries, low, high, bits, places)
        with RunWriter(self.folder, like, places, bits) as writer:
            writer.add(entries)
            made: Sequence[Shard | None] = writer.finish().shards or [None]
        listed = [
            (shard, *((None,) * 6 if one is None else one[:6]), b"" if number else done.tobytes())  # not its keys
            for number, one in enumerate(made)
        ]
        kinds = [pa.int32(), pa.string(), pa.binary(), *(4 * [pa.int64()]), pa.binary()]
        arrays = [pa.array(column, kind) for column, kind in zip(zip(*listed, strict=True), kinds, strict=True)]
        return pa.table(arrays, names=[one.split()[0] for one in _WRITTEN.split(", ")])


class _Reasons(AccumulatorParam[dict[int, str]]):
    def zero(self, value: dict[int, str]) -> dict[int, str]:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: dict[int, str], value2: dict[int, str]) -> dict[int, str]:  # noqa: N802
        return value1 | value2


if TYPE_CHECKING:
    Failed = Accumulator[dict[int, str]]


class _Job:
    """On the driver."""

    def __init__(self, spark: SparkSession, index: SealedIndex, place: _Tasks, files_per_task: int) -> None:
        self._spark, self._index, self._place, self._files_per_task = spark, index, place, files_per_task

    def run(self, policy: Callable[[Manifest | None], IndexPolicy], *, rebuild: bool) -> UpdateReport:
        """Do it.

        Args:
            policy: what a new index is made with, given the one that it takes the place of.
        """
        index = self._index
        old = index.folder.readable() if rebuild else index.folder.load()
        fresh = rebuild or old is None
        numbers = range(len(index.files)) if fresh else index.uncovered()
        index.folder.make()
        files = [self._file(one) for one in numbers]
        packed = packs(self._spark, files, self._files_per_task)
        seen = packed.mapPartitions(self._place.look).collect() if files else []
        base = self._new(seen, policy(old)) if fresh or old is None else old
        found = IndexUpdate(index.folder, base, index.files, fresh=fresh)
        rest: list[_FileFinding] = []
        for one in seen:
            if one.seen is None:
                found.leave(one.number, one.why)
            elif (fact := found.known(one.number, one.seen)) is not None:
                found.refresh(one.number, one.seen, fact)
            else:
                rest.append(one._replace(seen=one.seen.within(most_places(base.bits))))
        try:
            self._hash(rest, found)
        except BaseException:
            index.folder.remove_runs(found.runs)
            raise
        report = found.commit()
        if report.runs > 1:
            report.runs = compacted(self._spark, index, self._place).runs
        return report

    def _file(self, number: int) -> _FileToIndex:
        files = self._index.files
        told = None if files.logged is None else files.logged[number]
        return _FileToIndex(number, files.refs[number].path, files.relative[number], told=told)

    def _new(self, seen: Sequence[_FileFinding], policy: IndexPolicy) -> Manifest:
        column = self._index.column
        path = next((one.path for one in seen if one.path is not None), None)
        if path is None and (why := next((one.why for one in seen if one.why), None)) is not None:
            raise UsageError(why, column=column)
        return manifest_for(path, sum(one.rows for one in seen), column, policy)

    def _hash(self, rest: Sequence[_FileFinding], found: IndexUpdate) -> None:
        """Runs of the files that are new."""
        folder, base = self._index.folder, found.base
        if not rest:
            return
        draft = f"run-{secrets.token_hex(8)}-0.parquet"  # what a killed job leaves is cleared away like such
        folder.write_manifest(replace(base, runs=(), facts=FACTS.empty_table(), docs=()), draft)
        try:
            for part in _runs(rest, most_places(base.bits)):
                self._hash_run(part, found, replace(self._place, draft=draft))
        finally:
            folder.remove(draft)

    def _hash_run(self, part: Sequence[_FileFinding], found: IndexUpdate, place: _Tasks) -> None:
        places, files = 0, []
        for one in part:
            assert one.seen is not None  # noqa: S101
            # Its schema stays here.
            seen = replace(one.seen, doc=b"")
            files.append(self._file(one.number)._replace(seen=seen, base=places))
            places += one.seen.groups * one.seen.stride
        shards = max(1, -(-sum(one.rows for one in part) // _SHARD_ENTRIES))
        failed: Failed = self._spark.sparkContext.accumulator({}, _Reasons())
        bits = place_bits_for(places)
        listed = packs(self._spark, [(bits, pickle.dumps(one)) for one in files], self._files_per_task)
        rows = self._spark.createDataFrame(listed, "bits int, file binary")
        entries = rows.mapInArrow(lambda batches: place.hashed(batches, shards, failed), "shard int, entry bigint")

        def written(key: tuple[Any, ...], made: pa.Table) -> pa.Table:
            return place.written(key[0].as_py(), made, shards, places)

        told = entries.groupBy("shard").applyInArrow(written, _WRITTEN).collect()
        # Within a shard they come in the order in which they were written.
        ordered = sorted(told, key=lambda row: row["shard"])
        run = IndexRun(secrets.token_hex(8), bits, places, self._shards(ordered))
        found.runs.append(run)
        done = [set(np.frombuffer(row["done"], dtype=np.int64).tolist()) for row in ordered if row["done"]]
        sure = set.intersection(*done) if len(done) == shards else set()
        for one, file in zip(part, files, strict=True):
            if one.number in sure and one.seen is not None:
                found.add(one.number, one.seen, run, file.base)
            else:
                found.leave(one.number, failed.value.get(one.number, "a task could not hash it"))

    def _shards(self, rows: Sequence[Any]) -> tuple[Shard, ...]:
        names = "file", "seal", "size", "entries", "first", "last"
        made = (Shard(*(row[name] for name in names)) for row in rows if row["file"] is not None)
        return tuple(self._index.folder.with_keys(one._replace(unique=bytes(one.unique))) for one in made)


def _runs(seen: Sequence[_FileFinding], most: int) -> Iterator[list[_FileFinding]]:
    """As many files as one run can be about."""
    part: list[_FileFinding] = []
    places = 0
    for one in seen:
        groups = 0 if one.seen is None else one.seen.groups * one.seen.stride
        if part and places + groups > most:
            yield part
            part, places = [], 0
        part.append(one)
        places += groups
    if part:
        yield part
