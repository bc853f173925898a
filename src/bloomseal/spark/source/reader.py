"""The reading half: what to read is planned on the driver without opening more than one file, and read by the
executors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...core.errors import BloomsealError, BloomsealWarning, UsageError
from ...read.predicate.condition import Compare
from .files.piece import Piece
from .files.tree import Tree
from .merging import merged
from .options import Defaults, SourceOptions
from .pushdown import conditions, to_text
from .scan import Scan
from .stats import SourceStats
from .types import spark_schema
from .workers import keep_loaded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from ...storage.logs.snapshot import Snapshot

_THREADS: Final = 8
_BATCH_ROWS: Final = 1024
_BATCH_BYTES: Final = 1 << 22


class Task(InputPartition):
    """Files, and parts of files, for one task; and what the planning ruled out, which the first task reports.

    It also says which columns the folders hold, and what a table's log asks of its files: Spark sends the reader on its
    way before it asks for the partitions.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        folders: tuple[str, ...],
        log: Snapshot | None,
        planned: SourceStats,
        gone: Sequence[Piece] = (),
    ) -> None:
        super().__init__(None)
        # As bare tuples, which pickle eight times as fast as named ones: a plan holds every file of a table.
        self._pieces, self._gone = tuple(map(tuple, pieces)), tuple(map(tuple, gone))
        self.folders, self.log, self.planned = folders, log, planned

    @property
    def pieces(self) -> Iterator[Piece]:
        """What to read, in turn."""
        return map(Piece._make, self._pieces)

    def to_read(self, settings: SourceOptions) -> list[Piece]:
        """As `pieces`, and files that were ruled out and are other ones by now."""
        if not self._gone:
            return [*self.pieces]
        from .planning import changed  # most tasks load less

        return [*self.pieces, *changed([*map(Piece._make, self._gone)], settings)]

    def __repr__(self) -> str:
        return f"<Task of {len(self._pieces)} files>"


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
        self._scan = Scan(settings, schema, settings.conditions, search=self._defaults.search)
        # Of a schema that Spark can't take, the driver says so, before there are tasks.
        _ = self._scan.target

    def partitions(self) -> Sequence[InputPartition]:
        # Tasks load less than the planning.
        from .planning import packed, planned

        tree = self._scan.settings.find_files(self._scan.schema, self._defaults.zone)
        folders, log = tuple(tree.columns.names), tree.log
        scan = replace(self._scan, partitioned=folders, log=log)
        plan = planned(scan, tree)
        first, *others = [*packed(scan, plan.pieces, self._defaults.parallelism)] or [[]]
        # What a log names stays what it is.
        tasks = [Task(first, folders, log, plan.stats, plan.gone if log is None else ())]
        return tasks + [Task(pieces, folders, log, SourceStats()) for pieces in others]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)  # noqa: S101
        settings = self._scan.settings
        self._scan.partitioned, self._scan.log = partition.folders, partition.log
        stats, before = replace(partition.planned), settings.kms_counters()
        batches = self._scan.read(partition.to_read(settings), stats)
        try:
            yield from stats.timed(_together(batches))
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
    tree = tree or settings.find_files(zone="UTC")
    if tree.schema is not None:
        return tree.schema
    if not tree.files:
        raise UsageError("there are no data files, so there is no schema", file=settings.paths[0], hint=".schema(...)")
    stored = merged(_schemas(settings, tree.files if settings.merge_schema else tree.files[:1]))
    folders = {field.name.lower(): field for field in tree.columns}
    # As in Spark: a partition column that files hold too keeps its place there, but its values are the folders'.
    fields = [folders.pop(field.name.lower(), field) for field in stored.fields]
    return st.StructType([*fields, *folders.values()])


def _schemas(settings: SourceOptions, files: Sequence[Piece]) -> list[st.StructType]:
    """Each schema that these files have, once, in the order of the files."""

    def look(one: Piece) -> st.StructType:
        try:
            with settings.open(one) as file:
                file.need_verified("read")
                found = spark_schema(file)
                drop = settings.columns_without_key == "drop"
                lost = file.lost(file.leaves.top_level) if drop else ()
                return st.StructType([field for field in found.fields if field.name not in lost])
        except BloomsealError as error:
            raise error.at(file=one.name) from None

    with ThreadPoolExecutor(_THREADS) as pool:
        return list({schema.json(): schema for schema in pool.map(look, files)}.values())


def warn_of_all_columns(settings: SourceOptions, schema: st.StructType) -> None:
    """Spark tells a data source in Python nothing of the columns that a query needs."""
    if len(schema.fields) > 1:
        warnings.warn(
            f"all {len(schema.fields)} columns of {settings.paths[0]} will be opened; .schema(...) opens those that you "
            "need; and so does, in a classic session, bloomseal.spark.read(spark, path, columns=[...])",
            BloomsealWarning,
            stacklevel=2,
        )


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: for Spark, one of a single row is as much work as one of a thousand.

    Each has as many rows as all before it, up to a bound. So whoever wants the first row alone waits for no other.
    """
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows, size, before = 0, 0, 0

    def joined() -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = pa.Table.from_batches(waiting).combine_chunks().to_batches()
        return waiting if len(waiting) == 1 else found

    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= min(before, _BATCH_ROWS) or size >= _BATCH_BYTES:
            yield from joined()
            before += rows
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from joined()
