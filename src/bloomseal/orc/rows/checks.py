"""Streams of a stripe, checked before pyarrow's C++ library decodes them.

It believes what streams say of one another: lengths of texts and lists, patches of packed runs, tags of unions. Nobody
authenticates these bytes. So the numbers that lead into memory are decoded here, and all other runs are walked through.
What is behind the last value is left alone: no reader looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ...core.errors import FormatError, UnsupportedError
from ...core.limits import MAX_ORC_VALUES
from ..protobuf import Message
from ..runs.choose import histogram, sum_of
from ..runs.walk import CUT, MALFORMED
from ..schema import MOMENTS, TEXTS, OrcColumn, OrcKind
from ..streams import StreamKind

_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)
_ONES: Final = np.array([value.bit_count() for value in range(256)], np.int64)
_INTS: Final = (OrcKind.SHORT, OrcKind.INT, OrcKind.LONG, OrcKind.DATE)
_FLOAT_BYTES: Final = {OrcKind.FLOAT: 4, OrcKind.DOUBLE: 8}
_LONGEST: Final = (1 << 31) - 1
_MOST_SCALE: Final = 38
_WORDS: Final = {CUT: "ends before its values", MALFORMED: "has a run that no writer makes"}

_ROOM: Final = 8
_PIECE: Final = 1 << 16
_WIDE: Final = {OrcKind.STRUCT: 1, OrcKind.DECIMAL: 16, OrcKind.TIMESTAMP: 16, OrcKind.TIMESTAMP_INSTANT: 16}
"""Bytes that a value takes where it is decoded, a null one too; texts take their own on top."""

Streams = Mapping[tuple[int, int], memoryview]


class Encoding(NamedTuple):
    """How a column is encoded (``ColumnEncoding``).

    Attributes:
        kind: ``DIRECT``, ``DICTIONARY``, ``DIRECT_V2``, ``DICTIONARY_V2``, from 0.
        dictionary_size: entries.
    """

    kind: int
    dictionary_size: int

    @classmethod
    def parsed(cls, message: memoryview) -> Encoding:
        found = Message(message)
        return cls(found.number(1), found.number(2))

    @property
    def version(self) -> int:
        """Of integers' run-length encoding."""
        return 2 if self.kind & 2 else 1

    @property
    def is_dictionary(self) -> bool:
        return bool(self.kind & 1)


def check_zone(name: str) -> None:
    """A stripe's time zone is the name of a file for whoever decodes moments.

    Raises:
        FormatError: it leads out of the folder of zones.
    """
    if name and not _ZONE.fullmatch(name):
        raise FormatError("a writer's time zone that is no name of one: corrupt")


def check_streams(
    columns: Sequence[OrcColumn],
    wanted: Collection[int],
    encodings: Sequence[Encoding],
    streams: Streams,
    rows: int,
    budget: int,
) -> None:
    """Refuse streams on which a decoder could stumble, and those that decode to more than is to be held.

    Args:
        columns: of the schema, by id.
        wanted: ids of those that will be decoded, with all above them.
        encodings: one per column of the schema.
        streams: kind and column → bytes, inflated.
        rows: of the stripe.
        budget: bytes to which all of them together may decode.

    Raises:
        FormatError: they decode to more; or a stream ends too early, has a run that can't be, or leads out of another
            one; it names column and stream.
        UnsupportedError: a type or an encoding that nobody knows.
    """
    checks = _Checks(columns, wanted, encodings, streams)
    checks.column(columns[0], rows)
    checks.need_room(budget)


