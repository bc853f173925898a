"""One task of a read: its files, opened one after the other, as record batches in exactly the types that Spark asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as st

from ...core.cached import cached_property
from ...core.errors import BloomsealError, KeyAccessError, PolicyError, UnsupportedError
from ...core.exclusion import Exclusion, by_index
from ...core.keys.access import KmsAccessError, Problem
from ...format.decode import read_row_group
from ...read.file import SealedFile
from ...read.orc.file import OrcFile, OrcPlan
from ...read.predicate.condition import Compare
from ...read.prune import RowGroupSelection
from ...read.rows import read_matching
from ..opening import check_protection
from .files.live import Rules
from .layout import Layout
from .options import SourceOptions
from .stats import SourceStats
from .types import DECODING, arrow_type, forget_arrow_schema, position_of

if TYPE_CHECKING:
    from ...index.facts.sameness import Kept
    from .search import KeySearch

__all__ = ["Piece", "Scan"]

_REFUSED: Final = (Problem.DENIED, Problem.DISABLED, Problem.DESTROYED, Problem.UNKNOWN)
_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = (1024, 65_536)


class Piece(NamedTuple):
    """A file, or a part of a big one.

    Attributes:
        base, name, size: as `tree.DataFile`.
        values: its partition values, in the order of the table's partition columns.
        part, parts: which part of how many, by the bytes of its row groups.
        root: as `tree.DataFile`.
        kept: the row groups that indexes leave of it; None: all.
    """

    base: str | None
    name: str
    size: int
    values: tuple[Any, ...] = ()
    part: int = 0
    parts: int = 1
    root: str | None = None
    kept: Kept | None = None

    @property
    def weight(self) -> int:
        """About the bytes that there are to read."""
        return self.size if self.kept is None else self.size * len(self.kept.groups) // max(self.kept.seen, 1)


@dataclass
class Scan:
    """What all tasks of a read have in common.

    Attributes:
        settings: where the keys are, and what is expected of the files.
        schema: of the frame.
        conditions: what holds for every row that Spark will keep.
        partitioned: names of the partition columns.
        rules: of a table's log, for each file.
        search: keys that are looked for in a column; None: rows are not chosen by keys.
    """

    settings: SourceOptions
    schema: st.StructType
    conditions: tuple[Compare, ...] = ()
    partitioned: tuple[str, ...] = ()
    rules: Rules | None = None
    search: KeySearch | None = None
    _layouts: dict[Any, Layout] = field(default_factory=dict, repr=False)

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
        return asked or self.search is not None or self.settings.only_check

    def read(self, piece: Piece, stats: SourceStats) -> Iterator[pa.RecordBatch]:
        """The rows of a piece that Spark may keep, with all that is known not to be among them left out.

        Raises:
            BloomsealError: with the file's name.
        """
        try:
            with self.settings.open(piece) as file:
                reading = _OrcReading if isinstance(file, OrcFile) else _Reading
                yield from reading(self, file, piece, stats).batches()
        except BloomsealError as error:
            if isinstance(error, KmsAccessError) and error.column and error.problem in _REFUSED:
                error.hint = f'{error.hint or ""}; or read without the column, or with .option("missing_keys", "null")'
            raise error.at(file=piece.name) from None

    def converted(
        self, layout: Layout, table: pa.Table | None, rows: int, values: tuple[Any, ...]
    ) -> Iterator[pa.RecordBatch]:
        """Decoded rows as Spark wants them, in batches of bounded size.

        Args:
            table: the columns of `layout.wanted`; None where none is wanted.
            values: the file's partition values, in the order of `partitioned`.

        Raises:
            UnsupportedError: nulls in a column that the schema calls NOT NULL, or a value that does not fit its type.
        """
        folders = dict(zip((name.lower() for name in self.partitioned), values, strict=True))
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

    def layout(self, file: SealedFile, masked: frozenset[int]) -> Layout:
        """Which of a file's columns are read, worked out once for all files of the same schema."""
        leaves = file.leaves
        for column in self.partitioned:
            self._check_folder(file, column)
        name = leaves.raw, masked
        if (found := self._layouts.get(name)) is None:
            if self.rules is not None:
                self.rules.check(file)
            found = self._layouts[name] = Layout.of(self.stored, self.conditions, file, masked)
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
        told = ("settings", "schema", "conditions", "partitioned", "rules", "search")
        return {name: self.__dict__[name] for name in told} | {"_layouts": {}}


