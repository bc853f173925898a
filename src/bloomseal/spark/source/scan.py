"""One task of a read: its files, opened one after the other, as record batches in exactly the types that Spark asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as st

from ...core.cached import cached_property
from ...core.errors import BloomsealError, KeyAccessError, PolicyError, UnsupportedError
from ...core.exclusion import Exclusion, by_index
from ...read.file import SealedFile
from ...read.parquet import ParquetFile
from ...read.predicate.condition import Compare
from .files.piece import Piece
from .layout import ColumnLayout
from .options import SourceOptions
from .search import replaced
from .stats import SourceStats
from .types import INT96, arrow_type, position_of

if TYPE_CHECKING:
    from ...storage.logs.snapshot import Snapshot
    from .search import KeySearch

_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = (1024, 65_536)


@dataclass
class Scan:
    """What all tasks of a read have in common.

    Attributes:
        settings: where the keys are, and what is expected of the files.
        schema: of the frame.
        conditions: what holds for every row that Spark will keep.
        partitioned: names of the partition columns.
        log: what the table's log says of all files.
        search: keys that are looked for in a column; None: rows are not chosen by keys.
    """

    settings: SourceOptions
    schema: st.StructType
    conditions: tuple[Compare, ...] = ()
    partitioned: tuple[str, ...] = ()
    log: Snapshot | None = None
    search: KeySearch | None = None
    _layouts: dict[Any, ColumnLayout] = field(default_factory=dict, repr=False)

    @cached_property
    def target(self) -> pa.Schema:
        """The Arrow schema that Spark asks for."""
        fields = []
        for one in self.schema.fields:
            try:
                fields.append(pa.field(one.name, arrow_type(one.dataType), one.nullable))
            except BloomsealError as error:
                raise error.at(column=one.name) from None
        return pa.schema(fields)

    @cached_property
    def stored(self) -> dict[str, st.DataType]:
        """The columns that files have, and their types."""
        folders = {name.lower() for name in self.partitioned}
        return {one.name: one.dataType for one in self.schema.fields if one.name.lower() not in folders}

    @property
    def is_selective(self) -> bool:
        """Whether little of each file is read, as far as that is known beforehand."""
        asked = any(one.by_equality and one.column.split(".")[0] not in self.partitioned for one in self.conditions)
        return asked or self.search is not None

    def read(self, pieces: Sequence[Piece], stats: SourceStats) -> Iterator[pa.RecordBatch]:
        """The rows of some files that Spark may keep, with all that is known not to be among them left out.

        Raises:
            BloomsealError: with the file's name.
        """
        parts = self.settings.parts(pieces, self.log)
        for number, piece in enumerate(pieces):
            try:
                with parts.open_named(number) as file:
                    yield from _FileTask(self, file, piece, stats).batches()
            except BloomsealError as error:
                if isinstance(error, KeyAccessError) and error.column and error.lacking:
                    how = 'read without the column, or with columns_without_key="null"'
                    error.hint = f"{error.hint}; or {how}" if error.hint else how
                raise error.at(file=piece.name) from None

    def converted(
        self, layout: ColumnLayout, table: pa.Table | None, rows: int, values: tuple[Any, ...]
    ) -> Iterator[pa.RecordBatch]:
        """Decoded rows as Spark wants them, in batches of bounded size.

        Args:
            table: the columns of `layout.wanted`; None where none is wanted.
            values: as `Piece.values`.

        Raises:
            UnsupportedError: nulls in a column that the schema calls NOT NULL, or a value that does not fit its type.
        """
        folders = dict(zip((name.lower() for name in self.partitioned), values, strict=False))
        columns = []
        for want, target in zip(self.schema.fields, self.target, strict=True):
            if want.name.lower() in folders:
                columns.append(pa.repeat(pa.scalar(folders[want.name.lower()], target.type), rows))
                continue
            name = layout.names[want.name]
            if name is None or table is None:
                column = pa.chunked_array([pa.nulls(rows, target.type)])
            else:
                column = layout.column(want, target, table.column(name))
            if not want.nullable and column.null_count:
                raise UnsupportedError("nulls in a column that the schema calls NOT NULL", column=want.name)
            columns.append(column)
        made = pa.Table.from_arrays(columns, schema=self.target)
        least, most = _BATCH_ROWS
        size = min(max(_BATCH_BYTES * rows // max(made.nbytes, 1), least), most) if rows else most
        yield from made.to_batches(max_chunksize=size)

    def layout(self, file: SealedFile, masked: frozenset[int]) -> ColumnLayout:
        """Which of a file's columns are read, worked out once for all files of the same schema."""
        leaves = file.leaves
        for column in self.partitioned:
            self._check_folder(file, column)
        name = leaves.raw, masked
        if (found := self._layouts.get(name)) is None:
            if self.log is not None:
                from ...storage.logs.snapshot import fields_in  # folders without a log need not load it
                from ...table.query.naming import need_case

                need_case(file, [path for path, _ in fields_in(self.log.schema)])
            own = () if self.log is None else filter(self.log.schema.names.__contains__, self.log.stored)
            if lacking := [column for column in own if not file.has(column)]:
                what = "only the table's log has the column's value for this file"
                raise UnsupportedError(what, column=lacking[0], hint="bloomseal.open_table")
            found = self._layouts[name] = ColumnLayout.of(self.stored, self.conditions, file, masked)
        return found

    def _check_folder(self, file: SealedFile, column: str) -> None:
        """As in Spark, what a folder's name says counts and not what the file holds; but not of what is sealed.

        Raises:
            PolicyError: the file holds the column, encrypted.
        """
        schema = file.leaves
        if (place := position_of(column, schema.top_level)) is None:
            return
        if file.seals(schema.below(schema.top_level[place])[0]):
            raise PolicyError(
                "the column is sealed in the file, and the name of its folder gives other values", column=column,
                hint="see who moved the file there",
            )  # fmt: skip

    def ways(self, file: SealedFile) -> Sequence[Sequence[Any]]:
        """What is asked of a file, as `bloomseal.table.query.sift.Ask` has it.

        Args:
            file: it, or one of its schema.
        """
        # A column that this user can't read is null for them: no condition by which anything is ruled out holds.
        layout = self.layout(file, frozenset())
        if isinstance(layout.condition, Exclusion):
            return []
        predicate = file.plan(layout.columns, layout.condition).predicate
        ways: Sequence[Sequence[Any]] = [[]] if predicate is None else predicate.any_of
        return ways if self.search is None else self.search.ways(file, ways)

    def __getstate__(self) -> dict[str, Any]:
        # What is worked out on the way stays where it is.
        told = ("settings", "schema", "conditions", "partitioned", "log", "search")
        return {name: self.__dict__[name] for name in told} | {"_layouts": {}}


