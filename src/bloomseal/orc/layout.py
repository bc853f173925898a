"""Where the stripes, streams and Bloom filters of an ORC file lie, and what opens them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError, FormatError, PolicyError, UnsupportedError
from ..core.sbbf.probe import several
from ..core.storage.source import Source
from .asking.answers import Answers, RowGroupVerdicts, asked_of_stripe, undecided
from .asking.trust import why_untrusted as reason
from .asking.values import OrcProbeSet
from .encryption import Encryption, Variant, number_of
from .filters import BloomFilter, Filters
from .index import FilterInfo, StripeIndex, bounds, need_range
from .keys import LocalKeys, expect, opening
from .protobuf import Message
from .rows.clear import ClearFile, clear_file
from .schema import OrcColumn, OrcSchema
from .statistics import GroupStatistics, fitting
from .streams import Stream, StreamKind
from .tail import Stripe, read_tail

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_HELD: Final = 4 * 1024 * 1024
"""Bytes of stripe footers that are kept, inflated; taken apart they are some fifty times as many."""
_UNAUTHENTICATED: Final = "untrusted: nothing authenticates it, and allow_ctr was not said"


class OrcLayout:
    """An ORC file as ORC has it. Threads may share it.

    Args:
        source: read from its tail on; stays open.
        decryption: what opens encrypted columns, and what is expected of them.

    Raises:
        PolicyError: the file is not encrypted as `decryption` expects.
        FormatError: not an ORC file, truncated, or corrupt.
        UnsupportedError: a compression that is not ours.
    """

    def __init__(self, source: Source, decryption: DecryptionSpec | None = None) -> None:
        self.source = source
        with self._at():
            if decryption is not None and decryption.signers is not None:
                what = "an ORC file in a table with signers: nothing ties its rows to its tail, which is what is signed"
                raise PolicyError(what, hint="Parquet files, or a table without signers")
            self.tail = read_tail(source)
            self.keys = LocalKeys(source, self.tail, decryption)
            expect(self.tail, self.keys.expectation)
        self._indexes: dict[int, StripeIndex] = {}
        self._held = 0

    @property
    def path(self) -> str:
        return self.source.name

    @property
    def schema(self) -> OrcSchema:
        """The columns, nested ones too."""
        return self.tail.schema

    @property
    def stripes(self) -> list[Stripe]:
        return self.tail.stripes

    @property
    def num_rows(self) -> int:
        return self.tail.num_rows

    @property
    def compression(self) -> str:
        return self.tail.compression.name.lower()

    @property
    def encrypted_columns(self) -> list[str]:
        """Leaves that are encrypted, or masked for whoever has no key."""
        return [column.name for column in self.schema.leaves if column.id in self.tail.encrypted]

    @property
    def encryption(self) -> Encryption | None:
        """Keys, masks and variants, by the footer's own account; None for a plaintext file. Needs no key."""
        return self.tail.encryption

    @property
    def filters(self) -> list[FilterInfo]:
        """All Bloom filter streams that readers would ask, stripe by stripe; no filter and no key is read for that.

        Raises:
            FormatError: a stripe footer is broken.
        """
        found = []
        for stripe in self.stripes:
            with self._at(stripe):
                index = self._index(stripe)
                for column in self.schema.columns:
                    variants = self.encryption.variants_of(column.id) if self.encryption else []
                    for variant in (None, *(one.index for one in variants)):
                        if (stream := index.filter_stream(column.id, variant)) is None:
                            continue
                        why = self.why_untrusted(column, stream, index)
                        place = (stripe.index, StreamKind(stream.kind).name, stream.offset, stream.length)
                        found.append(FilterInfo(column.name, *place, why, variant is not None))
        return found

    def filter(self, stripe: int, column: str) -> list[BloomFilter] | None:
        """One filter per row group of a stripe, trusted or not; None where the stripe has none for the column.

        Raises:
            UsageError: no such column.
            KeyAccessError: the column is encrypted, and its key can't be had.
            IntegrityError: wrong key, or altered bytes.
            FormatError: the filters are broken.
        """
        (leaf, variant), where = self.opened_leaf(column), self.stripes[stripe]
        with self._at(where, column):
            index = self._index(where)
            stream = index.filter_stream(leaf.id, number_of(variant))
            return None if stream is None else list(index.filters(stream))

    def verdicts(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> list[RowGroupVerdicts]:
        """Ask statistics, then filters, for these values.

        Args:
            column: dotted path of a leaf.
            values: one or many. TIMESTAMP columns are asked for wall-clock times of the writer's zone, that is for
                datetimes without a zone; one with a zone is only decided where the writer's zone is UTC.

        Returns:
            One entry per row group, in the file's order. *No filter* where statistics leave a value possible and there
            is no filter, or an untrusted one. Encrypted columns say *absent* only with ``allow_ctr``: nothing
            authenticates their statistics and filters.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
            KeyAccessError: the column is encrypted, and its key can't be had.
            IntegrityError: wrong key, or altered bytes.
            FormatError: indexes or filters are broken.
        """
        return [verdicts for answers in self.answers(column, values) for verdicts in answers.named()]

    def answers(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> Iterator[Answers]:
        """As `verdicts`, stripe by stripe: arrays, which are not named yet."""
        (leaf, variant), given = self.opened_leaf(column), several(values)
        zones: dict[str, OrcProbeSet] = {}
        for stripe in self.stripes:
            with self._at(stripe, column):
                index = self._index(stripe)
                zone = index.writer_timezone
                if zone not in zones:
                    zones[zone] = OrcProbeSet.of_column(given, leaf, zone=zone, hybrid=self.tail.hybrid_calendar)
                found = self._ask(index, leaf, variant, zones[zone])
            yield found
        if not self.stripes:
            OrcProbeSet.of_column(
                given, leaf, zone="", hybrid=False
            )  # a value of the wrong kind is refused in an empty file too

    def cleared(self, stripe: int, leaves: Sequence[OrcColumn], groups: range | None = None) -> ClearFile:
        """An ORC file in memory: one stripe, these leaves in clear, without indexes and statistics. pyarrow must be
        told to read these and no others.

        Args:
            groups: the row groups that are wanted, neighbours, from ``first`` of the result on: those before them come
                along where they can't be left out. None: all.

        Raises:
            KeyAccessError: a column is encrypted, and its key can't be had.
            PolicyError: a column is encrypted, and ``allow_ctr`` was not said: nothing authenticates its values.
            IntegrityError, FormatError: wrong key, or a broken stripe.
        """
        wanted: dict[int, Variant | None] = {}
        for leaf in leaves:
            with self._at(column=leaf.name):
                variant = self._variant(leaf)
                if variant is not None:
                    self.keys.need_ctr(leaf)
            where = self.stripes[stripe]
            own = () if variant is None else where.encrypted_keys[variant.index : variant.index + 1]
            if variant is not None and own != (variant.encrypted_key,):
                # Another local key than that of the statistics, which were asked before.
                with self._at(where, leaf.name):
                    self._index(where).bounds(leaf.id, variant.index)
            for column in self.schema.columns[: leaf.id + 1]:
                if leaf.id <= column.last:
                    wanted[column.id] = variant if variant is not None and column.id >= variant.root.id else None
        with self._at(where := self.stripes[stripe]):
            return clear_file(self.tail, self._index(where), wanted, groups)

    def rows(self, stripe: int, columns: Sequence[str]) -> pa.Table:
        """Leaf columns of a stripe, decoded by pyarrow; those inside others come in their structs. Of a list or a map
        all comes that is inside it.

        Raises:
            As `decoded`.
        """
        wanted = [self.schema.alone(self.opened_leaf(name)[0]) for name in columns]
        inside = [one for one in self.schema.leaves if any(top.id <= one.id <= top.last for top in wanted)]
        with self._at(self.stripes[stripe]):
            need_range(((self.stripe_statistics(stripe, one), one) for one in inside), said=True)
        return self.decoded(stripe, inside, [one.name for one in wanted])[0]

    def decoded(
        self, stripe: int, leaves: Sequence[OrcColumn], names: Sequence[str] | None, groups: range | None = None
    ) -> tuple[pa.Table, int]:
        """Leaves of a stripe, in the file's order, and how many bytes were read for them.

        Args:
            names: the same, as dotted paths for pyarrow; None: it would take one for another, so that all columns are
                read.
            groups: the row groups that are wanted, neighbours; None: all.

        Raises:
            UnsupportedError: a leaf is encrypted, and pyarrow would take another one for it.
            FormatError: the stripe does not decode, or has other rows than the footer says. And as `cleared`.
        """
        import pyarrow as pa
        import pyarrow.orc

        with self._at(where := self.stripes[stripe]):
            if names is None and any(leaf.id in self.tail.encrypted for leaf in leaves):
                raise UnsupportedError("several columns have the same path, and one is encrypted")
        clear = self.cleared(stripe, self.schema.leaves if names is None else leaves, groups)
        with self._at(where):
            try:
                reader = pyarrow.orc.ORCFile(pa.BufferReader(clear.data))
                batch = reader.read_stripe(0, columns=None if names is None else list(names))
                table = pa.Table.from_batches([batch])
                table.validate(full=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise FormatError(f"the stripe's rows do not decode: {type(error).__name__}") from error
            stride = self._stride(where)
            groups = range(where.num_row_groups) if groups is None else groups
            begin, first, end = (min(at * stride, where.num_rows) for at in (clear.first, groups.start, groups.stop))
            if table.num_rows != end - begin:
                raise FormatError(f"{table.num_rows} rows, the footer says {end - begin}: corrupt")
            return table.slice(first - begin), clear.num_bytes

    def row_spans(self, stripe: int) -> list[tuple[int, int]]:
        """The first row of each row group of a stripe, and the row after its last one."""
        where = self.stripes[stripe]
        stride = self._stride(where)
        return [(group * stride, min((group + 1) * stride, where.num_rows)) for group in range(where.num_row_groups)]

    def _stride(self, stripe: Stripe) -> int:
        """Rows of a row group, of which the last may have fewer."""
        return self.tail.row_index_stride or stripe.num_rows

    def _ask(self, index: StripeIndex, leaf: OrcColumn, variant: Variant | None, asked: OrcProbeSet) -> Answers:
        if variant is not None and not self.keys.allow_ctr:
            return undecided(index, len(asked), _UNAUTHENTICATED)
        found = self.stripe_statistics(index.stripe.index, leaf)
        with self._opening(leaf):
            known = None if found is None else bounds(found)
            why = functools.partial(self.why_untrusted, leaf, index=index)
            return asked_of_stripe(asked, index, leaf.id, number_of(variant), known, why)

    def stripe_statistics(self, stripe: int, column: OrcColumn) -> Message | None:
        """The ``ColumnStatistics`` of a column over a whole stripe; None where the file has none that may prove
        anything, for those that contradict the stripe's rows do not.

        Raises:
            KeyAccessError: the column is encrypted, and its key can't be had.
            FormatError, IntegrityError: they are broken.
        """
        with self._at(self.stripes[stripe], column.name):
            variant = self._variant(column)
            if variant is not None and not self.keys.allow_ctr:
                return None
            chain = [(one, self._of_stripe(stripe, one, variant)) for one in self.schema.down_to(column.id)]
            return fitting(chain, self.stripes[stripe].num_rows)

    def _of_stripe(self, stripe: int, column: OrcColumn, variant: Variant | None) -> Message | None:
        """Statistics of a column, or of one around it, as the file has them."""
        if variant is not None and column.id >= variant.root.id:
            found = self.keys.stripe_statistics(variant, column)
            return found[stripe] if found else None
        statistics = self.tail.stripe_statistics
        columns = statistics[stripe].every(1) if statistics else []
        return Message(columns[column.id]) if len(columns) == len(self.schema.columns) else None

    def statistics(self, stripe: int, column: OrcColumn) -> GroupStatistics | None:
        """As `stripe_statistics`, of each row group; None without a row index."""
        with self._at(where := self.stripes[stripe], column.name):
            variant = self._variant(column)
            if variant is not None and not self.keys.allow_ctr:
                return None
            return self._index(where).statistics(column.id, number_of(variant))

    def parsed(self, stripe: int, column: OrcColumn, known: GroupStatistics, at: Iterable[int]) -> list[Message | None]:
        """Take apart what `statistics` gave, for these row groups."""
        with self._at(self.stripes[stripe], column.name), self._opening(column):
            return [known.of(group) for group in at]

    def filter_stream(self, stripe: int, column: OrcColumn) -> Stream | None:
        """Where the filters lie that a probe of the column asks; of an encrypted one those under its local key."""
        with self._at(where := self.stripes[stripe], column.name):
            return self._index(where).filter_stream(column.id, number_of(self._variant(column)))

    def believed(self, stripe: int, column: OrcColumn) -> Filters | None:
        """The filters of a leaf that may say *absent*, one per row group; None where there are none. An empty one among
        them proves nothing, where statistics do not say that there are only nulls.

        As `StripeIndex.filters`; raises as `stripe_statistics`.
        """
        with self._at(where := self.stripes[stripe], column.name):
            index, stream = self._index(where), self.filter_stream(stripe, column)
            if stream is None or self.why_untrusted(column, stream, index) is not None:
                return None
            return index.filters(stream)

    def index(self, stripe: int) -> StripeIndex:
        """The index streams of a stripe.

        Raises:
            FormatError: the stripe's footer is broken.
        """
        with self._at(where := self.stripes[stripe]):
            return self._index(where)

    def _index(self, stripe: Stripe) -> StripeIndex:
        if (found := self._indexes.get(stripe.index)) is None:
            found = StripeIndex(self.source, self.tail, stripe, self.keys)
            self._held += len(found.raw_footer)
            if self._held > _MOST_HELD:
                self._indexes, self._held = {}, len(found.raw_footer)
            self._indexes[stripe.index] = found
        return found

    def why_untrusted(self, column: OrcColumn, stream: Stream, index: StripeIndex) -> str | None:
        """Why a filter stream proves nothing; None where it does."""
        if stream.variant is not None and not self.keys.allow_ctr:
            return _UNAUTHENTICATED
        if stream.variant is None and column.id in self.tail.encrypted:
            variants = self.encryption.variants_of(column.id) if self.encryption else []
            if any(index.filter_stream(column.id, one.index) is not None for one in variants):
                return "untrusted: for readers without a key, over masked values"
            return "untrusted: in clear, on an encrypted column"
        return reason(column, stream.kind, self.tail, index.writer_timezone)

    def opened_leaf(self, name: str) -> tuple[OrcColumn, Variant | None]:
        """The leaf, and the variant that it is read from; None where it lies in clear."""
        with self._at(column=name):
            leaf = self.schema.leaf(name)
            return leaf, self._variant(leaf)

    def _opening(self, column: OrcColumn) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._variant(column) is None else opening(column)

    def _variant(self, column: OrcColumn) -> Variant | None:
        return self.keys.variant_or_none(column)

    def need_open(self, column: OrcColumn) -> None:
        """Refuse a column whose rows can't be read: without a key its streams hold masked values, or none.

        Raises:
            KeyAccessError: the column is encrypted, and its key can't be had.
            PolicyError: it is, and ``allow_ctr`` was not said; or it lies in clear, and must be encrypted.
        """
        with self._at(column=column.name):
            if self._variant(column) is not None:
                self.keys.need_ctr(column)

    @contextlib.contextmanager
    def _at(self, stripe: Stripe | None = None, column: str | None = None) -> Iterator[None]:
        try:
            yield
        except BloomsealError as error:
            raise error.at(file=self.path, column=column, module=stripe and stripe.place) from error.__cause__