class _Reading:
    """One file."""

    def __init__(self, scan: Scan, file: SealedFile, piece: Piece, stats: SourceStats) -> None:
        self._scan = scan
        self._file: Any = file
        self._piece = piece
        self._stats = stats
        self._pages: Mapping[int, Mapping[str, tuple[int, ...]]] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        scan, file, stats = self._scan, self._file, self._stats
        if self._piece.part == 0:
            stats.files += 1
        # Before anything is left out by what the footer says: a column that it lacks, for instance.
        file.need_verified("read")
        masked = self._masked() if scan.settings.missing_keys == "null" else frozenset()
        layout = scan.layout(file, masked)
        forget_arrow_schema(file)
        groups = self._groups()
        stats.row_groups += sum(map(self._row_groups, groups))
        groups = self._indexed(groups) if scan.search is None else self._searched(scan.search, groups)
        if scan.settings.only_check:
            self._check(layout, groups)
            return
        if isinstance(layout.condition, Exclusion):
            stats.files_pruned_by_schema += self._piece.part == 0
            stats.bytes_pruned += sum(self._bytes(group) for group in groups)
            return
        plan = self._plan(layout)
        for group in groups:
            left = self._left(plan, group)
            if not left:
                stats.bytes_pruned += self._bytes(group)
                continue
            stats.decoded += left
            stats.bytes_decoded += self._bytes(group)
            if scan.settings.dry_run:
                continue
            found = self._decoded(plan, layout, group)
            if found is not None and scan.search is not None:
                found = self._with_keys(scan.search, found[0])
            if found is not None:
                stats.rows += found[1]
                yield from scan.converted(layout, *found, self._piece.values)

    def _check(self, layout: Layout, groups: list[int]) -> None:
        """Of a file that Spark's own reader takes, which knows no policy, each column that the frame may read."""
        assert self._scan.settings.table is not None  # noqa: S101
        for group in groups:
            for leaf in layout.wanted:
                check_protection(self._file, self._file.walk.chunk(group, leaf.index), self._scan.settings.table)

    def _searched(self, search: KeySearch, groups: list[int]) -> list[int]:
        """The row groups that may hold a key."""
        stats, asked = self._stats, search.ask(self._file, self._piece.kept, groups)
        stats.exclude(asked.excluded.values())
        stats.bytes_pruned += sum(self._bytes(group) for group in asked.excluded)
        return [*asked.row_groups]

    def _with_keys(self, search: KeySearch, table: pa.Table | None) -> tuple[pa.Table, int] | None:
        """The rows that may hold a key; None where there are none."""
        assert table is not None  # noqa: S101 - the column of keys is always read
        if (rows := search.rows(self._file, table)) is not None:
            if not len(rows):
                return None
            table = table.take(pa.array(rows))
        return table, table.num_rows

    def _plan(self, layout: Layout) -> Any:
        # Files of one layout have one schema, which is all that a plan's arguments are held against.
        if layout.asked is not None:
            return self._file.plan_as(layout.asked)
        plan = self._file.plan(layout.columns, layout.condition)
        layout.asked = plan.asked
        return plan

    def _decoded(self, plan: Any, layout: Layout, group: int) -> tuple[pa.Table | None, int] | None:
        if not layout.wanted:
            return None, self._file.rows_in_part(group)
        if plan.predicate is not None and layout.by_rows:
            schema, pages = lambda: plan.empty.schema, self._pages.get(group)
            table = read_matching(plan.walk, group, plan.wanted, plan.predicate, schema, pages=pages)
        else:
            table = read_row_group(plan.walk, group, plan.wanted, **DECODING)
        return None if table is None else (table, table.num_rows)

    def _left(self, plan: Any, group: int) -> int:
        """How many row groups are to be read of this part of the file."""
        if (excluded := self._file.rules_out(plan, group)) is None:
            return 1
        self._stats.exclude([excluded])
        return 0

    def _masked(self) -> frozenset[int]:
        """Leaves whose key is refused to us. That the KMS is away, or that a file is damaged, is no refusal."""
        walk = self._file.walk
        found = set()
        for leaf in walk.footer.schema.leaves:
            for group in range(self._file.num_row_groups):
                try:
                    walk.cipher(walk.chunk(group, leaf.index))
                except KeyAccessError as error:
                    if not isinstance(error, KmsAccessError) or error.problem not in _REFUSED:
                        raise
                    found.add(leaf.index)
                    break
        return frozenset(found)

    def _groups(self) -> list[int]:
        """The row groups of this part: those whose middle lies in it, counted in bytes."""
        piece, count = self._piece, self._file.num_parts
        if piece.parts == 1:
            return list(range(count))
        if self._file.source.size != piece.size:
            raise UnsupportedError("the file was replaced while the query was under way", hint="run the query again")
        sizes = [max(self._bytes(group), 1) for group in range(count)]
        total, before, found = sum(sizes), 0, []
        for group, size in enumerate(sizes):
            if (2 * before + size) * piece.parts // (2 * total) == piece.part:
                found.append(group)
            before += size
        return found

    def _row_groups(self, group: int) -> int:  # noqa: ARG002
        return 1

    def _indexed(self, groups: list[int]) -> list[int]:
        """Those that indexes leave, if the file is the one that they were asked about."""
        stats, kept = self._stats, self._piece.kept
        excluded = None if kept is None else by_index(kept, self._file, self._file.num_row_groups, kept.groups)
        if kept is None or excluded is None:
            return groups
        self._pages = kept.pages
        left = [group for group in groups if group not in excluded]
        stats.exclude(excluded[group] for group in groups if group in excluded)
        stats.bytes_pruned += sum(self._bytes(group) for group in groups if group in excluded)
        return left

    def _bytes(self, group: int) -> int:
        return self._file.walk.footer.row_group(group).total_byte_size or 0


