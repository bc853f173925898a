"""`SealedTable`: many files as one table, opened with one set of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.cached import cached_property
from ..core.errors import Hint, UnsupportedError, UsageError
from ..core.sbbf.probe import several
from ..core.spelling import need_our_names
from ..core.text import counted
from ..core.verdict import Hits, verdicts
from ..notebook import ShownInNotebooks
from ..read.answers import FileAnswer, TableAnswer
from ..read.file import GATHERED, STREAMED, SealedFile, no_rows
from ..read.plan import ReadStats
from ..read.predicate.where import from_text
from ..specs import EncryptionSpec, resolve_policy
from .changes import TableChanges
from .query.indexes import Indexes
from .query.logged import need_logged, no_such_column
from .query.narrow import Narrowed, known_values, narrowed, shapes_of
from .query.parts import TableParts
from .query.query import Query, Shape
from .query.workers import side_by_side, workers
from .scan import FileOpener, scanned

if TYPE_CHECKING:
    from ..core.parquet.schema import Schema
    from ..index.sealed import SealedIndex
    from ..policy import PolicyChoice
    from ..specs import PolicyArguments
    from .advice import ColumnAdvice
    from .inspection import TableInspection
    from .report import TableVerifyReport
    from .scan import Progress

_INSPECTED: Final = 1000
"""Files that a notebook has opened, to show their table."""


class SealedTable(TableChanges, ShownInNotebooks):
    """Many files as one table; make one with `open_table`. Threads may share it.

    The list of files is that of the moment when it was opened; files are opened when they are asked.

    Attributes:
        stats: what the last `read` or `scan` did, over all files.
        version: of a Delta table its version, of an Iceberg table the snapshot's id; None for plain files.
    """

    def __init__(self, parts: TableParts, use_index: str = "auto", trust: str = "auto") -> None:
        self._parts = parts
        self._indexes = Indexes(parts, use_index, trust)
        self.stats = ReadStats()
        self.version = None if parts.snapshot is None else parts.snapshot.version

    @property
    def files(self) -> list[str]:
        """The files' paths, in the order in which their rows are read."""
        return [found.ref.path for found in self._parts.files]

    @property
    def schema(self) -> pa.Schema:
        """The columns of all files, and behind them those of the folders' names. Opens every footer, once.

        Raises:
            UsageError: files whose types of a column have none in common; both are named.
            FormatError, IntegrityError, KeyAccessError, PolicyError: one bad file refuses the schema.
        """
        return self._settled[0]

    @property
    def leaves(self) -> Schema:
        """The leaves of `schema`: what a value means in each of them.

        Raises:
            BloomsealError: as `schema`.
        """
        return self._settled[1]

    @cached_property
    def _settled(self) -> tuple[pa.Schema, Schema]:
        from ..format.leaves import leaves_of

        query = Query(self._parts, None, None)
        shapes = shapes_of(query, self._indexes)
        schema = query.target(shapes)
        first = shapes[0][1] if shapes else None
        if first is None or first.leaves.top_level != schema.names or not first.schema.equals(schema):
            return schema, leaves_of(schema)
        return schema, first.leaves

    @cached_property
    def num_rows(self) -> int:
        """The rows of all files, by their footers, without those that the table's log calls deleted.

        Raises:
            FormatError, IntegrityError, KeyAccessError, PolicyError: one bad file, or one whose footer could not be
                verified, refuses the sum.
        """

        def rows(number: int) -> int:
            with self._parts.open(number) as file:
                file.need_verified("count of its rows")
                return file.num_rows

        return sum(side_by_side(rows, range(len(self)), None))

    @property
    def columns(self) -> list[str]:
        """Names of the top-level columns."""
        return list(self.schema.names)

    @need_our_names
    def read(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        *,
        threads: int | None = None,
        int96_unit: str = "ns",
    ) -> pa.Table:
        """Read rows.

        Files are ruled out by their folders' names (or the table's log) without opening them, the others are opened
        side by side and pruned as `SealedFile.read` does it. A column that a file lacks is null there, and comparison
        with null keeps no row.

        Args:
            columns, where, int96_unit: as for `SealedFile.read`; partition columns too.
            threads: files read at the same time; None: one per processor.

        Returns:
            The rows, in the order of `files`. The schema is that of all files which the folders' names leave,
            whatever matches.

        Raises:
            UsageError: a column that no file has, or files whose types of a column have none in common; both are named.
            FormatError, IntegrityError, KeyAccessError, PolicyError: as for a single file; one bad file refuses the
                read.
        """
        schema, batches = self._scan(columns, where, int96_unit, threads, GATHERED)
        # Not by concat_tables, which loads pandas, where that is installed.
        return pa.Table.from_batches(batches, schema)

    @need_our_names
    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        *,
        threads: int | None = None,
        int96_unit: str = "ns",
        progress: Progress | None = None,
    ) -> pa.RecordBatchReader:
        """As `read`, as a stream: of one row group per thread the pages are held as they are stored, and half a MiB of
        decoded rows, whatever the table's size. A condition's own columns are decoded a row group at a time.

        All footers are opened before the first row is given out, so that the schema holds, and filters are asked where
        few values are looked for; up to 256 files stay open until their turn. To drop the reader ends the work.

        Args:
            columns, where, threads, int96_unit: as for `read`.
            progress: called with (files done, files in all) after each row group; a file that is half done counts half.
                `stats` is complete when the last row was given out.

        Raises:
            BloomsealError: as `read`; what is found in single row groups, by the reader.
        """
        return pa.RecordBatchReader.from_batches(*self._scan(columns, where, int96_unit, threads, STREAMED, progress))

    def scan_in(self, schema: pa.Schema, where: Any = None) -> Iterator[pa.RecordBatch]:
        """As `scan`, in a schema said beforehand: columns of `schema`, or wider types. No footer is opened twice.

        Raises:
            BloomsealError: as `scan`; all but a wrong predicate when a batch is asked for.
        """
        query = self.query(schema.names, where, "ns")
        if where is not None and not query.condition.bound:
            query.bind(self.schema, self.leaves)
        left = narrowed(query, self._indexes)
        return scanned(FileOpener(query, left.stats, STREAMED), left.numbers, schema, None)

    def _scan(
        self,
        columns: Sequence[str] | None,
        where: Any,
        int96_unit: str,
        threads: int | None,
        size: int,
        progress: Progress | None = None,
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The schema of the answer, settled by the footers of all files, and its rows."""
        workers(threads)
        opener, left, schema = self.opener(self.query(columns, where, int96_unit), size)
        self.stats = left.stats
        return schema, scanned(opener, left.numbers, schema, threads, progress)

    def opener(self, query: Query, size: int) -> tuple[FileOpener, Narrowed, pa.Schema]:
        """What opens the files that are left of a query, which those are, and the schema of the answer."""
        left = narrowed(query, self._indexes)
        opener = FileOpener(query, left.stats, size)
        try:
            shapes = [*zip(left.numbers, opener.shapes(left.numbers), strict=True), *left.shapes]
            schema = self._target(query, shapes)
            if query.differs([shape for _, shape in shapes]):
                # A value means what the table's type makes of it, and not the type of one file.
                query.bind(self.schema, self.leaves)
                left = narrowed(query, self._indexes)
                opener.close()
                opener = FileOpener(query, left.stats, size)
        except BaseException:
            # An error holds on to the frames that it came through, and so to the files that they had opened.
            opener.close()
            raise
        return opener, left, schema

    def probe(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> TableAnswer:
        """Ask the filters of all files.

        Returns:
            File → one list per row group, one verdict per value, as `SealedFile.probe`. A file without the column
            holds none of them; one that names the layers of its lists in another way may hold any.

        Raises:
            UsageError: a column that no file has, a partition column, or a value of the wrong kind.
        """
        found = self._ask(column, values)
        return TableAnswer((path, FileAnswer(map(verdicts, hits))) for path, hits in found)

    def maybe_present(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """As `probe`, an array of shape (files, values): False where no row group of the file holds the value.

        Raises:
            BloomsealError: as `probe`.
        """
        values = several(values)
        found = self._ask(column, values)
        none = np.zeros(len(values), dtype=np.bool_)
        rows = [np.logical_or.reduce([none, *(one.maybe for one in hits)]) for _, hits in found]
        return np.stack(rows) if rows else np.empty((0, len(values)), dtype=np.bool_)

    def open(self, number: int) -> SealedFile:
        """The file of this number in `files`; the caller closes it.

        Raises:
            BloomsealError: as `bloomseal.open_file`.
        """
        return self._parts.open(number)

    def advise(
        self,
        columns: Sequence[str] | None = None,
        *,
        queries: Mapping[str, Sequence[Any]] | None = None,
        fpp: float = 0.01,
        false_places: float = 0.001,
    ) -> list[ColumnAdvice]:
        """Tell for each column whether a filter, an index or neither is worth it, measured on a sample of row groups.

        Args:
            columns: dotted paths; None: all leaf columns.
            queries: column → values that queries look for. A column that none names gets neither.
            fpp, false_places: of the filter and the index to compare.

        Returns:
            One for each column, in the order of the schema.

        Raises:
            UsageError: a table without files, or no such column.
            BloomsealError: no file can be opened.
        """
        from .advice import advise

        return advise(self._parts, columns, queries=queries, fpp=fpp, false_places=false_places)

    def index(
        self,
        column: str,
        *,
        encryption: EncryptionSpec | PolicyChoice | None = None,
        **policy: Unpack[PolicyArguments],
    ) -> SealedIndex:
        """The sealed index of a column: build, update, compact, check, show or drop it. See docs/sealed-index.md.

        Args:
            column: dotted path of a leaf.
            encryption: what seals the column, and so its index; None: the policy that the table was opened with.
            policy: ``policy=`` and ``table=`` in its place, see `bloomseal.specs.PolicyArguments`.

        Raises:
            UnsupportedError: the table is not one folder. Each of several has its own indexes.
        """
        from ..index.sealed import SealedIndex

        if (files := self._indexes.only) is None:
            raise UnsupportedError("an index is that of a table in one folder", column=column, hint="one by one")
        sealing = resolve_policy(EncryptionSpec, encryption, [found.ref for found in self._parts.files], **policy)
        return SealedIndex(files, column, self._parts.decryption, sealing)

    def verify(
        self, *, threads: int | None = None, filters: bool = False, progress: Progress | None = None
    ) -> TableVerifyReport:
        """Open every module of every file that the keys at hand can open. A file that can't be opened is in the
        report, and the rest goes on.

        Args:
            filters: ask each filter for every value of its own column chunk, too. One that denies a value is a failure.
        """
        from .report import verify_files  # look-ups need not load this

        return verify_files(self._parts, threads, filters=filters, progress=progress)

    def inspect(self) -> TableInspection:
        """What the table is: files, rows, columns, keys, filters and indexes, as far as the keys at hand allow; without
        keys, what anybody sees. Opens every footer and no page. A file that can't be opened is told, and refuses
        nothing.
        """
        from .inspection import inspect_table

        return inspect_table(self._parts, self._indexes)

    def to_dict(self) -> dict[str, Any]:
        """As `inspect`, and the files' paths; of a table of very many files what is known without opening them."""
        told = self.inspect().to_dict() if len(self) <= _INSPECTED else {"version": self.version, "files": len(self)}
        return told | {"paths": [{"path": found.ref.path, "bytes": found.size} for found in self._parts.files]}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise no_rows("table", ".scan(columns, where) streams them, .read(columns, where) gives them as a table")

    def __len__(self) -> int:
        return len(self._parts.files)

    def __repr__(self) -> str:
        known = vars(self)
        facts = [counted(len(self), "file")]
        facts += [counted(known["num_rows"], "row")] if "num_rows" in known else []
        facts += [counted(len(known["_settled"][0]), "column")] if "_settled" in known else []
        facts += [f"version {self.version}"] if self.version is not None else []
        return f"<SealedTable of {', '.join(facts)}>"

    def query(self, columns: Sequence[str] | None, where: Any, int96_unit: str) -> Query:
        query = Query(self._parts, columns, from_text(where, lambda: self.leaves), int96_unit)
        if query.condition.needs_schema:
            query.bind(self.schema, self.leaves)
        return query

    def _target(self, query: Query, shapes: list[tuple[int, Shape]]) -> pa.Schema:
        shapes = sorted(shapes, key=lambda one: one[0])
        if len(query.numbers) == len(self) or not query.lacks([shape for _, shape in shapes]):
            return query.target(shapes)
        # The files that folders' names leave lack a column: the others say whether the table has it, and its type.
        every = range(len(self))
        return query.target(list(zip(every, side_by_side(query.shape_of, every, None), strict=True)))

    def _ask(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> list[tuple[str, list[Hits]]]:
        """Path, and the answer of each row group of each file."""
        if not isinstance(column, str):
            raise UsageError(f"a column's dotted path is a str, not {type(column).__name__}")
        values = several(values)
        if column in self._parts.partitions.values and not self._parts.partitions.stored:
            raise UsageError(
                "the column is in the folders' names, where no filter is", column=column, hint=Hint.CONDITION
            )
        need_logged(self._parts, [column])
        asked = values if isinstance(values, pa.Array | pa.ChunkedArray) else list(values)
        filled = column in self._parts.partitions.values  # by the log, in files that lack it
        known = {} if filled else known_values(self._indexes, column, asked, self.files)
        absent = Hits(np.zeros(len(asked), dtype=np.bool_), False)

        def one(number: int) -> tuple[str, bool, list[Hits]]:
            told = known.get(number)
            if told is not None and told.excluded is not None:
                return self.files[number], told.has, [absent] * told.groups
            with self._parts.open_named(number) as file:
                has = file.has(column)
                if not has:
                    file.plan()  # whether the footer is to be believed is asked there
                    nothing = Hits(~absent.maybe, True) if filled or file.leaves.may_hide(column) else absent
                    return file.path, False, [nothing] * file.num_row_groups
                hits = list(file.hits(column, asked))
                if told is not None and told.maybe is not None and told.is_same(file):
                    # Neither the filter nor the index ever calls a value absent that is there.
                    hits = [Hits(one.maybe & maybe, False) for one, maybe in zip(hits, told.maybe, strict=True)]
                return file.path, True, hits

        found = side_by_side(one, range(len(self)), None)
        if found and not self._parts.logged and not any(has for _, has, _ in found):
            raise no_such_column(column, self.columns)
        return [(path, hits) for path, _, hits in found]
