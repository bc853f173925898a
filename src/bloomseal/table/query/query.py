"""A read over many files: which files it may touch, what it asks of each, and in which schema it answers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from ...core.cached import cached_property
from ...core.columns import covers
from ...core.errors import Hint, PolicyError, UsageError
from ...core.exclusion import Exclusion, by_index
from ...core.parquet.expectation import Expectation
from ...core.spelling import named_columns
from ...format.leaves import leaves_of
from ...read.file import SealedFile
from ...read.parquet import ParquetFile
from ...read.plan import Asked, ReadPlan
from ...read.predicate.condition import columns_of
from .conditions import Condition, Rest, alike
from .logged import need_logged, no_such_column
from .partitions import columns_of_folders, holds_only
from .parts import TableParts
from .schema import as_logged, conform, fits, unified

if TYPE_CHECKING:
    from ...core.parquet.schema import Schema
    from ...core.sbbf import ColumnType
    from ...index.facts.sameness import Kept
    from ...storage.logs.snapshot import Snapshot

_REMEMBERED: Final = 64


class Shape(NamedTuple):
    """What one file has of a query's columns.

    Attributes:
        schema: those asked for.
        filtered: those that the predicate is about, with their types.
        leaves: all columns of the file.
        lost: those of `schema` that are not read for lack of their key.
    """

    schema: pa.Schema
    filtered: Mapping[str, ColumnType]
    leaves: Schema
    lost: frozenset[str] = frozenset()


class Learnt(NamedTuple):
    """What a query asks of a file, and of others of the same `Query.likeness`. It holds nothing of the file."""

    left: Rest | Exclusion
    shape: Shape
    asked: Asked


class Fragment:
    """An opened file, and what the query asks of it.

    Args:
        file: stands for the file of that number, which has its schema; None: the file itself.

    Attributes:
        number: of the file, in the table.
        file: to be closed by whoever made this.
        shape: its columns among those asked for, in the order asked.
        plan: how its rows are read.
        left: what they are asked, or why none of them can match.
        groups: the parts to look at: row groups, of an ORC file stripes.
    """

    def __init__(self, query: Query, number: int, file: SealedFile | None = None) -> None:
        self.file = query.parts.open(number) if file is None else file
        try:
            self._make(query, number)
        except BaseException:
            self.file.close()
            raise

    def _make(self, query: Query, number: int) -> None:
        self._query, self.number = query, number
        if query.parts.snapshot is not None and not query.parts.partitions.stored:
            self._refuse_overruled(query.parts.partitions.values)
        like, lost = query.likeness(number, self.file), self._lost(query)
        like = (like, lost) if like is not None and lost else like
        if like is not None and (known := query.learnt.get(like)) is not None:
            self.left, self.shape = known.left, known.shape
            assert isinstance(self.file, ParquetFile)  # noqa: S101  # only of these there is a likeness
            self.plan: ReadPlan = self.file.plan_as(known.asked)
        else:
            self._learn(query, number, lost)
            if like is not None:
                query.learn(like, Learnt(self.left, self.shape, self.plan.asked))
        if query.parts.snapshot is None:
            for name in filter(self.file.has, query.parts.partitions.values):
                self._need_equal(name)
        self.groups = self._groups(query.kept.get(number))

    def _lost(self, query: Query) -> frozenset[str]:
        """The columns that are asked for and not read for lack of their key.

        Raises:
            KeyAccessError: the condition is about such a column.
        """
        if query.parts.without_key == "error":
            return frozenset()
        schema = self.file.leaves
        asked = schema.top_level if query.columns is None else query.columns
        for name in filter(schema.has, query.condition.columns):
            for leaf in schema.below(name):
                self.file.need_key(leaf)
        return self.file.lost([name for name in asked if schema.has(name)])

    def _learn(self, query: Query, number: int, lost: frozenset[str]) -> None:
        """What is asked of a file with these columns."""
        query.parts.need_names(self.file)
        schema = self.file.leaves
        known = query.parts.partitions
        if (
            known.stored
            and not known.authentic
            and (lacking := [name for name in known.values if not schema.has(name)])
        ):
            expected = Expectation.of_table(query.parts.decryption)
            for name in lacking:
                expected.outside(name)
        asked = schema.top_level if query.columns is None else query.columns
        names = [name for name in asked if schema.has(name)]
        for name in asked:
            if not schema.has(name) and schema.has(name.split(".")[0]) and name not in known.values:
                raise UsageError(
                    "no such column in this file", file=self.file.path, column=name, hint=name.split(".")[0]
                )
        decided = lambda name: not (query.parts.files_count and schema.has(name))  # noqa: E731
        self.left = query.condition.left(number, self.file, decided)
        where, again = (None, False) if isinstance(self.left, Exclusion) else self.left
        left = [name for name in names if schema.below(name)[0].path[0] not in lost] if lost else names
        counted = left or self._least(schema, where)
        if again:
            # Its rows are asked in the table's schema, once they are read.
            counted = list(dict.fromkeys([*counted, *filter(schema.has, query.condition.schema.names)]))
        self.plan = self.file.plan(counted or None, where, int96_unit=query.int96_unit)
        filtered = {name: schema.leaf(name).type for name in query.condition.columns if schema.has(name)}
        tops = {schema.below(name)[0].path[0] for name in names}
        whole = self.file.plan(names, int96_unit=query.int96_unit) if lost else self.plan
        found = whole.empty.schema
        if len(tops) < len(found):
            found = pa.schema([field for field in found if field.name in tops], found.metadata)
        self.shape = Shape(found, filtered, schema, lost)

    def _need_equal(self, name: str) -> None:
        """Refuse a file whose own values of a column, which count, are others than its folder's name gives: who asks
        for those has found the file ruled out.

        Raises:
            UsageError: they are; the column is sealed; or another file's folder gives it.
        """
        found, tree = self._query.parts.files[self.number], self._query.condition.tree
        given, folder = columns_of_folders(found.relative, found.ref.path), ""
        if name not in given or self.file.seals(self.file.leaves.below(name)[0]):
            folder = self._query.parts.folder_with(name, self.number)
        elif name in self.shape.schema.names or (tree is not None and name in columns_of(tree)):
            folder = "" if holds_only(self.file, name, given[name]) else "its folder, with another value"
        if folder:
            raise UsageError(
                f"the column is in the file, and in the name of {folder}", file=self.file.path, column=name,
                hint=Hint.NO_PARTITIONS,
            )  # fmt: skip

    def _refuse_overruled(self, logged: Iterable[str]) -> None:
        """What a table's log says counts and not what the file holds; but not of what is sealed.

        Raises:
            PolicyError: the file holds the column, encrypted.
        """
        schema = self.file.leaves
        for name in filter(schema.has, logged):
            if self.file.seals(schema.below(name)[0]):
                raise PolicyError(
                    "the column is sealed in the file, and the table's log gives other values", file=self.file.path,
                    column=name,
                )  # fmt: skip

    def _groups(self, kept: Kept | None) -> Sequence[int]:
        if isinstance(self.left, Exclusion):
            return range(0)
        # An index is about one file: another one may have taken its place since the index was asked.
        excluded = None if kept is None else by_index(kept, self.file, self.file.num_row_groups, kept.groups)
        if kept is None or excluded is None:
            return range(self.file.num_parts)
        self.plan.stats.exclude(excluded.values())
        self.plan.pages = kept.pages
        return kept.groups

    def rule_out(self) -> None:
        """Leave only those `groups` that statistics and filters leave, where few values are asked: to ask takes less
        than to hand a part over to another thread.
        """
        predicate = self.plan.predicate
        if predicate is not None and predicate.few:
            self.groups = [group for group in self.groups if not self.file.skips(self.plan, group)]

    def pieces(self, group: int, size: int) -> Iterator[pa.Table]:
        """The matching rows of one part in pieces, see `SealedFile.pieces`."""
        if self._only_counted:
            yield self._counted(group)
            return
        for rows in self.file.pieces(self.plan, group, size):
            if (found := self._matching(rows)) is not None:
                yield found

    @property
    def _only_counted(self) -> bool:
        """Whether nothing of the file is asked for but the number of its rows."""
        return self.shape.lost.issuperset(self.shape.schema.names) and self.left == Rest(None, False)

    def _counted(self, group: int) -> pa.Table:
        rows = self.file.rows_in_part(group)
        self.plan.stats.count(rows=rows)
        return pa.table({"": pa.nulls(rows)})

    def _matching(self, rows: pa.Table) -> pa.Table | None:
        """Those that the table's schema is needed for to tell."""
        if isinstance(self.left, Exclusion) or not self.left.again:
            return rows
        from ...read.rows import take  # look-ups that leave nothing need not load it

        condition = self._query.condition
        hits = condition.hits(self._query.in_schema(self.number, rows, condition.schema))
        self.plan.stats.count(rows=len(hits) - rows.num_rows)
        return take(rows, hits) if len(hits) else None

    def _least(self, schema: Schema, where: Any) -> list[str]:
        """A column to count rows by, where none is asked for: one of the predicate's, which is read anyway."""
        named = () if where is None else columns_of(where)
        return [name for name in named if schema.has(name)][:1] or schema.top_level[:1]


