"""Encrypted columns opened into a plaintext ORC file in memory, which any reader decodes.

Streams stay as they were written, compression and all: they are opened and put side by side, with a stripe footer and
a tail that say so. No value is decoded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..errors import FormatError
from .chunks import deflate
from .encryption import Variant
from .index import StripeIndex
from .protobuf import Message, encoded, without
from .tail import MAGIC, Tail

__all__ = ["clear_file", "stream_entry", "tail_bytes"]

_FOOTER_LAYOUT: Final = (1, 2, 3, 5, 6, 7, 8, 10)
"""Of the footer: header and content length, stripes, metadata, rows, statistics, stride, encryption."""
_POSTSCRIPT_LAYOUT: Final = (1, 5, 7, 8000)


def clear_file(tail: Tail, index: StripeIndex, wanted: Mapping[int, Variant | None]) -> bytes:
    """A file of one stripe, without indexes and statistics.

    Args:
        wanted: ids of columns, with those above them → the variant to take them from; None: they lie in clear. The
            others have no streams: a reader must be told to leave them out.

    Raises:
        KeyAccessError: a key can't be had.
        FormatError: the stripe footer has no encoding for a column.
    """
    body, streams = bytearray(MAGIC), bytearray()
    for stream in index.streams:
        if stream.is_index or stream.column not in wanted:
            continue
        variant = wanted[stream.column]
        if stream.variant == (None if variant is None else variant.index):
            body += index.read(stream)
            streams += encoded(1, stream_entry(stream.kind, stream.column, stream.length))
    data_length = len(body) - len(MAGIC)
    footer = bytes(streams) + _encodings(tail, index.footer, wanted) + encoded(3, index.footer.bytes(3))
    sealed = deflate(footer, tail.compression, tail.block_size)
    body += sealed
    rows = index.stripe.num_rows
    lengths = (len(MAGIC), 0, data_length, len(sealed), rows)
    stripe = b"".join(encoded(field, value) for field, value in enumerate(lengths, 1))
    kept = without(tail.raw_footer, _FOOTER_LAYOUT)
    content = encoded(1, len(MAGIC)) + encoded(2, len(body)) + encoded(3, stripe) + kept + encoded(6, rows)
    return bytes(body) + tail_bytes(tail, 0, 0, content)


def tail_bytes(tail: Tail, metadata: int, statistics: int, footer: bytes) -> bytes:
    """Footer and postscript of a file with the compression and versions of `tail`."""
    sealed = deflate(footer, tail.compression, tail.block_size)
    postscript = encoded(1, len(sealed)) + without(tail.raw_postscript, _POSTSCRIPT_LAYOUT) + encoded(5, metadata)
    if statistics:
        postscript += encoded(7, statistics)
    postscript += encoded(8000, MAGIC)
    if len(postscript) > 255:
        raise FormatError(f"a postscript of {len(postscript)} bytes, where one byte tells its length")
    return sealed + postscript + bytes([len(postscript)])


def stream_entry(kind: int, column: int, length: int) -> bytes:
    """A ``Stream`` message."""
    return encoded(1, kind) + encoded(2, column) + encoded(3, length)


def _encodings(tail: Tail, footer: Message, wanted: Mapping[int, Variant | None]) -> bytes:
    plain = footer.every(2)
    sealed: Sequence[Message] = [Message(one) for one in footer.every(4)]
    count = len(tail.schema.columns)
    if len(plain) != count:
        raise FormatError(f"encodings of {len(plain)} columns, of {count}: corrupt")
    made = bytearray()
    for column, encoding in enumerate(plain):
        variant = wanted.get(column)
        if variant is not None:
            own = sealed[variant.index].every(2) if variant.index < len(sealed) else []
            if len(own) != variant.root.last - variant.root.id + 1:
                raise FormatError("an encrypted column without its encodings: corrupt")
            encoding = own[column - variant.root.id]
        made += encoded(2, encoding)
    return bytes(made)
