"""An open ORC file: its schema, stripes, and Bloom filters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ..errors import BloomsealError, UnsupportedError
from ..storage.ref import FileRef
from ..storage.source import FilePlace, Source
from ..verdict import Verdict
from .index import BloomFilter, Bounds, FilterKind, Stream, StripeIndex, bounds
from .protobuf import Message
from .schema import Column, Schema
from .tail import Stripe, Tail, read_tail
from .trust import why_untrusted as reason
from .values import Asked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

__all__ = ["FilterInfo", "OrcFile", "RowGroupVerdicts", "open_file"]


@dataclass(frozen=True, slots=True)
class FilterInfo:
    """A Bloom filter stream: one column's filters in one stripe.

    Attributes:
        column: dotted path.
        stripe: index from 0.
        kind: ``BLOOM_FILTER_UTF8``, or the older ``BLOOM_FILTER``.
        offset, length: in the file, in bytes.
        untrusted: why it proves nothing, or None.
    """

    column: str
    stripe: int
    kind: str
    offset: int
    length: int
    untrusted: str | None


@dataclass(frozen=True, slots=True)
class RowGroupVerdicts:
    """The answers of one row group.

    Attributes:
        stripe: index from 0.
        row_group: index from 0, within the stripe.
        verdicts: one per value. *Absent* is what statistics or filter exclude.
        untrusted: why a filter that is there proves nothing; else None.
    """

    stripe: int
    row_group: int
    verdicts: list[Verdict]
    untrusted: str | None = None


class Hits(NamedTuple):
    """As `RowGroupVerdicts`, an array with False where a value is absent; `asked`: a filter was."""

    stripe: int
    row_group: int
    maybe: npt.NDArray[np.bool_]
    asked: bool
    untrusted: str | None


class OrcFile:
    """A file opened by `open_file`; threads may share it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        with self._at():
            self._tail = read_tail(source)
        self._indexes: dict[int, StripeIndex] = {}

    @property
    def path(self) -> str:
        return self._source.name

    @property
    def schema(self) -> Schema:
        """The columns, nested ones too."""
        return self._tail.schema

    @property
    def columns(self) -> list[str]:
        """Leaf columns by dotted path."""
        return [column.name for column in self.schema.leaves]

    @property
    def stripes(self) -> list[Stripe]:
        return self._tail.stripes

    @property
    def num_rows(self) -> int:
        return self._tail.num_rows

    @property
    def compression(self) -> str:
        return self._tail.compression.name.lower()

    @property
    def source(self) -> Source:
        """The bytes."""
        return self._source

    @property
    def tail(self) -> Tail:
        """What the end of the file says."""
        return self._tail

    @property
    def encrypted_columns(self) -> list[str]:
        """Leaves that are encrypted, or masked for whoever has no key."""
        return [column.name for column in self.schema.leaves if column.id in self._tail.encrypted]

    @property
    def filters(self) -> list[FilterInfo]:
        """All Bloom filter streams that lie in clear, stripe by stripe; no filter is read for that.

        Raises:
            FormatError: a stripe footer is broken.
        """
        found = []
        for stripe in self.stripes:
            with self._at(stripe):
                index = self._index(stripe)
                for column in self.schema.columns:
                    if (stream := index.filter_stream(column.id)) is not None:
                        kind = FilterKind(stream.kind).name
                        why = self.why_untrusted(column, stream, index)
                        found.append(FilterInfo(column.name, stripe.index, kind, stream.offset, stream.length, why))
        return found

    def filter(self, stripe: int, column: str) -> list[BloomFilter] | None:
        """One filter per row group of a stripe, trusted or not; None where the stripe has none for the column.

        Raises:
            UsageError: no such column.
            UnsupportedError: the column is encrypted.
            FormatError: the filters are broken.
        """
        leaf, where = self._plain_leaf(column), self.stripes[stripe]
        with self._at(where, column):
            index = self._index(where)
            stream = index.filter_stream(leaf.id)
            return None if stream is None else index.filters(stream)

    def probe(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> list[RowGroupVerdicts]:
        """Ask statistics, then filters, for these values.

        Args:
            column: dotted path of a leaf.
            values: one or many. TIMESTAMP columns are asked for wall-clock times of the writer's zone, that is for
                datetimes without a zone; one with a zone is only decided where the writer's zone is UTC.

        Returns:
            One entry per row group, in the file's order. *No filter* where statistics leave a value possible and there
            is no filter, or an untrusted one.

        Raises:
            UsageError: no such column, or a value of the wrong kind.
            UnsupportedError: the column is encrypted.
            FormatError: indexes or filters are broken.
        """
        return [
            RowGroupVerdicts(hits.stripe, hits.row_group, _named(hits), hits.untrusted)
            for hits in self.hits(column, values)
        ]

    def hits(self, column: str, values: Sequence[Any] | pa.Array | pa.ChunkedArray) -> Iterator[Hits]:
        """As `probe`: one array of answers per row group, not named yet."""
        leaf = self._plain_leaf(column)
        given = list(values)
        zones: dict[str, Asked] = {}
        for stripe in self.stripes:
            with self._at(stripe, column):
                index = self._index(stripe)
                zone = index.writer_timezone
                if zone not in zones:
                    zones[zone] = Asked(given, leaf, zone=zone, hybrid=self._tail.hybrid_calendar)
                found = list(self._ask(index, leaf, zones[zone]))
            yield from found
        if not self.stripes:
            Asked(given, leaf, zone="", hybrid=False)  # a value of the wrong kind is refused in an empty file too

    def _ask(self, index: StripeIndex, leaf: Column, asked: Asked) -> Iterator[Hits]:
        stripe = index.stripe
        possible = asked.within(self._stripe_bounds(stripe, leaf))
        groups: list[Bounds] | None = None
        filters: list[BloomFilter] | None = None
        stream = why = None
        if possible.any():
            stream = index.filter_stream(leaf.id)
            why = self.why_untrusted(leaf, stream, index) if stream is not None else None
            groups = index.bounds(leaf.id)
            filters = index.filters(stream) if stream is not None else None
        for group in range(stripe.num_row_groups):
            left = possible & asked.within(groups[group] if groups else None)
            untrusted = why
            if filters and left.any() and why is None and filters[group].is_empty:
                untrusted = "untrusted: an empty filter, where statistics do not say that there are only nulls"
            believed = bool(filters) and untrusted is None
            if filters and believed:
                left = left & asked.maybe_in(filters[group])
            yield Hits(stripe.index, group, left, believed, untrusted)

    def _stripe_bounds(self, stripe: Stripe, leaf: Column) -> Bounds | None:
        found = self.stripe_statistics(stripe.index, leaf)
        return None if found is None else bounds(found)

    def stripe_statistics(self, stripe: int, column: Column) -> Message | None:
        """The ``ColumnStatistics`` of a column over a whole stripe; None where the file has none."""
        with self._at(self.stripes[stripe], column.name):
            statistics = self._tail.stripe_statistics
            columns = statistics[stripe].every(1) if statistics else []
            return Message(columns[column.id]) if len(columns) == len(self.schema.columns) else None

    def believed(self, stripe: int, column: Column) -> list[BloomFilter] | None:
        """The filters of a leaf that may say *absent*, one per row group; None where there are none. An empty one among
        them proves nothing, where statistics do not say that there are only nulls.

        Raises:
            FormatError: the filters are broken.
        """
        with self._at(where := self.stripes[stripe], column.name):
            index = self._index(where)
            stream = index.filter_stream(column.id)
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
        if stripe.index not in self._indexes:
            self._indexes[stripe.index] = StripeIndex(self._source, self._tail, stripe)
        return self._indexes[stripe.index]

    def why_untrusted(self, column: Column, stream: Stream, index: StripeIndex) -> str | None:
        """Why a filter stream proves nothing; None where it does."""
        if column.id in self._tail.encrypted:
            return "untrusted: in clear, on an encrypted column"
        return reason(column, stream.kind, self._tail, index.writer_timezone)

    def _plain_leaf(self, name: str) -> Column:
        with self._at():
            leaf = self.schema.leaf(name)
        self.need_open(leaf)
        return leaf

    def need_open(self, column: Column) -> None:
        """Refuse a column whose values lie sealed: without a key its streams hold masked values, or none.

        Raises:
            UnsupportedError: the column is encrypted.
        """
        with self._at(column=column.name):
            if column.id in self._tail.encrypted:
                raise UnsupportedError(
                    "the column is encrypted, and encrypted ORC columns can't be opened yet",
                    hint=".filters lists the filters that lie in clear",
                )

    @contextlib.contextmanager
    def _at(self, stripe: Stripe | None = None, column: str | None = None) -> Iterator[None]:
        try:
            yield
        except BloomsealError as error:
            raise error.at(file=self.path, column=column, module=stripe and stripe.place) from error.__cause__

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OrcFile {self.path!r}: {len(self.stripes)} stripes, {self.num_rows} rows>"


def _named(hits: Hits) -> list[Verdict]:
    undecided = Verdict.MAYBE_PRESENT if hits.asked else Verdict.NO_FILTER
    return [undecided if possible else Verdict.ABSENT for possible in hits.maybe.tolist()]


def open_file(path: FilePlace | FileRef, *, filesystem: FileSystem | None = None) -> OrcFile:
    """Open an ORC file: its tail is read, nothing else.

    Args:
        path: local path, URI, or path on `filesystem`; a file object that can seek, or the file's bytes.
        filesystem: of pyarrow or fsspec.

    Raises:
        FormatError: not an ORC file, truncated, or corrupt.
        UnsupportedError: a compression that is not ours.
        UsageError: the file can't be opened.
    """
    source = Source.open(path, filesystem)
    try:
        return OrcFile(source)
    except BaseException:
        source.close()
        raise