class Query:
    """A read whose arguments were found good, as far as that can be told without opening a file.

    Args:
        columns: as for `SealedFile.read`, partition columns too.
        where: likewise.
        int96_unit: as for `SealedFile.read`.

    Attributes:
        kept: number of a file → the row groups that indexes leave of it; see `narrow`.
        learnt: by `likeness`.

    Raises:
        UsageError: no columns, or a term about a partition column that is wrong.
    """

    def __init__(self, parts: TableParts, columns: Sequence[str] | None, where: Any, int96_unit: str = "ns") -> None:
        self.parts = parts
        self.int96_unit = int96_unit
        self.columns = None if columns is None else named_columns(columns)
        if self.columns is None and parts.snapshot is not None:
            self.columns = list(parts.snapshot.schema.names)
        doubted = None if parts.partitions.authentic else parts.decryption
        self.condition = Condition(where, parts.partitions, Expectation.of_table(doubted))
        need_logged(parts, self.condition.columns.union(self.columns or ()))
        if parts.snapshot is not None and (asked := self.condition.columns):
            # A value means what the log's type makes of it, whatever type a file has.
            named = pa.schema([one for one in parts.snapshot.schema if any(covers(one.name, name) for name in asked)])
            self.condition.bind(named, leaves_of(named))
        self.kept: dict[int, Kept] = {}
        self.learnt: dict[Hashable, Learnt] = {}

    def likeness(self, number: int, file: SealedFile) -> Hashable:
        """Equal for files of which the same is asked; None: nothing tells."""
        columns, signature = file.likeness, self.condition.signature
        return None if columns is None else (columns, None if signature is None else signature(number))

    def bind(self, schema: pa.Schema, leaves: Schema) -> None:
        """Have a value of the predicate mean what the table's types make of it, and not those of one file.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
        """
        self.condition.bind(schema, leaves)
        self.kept.clear()
        self.learnt.clear()
        vars(self).pop("numbers", None)

    def learn(self, like: Hashable, learnt: Learnt) -> None:
        """Ask the same of the next file of that likeness."""
        if len(self.learnt) >= _REMEMBERED:
            self.learnt.clear()
        self.learnt[like] = learnt

    @cached_property
    def numbers(self) -> list[int]:
        """The files that the query may touch."""
        every = range(len(self.parts.files))
        partitions = self.parts.partitions
        # A file outside such folders may hold the column itself, which only a look at it tells.
        opens = partitions.stored and not partitions.authentic
        opens = opens or not partitions.everywhere or self.condition.signature is None
        return list(every) if opens else [one for one in every if self.condition.excluded(one) is None]

    def shape_of(self, number: int) -> Shape:
        """What one file has of the columns."""
        fragment = Fragment(self, number)
        with fragment.file:
            return fragment.shape

    def lacks(self, shapes: Sequence[Shape]) -> bool:
        """Whether a column is in none of these files, or there are none."""
        names = {name for shape in shapes for name in shape.schema.names} | {*self.parts.partitions.values}
        filtered = names.union(*(shape.filtered for shape in shapes))
        asked = () if self.columns is None else self.columns
        return not shapes or any(name not in names for name in asked) or not self.condition.columns <= filtered

    def differs(self, shapes: Sequence[Shape]) -> bool:
        """Whether files differ in what a value of the predicate means: then it is bound to the table's schema."""
        if self.parts.logged:
            return False  # it is, to the log's
        for name in self.condition.columns:
            kinds = {shape.filtered[name] for shape in shapes if name in shape.filtered}
            if not all(alike(one, other) for one, other in combinations(kinds, 2)):
                return True
        return False

    def target(self, every: Sequence[tuple[int, Shape]]) -> pa.Schema:
        """The schema of the answer, from the shapes of all files that the query may touch, each with its number.

        Raises:
            UsageError: a column that no file has, or files whose types have none in common.
        """
        found = unified((self.parts.files[number].ref.path, shape.schema) for number, shape in every)
        shapes = [shape for _, shape in every]
        known = {name: values.type for name, values in self.parts.partitions.values.items()}
        fields = {field.name: field for field in found}
        if self.parts.snapshot is not None:
            fields = self._logged(fields, self.parts.snapshot)
        elif self.columns is None:
            fields |= {name: pa.field(name, kind) for name, kind in known.items() if name not in fields}
        lacking = self.condition.columns - {*known}.union(*(shape.filtered for shape in shapes))
        if lacking and not self.parts.logged:
            raise no_such_column(min(lacking), self._names())
        order = list(fields) if self.columns is None else [self._top(name, fields, known) for name in self.columns]
        gone = {name for shape in shapes for name in shape.lost} if self.parts.without_key == "drop" else set()
        order = [name for name in dict.fromkeys(order) if name not in gone]
        chosen = [fields[name] if name in fields else pa.field(name, known[name]) for name in order]
        return found if chosen == list(found) else pa.schema(chosen, found.metadata)

    def in_schema(self, number: int, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """A file's rows in the answer's schema."""
        if rows.schema is schema or rows.schema.equals(schema, check_metadata=True):
            return rows
        partitions = self.parts.partitions
        known = {
            name: partitions.typed(name, schema.field(name).type)[number]
            for name in partitions.values
            if name in schema.names and not (self.parts.files_count and name in rows.column_names)
        }
        path = self.parts.files[number].ref.path
        return conform(rows, schema, known, path, sealed_instants=self.parts.snapshot is not None)

    def _top(self, name: str, fields: dict[str, pa.Field], known: dict[str, pa.DataType]) -> str:
        if name in fields or name in known:
            return name
        if (top := name.split(".")[0]) in fields:
            return top
        raise no_such_column(name, self._names())

    def _names(self) -> list[str]:
        """The columns of all files and folders, whatever was asked for: for whoever misspelt one of them."""
        names: dict[str, None] = {}
        for number in range(len(self.parts.files)):
            with self.parts.open(number) as file:
                names |= dict.fromkeys(file.leaves.top_level)
        return [*(names | dict.fromkeys(self.parts.partitions.values))]

    def _logged(self, fields: dict[str, pa.Field], snapshot: Snapshot) -> dict[str, pa.Field]:
        """The columns in the types that the log gives them."""
        logged = {field.name: field for field in snapshot.schema}
        for name, field in fields.items():
            wanted = logged.get(name)
            if wanted is None or not fits(field.type, wanted.type):
                said = "nothing" if wanted is None else wanted.type
                raise UsageError(f"the files have {field.type}, and the table's log says {said}", column=name)
        nested = {
            name: field.with_type(
                as_logged(field.type, logged[name].type, whole=self.columns is None or name in self.columns)
            )
            for name, field in fields.items()
            if pa.types.is_nested(field.type)
        }
        return {name: nested.get(name, field) for name, field in logged.items()}
