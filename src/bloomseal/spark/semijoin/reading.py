"""Tasks of a semi-join that read single row groups, or whole files in one pass, with Bloomseal's own reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ...core.errors import BloomsealError, UsageError
from ...core.sbbf import ProbeSet
from ...format.decode import read_row_group
from ...read.predicate.predicate import column_at
from ...sbbf import KeySet
from ..opening import check_protection, open_table_file, table_of
from ..source.scan import Scan
from ..source.stats import SourceStats
from ..source.types import DECODING, forget_arrow_schema
from .indexed import AskedIndexes, replaced
from .result import PrunedFile
from .sealed_keyset import SealedKeys, identity_of, place_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from ...index.facts.sighting import Kept
    from ...policy import TablePolicy
    from ...read.file import SealedFile
    from ..source.narrowing import Watched
    from ..source.stats import Metrics

__all__ = ["Reading", "RowGroups"]

_TASKS_OF_A_CORE: Final = 4
"""At most: tasks that are through early make room for others."""
_BATCH_ROWS: Final = 1024
_BATCH_BYTES: Final = 1 << 22
Hashes = np.ndarray[Any, np.dtype[np.uint64]]


File = tuple[str, "PrunedFile | None", tuple[Any, ...], "Kept | None"]
"""A file, what is left of it, the values of its partition columns, and what indexes leave of it. A bare tuple: a plan
holds every file of a table.
"""


class _Part(InputPartition):
    """Files of one task; and what the planning ruled out, which the first reports, with the files that it watches."""

    def __init__(
        self,
        files: Sequence[File],
        planned: SourceStats,
        watched: Watched | None = None,
        ruled_out: Sequence[File] = (),
    ) -> None:
        super().__init__(None)
        self.files, self.planned, self.watched, self.ruled_out = files, planned, watched, ruled_out


@dataclass(frozen=True)
class Reading:
    """A task: the rows of row groups that may hold a key, found by their hashes; Spark joins them all the same.

    Attributes:
        asked: file → what is left of it for this to read; None where nobody has looked yet: it is opened, asked and
            read in one go. No row groups: Spark's own reader takes the file, and this looks whether it may. For the
            planning only, as `values`: a task is told of its own files with its part.
        prunes: such a file's statistics and filters are asked first; False: all of it is read.
        values: file → the values of its partition columns.
        metrics: counts the files that are read in one go, under the name `read_id`.
        indexes: how sealed indexes are asked about those, each time that a run is planned.
    """

    policy: bytes
    base: str | None
    sealed: SealedKeys
    scan: Scan
    asked: Mapping[str, PrunedFile | None]
    prunes: bool
    values: dict[str, tuple[Any, ...]] = field(repr=False)
    read_id: str = ""
    metrics: Accumulator[Metrics] | None = field(default=None, repr=False)
    indexes: AskedIndexes = field(default_factory=AskedIndexes)

    def parts(self, cores: int, files_of_a_task: int) -> list[_Part]:
        """What the tasks read, each about as many files: enough tasks for the cores, and more where they are full."""
        left, stats, watched = self._planned()
        files = [self._file(name, kept) for name, kept in left.items()]
        full = min(len(files) // files_of_a_task, _TASKS_OF_A_CORE * cores)
        tasks = max(1, min(len(files), max(cores, full)))
        ruled_out = () if watched is None else [self._file(name, None) for name in watched.names]
        rest = [_Part(files[start::tasks], SourceStats()) for start in range(1, tasks)]
        return [_Part(files[::tasks], stats, watched, ruled_out), *rest]

    def _file(self, name: str, kept: Kept | None) -> File:
        return name, self.asked[name], self.values[name], kept

    def _planned(self) -> tuple[dict[str, Kept | None], SourceStats, Watched | None]:
        """The files to open, and what indexes leave of each; and what these ruled out."""
        stats, before = SourceStats(), self.scan.settings.kms_counters()
        table = table_of(self.policy)
        alone = [name for name, asked in self.asked.items() if asked is None]
        keys: KeySet | None = None

        def keys_for(file: SealedFile, place: int) -> KeySet | None:
            nonlocal keys
            if self.sealed.is_empty or file.walk.footer.schema.leaves[place].type != self.sealed.column_type:
                return None
            keys = keys or self.sealed.open(table)
            return keys

        left = self.indexes.left(alone, self.base, table, self.sealed.column, keys_for)
        stats.add(left.stats)
        stats.add_kms(before, self.scan.settings.kms_counters())
        return {name: left.names.get(name) for name in self.asked if name not in left.gone}, stats, left.watched

    def read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        """The rows of these files."""
        settings, stats = self.scan.settings, part.planned
        before = settings.kms_counters()
        try:
            yield from stats.timed(_together(self._rows(self._to_read(part), stats)))
        finally:
            stats.add_kms(before, settings.kms_counters())
            if self.metrics is not None:
                self.metrics.add({self.read_id: stats})

    def _to_read(self, part: _Part) -> Iterator[File]:
        yield from part.files
        if part.watched is not None:
            changed = set(self.indexes.changed(part.watched, self.base, table_of(self.policy)))
            yield from (file for file in part.ruled_out if file[0] in changed)

    def _rows(self, files: Iterable[File], stats: SourceStats) -> Iterator[pa.RecordBatch]:
        table = table_of(self.policy)
        keys: KeySet | None = None
        known = np.empty(0, np.uint64)
        for name, asked, values, kept in files:
            try:
                with open_table_file(name, table, self.base) as file:
                    file.need_verified("read")
                    if asked is not None and asked.identity not in (None, identity_of(file)):
                        raise replaced(name)
                    if not file.num_row_groups or (asked is not None and not asked.row_groups):
                        self._check(file, table, stats)
                    else:
                        if keys is None:
                            keys = self.sealed.open(table)
                            known = np.sort(keys.between(None, None))
                        groups = self._left(file, keys, kept, stats) if asked is None else asked.row_groups
                        yield from self._read(file, values, groups, None if keys.undecided else known, stats)
            except BloomsealError as error:
                raise error.at(file=name) from None

    def _check(self, file: SealedFile, table: TablePolicy, stats: SourceStats) -> None:
        """Of a file that Spark's own reader takes, which knows no policy, each column that the frame may read."""
        stats.files += 1
        stats.row_groups += file.num_row_groups
        for group in range(file.num_row_groups):
            for leaf in self.scan.layout(file, frozenset()).wanted:
                check_protection(file, file.walk.chunk(group, leaf.index), table)

    def _left(self, file: SealedFile, keys: KeySet, kept: Kept | None, stats: SourceStats) -> Sequence[int]:
        stats.files += 1
        stats.row_groups += file.num_row_groups
        place = place_of(file, self.sealed.column, case_sensitive=False)
        by_index = self.indexes.excluded(kept, file)
        # Keys are hashed for one type: a column of another can't be asked.
        if not self.prunes or place is None or file.walk.footer.schema.leaves[place].type != self.sealed.column_type:
            return range(file.num_row_groups)
        if by_index is not None:
            # A filter knows no more: an index errs in fewer row groups of a whole table than a filter in one of a file.
            stats.exclude(by_index.values())
            return [group for group in range(file.num_row_groups) if group not in by_index]
        left = file.survivors(file.columns[place], keys)
        stats.exclude(left.excluded.values())
        return left.row_groups

    def _read(
        self,
        file: SealedFile,
        values: tuple[Any, ...],
        groups: Sequence[int],
        known: Hashes | None,
        stats: SourceStats,
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        layout = self.scan.layout(file, frozenset())
        forget_arrow_schema(file)
        wanted = [leaf.index for leaf in layout.wanted]
        for group in groups:
            stats.decoded += 1
            stats.bytes_decoded += file.walk.footer.row_group(group).total_byte_size or 0
            found = read_row_group(file.walk, group, wanted, **DECODING)
            if (rows := self._hits(file, found, known)) is not None:
                if not len(rows):
                    continue
                found = found.take(pa.array(rows))
            stats.rows += found.num_rows
            yield from self.scan.converted(layout, found, found.num_rows, values)

    def _hits(self, file: SealedFile, found: pa.Table, known: Hashes | None) -> Any:
        """Rows whose value has the hash of a key; None where that can't be told.

        Args:
            known: the keys' hashes, sorted; None: not all keys have one.
        """
        place = place_of(file, self.sealed.column, case_sensitive=False)
        if place is None or known is None:
            return None
        leaf = file.walk.footer.schema.leaves[place]
        if leaf.type != self.sealed.column_type:
            return None
        try:
            probe = ProbeSet.of(column_at(found, leaf.path), leaf.type)
        except UsageError:
            return None
        hashes, owners, undecided = probe.hashes()
        hit = undecided.copy()
        if len(known):
            # Not np.isin, which would sort all keys again for each row group.
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            hit[owners[known[at] == hashes]] = True
        return np.flatnonzero(hit)


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


class RowGroups(DataSource):
    """A `Reading` as Spark takes it. Each read registers a subclass of its own, under a name of its own.

    Attributes:
        files_of_a_task: at least, where there are more tasks than cores.
    """

    task: ClassVar[Reading]
    cores: ClassVar[int] = 1
    files_of_a_task: ClassVar[int] = 1

    def schema(self) -> st.StructType:
        return self.task.scan.schema

    def reader(self, schema: st.StructType) -> DataSourceReader:  # noqa: ARG002
        return _Reader(self.task, self.cores, self.files_of_a_task)


class _Reader(DataSourceReader):
    def __init__(self, task: Reading, cores: int, files_of_a_task: int) -> None:
        self._task, self._cores, self._files_of_a_task = task, cores, files_of_a_task

    def partitions(self) -> Sequence[InputPartition]:
        return self._task.parts(self._cores, self._files_of_a_task)

    def __reduce__(self) -> tuple[type[_InTask], tuple[Reading]]:
        # To tasks, each of which would take apart what is said of all files.
        return _InTask, (replace(self._task, asked={}, values={}),)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)  # noqa: S101
        return self._task.read(partition)


class _InTask(_Reader):
    """As it travels to tasks: a part tells it of files, and it plans nothing. A plan of no files would have no rows."""

    def __init__(self, task: Reading) -> None:
        super().__init__(task, 1, 1)

    def partitions(self) -> Sequence[InputPartition]:
        raise TypeError("a reader that was pickled plans no parts: it knows of no file")
