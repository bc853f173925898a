"""How much of a stream its first row groups need, by the positions in the row index (ORC specification, "Row Group
Index").

Nobody authenticates positions, and they decide nothing: what is read is the beginning of each stream, which holds the
same values whatever they say, and too few are found out when the streams are checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from .checks import Encoding
from .protobuf import Message
from .schema import Column, Kind
from .streams import Stream, StreamKind

__all__ = ["lengths_needed"]

_LONGEST_RUN: Final = 8 * 1024
"""Bytes; the longest of version 2 are 512 values of 64 bits, and their patches."""
_PRESENT, _DATA, _LENGTH, _SECONDARY = StreamKind.PRESENT, StreamKind.DATA, StreamKind.LENGTH, StreamKind.SECONDARY
_BYTES, _RUN, _BITS = 0, 1, 2
"""Numbers behind a stream's place in a position: none for plain bytes, one within a run, one more for bits."""
_TEXTS: Final = (Kind.STRING, Kind.VARCHAR, Kind.CHAR, Kind.BINARY)


def lengths_needed(
    streams: Sequence[Stream],
    columns: Sequence[Column],
    encodings: Sequence[Encoding],
    indexes: Mapping[int, Sequence[memoryview]],
    groups: int,
    *,
    compressed: bool,
) -> list[int]:
    """Of each stream how many bytes from its beginning hold the first row groups.

    Args:
        streams: of data.
        columns, encodings: of the schema, by id.
        indexes: column → its ``RowIndexEntry`` messages.
        groups: how many row groups; there are more of them.

    Returns:
        One per stream; the whole length where positions do not say.

    Raises:
        FormatError: an entry is no message.
    """
    there = {(one.column, one.kind) for one in streams}
    places: dict[tuple[int, int], list[int]] = {}
    for column, entries in indexes.items():
        rows = [Message(entry).numbers(1) for entry in entries]
        at = 0
        for kind, more in _layout(columns[column], encodings[column]):
            if kind is _PRESENT and (column, kind) not in there:
                continue  # without nulls it is left out, and so are its positions
            places[column, kind] = [row[at] if at < len(row) else -1 for row in rows]
            at += (2 if compressed else 1) + more
    return [_needed(one, places.get((one.column, one.kind)), groups, compressed=compressed) for one in streams]


def _layout(column: Column, encoding: Encoding) -> list[tuple[StreamKind, int]]:
    """The streams that positions speak of, in their order."""
    kind = column.kind
    found = [(_PRESENT, _BITS)]
    if kind in _TEXTS:
        found += [(_DATA, _RUN)] if encoding.is_dictionary else [(_DATA, _BYTES), (_LENGTH, _RUN)]
    elif kind in (Kind.LIST, Kind.MAP):
        found += [(_LENGTH, _RUN)]
    elif kind is Kind.BOOLEAN:
        found += [(_DATA, _BITS)]
    elif kind in (Kind.FLOAT, Kind.DOUBLE):
        found += [(_DATA, _BYTES)]
    elif kind is Kind.DECIMAL:
        found += [(_DATA, _BYTES), (_SECONDARY, _RUN)]
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT):
        found += [(_DATA, _RUN), (_SECONDARY, _RUN)]
    elif kind is not Kind.STRUCT:
        found += [(_DATA, _RUN)]
    return found


def _needed(stream: Stream, places: list[int] | None, groups: int, *, compressed: bool) -> int:
    if places is None or any(one < 0 or one > other for one, other in pairwise(places)):
        return stream.length
    end = places[groups]
    if not compressed:
        return min(end + _LONGEST_RUN, stream.length)
    # Where the next row group begins, there begins a chunk; the run in which it begins may reach into one more.
    behind = sorted({place for place in places[groups:] if place > end})
    return min(behind[1], stream.length) if behind[1:] else stream.length
