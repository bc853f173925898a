"""`OrcFile`: the stripes of an ORC file, and what every open file answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.cached import cached_property
from ...core.columns import covers
from ...core.errors import Hint, UnsupportedError, UsageError
from ...core.parquet.schema import Leaf, Schema
from ...core.parquet.walk import Protection
from ...core.sbbf.probe import several
from ...core.storage.source import Source
from ...core.verdict import Hits
from ...format.hashes.truth import Truth
from ...format.inspect import Inspection
from ...format.verify import VerifyReport
from ...orc.filters import BloomFilter
from ...orc.index import need_range
from ...orc.layout import OrcLayout
from ...orc.protobuf import Message
from ...orc.schema import OrcColumn
from ...orc.tail import Stripe
from ...storage.formats import Format
from ..file import STREAMED, RowGroupInfo, SealedFile, Values
from ..plan import ReadStats
from ..predicate.predicate import Predicate
from ..prune import RowGroupSelection
from .columns import Columns, columns_of
from .inspect import inspect_orc
from .prune import ruled_out
from .truth import held_against_values
from .verify import verify_orc

if TYPE_CHECKING:
    from ...core.decryption import DecryptionSpec
    from ...policy import TablePolicy
_WORTH_LEAVING: Final = 256 * 1024
"""Bytes of a stripe's columns between two row groups: for fewer it is not decoded in two parts."""