class _Checks:
    def __init__(
        self, columns: Sequence[OrcColumn], wanted: Collection[int], encodings: Sequence[Encoding], streams: Streams
    ) -> None:
        self._columns, self._wanted, self._encodings, self._streams = columns, wanted, encodings, streams
        self._size = 0
        self._texts_at_most: list[tuple[int, OrcColumn, int]] = []
        """Of texts from dictionaries: bytes that they take at most, and how many they are."""

    def need_room(self, budget: int) -> None:
        """Refuse what decodes to more bytes than these, before anything is decoded."""
        size = self._size + sum(most for most, _, _ in self._texts_at_most)
        for most, column, values in sorted(self._texts_at_most, key=lambda one: one[0], reverse=True):
            if self._size > budget or size <= budget:
                break
            # A dictionary's longest text, to which hardly anything may point, is no reason to refuse.
            size += self._chosen(column, values) - most
        if size > budget:
            what = f"columns that decode to {size} bytes, where {budget} are the limit for a stripe of this size"
            raise FormatError(what, hint="fewer columns")

    def _chosen(self, column: OrcColumn, values: int) -> int:
        """Bytes of the texts to which the values point."""
        encoding = self._encodings[column.id]
        found = []
        for kind, count in ((StreamKind.LENGTH, encoding.dictionary_size), (StreamKind.DATA, values)):
            found.append(np.empty(count, np.int64))
            sum_of(self._stream(column, kind), count, version=encoding.version, most=_LONGEST, out=found[-1])
        lengths, chosen = found
        return sum(int(lengths[chosen[at : at + _PIECE]].sum()) for at in range(0, values, _PIECE))

    def column(self, column: OrcColumn, above: int) -> None:
        """`above`: how many values what is around it has for it."""
        if above > MAX_ORC_VALUES:
            raise FormatError(f"{above} values in a stripe, where {MAX_ORC_VALUES} is the limit", column=column.name)
        kind, encoding = column.kind, self._encodings[column.id]
        self._size += above * _WIDE.get(kind, _ROOM) if kind is not None else 0
        if kind is None or encoding.kind > 3:
            raise UnsupportedError("a type or an encoding that is not known", column=column.name)
        if encoding.is_dictionary and kind not in TEXTS:
            raise UnsupportedError("a dictionary of what is no text", column=column.name)
        values = self._present(column, above)
        if kind is OrcKind.STRUCT:
            self._below(column, values)
        elif kind in (OrcKind.LIST, OrcKind.MAP):
            self._below(column, self._sum(column, StreamKind.LENGTH, values, _LONGEST))
        elif kind is OrcKind.UNION:
            self._union(column, values)
        elif kind in TEXTS:
            self._texts(column, values, encoding)
        elif kind is OrcKind.BOOLEAN:
            self._bytes(column, StreamKind.DATA, -(-values // 8))
        elif kind is OrcKind.BYTE:
            self._bytes(column, StreamKind.DATA, values)
        elif kind in _FLOAT_BYTES:
            self._need(column, StreamKind.DATA, values * _FLOAT_BYTES[kind])
        elif kind is OrcKind.DECIMAL:
            data = np.frombuffer(self._stream(column, StreamKind.DATA), np.uint8)
            if int(np.count_nonzero(data < 128)) < values:
                raise self._error(column, StreamKind.DATA, _WORDS[CUT])
            self._sum(column, StreamKind.SECONDARY, values, _MOST_SCALE, signed=True)
        else:
            assert kind in _INTS or kind in MOMENTS  # noqa: S101
            self._sum(column, StreamKind.DATA, values, signed=True)
            if kind in MOMENTS:
                self._sum(column, StreamKind.SECONDARY, values)

    def _children(self, column: OrcColumn) -> Iterator[OrcColumn]:
        at = column.id + 1
        while at <= column.last:
            yield self._columns[at]
            at = self._columns[at].last + 1

    def _below(self, column: OrcColumn, values: int) -> None:
        for child in self._children(column):
            if child.id in self._wanted:
                self.column(child, values)

    def _union(self, column: OrcColumn, values: int) -> None:
        counts = self._bytes(column, StreamKind.DATA, values).tolist()
        children = [*self._children(column)]
        if any(counts[len(children) :]):
            raise self._error(column, StreamKind.DATA, "has a tag that its type lacks")
        for child, count in zip(children, counts, strict=False):
            if child.id in self._wanted:
                self.column(child, count)

    def _texts(self, column: OrcColumn, values: int, encoding: Encoding) -> None:
        if not encoding.is_dictionary:
            length = self._sum(column, StreamKind.LENGTH, values, _LONGEST)
            self._need(column, StreamKind.DATA, length)
            self._size += length
            return
        entries = encoding.dictionary_size
        if entries > MAX_ORC_VALUES:
            raise FormatError(f"a dictionary of {entries} entries, where {MAX_ORC_VALUES} is the limit")
        length = self._sum(column, StreamKind.LENGTH, entries, _LONGEST)
        self._need(column, StreamKind.DICTIONARY_DATA, length)
        if values and not entries:
            raise self._error(column, StreamKind.DATA, "points into an empty dictionary")
        self._sum(column, StreamKind.DATA, values, max(0, entries - 1))
        self._size += _ROOM * entries
        self._texts_at_most.append((values * self._longest(column, entries, length), column, values))

    def _longest(self, column: OrcColumn, entries: int, length: int) -> int:
        """A dictionary's longest text has at most so many bytes, of `length` that all have."""
        data, version = self._stream(column, StreamKind.LENGTH), self._encodings[column.id].version
        most = 2 * (length // max(1, entries)) + _ROOM
        while most < length and sum_of(data, entries, version=version, most=most) < 0:
            most *= 2
        return min(most, length)

    def _present(self, column: OrcColumn, above: int) -> int:
        """How many of its values are not null."""
        data = self._streams.get((StreamKind.PRESENT, column.id))
        if data is None:
            return above
        last, counts = self._histogram(column, StreamKind.PRESENT, data, -(-above // 8))
        # Bits behind the last row are not its own.
        behind = last & (1 << -above % 8) - 1
        return int((counts * _ONES).sum()) - behind.bit_count()

    def _bytes(self, column: OrcColumn, kind: StreamKind, wanted: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return self._histogram(column, kind, self._stream(column, kind), wanted)[1]

    def _histogram(
        self, column: OrcColumn, kind: StreamKind, data: memoryview, wanted: int
    ) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        last, counts = histogram(data, wanted)
        if last < 0:
            raise self._error(column, kind, _WORDS[last])
        return last, counts

    def _sum(self, column: OrcColumn, kind: StreamKind, wanted: int, most: int = -1, *, signed: bool = False) -> int:
        version = self._encodings[column.id].version
        found = sum_of(self._stream(column, kind), wanted, version=version, signed=signed, most=most)
        if found < 0:
            raise self._error(column, kind, _WORDS.get(found, f"has a value that is not between 0 and {most}"))
        return found

    def _need(self, column: OrcColumn, kind: StreamKind, length: int) -> None:
        if (there := len(self._stream(column, kind))) < length:
            raise self._error(column, kind, f"has {there} bytes, where {length} are asked for")

    def _stream(self, column: OrcColumn, kind: StreamKind) -> memoryview:
        return self._streams.get((kind, column.id), memoryview(b""))

    @staticmethod
    def _error(column: OrcColumn, kind: StreamKind, words: str) -> FormatError:
        return FormatError(f"the {kind.name} stream {words}: truncated or corrupt", column=column.name)
