"""Where the streams of a stripe lie, encrypted ones too (ORC specification, "Stripes").

A stripe is *plain index streams, encrypted index streams, plain data streams, encrypted data streams*. The stripe
footer lists the plain ones in this order, with one placeholder for all encrypted streams of each area; each variant
lists its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ..core.errors import FormatError
from ..core.limits import MAX_LIST_ELEMENTS
from .encryption import Encryption
from .protobuf import Message
from .tail import Stripe


class StreamKind(IntEnum):
    """The values are those of the enum ``Stream.Kind``."""

    PRESENT = 0
    DATA = 1
    LENGTH = 2
    DICTIONARY_DATA = 3
    DICTIONARY_COUNT = 4
    SECONDARY = 5
    ROW_INDEX = 6
    BLOOM_FILTER = 7
    BLOOM_FILTER_UTF8 = 8
    ENCRYPTED_INDEX = 9
    ENCRYPTED_DATA = 10
    STRIPE_STATISTICS = 100
    FILE_STATISTICS = 101


FILTER_KINDS: Final = (StreamKind.BLOOM_FILTER_UTF8, StreamKind.BLOOM_FILTER)
"""The younger first; both carry the same bits."""
INDEX_KINDS: Final = frozenset({StreamKind.DICTIONARY_COUNT, StreamKind.ROW_INDEX, *FILTER_KINDS})
_PLACEHOLDERS: Final = frozenset({StreamKind.ENCRYPTED_INDEX, StreamKind.ENCRYPTED_DATA})
_ASKED: Final = frozenset({StreamKind.ROW_INDEX, *FILTER_KINDS})


class Stream(NamedTuple):
    """Where a stream lies in the file, in bytes.

    Attributes:
        variant: of an encrypted stream, its place in `Encryption.variants`; None of one in clear.
        start: of a part, how many bytes of the stream are before it.
    """

    kind: int
    column: int
    offset: int
    length: int
    variant: int | None = None
    start: int = 0

    @property
    def is_index(self) -> bool:
        return self.kind in INDEX_KINDS


def placed(footer: Message, stripe: Stripe, encryption: Encryption | None, columns: int) -> list[Stream]:
    """All streams of a stripe, in the file's order.

    Args:
        footer: the stripe's.
        columns: columns in the schema.

    Raises:
        FormatError: streams outside the stripe or their area, of columns that are not there, or of a variant that does
            not hold their column; or two of one kind, column and variant.
    """
    start, middle = stripe.offset, stripe.offset + stripe.index_length
    end = middle + stripe.data_length
    found: list[Stream] = []
    holes: dict[int, tuple[int, int]] = dict.fromkeys(_PLACEHOLDERS, (start, 0))
    at = start
    for message in map(Message, footer.every(1)):
        stream = _stream(message, at, None)
        at += stream.length
        if at > end:
            raise FormatError("streams reach outside their stripe: truncated or corrupt")
        if stream.kind in _PLACEHOLDERS:
            if holes[stream.kind][1]:
                raise FormatError("two places for encrypted streams: corrupt")
            holes[stream.kind] = (stream.offset, stream.length)
        else:
            found.append(stream)
    variants = footer.every(4)
    if len(variants) > len(encryption.variants if encryption else ()):
        raise FormatError("a stripe with more encrypted columns than the file: corrupt")
    filled = {kind: hole[0] for kind, hole in holes.items()}
    for index, message in enumerate(map(Message, variants)):
        for one in map(Message, message.every(1)):
            area = StreamKind.ENCRYPTED_INDEX if one.number(1) in INDEX_KINDS else StreamKind.ENCRYPTED_DATA
            stream = _stream(one, filled[area], index)
            filled[area] += stream.length
            found.append(stream)
            if len(found) > MAX_LIST_ELEMENTS:
                raise FormatError(f"a stripe of more than {MAX_LIST_ELEMENTS} streams")
            root = encryption.variants[index].root if encryption else None
            if root is None or not root.id <= stream.column <= root.last:
                raise FormatError(f"an encrypted stream of column {stream.column}, which is not its variant's: corrupt")
    for kind, (offset, length) in holes.items():
        if filled[kind] - offset != length:
            raise FormatError("encrypted streams do not fill their place in the stripe: corrupt")
    _check(found, middle, columns)
    return sorted(found, key=lambda stream: stream.offset)


def _stream(message: Message, offset: int, variant: int | None) -> Stream:
    return Stream(message.number(1), message.number(2), offset, message.number(3), variant)


def _check(streams: list[Stream], middle: int, columns: int) -> None:
    seen: set[tuple[int, int, int | None]] = set()
    for stream in streams:
        if stream.kind not in _ASKED:
            if stream.variant is None:
                continue
        elif stream.offset + stream.length > middle or stream.column >= columns:
            raise FormatError("an index stream outside the stripe's indexes: corrupt")
        name = (stream.kind, stream.column, stream.variant)
        if name in seen:
            # Two streams under one IV would also be a two-time pad.
            raise FormatError("two streams of one kind and column: corrupt")
        seen.add(name)
