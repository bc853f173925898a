"""The parts of streams that hold some row groups, by the positions in the row index (ORC specification, "Row Group
Index").

Nobody authenticates positions. Where a stream ends is found out: one that is too short does not hold its values. Where
it begins is believed, as every reader that skips rows does, if each entry has exactly the numbers that the column's
streams ask for; from the first row group on nothing needs to be believed.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ...core.errors import FormatError
from ..protobuf import Message
from ..runs.begin import bits_from, bytes_from, integers_from
from ..schema import TEXTS, OrcColumn, OrcKind
from ..streams import Stream, StreamKind
from .checks import Encoding

_LONGEST_RUN: Final = 8 * 1024
"""Bytes; the longest of version 2 are 512 values of 64 bits, and their patches."""
_MOST_PENDING: Final = 4 * 1024
"""Values before the wanted one, of a run that was not written yet; writers keep 512 at most."""
_PRESENT, _DATA, _LENGTH, _SECONDARY = StreamKind.PRESENT, StreamKind.DATA, StreamKind.LENGTH, StreamKind.SECONDARY
_PLAIN, _INTEGERS, _SIGNED, _BYTES, _BITS = range(5)
"""How a stream is encoded."""
_MORE: Final = {_PLAIN: 0, _INTEGERS: 1, _SIGNED: 1, _BYTES: 1, _BITS: 2}
"""Numbers behind a stream's place in a position: values of a run, and bits of a byte."""


class Part(NamedTuple):
    """A part of a stream.

    Attributes:
        stream: where it lies.
        skipped: bytes of it, inflated, before the run in which it begins.
        coding: how it is encoded.
        values, bits: of that run, and of the byte behind those values, that come before it.
        version: of the encoding of integers.
    """

    stream: Stream
    skipped: int = 0
    coding: int = _PLAIN
    values: int = 0
    bits: int = 0
    version: int = 1

    def begun(self, data: memoryview) -> memoryview:
        """The part's inflated bytes, from its first value on.

        Raises:
            FormatError: it ends before that, or has a run that no writer makes.
        """
        if self.skipped > len(data):
            raise FormatError("a position behind the end of its stream: corrupt")
        data = data[self.skipped :]
        if self.coding == _BITS:
            return memoryview(bits_from(data, self.values, self.bits))
        if self.coding == _BYTES:
            return memoryview(bytes_from(data, self.values))
        if self.coding == _PLAIN:
            return data
        return memoryview(integers_from(data, self.values, version=self.version, signed=self.coding == _SIGNED))


class _StreamPosition(NamedTuple):
    """A stream's share of a position; -1: there is none."""

    chunk: int = -1
    skipped: int = 0
    values: int = 0
    bits: int = 0


def parts_needed(
    streams: Sequence[Stream],
    columns: Sequence[OrcColumn],
    encodings: Sequence[Encoding],
    indexes: Mapping[int, Sequence[memoryview]],
    groups: range,
    *,
    compressed: bool,
) -> list[Part]:
    """Of each stream the part that holds these row groups.

    Args:
        streams: of data.
        columns, encodings: of the schema, by id.
        indexes: column → its ``RowIndexEntry`` messages.
        groups: neighbouring row groups; there are others.

    Returns:
        One per stream; it reaches to the stream's end where positions do not say how far.

    Raises:
        FormatError: an entry is no message, or positions do not say where a stream begins.
    """
    there = {(one.column, one.kind) for one in streams}
    found: list[Part] = []
    layouts: dict[int, dict[StreamKind, tuple[int, int]]] = {}
    for stream in streams:
        column, encoding = columns[stream.column], encodings[stream.column]
        if encoding.is_dictionary and stream.kind in (StreamKind.LENGTH, StreamKind.DICTIONARY_DATA):
            found.append(Part(stream))
            continue
        if stream.column not in layouts:
            layouts[stream.column] = _places(column, encoding, there, compressed=compressed)
        coding, at = layouts[stream.column].get(StreamKind(stream.kind), (-1, 0))
        width = sum((2 if compressed else 1) + _MORE[one] for one, _ in layouts[stream.column].values())
        entries = [] if coding < 0 else indexes.get(stream.column, [])
        begin = _StreamPosition(0)
        if groups.start:
            begin = (
                _place(entries[groups.start], at, coding, width, compressed=compressed)
                if entries
                else _StreamPosition()
            )
            if not 0 <= begin.chunk <= stream.length:
                raise FormatError("the row index does not say where a stream begins", column=column.name)
        end = stream.length
        if groups.stop < len(entries):
            place = functools.partial(_place, at=at, coding=coding, width=width, compressed=compressed)
            end = max(begin.chunk, _end(entries, groups.stop, place, end, compressed=compressed))
        part = stream._replace(
            offset=stream.offset + begin.chunk, length=end - begin.chunk, start=stream.start + begin.chunk
        )
        found.append(Part(part, begin.skipped, max(coding, _PLAIN), begin.values, begin.bits, encoding.version))
    return found


