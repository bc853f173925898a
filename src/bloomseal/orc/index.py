"""Stripe footers, row indexes and Bloom filter streams (ORC specification, "Stripes" and "Indexes")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..limits import MAX_ORC_FOOTER_BYTES, MAX_ORC_HASHES, MAX_ORC_INDEX_BYTES
from ..storage.source import Source
from .keys import LocalKeys, opening
from .protobuf import Message, fields, signed, zigzag
from .streams import Stream, StreamKind, placed
from .tail import Stripe, Tail

__all__ = [
    "BloomFilter",
    "Bounds",
    "FilterInfo",
    "FilterKind",
    "Filters",
    "StripeIndex",
    "bounds",
    "entry_statistics",
    "parsed_filter",
]

_WORD_BYTES: Final = 8
_NEAR: Final = 64 * 1024
"""Bytes between two streams that are read rather than asked past."""


class FilterKind(IntEnum):
    """Both carry the same bits; the values are those of the enum ``Stream.Kind``."""

    BLOOM_FILTER = 7
    BLOOM_FILTER_UTF8 = 8


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
class BloomFilter:
    """One row group's filter.

    Attributes:
        num_hashes: k.
        bitset: the words' bytes, little-endian; m is eight times their number.
    """

    num_hashes: int
    bitset: npt.NDArray[np.uint8]

    @property
    def num_bits(self) -> int:
        return 8 * len(self.bitset)

    @property
    def is_empty(self) -> bool:
        """No bit is set: so a filter over nulls looks, and one of a writer that forgot to fill it."""
        return not self.bitset.any()


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

    def exclude(self, value: int) -> bool:
        return (self.least is not None and value < self.least) or (self.greatest is not None and value > self.greatest)


class Filters(Sequence[BloomFilter]):
    """One per row group.

    Attributes:
        num_hashes: k of all of them, where `stack` is not None.
        stack: their bitsets, an array of shape (row groups, bytes), where all are of one size and number of hash
            functions; else None.
    """

    def __init__(self, each: Iterable[BloomFilter]) -> None:
        self._each = list(each)
        self.num_hashes = 0
        self.stack: npt.NDArray[np.uint8] | None = None

    @classmethod
    def stacked(cls, data: memoryview, count: int) -> Filters | None:
        """The filters of a stream whose entries are alike but for their bits, as writers make them; else None.

        Raises:
            FormatError: as `parsed_filter`.
        """
        if count < 2 or not len(data) or len(data) % count:
            return None
        rows = np.frombuffer(data, np.uint8).reshape(count, len(data) // count)
        try:
            whole = [*fields(memoryview(rows[0]))]
            # One entry and nothing behind it, in which nothing stands behind the bitset: so that this is a row's end.
            if [number for number, _ in whole] != [1] or isinstance(entry := whole[0][1], int):
                return None
            if [number for number, _ in fields(entry)] != [1, 3]:
                return None
        except FormatError:
            return None
        first = parsed_filter(entry)
        head = rows.shape[1] - len(first.bitset)
        # The bitset comes last: what stands before it is the same in each, and so is what it means.
        if not (rows[:, :head] == rows[0, :head]).all():
            return None
        made = cls(())
        made.num_hashes, made.stack = first.num_hashes, rows[:, head:]
        return made

    @overload
    def __getitem__(self, place: int) -> BloomFilter: ...
    @overload
    def __getitem__(self, place: slice) -> list[BloomFilter]: ...
    def __getitem__(self, place: int | slice) -> BloomFilter | list[BloomFilter]:
        if self.stack is None:
            return self._each[place]
        if isinstance(place, slice):
            return [BloomFilter(self.num_hashes, bitset) for bitset in self.stack[place]]
        return BloomFilter(self.num_hashes, self.stack[place])

    def __len__(self) -> int:
        return len(self._each if self.stack is None else self.stack)

    @cached_property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Those that have no bit set."""
        if self.stack is None:
            return np.array([one.is_empty for one in self], np.bool_)
        # Few begin with so many zeros, and only those are looked at whole.
        empty = np.asarray(~self.stack[:, :_WORD_BYTES].any(axis=1), np.bool_)
        doubtful = np.flatnonzero(empty)
        empty[doubtful] = ~self.stack[doubtful].any(axis=1)
        return empty


def bounds(statistics: Message) -> Bounds:
    """Take a ``ColumnStatistics`` apart; unknown kinds of statistics bound nothing."""
    least = greatest = None
    for field in (2, 7):  # IntegerStatistics, DateStatistics: minimum and maximum are sint64 and sint32
        if field in statistics:
            ends = Message(statistics.bytes(field))
            least = zigzag(ends.number(1)) if 1 in ends else None
            greatest = zigzag(ends.number(2)) if 2 in ends else None
    return Bounds(1 in statistics and signed(statistics.number(1)) == 0, least, greatest)


