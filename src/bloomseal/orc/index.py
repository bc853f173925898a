"""Stripe footers, row indexes and Bloom filter streams (ORC specification, "Stripes" and "Indexes")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..core.errors import FormatError, UnsupportedError
from ..core.limits import MAX_ORC_FOOTER_BYTES, MAX_ORC_INDEX_BYTES
from ..core.storage.source import Source
from .filters import Filters, parsed_filter
from .keys import LocalKeys, opening
from .protobuf import Message, fields, parts, zigzag
from .schema import MOMENTS, OrcColumn
from .statistics import GroupStatistics
from .streams import FILTER_KINDS, Stream, StreamKind, placed
from .tail import OrcTail, Stripe

_DAY: Final = 86_400_000_000_000
_PYARROW: Final = int(pa.__version__.partition(".")[0])
_RAISES: Final = 25
_NEAR: Final = 64 * 1024
"""Bytes between two streams that are read rather than asked past."""


@dataclass(frozen=True, slots=True)
class FilterInfo:
    """A Bloom filter stream: one column's filters in one stripe.

    Attributes:
        column: dotted path.
        stripe: index from 0.
        kind: ``BLOOM_FILTER_UTF8``, or the older ``BLOOM_FILTER``.
        offset, length: in the file, in bytes.
        untrusted: why it proves nothing, or None.
        encrypted: it lies under the column's local key.
    """

    column: str
    stripe: int
    kind: str
    offset: int
    length: int
    untrusted: str | None
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What statistics say of the values.

    Attributes:
        only_nulls: there is no value.
        least, greatest: of integers and of days since the epoch; None where nothing is said.
    """

    only_nulls: bool
    least: int | None = None
    greatest: int | None = None


def bounds(statistics: Message | None) -> Bounds:
    """Take a ``ColumnStatistics`` apart that `fitting` gave; unknown kinds of statistics bound nothing."""
    least = greatest = None
    if statistics is None:
        return Bounds(False)
    for field in (2, 7):  # IntegerStatistics, DateStatistics: minimum and maximum are sint64 and sint32
        if field in statistics:
            ends = Message(statistics.bytes(field))
            least = zigzag(ends.number(1)) if 1 in ends else None
            greatest = zigzag(ends.number(2)) if 2 in ends else None
    if least is not None and greatest is not None and least > greatest:
        least = greatest = None
    return Bounds(statistics.number(1) == 0, least, greatest)


def nanoseconds(statistics: Message) -> tuple[int, int] | None:
    """Between which the moments of a column lie, since 1970 and in UTC; None where nothing is said."""
    ends = Message(statistics.bytes(9))
    if 3 not in ends or 4 not in ends:
        return None
    return zigzag(ends.number(3)) * 1_000_000, zigzag(ends.number(4)) * 1_000_000


def need_range(columns: Iterable[tuple[Message | None, OrcColumn]], *, said: bool = False) -> None:
    """Refuse moments that Arrow's nanoseconds can't hold: pyarrow before 25 gives other ones and says nothing.

    Args:
        columns: their statistics, and what they are of.
        said: under such a pyarrow refuse moments of which statistics say nothing, too: what is made of them stays.

    Raises:
        UnsupportedError: the statistics tell of a moment outside of the years 1677 to 2262.
    """
    for found, column in columns:
        ends = None if found is None else nanoseconds(found) or _about(found)
        if ends is not None and not -(1 << 63) <= ends[0] <= ends[1] < 1 << 63:
            what = "a moment outside of the years 1677 to 2262, which pyarrow's nanoseconds can't hold"
            raise UnsupportedError(what, column=column.name, hint="other columns")
        unsaid = ends is None and (found is None or not bounds(found).only_nulls)
        if said and unsaid and column.kind in MOMENTS and _PYARROW < _RAISES:
            what = f"no statistics tell whether its moments are ones that pyarrow {_PYARROW} holds"
            raise UnsupportedError(what, column=column.name, hint=f"pyarrow {_RAISES}, which refuses the others")


def _about(statistics: Message) -> tuple[int, int] | None:
    """As `nanoseconds`, of older writers, who have said it in their own zone."""
    ends = Message(statistics.bytes(9))
    if 1 not in ends or 2 not in ends:
        return None
    return zigzag(ends.number(1)) * 1_000_000 - _DAY, zigzag(ends.number(2)) * 1_000_000 + _DAY