def _places(
    column: OrcColumn, encoding: Encoding, there: set[tuple[int, int]], *, compressed: bool
) -> dict[StreamKind, tuple[int, int]]:
    """The streams that positions speak of: how each is encoded, and which number of a position is its first."""
    at, found = 0, {}
    for kind, coding in _layout(column, encoding):
        if kind is _PRESENT and (column.id, kind) not in there:
            continue  # without nulls it is left out, and so are its positions
        found[kind] = (coding, at)
        at += (2 if compressed else 1) + _MORE[coding]
    return found


def _layout(column: OrcColumn, encoding: Encoding) -> list[tuple[StreamKind, int]]:
    """The streams that positions speak of, in their order."""
    kind = column.kind
    found = [(_PRESENT, _BITS)]
    if kind in TEXTS:
        found += [(_DATA, _INTEGERS)] if encoding.is_dictionary else [(_DATA, _PLAIN), (_LENGTH, _INTEGERS)]
    elif kind in (OrcKind.LIST, OrcKind.MAP):
        found += [(_LENGTH, _INTEGERS)]
    elif kind is OrcKind.BOOLEAN:
        found += [(_DATA, _BITS)]
    elif kind in (OrcKind.BYTE, OrcKind.UNION):
        found += [(_DATA, _BYTES)]
    elif kind in (OrcKind.FLOAT, OrcKind.DOUBLE):
        found += [(_DATA, _PLAIN)]
    elif kind is OrcKind.DECIMAL:
        found += [(_DATA, _PLAIN), (_SECONDARY, _SIGNED)]
    elif kind in (OrcKind.TIMESTAMP, OrcKind.TIMESTAMP_INSTANT):
        found += [(_DATA, _SIGNED), (_SECONDARY, _INTEGERS)]
    elif kind is not OrcKind.STRUCT:
        found += [(_DATA, _SIGNED)]
    return found


def _place(entry: memoryview, at: int, coding: int, width: int, *, compressed: bool) -> _StreamPosition:
    numbers = Message(entry).numbers(1)
    if len(numbers) != width:
        return _StreamPosition()
    chunk, at = numbers[at], at + 1
    skipped, at = (numbers[at], at + 1) if compressed else (0, at)
    values, bits = [*numbers[at : at + _MORE[coding]], 0, 0][:2]
    return _StreamPosition(chunk, skipped, values, bits) if values <= _MOST_PENDING and bits < 8 else _StreamPosition()


def _end(
    entries: Sequence[memoryview],
    behind: int,
    place: Callable[[memoryview], _StreamPosition],
    length: int,
    *,
    compressed: bool,
) -> int:
    """Where the row groups before the one at `behind` end, at the latest."""
    first = place(entries[behind])
    if first.chunk < 0:
        return length  # a position that is none says nothing of what comes before
    # A run that began before, and goes on in the next row group.
    shared = bool(first.values or first.bits)
    if not compressed:
        return min(first.chunk + (_LONGEST_RUN if shared else 0), length)
    if not shared and not first.skipped:
        return min(first.chunk, length)
    # Where a row group begins, there begins a chunk; such a run may reach into one more.
    end = first.chunk
    for _ in range(1 + shared):
        # Chunks ascend. Where somebody had them not, too little is read, which is found out, or too much.
        behind = bisect.bisect_right(entries, end, behind, key=lambda entry: place(entry).chunk)
        end = place(entries[behind]).chunk if behind < len(entries) else length
    return min(end, length)
