"""The reading half: what to read is planned on the driver without opening more than one file, and read by the
executors.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...core.errors import BloomsealError, BloomsealWarning, UsageError
from ...core.exclusion import Exclusion, by_folder
from ...read.predicate.condition import Compare
from ..workers import keep_loaded
from .files.live import Rules
from .files.tree import DataFile, Tree, typed
from .merging import merged
from .options import Defaults, SourceOptions
from .pushdown import admitted, conditions, to_text
from .scan import Piece, Scan
from .stats import SourceStats
from .types import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from .narrowing import Files, Watched

__all__ = ["FilterCatcher", "TableReader", "Task", "infer_schema", "plan", "warn_of_all_columns"]

_THREADS: Final = 8
_FILE_COST: Final = 1024 * 1024
"""What opening a file costs, in bytes that could be read instead."""
_LEAST_TASK: Final = 4 * 1024 * 1024
_SELECTIVE: Final = 16
"""How much more of a table a task is given where a column must equal something: filters will rule out most of it."""


class Task(InputPartition):
    """Files, and parts of files, for one task; and what the planning ruled out, which the first task reports.

    It also says which columns the folders hold, and what a table's log asks of its files: Spark sends the reader on its
    way before it asks for the partitions.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        folders: tuple[str, ...],
        planned: SourceStats,
        rules: Rules | None,
        unopened: Unopened | None = None,
    ) -> None:
        super().__init__(None)
        self.unopened = unopened
        # As bare tuples, which pickle eight times as fast as named ones: a plan holds every file of a table.
        self._pieces = tuple(map(tuple, pieces))
        self.folders = folders
        self.planned = planned
        self.rules = rules

    @property
    def pieces(self) -> Iterator[Piece]:
        """What to read, in turn."""
        return map(Piece._make, self._pieces)

    def __repr__(self) -> str:
        return f"<Task of {len(self._pieces)} files>"


class Unopened(NamedTuple):
    """Files that sealed indexes rule out, which the first task looks after."""

    pieces: tuple[Piece, ...]
    watched: Watched


