"""`SealedOrcFile`: an ORC file with the face of `SealedFile`, so that a table may have files of this format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.cached import cached_property
from ...core.columns import covers
from ...core.decryption import DecryptionSpec
from ...core.errors import BloomsealError, Hint, UnsupportedError, UsageError
from ...core.parquet.expectation import Expectation
from ...core.parquet.schema import Leaf, Schema
from ...core.storage.source import Source
from ...format.hashes.truth import Truth
from ...format.verify import VerifyReport
from ...orc import BloomFilter, Column, OrcFile
from ...orc.index import need_range
from ...specs import decryption_for
from ...storage.baton import waiting
from ...storage.formats import Format
from ..file import RowGroupInfo, SealedFile
from ..plan import ReadStats
from ..predicate.predicate import Predicate
from ..verdict import Hits
from .columns import Columns, columns_of
from .prune import Pruned, ruled_out
from .rows import decoded, neighbourhoods, row_groups, rows_of
from .truth import held_against_values
from .verify import verify_orc

if TYPE_CHECKING:
    from ...policy import TablePolicy

__all__ = ["OrcPlan", "SealedOrcFile"]


@dataclass
class OrcPlan:
    """A read whose arguments were found good.

    Attributes:
        wanted: leaves of the result, ascending.
        order: its top-level fields.
        predicate: which rows; None for all.
        empty: the result without rows.
        stripe_bytes: as stored, all columns together.
        stats: filled while it runs.
        bytes_read: of the stripes' data; those of indexes and filters are not counted.
        left: stripe → what `pruned` left of it, until its rows are read.
    """

    wanted: list[int]
    order: list[str]
    predicate: Predicate | None
    empty: pa.Table
    stripe_bytes: list[int]
    stats: ReadStats = field(default_factory=ReadStats)
    bytes_read: int = 0
    left: dict[int, Pruned] = field(default_factory=dict)

    def size_of(self, part: int) -> int:
        """Roughly the bytes of one stripe, as stored."""
        return self.stripe_bytes[part]


class SealedOrcFile(SealedFile):
    """An open ORC file. Threads may share it; `open_file` makes it.

    A row group is one of ORC's: as many rows as the row index has a stride. pyarrow decodes whole stripes: a stripe is
    left alone where none of its row groups is left, and of the others the rows of surviving row groups are kept.

    Attributes:
        orc: the file, as ORC has it.
        stats: what the last `read` did.

    Raises:
        UnsupportedError: a type that pyarrow does not decode.
        PolicyError: a file in plaintext where an encrypted one was expected.
    """

    format: ClassVar = Format.ORC

    def __init__(self, source: Source, decryption: DecryptionSpec | TablePolicy | None) -> None:
        self._source = source
        self._decryption = decryption_for(decryption, source.ref)
        self._expectation = Expectation.of(self._decryption)
        self.orc = OrcFile(source, self._decryption)
        self.stats = ReadStats()
        if not self.encrypted:
            with self._at():
                self._expectation.plaintext_file()

    @cached_property
    def _columns(self) -> Columns:
        return columns_of(self.orc)

    @property
    def encrypted(self) -> bool:
        """Has the file an encrypted form of a column?"""
        return bool(self.orc.tail.sealed)

    @property
    def footer_verified(self) -> bool:
        """Never: nothing authenticates the tail of an ORC file."""
        return False

    def need_verified(self, what: str) -> None:
        """Nothing could be verified: encrypted columns ask for ``allow_ctr`` where they are opened."""

    @property
    def leaves(self) -> Schema:
        return self._columns.leaves

    @property
    def likeness(self) -> None:
        """Nothing tells: each file is planned by itself."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns that `leaves` are of, as pyarrow decodes them."""
        return pa.schema([one for one in self._columns.arrow if one.name not in self._columns.without])

    def leaf(self, column: str) -> Leaf:
        return self._columns.leaf(column)

    def has(self, column: str) -> bool:
        return self.leaves.has(column) or any(one.name == column for one in self.orc.schema.leaves)

    @property
    def num_rows(self) -> int:
        return self.orc.num_rows

    @property
    def num_row_groups(self) -> int:
        return sum(stripe.num_row_groups for stripe in self.orc.stripes)

    @property
    def row_groups(self) -> list[RowGroupInfo]:
        """All row groups; each has an even share of the bytes of its stripe's data."""
        found: list[RowGroupInfo] = []
        for stripe in self.orc.stripes:
            share = stripe.data_length // max(1, stripe.num_row_groups)
            found += [
                RowGroupInfo(len(found) + place, end - first, share)
                for place, (first, end) in enumerate(row_groups(self.orc, stripe.index))
            ]
        return found

    @property
    def num_parts(self) -> int:
        return len(self.orc.stripes)

    def seals(self, leaf: Leaf) -> bool:
        return any(covers(name, leaf.name) for name in self.orc.encrypted_columns)

    def rows_in_part(self, part: int) -> int:
        return self.orc.stripes[part].num_rows

    @property
    def _footer(self) -> NoReturn:  # type: ignore[override]
        raise self._not_parquet()

    @property
    def _walk(self) -> NoReturn:  # type: ignore[override]
        raise self._not_parquet()

    @contextlib.contextmanager
    def _at(self) -> Iterator[None]:
        try:
            yield
        except BloomsealError as error:
            raise error.at(file=self.path) from error.__cause__

    @property
    def walk(self) -> NoReturn:
        """Parquet's modules: an ORC file has none.

        Raises:
            UnsupportedError: always.
        """
        raise self._not_parquet()

    def _not_parquet(self) -> UnsupportedError:
        return UnsupportedError(
            "an ORC file, where this works on Parquet files", file=self.path, hint=".orc is the file as ORC has it"
        )

    def column_type(self, column: str) -> str:
        """The column's type in ORC, in words."""
        return self.stored(self.leaf(column).index).type_name

    def filter(self, row_group: int, column: str) -> NoReturn:  # noqa: ARG002
        """Parquet's filter.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "ORC's filters are of another kind", file=self.path, column=column, hint=".orc.filter(stripe, column)"
        )

    def maybe_present(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """As `SealedFile.maybe_present`. Statistics are asked too, and make values absent without a filter."""
        return self.orc.maybe_present(self._asked(column), values)

    def hits(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> Iterator[Hits]:
        """As `probe`: one array of answers per row group, not named yet. Statistics are asked too."""
        for answers in self.orc.answers(self._asked(column), values):
            for maybe, asked in zip(answers.maybe, answers.asked.tolist(), strict=True):
                yield Hits(maybe, not asked)

    def _asked(self, column: str) -> str:
        stored = self.stored(self.leaf(column).index)
        self._expect(stored)
        return stored.name

    def plan(self, columns: Sequence[str] | None = None, filters: Any = None, *, int96_unit: str = "ns") -> Any:
        """Check a read's arguments, as `read` takes and refuses them, without reading anything."""
        if int96_unit not in ("ns", "us"):
            raise UsageError("int96_unit= is 'ns' or 'us'")
        schema, known = self.leaves, self._columns
        with self._at():
            self._expectation.names(schema)
        if lacking := [name for name in known.without if columns is None or name in columns]:
            raise UnsupportedError(
                "a type that only ORC has", file=self.path, column=lacking[0], hint=Hint.WITHOUT_COLUMN
            )
        names = list(dict.fromkeys(schema.top_level if columns is None else columns))
        if not names:
            raise UsageError(
                "no columns are asked for", file=self.path, hint="columns=None for all; num_rows counts rows"
            )
        wanted = sorted({leaf.index for name in names for leaf in schema.below(name)})
        order = list(dict.fromkeys(schema.below(name)[0].path[0] for name in names))
        predicate = None if filters is None else Predicate(filters, schema)
        for index in {*wanted, *(leaf.index for leaf in (predicate.leaves if predicate else ()))}:
            self._expect(self.stored(index))  # keys are asked for where something is opened
        known.names(wanted)  # refuses a part of a list
        empty = known.cut(wanted, order).empty_table()
        return OrcPlan(
            wanted,
            order,
            predicate,
            empty,
            [stripe.data_length for stripe in self.orc.stripes],
            ReadStats(row_groups=self.num_row_groups),
        )

    def skips(self, plan: Any, part: int) -> bool:
        assert isinstance(plan, OrcPlan)  # noqa: S101
        left = self.pruned(plan, part)
        if left.kept:
            plan.left[part] = left
            return False
        self.scan_part(plan, part, left)  # which counts
        return True

    def scan_part(self, plan: Any, part: int, left: Pruned | None = None) -> pa.Table | None:
        """The matching rows of one stripe; None where there are none. Counts into ``plan.stats``. `left`: of `pruned`,
        where that was asked before.
        """
        assert isinstance(plan, OrcPlan)  # noqa: S101
        if plan.predicate is None:
            plan.stats.count(decoded=self.orc.stripes[part].num_row_groups)
            with waiting():
                table = self._decoded(plan, part, plan.wanted)
        else:
            left = left or plan.left.pop(part, None) or self.pruned(plan, part)
            plan.stats.count(pruned_by_statistics=left.by_statistics, pruned_by_filter=left.by_filter)
            if not left.kept:
                return None
            plan.stats.count(decoded=len(left.kept))
            with waiting():
                found = self._matching(plan, part, left.kept)
            if found is None:
                return None
            table = found
        plan.stats.count(rows=table.num_rows)
        return table.select(plan.order)

    def pieces(self, plan: Any, part: int) -> Iterator[pa.Table]:
        """As `scan_part`: pyarrow decodes a stripe in one piece."""
        if (found := self.scan_part(plan, part)) is not None:
            yield found

    def pruned(self, plan: Any, part: int) -> Pruned:
        """The row groups of a stripe that statistics and filters leave.

        Raises:
            FormatError: an index or a filter is broken.
        """
        assert isinstance(plan, OrcPlan)  # noqa: S101
        if plan.predicate is None:
            return Pruned(list(range(self.orc.stripes[part].num_row_groups)))
        return ruled_out(self.orc, part, plan.predicate, self._columns.stored)

    def verify(self, *, filters: bool = False) -> VerifyReport:
        """Decode every index and filter; with `filters` also every stripe, and ask each filter for all values of its
        row group. Nothing authenticates them.
        """
        return verify_orc(self.orc, self._columns, self.decode, filters=filters)

    def decode(self, part: int, leaves: Sequence[int]) -> pa.Table:
        """These leaves of a stripe, whole.

        Raises:
            UnsupportedError: a column that is encrypted, or of moments that pyarrow can't hold.
            FormatError: the stripe does not decode.
        """
        return self._decode(part, leaves)[0]

    def held_against_values(self, part: int, column: Column, filters: Sequence[BloomFilter]) -> list[Truth]:
        """Ask a stripe's filters of a column, one per row group, for every value of their row group.

        Raises:
            As `decode`.
        """
        index = next((index for index, one in self._columns.stored.items() if one.id == column.id), None)
        if index is None:
            raise UnsupportedError("a type that only ORC has, or several columns of one name", column=column.name)
        leaf = self.leaves.leaves[index]
        rows = self.decode(part, [one.index for one in self.leaves.below(leaf.path[0])])
        return held_against_values(self.orc, part, column, leaf, self._columns.place(index), rows, filters)

    def _decode(self, part: int, leaves: Sequence[int], groups: range | None = None) -> tuple[pa.Table, int]:
        columns = [self.stored(index) for index in leaves]
        for column in columns:
            self.orc.need_open(column)
        with self._at():
            need_range((self.orc.stripe_statistics(part, one), one) for one in columns)
        return decoded(self.orc, part, columns, self._columns.names(leaves), groups)

    def _decoded(self, plan: OrcPlan, part: int, leaves: Sequence[int], groups: range | None = None) -> pa.Table:
        table, count = self._decode(part, leaves, groups)
        plan.bytes_read += count
        return table

    def _matching(self, plan: OrcPlan, part: int, kept: Sequence[int]) -> pa.Table | None:
        """The rows of these row groups that the predicate keeps."""
        spans = row_groups(self.orc, part)
        near = [self._matching_of(plan, part, spans, one) for one in neighbourhoods(kept, self.orc.stripes[part])]
        found = [one for one in near if one is not None]
        return pa.concat_tables(found) if found else None

    def _matching_of(
        self, plan: OrcPlan, part: int, every: Sequence[tuple[int, int]], kept: Sequence[int]
    ) -> pa.Table | None:
        """As `_matching`, with all between the first and the last row group decoded: first the predicate's columns.
        `every`: as `row_groups`.
        """
        assert plan.predicate is not None  # noqa: S101
        begin = every[kept[0]][0]
        spans = [(start - begin, end - begin) for start, end in (every[group] for group in kept)]
        tops = [leaf.path[0] for leaf in self.leaves.leaves]
        looked_at = sorted(leaf.index for leaf in plan.predicate.leaves)
        whole = self._decoded(plan, part, looked_at, range(kept[0], kept[-1] + 1))
        first = pa.concat_tables([whole.slice(start, end - start) for start, end in spans])
        hits = plan.predicate.hits(first)
        if not len(hits):
            return None
        # A field is taken over from what was decoded only where it is wanted in the same shape.
        same = {tops[index] for index in plan.wanted} & {tops[index] for index in looked_at}
        same -= {tops[index] for index in {*plan.wanted} ^ {*looked_at}}
        rest = [index for index in plan.wanted if tops[index] not in same]
        places = rows_of(spans)[hits] + begin
        taken = [first.select(sorted(same)).take(pa.array(hits))]
        if rest:
            # The other columns from the first row group that has a match to the last one.
            ends = np.array([every[group][1] for group in kept])
            low, high = (kept[at] for at in np.searchsorted(ends, places[[0, -1]], side="right").tolist())
            table = self._decoded(plan, part, rest, range(low, high + 1))
            taken.append(table.take(pa.array(places - every[low][0])))
        fields = {name: one.column(name) for one in taken for name in one.column_names}
        return pa.Table.from_arrays([fields[name] for name in plan.order], schema=plan.empty.schema)

    def _expect(self, column: Column) -> None:
        """Refuse a column in plaintext that must not be."""
        if column.id not in self.orc.tail.encrypted:
            with self._at():
                self._expectation.plaintext_column(column.name)

    def stored(self, index: int) -> Column:
        """A leaf, as the file has it.

        Raises:
            UnsupportedError: several columns have its name.
        """
        if (found := self._columns.stored.get(index)) is None:
            name = self.leaves.leaves[index].path[0]
            raise UnsupportedError("several columns have the same name", file=self.path, column=name)
        return found