class _FileTask:
    """One file, or some of its parts."""

    def __init__(self, scan: Scan, file: SealedFile, piece: Piece, stats: SourceStats) -> None:
        self._scan = scan
        self._file = file
        self._piece = piece
        self._stats = stats
        self._pages: Mapping[int, Mapping[str, tuple[int, ...]]] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        scan, file, stats = self._scan, self._file, self._stats
        if self._piece.part == 0:
            stats.files += 1
        # Before anything is left out by what the footer says: a column that it lacks, for instance.
        file.need_verified("read")
        layout = scan.layout(file, self._masked())
        file.forget_arrow_schema()
        parts = self._parts()
        stats.row_groups += sum(map(file.row_groups_in_part, parts))
        parts = self._left(parts)
        if isinstance(layout.condition, Exclusion):
            stats.files_pruned_by_schema += self._piece.part == 0
            stats.bytes_pruned += sum(map(file.bytes_in_part, parts))
        elif layout.wanted:
            yield from self._rows(layout, parts)
        else:
            for part in parts:
                yield from self._counted(layout, part)

    def _rows(self, layout: ColumnLayout, parts: list[int]) -> Iterator[pa.RecordBatch]:
        scan, file, stats = self._scan, self._file, self._stats
        plan = self._plan(layout)
        try:
            for part in parts:
                size = file.bytes_in_part(part)
                if file.skips(plan, part):
                    stats.bytes_pruned += size
                    continue
                stats.bytes_decoded += size
                for table in () if scan.settings.dry_run else file.pieces(plan, part, _BATCH_BYTES):
                    found = table if scan.search is None else self._with_keys(scan.search, table)
                    plan.stats.count(rows=found.num_rows - table.num_rows)
                    if found.num_rows:
                        yield from scan.converted(layout, found, found.num_rows, self._piece.values)
        finally:
            stats.add(plan.stats)
        if scan.settings.dry_run:
            asked = sum(map(file.row_groups_in_part, parts))
            stats.decoded += asked - plan.stats.pruned_by_statistics - plan.stats.pruned_by_filter

    def _counted(self, layout: ColumnLayout, part: int) -> Iterator[pa.RecordBatch]:
        """The rows of a part, of which only the number is asked for, and what the folders say."""
        rows = self._file.rows_in_part(part)
        self._stats.decoded += self._file.row_groups_in_part(part)
        self._stats.bytes_decoded += self._file.bytes_in_part(part)
        if not self._scan.settings.dry_run:
            self._stats.rows += rows
            yield from self._scan.converted(layout, None, rows, self._piece.values)

    def _plan(self, layout: ColumnLayout) -> Any:
        # Files of one layout have one schema, which is all that a plan's arguments are held against.
        if layout.asked is not None and isinstance(self._file, ParquetFile):
            plan: Any = self._file.plan_as(layout.asked)
        else:
            plan = self._file.plan(layout.columns, layout.condition, int96_unit=INT96)
            layout.asked = getattr(plan, "asked", None)
        plan.stats.row_groups = 0  # of this part of the file they are counted
        plan.pages = self._pages
        return plan

    def _left(self, parts: list[int]) -> list[int]:
        """The parts that indexes, or the filters that are asked for keys, leave. Those know Parquet files only."""
        file, kept, search = self._file, self._piece.kept, self._scan.search
        excluded: Mapping[int, Exclusion] | None
        if search is not None:
            excluded = search.ask(file, kept, parts).excluded
        else:
            excluded = None if kept is None else by_index(kept, file, file.num_row_groups, kept.groups)
            if kept is not None and excluded is not None:
                self._pages = kept.pages
        gone = {part: excluded[part] for part in parts if part in excluded} if excluded else {}
        self._stats.exclude(gone.values())
        self._stats.bytes_pruned += sum(map(file.bytes_in_part, gone))
        return [part for part in parts if part not in gone]

    def _with_keys(self, search: KeySearch, table: pa.Table) -> pa.Table:
        """The rows that may hold a key."""
        rows = search.rows(self._file, table)
        return table if rows is None else table.take(pa.array(rows))

    def _masked(self) -> frozenset[int]:
        """Leaves that are null for lack of their key.

        Raises:
            KeyAccessError: one that the rows are chosen by.
        """
        file, scan = self._file, self._scan
        if scan.settings.columns_without_key == "error":
            return frozenset()
        masked = file.without_key(file.leaves.leaves)
        asked = [one.column for one in scan.conditions] + ([] if scan.search is None else [scan.search.column])
        for index in masked:
            leaf = file.leaves.leaves[index]
            if leaf.name.lower() in map(str.lower, asked):
                file.need_key(leaf)
        return masked

    def _parts(self) -> list[int]:
        """The file's parts that are of this piece: those whose middle lies in it, counted in bytes."""
        piece, count = self._piece, self._file.num_parts
        if piece.parts == 1:
            return list(range(count))
        if self._file.source.size != piece.size:
            raise replaced()
        sizes = [max(self._file.bytes_in_part(part), 1) for part in range(count)]
        total, before, found = sum(sizes), 0, []
        for part, size in enumerate(sizes):
            if (2 * before + size) * piece.parts // (2 * total) == piece.part:
                found.append(part)
            before += size
        return found