class TableReader(DataSourceReader):
    """Reads a table's files.

    It takes no pushed filters. Spark keeps what a reader planned for one query's filters, and hands it to every other
    query over the same frame, also to one that asks for other rows (Spark 4.3, `PythonScanBuilder.pushFilters`): to
    prune by them would lose rows. What prunes is fixed when the frame is made, by `bloomseal.spark.read`.

    Args:
        settings: what to read and how.
        schema: of the frame: the columns that are opened, and the partition columns among them.
        defaults: of the session.
    """

    def __init__(self, settings: SourceOptions, schema: st.StructType, defaults: Defaults | None = None) -> None:
        self._defaults = defaults or Defaults()
        self._scan = Scan(settings, schema, settings.conditions)
        # Of a schema that Spark can't take, the driver says so, before there are tasks.
        _ = self._scan.target

    def partitions(self) -> Sequence[InputPartition]:
        settings, schema = self._scan.settings, self._scan.schema
        return self.tasks(settings.find_files(schema))

    def tasks(self, tree: Tree) -> Sequence[InputPartition]:
        """The tasks that read these files."""
        settings = self._scan.settings
        pieces, pruned = plan(tree, self._scan.conditions, settings.zone or self._defaults.zone)
        planned = SourceStats(files_pruned_by_partition=len(pruned), bytes_pruned=sum(file.size for file, _ in pruned))
        pieces, unopened = self._by_indexes(pieces, tree, planned)
        parallelism = self._defaults.parallelism or os.cpu_count() or 1
        most = settings.max_partition_bytes
        if any(one.by_equality and one.column.split(".")[0] not in tree.columns.names for one in self._scan.conditions):
            # Little of such a file is read, so that starting tasks would be most of the work: two for each core will
            # do.
            total = sum(piece.weight + _FILE_COST for piece in pieces)
            most = max(most, min(_SELECTIVE * most, total // (2 * parallelism)))
        packs = list(_packed(pieces, most, parallelism)) or [[]]
        folders = tuple(tree.columns.names)
        return [
            Task(pack, folders, SourceStats(), tree.rules)
            if number
            else Task(pack, folders, planned, tree.rules, unopened)
            for number, pack in enumerate(packs)
        ]

    def _by_indexes(self, pieces: list[Piece], tree: Tree, planned: SourceStats) -> tuple[list[Piece], Unopened | None]:
        """What sealed indexes leave of these files, and what not."""
        settings = self._scan.settings
        asked = {one.column for one in self._scan.conditions if one.by_equality}
        if settings.use_index == "never" or not self._scan.conditions or settings.for_indexes is None:
            return pieces, None
        # Reads that ask none need not load this.
        from ...table.query.indexes import Indexes, UseIndex
        from ...table.query.sift import sifted
        from .narrowing import Watched, spelled

        scan = replace(self._scan, partitioned=tuple(tree.columns.names), rules=tree.rules)
        files = self._files(pieces, tree.rules)
        before = settings.kms_counters()
        indexes = Indexes(files, settings.use_index, settings.trust)
        if indexes.use is UseIndex.AUTO and files.without_index:
            return pieces, None
        found = sifted(range(len(pieces)), indexes, spelled(indexes, asked), lambda _, stand_in: scan.asked(stand_in))
        planned.add(found.stats)
        planned.add_kms(before, settings.kms_counters())
        gone = tuple(pieces[number] for _, numbers in found.excluded for number in numbers)
        planned.bytes_pruned += sum(piece.size for piece in gone)
        watched = Watched.of(files, found)
        left = [pieces[number]._replace(kept=kept) for number, kept in found.left.items()]
        return left, Unopened(gone, watched) if watched.names else None

    def _files(self, pieces: Sequence[Piece], rules: Rules | None = None) -> Files:
        from .narrowing import Files

        settings = self._scan.settings
        return Files(pieces, settings.for_indexes, rules, settings.folder, settings.open)

    def _to_read(self, task: Task) -> Iterator[Piece]:
        """What a task reads, in turn."""
        yield from task.pieces
        if task.unopened is not None:
            pieces, watched = task.unopened
            changed = {one.name for one in watched.changed(self._files(pieces), self._scan.settings.trust)}
            yield from (piece for piece in pieces if piece.name in changed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)  # noqa: S101
        settings = self._scan.settings
        self._scan.partitioned, self._scan.rules = partition.folders, partition.rules
        stats, before = replace(partition.planned), settings.kms_counters()
        try:
            for piece in self._to_read(partition):
                yield from stats.timed(self._scan.read(piece, stats))
        finally:
            stats.add_kms(before, settings.kms_counters())
            self._count(stats)
            keep_loaded()

    def _count(self, stats: SourceStats) -> None:
        if self._defaults.metrics is not None:
            self._defaults.metrics.add({self._scan.settings.read_id: stats})

    def __repr__(self) -> str:
        return f"<TableReader of {self._scan.settings!r}>"


class FilterCatcher(DataSourceReader):
    """Reads nothing: its one partition says which of Spark's filters were understood, for `bloomseal.spark.read`."""

    def __init__(self) -> None:
        self._caught: tuple[Compare, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._caught = tuple(conditions(filters))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(to_text(self._caught))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return iter(())


def infer_schema(settings: SourceOptions, tree: Tree | None = None) -> st.StructType:
    """The schema of a table: what its log says; else that of its first file, or of all (``merge_schema``), and its
    partition columns behind it.

    Args:
        tree: the table's files, where they are listed already.

    Raises:
        UsageError: there is no such path, or no file in it.
        UnsupportedError: files with types that have no common one.
        BloomsealError: a file can't be opened.
    """
    tree = tree or settings.find_files()
    if tree.schema is not None:
        return tree.schema
    if not tree.files:
        raise UsageError("there are no data files, so there is no schema", file=settings.paths[0], hint=".schema(...)")
    stored = merged(_schemas(settings, tree.files if settings.merge_schema else tree.files[:1]))
    folders = {field.name.lower(): field for field in tree.columns}
    # As in Spark: a partition column that files hold too keeps its place there, but its values are the folders'.
    fields = [folders.pop(field.name.lower(), field) for field in stored.fields]
    return st.StructType([*fields, *folders.values()])


def _schemas(settings: SourceOptions, files: Sequence[DataFile]) -> list[st.StructType]:
    """Each schema that these files have, once, in the order of the files."""

    def look(one: DataFile) -> st.StructType:
        try:
            with settings.open(one) as file:
                file.need_verified("read")
                return spark_schema(file)
        except BloomsealError as error:
            raise error.at(file=one.name) from None

    with ThreadPoolExecutor(_THREADS) as pool:
        return list({schema.json(): schema for schema in pool.map(look, files)}.values())


def warn_of_all_columns(settings: SourceOptions, schema: st.StructType) -> None:
    """Spark tells a data source in Python nothing of the columns that a query needs."""
    if len(schema.fields) > 1:
        warnings.warn(
            f"all {len(schema.fields)} columns of {settings.paths[0]} will be opened; bloomseal.spark.read(spark, path, "
            "columns=[...]), or .schema(...), opens those that you need",
            BloomsealWarning,
            stacklevel=2,
        )


def plan(
    tree: Tree, asked: Sequence[Compare], zone: str | None
) -> tuple[list[Piece], list[tuple[DataFile, Exclusion]]]:
    """The files that may hold wanted rows, and those that their partition values rule out."""
    kinds = [field.dataType for field in tree.columns.fields]
    read: dict[tuple[int, str], Any] = {}
    values: dict[Any, tuple[Any, ...]] = {}
    for file in tree.files:
        if file.folders in values:
            continue
        for place, (name, raw) in enumerate(file.folders):
            if (place, raw) not in read:
                try:
                    read[place, raw] = typed(raw, kinds[place], zone)
                except BloomsealError as error:
                    raise error.at(file=file.name, column=name) from None
        values[file.folders] = tuple(read[place, raw] for place, (_, raw) in enumerate(file.folders))
    wanted = dict(zip(values, admitted(asked, tree.columns, list(values.values())), strict=True))
    named = {one.column for one in asked}.intersection(tree.columns.names)
    rejected = None if all(wanted.values()) else by_folder(tree.expected, named)
    kept, pruned = [], []
    for file in tree.files:
        if rejected is None or wanted[file.folders]:
            kept.append(Piece(file.base, file.name, file.size, values[file.folders], root=file.root))
        else:
            pruned.append((file, rejected))
    return kept, pruned


def _packed(pieces: Sequence[Piece], most: int, parallelism: int) -> Iterator[list[Piece]]:
    """Pieces for one task each: about as many bytes in all, big files in parts."""
    total = sum(piece.weight + _FILE_COST for piece in pieces)
    target = min(most, max(_LEAST_TASK, -(-total // parallelism)))
    pack: list[Piece] = []
    filled = 0
    for piece in pieces:
        parts = max(1, -(-piece.weight // target))
        for part in range(parts):
            cost = piece.weight // parts + _FILE_COST
            if pack and filled + cost // 2 > target:
                yield pack
                pack, filled = [], 0
            pack.append(piece if parts == 1 else piece._replace(part=part, parts=parts))
            filled += cost
    if pack:
        yield pack