class StripeIndex:
    """The streams of one stripe, and what its indexes say.

    Args:
        keys: open encrypted streams.

    Raises:
        FormatError: streams that reach outside the stripe, or two of one kind and column.
    """

    def __init__(self, source: Source, tail: OrcTail, stripe: Stripe, keys: LocalKeys) -> None:
        self._source, self._tail, self.stripe, self._keys = source, tail, stripe, keys
        start = stripe.offset + stripe.index_length + stripe.data_length
        data = memoryview(source.read(start, stripe.footer_length))
        self.raw_footer = tail.inflate(data, MAX_ORC_FOOTER_BYTES)
        """The stripe footer's bytes, inflated."""
        self.footer = Message(self.raw_footer)
        self.writer_timezone = self.footer.text(3)
        """The zone in which TIMESTAMP values are wall-clock times; empty where the writer names none."""
        self.streams = placed(self.footer, stripe, tail.encryption, len(tail.schema.columns))
        self._indexes = {(one.kind, one.column, one.variant): one for one in self.streams if one.is_index}

    def filter_stream(self, column: int, variant: int | None = None) -> Stream | None:
        """The Bloom filter stream to ask, of two the younger kind.

        Args:
            variant: of an encrypted column, the place of its variant; None for a stream in clear.
        """
        return next(iter(self.filter_streams(column, variant)), None)

    def filter_streams(self, column: int, variant: int | None) -> list[Stream]:
        """Both kinds, the younger first."""
        names = [(kind, column, variant) for kind in FILTER_KINDS]
        return [self._indexes[name] for name in names if name in self._indexes]

    def filters(self, stream: Stream) -> Filters:
        """One filter per row group.

        Raises:
            FormatError: m or k that no writer makes, or not one entry per row group.
        """
        with self._opening(stream):
            data = self.inflated(stream)
            if (found := Filters.stacked(data, self.stripe.num_row_groups)) is not None:
                return found
            return Filters(map(parsed_filter, self._split(data, "Bloom filters")))

    def bounds(self, column: int, variant: int | None = None) -> list[Bounds] | None:
        """One per row group; None without a row index."""
        found = self.statistics(column, variant)
        return None if found is None else [bounds(found.of(group)) for group in range(self.stripe.num_row_groups)]

    def statistics(self, column: int, variant: int | None = None) -> GroupStatistics | None:
        """Those of each row group; None without a row index."""
        if (entries := self.row_index(column, variant)) is None:
            return None
        *around, own = self._tail.schema.down_to(column)
        chain = [(one, self.row_index(one.id, self._tail.variant_at(one, variant))) for one in around]
        rows = self.stripe.num_rows
        return GroupStatistics([*chain, (own, entries)], rows, self._tail.row_index_stride or rows)

    def row_index(self, column: int, variant: int | None = None) -> list[memoryview] | None:
        """The ``RowIndexEntry`` of each row group; None without a row index."""
        if (stream := self._indexes.get((StreamKind.ROW_INDEX, column, variant))) is None:
            return None
        return self._entries(stream, "row index entries")

    def inflated(self, stream: Stream) -> memoryview:
        """An index stream, opened and inflated.

        Raises:
            KeyAccessError: its key can't be had.
            FormatError: too long, or broken.
        """
        if stream.length > MAX_ORC_INDEX_BYTES:
            raise FormatError(f"an index stream of more than {MAX_ORC_INDEX_BYTES} bytes")
        return self._tail.inflate(self.read(stream), MAX_ORC_INDEX_BYTES)

    def read(self, stream: Stream) -> memoryview:
        """A stream's bytes, opened where it is encrypted, and still compressed.

        Raises:
            KeyAccessError: its key can't be had.
        """
        data = memoryview(self._source.read(stream.offset, stream.length))
        return data if stream.variant is None else self._keys.open(stream, self.stripe, data)

    def read_all(self, streams: Sequence[Stream]) -> list[memoryview]:
        """As `read`, of streams in the file's order; those that lie close together come by one request.

        Raises:
            KeyAccessError: a key can't be had.
        """
        runs: list[list[Stream]] = []
        for stream in streams:
            if runs and 0 <= stream.offset - (runs[-1][-1].offset + runs[-1][-1].length) <= _NEAR:
                runs[-1].append(stream)
            else:
                runs.append([stream])
        found = []
        for run in runs:
            start = run[0].offset
            data = memoryview(self._source.read(start, run[-1].offset + run[-1].length - start))
            for stream in run:
                one = data[stream.offset - start :][: stream.length]
                found.append(one if stream.variant is None else self._keys.open(stream, self.stripe, one))
        return found

    def masked_entries(self, stream: Stream) -> list[memoryview] | None:
        """Of a clear stream on an encrypted column, the entries over masked values: some writers leave one per row
        group over the true values, and then one over the masked ones. None where it is not so.

        Raises:
            FormatError: the stream is broken.
        """
        count = self.stripe.num_row_groups
        every = [value for field, value in fields(self.inflated(stream)) if field == 1]
        found = [value for value in every if not isinstance(value, int)]
        return found[count:] if len(found) == len(every) == 2 * count else None

    def entries(self, stream: Stream) -> list[memoryview]:
        """One ``BloomFilter`` message per row group. Raises FormatError."""
        return self._entries(stream, "Bloom filters")

    def _entries(self, stream: Stream, what: str) -> list[memoryview]:
        with self._opening(stream):
            return self._split(self.inflated(stream), what)

    def _opening(self, stream: Stream) -> AbstractContextManager[None]:
        return nullcontext() if stream.variant is None else opening(self._tail.schema.columns[stream.column])

    def _split(self, data: memoryview, what: str) -> list[memoryview]:
        found = parts(data, self.stripe.num_row_groups + 1)
        if len(found) != self.stripe.num_row_groups:
            # The stream of an encrypted column can have entries over the true values and over the masked ones.
            count = f"more than {len(found) - 1}" if len(found) > self.stripe.num_row_groups else str(len(found))
            raise FormatError(f"{count} {what} for {self.stripe.num_row_groups} row groups")
        return found