class _OrcReading(_Reading):
    """One ORC file. What is decoded at a time is a stripe."""

    _pruned: RowGroupSelection | None = None

    def _plan(self, layout: Layout) -> OrcPlan | None:
        return None if layout.columns is None else self._file.plan(layout.columns, layout.condition)

    def _left(self, plan: OrcPlan | None, group: int) -> int:
        if plan is None:
            return self._row_groups(group)
        self._pruned = found = self._file.pruned(plan, group)
        self._stats.exclude(found.excluded.values())
        return len(found.row_groups)

    def _decoded(self, plan: OrcPlan | None, layout: Layout, group: int) -> tuple[pa.Table | None, int] | None:  # noqa: ARG002
        if plan is None:
            return None, self._file.rows_in_part(group)
        table = self._file.scan_part(plan, group, self._pruned)
        return None if table is None else (table, table.num_rows)

    def _masked(self) -> frozenset[int]:
        found = set()
        for leaf in self._file.leaves.leaves:
            try:
                self._file.need_open(self._file.stored(leaf.index))
            except KeyAccessError as error:
                if not isinstance(error, KmsAccessError) or error.problem not in _REFUSED:
                    raise
                found.add(leaf.index)
        return frozenset(found)

    def _row_groups(self, group: int) -> int:
        return int(self._file.stripes[group].num_row_groups)

    def _bytes(self, group: int) -> int:
        return int(self._file.stripes[group].data_length)