class StripeIndex:
    """The streams of one stripe, and what its indexes say.

    Args:
        keys: open encrypted streams.

    Raises:
        FormatError: streams that reach outside the stripe, or two of one kind and column.
    """

    def __init__(self, source: Source, tail: Tail, stripe: Stripe, keys: LocalKeys) -> None:
        self._source, self._tail, self.stripe, self._keys = source, tail, stripe, keys
        start = stripe.offset + stripe.index_length + stripe.data_length
        data = memoryview(source.read(start, stripe.footer_length))
        self.raw_footer = tail.inflate(data, MAX_ORC_FOOTER_BYTES)
        """The stripe footer's bytes, inflated."""
        self.footer = Message(self.raw_footer)
        self.writer_timezone = self.footer.text(3)
        """The zone of which TIMESTAMP values are wall-clock times; empty where the writer names none."""
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
        kinds = (FilterKind.BLOOM_FILTER_UTF8, FilterKind.BLOOM_FILTER)
        return [self._indexes[kind, column, variant] for kind in kinds if (kind, column, variant) in self._indexes]

    def filters(self, stream: Stream) -> Filters:
        """One filter per row group.

        Raises:
            FormatError: m or k that no writer makes, or not one entry per row group.
        """
        with self._opening(stream):
            data = self.inflated(stream)
            found = Filters.stacked(data, self.stripe.num_row_groups)
            return Filters(map(parsed_filter, self._split(data, "Bloom filters"))) if found is None else found

    def bounds(self, column: int, variant: int | None = None) -> list[Bounds] | None:
        """One per row group; None without a row index."""
        found = self.statistics(column, variant)
        return None if found is None else list(map(bounds, found))

    def statistics(self, column: int, variant: int | None = None) -> list[Message] | None:
        """The ``ColumnStatistics`` of each row group; None without a row index."""
        found = self.row_index(column, variant)
        return None if found is None else list(map(entry_statistics, found))

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

    def row_indexes(self, columns: Mapping[int, int | None]) -> dict[int, list[memoryview]]:
        """As `row_index`, of several columns at once; those that have none are left out.

        Args:
            columns: id → the variant, None for a stream in clear.
        """
        found = [self._indexes.get((StreamKind.ROW_INDEX, *one)) for one in columns.items()]
        streams = sorted((one for one in found if one is not None), key=lambda one: one.offset)
        if sum(one.length for one in streams) > MAX_ORC_INDEX_BYTES:
            raise FormatError(f"row indexes of more than {MAX_ORC_INDEX_BYTES} bytes")
        return {
            one.column: self._split(self._tail.inflate(data, MAX_ORC_INDEX_BYTES), "row index entries")
            for one, data in zip(streams, self.read_all(streams), strict=True)
        }

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
        found: list[memoryview] = []
        for number, value in fields(data):
            if number == 1 and not isinstance(value, int):
                found.append(value)
                if len(found) > self.stripe.num_row_groups:
                    break
        if len(found) != self.stripe.num_row_groups:
            # The stream of an encrypted column can have entries over the true values and over the masked ones.
            count = f"more than {len(found) - 1}" if len(found) > self.stripe.num_row_groups else str(len(found))
            raise FormatError(f"{count} {what} for {self.stripe.num_row_groups} row groups")
        return found


def entry_statistics(entry: memoryview) -> Message:
    """The ``ColumnStatistics`` of a ``RowIndexEntry``."""
    return Message(Message(entry).bytes(2))


def parsed_filter(entry: memoryview) -> BloomFilter:
    num_hashes = 0
    words, utf8 = bytearray(), memoryview(b"")
    for number, value in fields(entry):
        if number == 1 and isinstance(value, int):
            num_hashes = value
        elif number == 2 and not isinstance(value, int) and len(value) % _WORD_BYTES == 0:
            words += value  # one word, or several packed ones
        elif number == 3 and not isinstance(value, int):
            utf8 = value
    if words and utf8:
        raise FormatError("a Bloom filter with two bitsets: corrupt")
    bitset = np.frombuffer(utf8 or words, np.uint8)
    if not len(bitset) or len(bitset) % _WORD_BYTES:
        raise FormatError(f"a Bloom filter of {len(bitset)} bytes, which is no number of words: corrupt")
    if not 1 <= num_hashes <= MAX_ORC_HASHES:
        raise FormatError(f"a Bloom filter with {num_hashes} hash functions, where 1 to {MAX_ORC_HASHES} make sense")
    return BloomFilter(num_hashes, bitset)