Rows = npt.NDArray[np.int64]


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
        left: stripe → what `skips` left of it, until its rows are read.
    """

    wanted: list[int]
    order: list[str]
    predicate: Predicate | None
    empty: pa.Table
    stripe_bytes: list[int]
    stats: ReadStats = field(default_factory=ReadStats)
    bytes_read: int = 0
    left: dict[int, RowGroupSelection] = field(default_factory=dict)

    def size_of(self, part: int) -> int:
        """Roughly the bytes of one stripe, as stored."""
        return self.stripe_bytes[part]


class OrcFile(OrcLayout, SealedFile):
    """An open ORC file. Threads may share it; `open_file` makes it.

    Stripes, streams and filters are those of `OrcLayout`. A row group is one of ORC's: as many rows as the row index
    has a stride. pyarrow decodes whole stripes: a stripe is left alone where none of its row groups is left, and of the
    others the rows of surviving row groups are kept.

    Raises:
        As `OrcLayout`. UnsupportedError where columns are asked for: a type that pyarrow does not decode.
    """

    format: ClassVar = Format.ORC

    def __init__(self, source: Source, decryption: DecryptionSpec | TablePolicy | None = None) -> None:
        SealedFile.__init__(self, source, decryption)
        OrcLayout.__init__(self, source, self._decryption)

    @cached_property
    def _columns(self) -> Columns:
        return columns_of(self)

    @property
    def encrypted(self) -> bool:
        """Whether the file has an encrypted form of a column."""
        return bool(self.tail.sealed)

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
    def identity(self) -> bytes:
        """A digest of the encrypted local keys, which a rekey makes anew; empty where nothing is encrypted."""
        if self.encryption is None or not self.encrypted:
            return b""
        keys = [*(one.encrypted_keys for one in self.stripes), [one.encrypted_key for one in self.encryption.variants]]
        return hashlib.sha256(repr([[bytes(key) for key in some] for some in keys]).encode()).digest()

    @property
    def metadata(self) -> dict[bytes, bytes]:
        pairs = map(Message, Message(self.tail.raw_footer).every(5))
        return {bytes(pair.bytes(1)): bytes(pair.bytes(2)) for pair in pairs}

    def arrow_schema(self, int96_unit: str = "ns") -> pa.Schema:  # noqa: ARG002
        return pa.schema([one for one in self._columns.arrow if one.name not in self._columns.without])

    def leaf(self, column: str) -> Leaf:
        return self._columns.leaf(column)

    def has(self, column: str) -> bool:
        return self.leaves.has(column) or any(one.name == column for one in self.schema.leaves)

    @property
    def num_row_groups(self) -> int:
        return sum(stripe.num_row_groups for stripe in self.stripes)

    @property
    def row_groups(self) -> list[RowGroupInfo]:
        """All row groups; each has an even share of the bytes of its stripe's data."""
        found: list[RowGroupInfo] = []
        for stripe in self.stripes:
            share = stripe.data_length // max(1, stripe.num_row_groups)
            found += [
                RowGroupInfo(len(found) + place, end - first, share)
                for place, (first, end) in enumerate(self.row_spans(stripe.index))
            ]
        return found

    @property
    def num_parts(self) -> int:
        return len(self.stripes)

    def protection(self, leaf: Leaf) -> Protection:
        sealed = any(covers(name, leaf.name) for name in self.encrypted_columns)
        return Protection.COLUMN_KEY if sealed else Protection.PLAINTEXT

    def need_key(self, leaf: Leaf) -> None:
        self.need_open(self.stored(leaf.index))

    def has_filter(self, leaf: Leaf, part: int) -> bool:
        return self.believed(part, self.stored(leaf.index)) is not None

    def rows_in_part(self, part: int) -> int:
        return self.stripes[part].num_rows

    def bytes_in_part(self, part: int) -> int:
        return self.stripes[part].data_length

    def row_groups_in_part(self, part: int) -> int:
        return self.stripes[part].num_row_groups

    def column_type(self, column: str) -> str:
        """The column's type in ORC, in words."""
        return self.stored(self.leaf(column).index).type_name

    def maybe_present(self, column: str, values: Values) -> npt.NDArray[np.bool_]:
        """As `SealedFile.maybe_present`. Statistics are asked too, and make values absent without a filter."""
        none = np.empty((0, len(values := several(values))), np.bool_)
        return np.concatenate([none, *(one.maybe for one in self.answers(self._asked(column), values))])

    def hits(self, column: str, values: Values) -> Iterator[Hits]:
        """As `probe`: one array of answers per row group, not named yet. Statistics are asked too."""
        for answers in self.answers(self._asked(column), values):
            yield from answers.hits

    def _asked(self, column: str) -> str:
        stored = self.stored(self.leaf(column).index)
        self._expect(stored)
        return stored.name

    def plan(self, columns: Sequence[str] | None = None, where: Any = None, *, int96_unit: str = "ns") -> Any:
        """Check a read's arguments, as `read` takes and refuses them, without reading anything."""
        known = self._columns
        with self._at():
            self.keys.expectation.names(self.leaves)
        if lacking := [name for name in known.without if columns is None or name in columns]:
            raise UnsupportedError(
                "a type that only ORC has", file=self.path, column=lacking[0], hint=Hint.WITHOUT_COLUMN
            )
        wanted, order = self._wanted(columns, int96_unit)
        if not wanted:
            raise UsageError(
                "no columns are asked for", file=self.path, hint="columns=None for all; num_rows counts rows"
            )
        predicate = None if where is None else Predicate(where, self.leaves)
        for index in {*wanted, *(leaf.index for leaf in (predicate.leaves if predicate else ()))}:
            self._expect(self.stored(index))  # keys are asked for where something is opened
        known.names(wanted)  # refuses a part of a list
        empty = known.cut(wanted, order).empty_table()
        return OrcPlan(
            wanted,
            order,
            predicate,
            empty,
            [stripe.data_length for stripe in self.stripes],
            ReadStats(row_groups=self.num_row_groups),
        )

    def skips(self, plan: Any, part: int) -> bool:
        assert isinstance(plan, OrcPlan)  # noqa: S101
        if plan.predicate is None:
            plan.left[part] = RowGroupSelection(tuple(range(self.stripes[part].num_row_groups)))
            return False
        left = ruled_out(self, part, plan.predicate, self._columns.stored)
        plan.stats.exclude(left.excluded.values())
        if left.row_groups:
            plan.left[part] = left
        return not left.row_groups

    def pieces(self, plan: Any, part: int, size: int = STREAMED) -> Iterator[pa.Table]:  # noqa: ARG002
        assert isinstance(plan, OrcPlan)  # noqa: S101
        if part not in plan.left and self.skips(plan, part):
            return
        groups = plan.left.pop(part).row_groups
        plan.stats.count(decoded=len(groups))
        everything = plan.predicate is None
        table = self._decoded(plan, part, plan.wanted) if everything else self._matching(plan, part, groups)
        if table is not None:
            plan.stats.count(rows=table.num_rows)
            yield table.select(plan.order)

    def inspect(self) -> Inspection:
        return inspect_orc(self.source)

    def verify(self, *, filters: bool = False) -> VerifyReport:
        """Decode every index and filter; with `filters` also every stripe, and ask each filter for all values of its
        row group. Nothing authenticates them.
        """
        return verify_orc(self, self._columns, self.decode, filters=filters)

    def decode(self, part: int, leaves: Sequence[int]) -> pa.Table:
        """These leaves of a stripe, whole.

        Raises:
            UnsupportedError: a column that is encrypted, or of moments that pyarrow can't hold.
            FormatError: the stripe does not decode.
        """
        return self._decode(part, leaves)[0]

    def held_against_values(self, part: int, column: OrcColumn, filters: Sequence[BloomFilter]) -> list[Truth]:
        """Ask a stripe's filters of a column, one per row group, for every value of their row group.

        Raises:
            As `decode`.
        """
        index = next((index for index, one in self._columns.stored.items() if one.id == column.id), None)
        if index is None:
            raise UnsupportedError("a type that only ORC has, or several columns of one name", column=column.name)
        leaf = self.leaves.leaves[index]
        rows = self.decode(part, [one.index for one in self.leaves.below(leaf.path[0])])
        return held_against_values(self, part, column, leaf, rows, filters)

    def _decode(self, part: int, leaves: Sequence[int], groups: range | None = None) -> tuple[pa.Table, int]:
        columns = [self.stored(index) for index in leaves]
        for column in columns:
            self.need_open(column)
        with self._at():
            need_range((self.stripe_statistics(part, one), one) for one in columns)
        return self.decoded(part, columns, self._columns.names(leaves), groups)

    def _decoded(self, plan: OrcPlan, part: int, leaves: Sequence[int], groups: range | None = None) -> pa.Table:
        table, count = self._decode(part, leaves, groups)
        plan.bytes_read += count
        return table

    def _matching(self, plan: OrcPlan, part: int, kept: Sequence[int]) -> pa.Table | None:
        """The rows of these row groups that the predicate keeps."""
        spans = self.row_spans(part)
        near = [self._matching_of(plan, part, spans, one) for one in neighbourhoods(kept, self.stripes[part])]
        found = [one for one in near if one is not None]
        return pa.concat_tables(found) if found else None

    def _matching_of(
        self, plan: OrcPlan, part: int, every: Sequence[tuple[int, int]], kept: Sequence[int]
    ) -> pa.Table | None:
        """As `_matching`, with all between the first and the last row group decoded: first the predicate's columns.
        `every`: as `row_spans`.
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

    def _expect(self, column: OrcColumn) -> None:
        """Refuse a column in plaintext that must not be."""
        if column.id not in self.tail.encrypted:
            with self._at():
                self.keys.expectation.plaintext_column(column.name)

    def stored(self, index: int) -> OrcColumn:
        """A leaf, as the file has it.

        Raises:
            UnsupportedError: several columns have its name.
        """
        if (found := self._columns.stored.get(index)) is None:
            name = self.leaves.leaves[index].path[0]
            raise UnsupportedError(
                "several columns have the same name", file=self.path, column=name, hint=Hint.WITHOUT_COLUMN
            )
        return found


def neighbourhoods(kept: Sequence[int], stripe: Stripe) -> list[list[int]]:
    """Row groups, ascending, so that those between two that stand in one list are fewer bytes than are worth leaving
    out.
    """
    share = stripe.data_length / max(1, stripe.num_row_groups)
    found = [[kept[0]]] if kept else []
    for before, group in pairwise(kept):
        if (group - before - 1) * share > _WORTH_LEAVING:
            found.append([])
        found[-1].append(group)
    return found


def rows_of(spans: Sequence[tuple[int, int]]) -> Rows:
    """The numbers of the rows in these ranges."""
    return np.concatenate([np.arange(first, end) for first, end in spans] or [np.empty(0, np.int64)])
