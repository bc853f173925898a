"""Columns of a stripe as a plaintext ORC file in memory, which pyarrow decodes.

Streams are opened, inflated and checked; they are put side by side, with a stripe footer and a tail of our own. Of the
file's bytes its decoder sees types, metadata, and streams on which it can't stumble.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...core.errors import BloomsealError, FormatError, IntegrityError, UnsupportedError
from ...core.limits import MAX_ORC_DECODED_BYTES, MAX_ORC_RATIO, MAX_ORC_STRIPE_BYTES
from ..chunks import Compression, deflate
from ..encryption import Variant, number_of
from ..index import StripeIndex
from ..protobuf import Message, encoded, without
from ..schema import OrcKind
from ..streams import Stream, StreamKind
from ..tail import MAGIC, OrcTail
from .checks import Encoding, check_streams, check_zone
from .cut import Part, parts_needed

_WORTH_CUTTING: Final = 256 * 1024
"""Bytes of streams that need not be read: for fewer nobody asks the row indexes, unless there are"""
_ROWS_WORTH_CUTTING: Final = 20_000
"""rows that need not be decoded: a dictionary's numbers are next to nothing in the file, and many in memory."""
_FOOTER_LAYOUT: Final = (1, 2, 3, 5, 6, 7, 8, 10)
"""Of the footer: header and content length, stripes, metadata, rows, statistics, stride, encryption."""
_DATA_KINDS: Final = (
    StreamKind.PRESENT,
    StreamKind.DATA,
    StreamKind.LENGTH,
    StreamKind.DICTIONARY_DATA,
    StreamKind.SECONDARY,
)
_WRITER_ZONE: Final = 3
_FOR_NO_MOMENTS: Final = b"GMT"
_POSTSCRIPT_LAYOUT: Final = (1, 5, 7, 8000)
_VERSIONS: Final[tuple[list[int], ...]] = ([], [0, 11], [0, 12])


class ClearFile(NamedTuple):
    """A plaintext file.

    Attributes:
        data: the whole of it.
        num_bytes: how many were read for it.
        first: the row group of the stripe with which it begins.
    """

    data: bytes
    num_bytes: int
    first: int


def clear_file(
    tail: OrcTail, index: StripeIndex, wanted: Mapping[int, Variant | None], groups: range | None = None
) -> ClearFile:
    """A file of one stripe, without indexes and statistics.

    Args:
        wanted: ids of columns, with those above them → the variant to take them from; None: they lie in clear. The
            others have no streams: a reader must be told to leave them out.
        groups: the row groups that are wanted, neighbours; None: all. The file's rows are theirs. Of long streams the
            rest is not read.

    Raises:
        KeyAccessError: a key can't be had.
        FormatError: the stripe footer has no encoding for a column, or a stream is broken.
        UnsupportedError: a type, an encoding or a version of the format that is not ours.
    """
    streams = [one for one in index.streams if _is_of(one, wanted)]
    if len({(one.kind, one.column) for one in streams}) != len(streams):
        raise FormatError("two streams of one kind and column: corrupt")
    encodings = _encodings(tail, index.footer, wanted)
    stripe = index.stripe
    every = range(stripe.num_row_groups)
    groups = every if groups is None else groups
    lost = 0
    share = 1 - len(groups) / max(1, len(every))
    left_out = share * sum(one.length for one in streams), share * stripe.num_rows
    # Nobody has measured the positions of other writers.
    if tail.writer is not None and (left_out[0] >= _WORTH_CUTTING or left_out[1] >= _ROWS_WORTH_CUTTING):
        parts: list[Part] = []
        try:
            parts = _parts(tail, index, wanted, streams, encodings, groups)
            return _made(tail, index, wanted, parts, encodings, groups)
        except (FormatError, IntegrityError):
            # Positions that do not hold, or a stripe that is broken: the whole of it will tell.
            lost = sum(one.stream.length for one in parts)
    made = _made(tail, index, wanted, [Part(one) for one in streams], encodings, range(groups.stop))
    return made._replace(num_bytes=made.num_bytes + lost)


def _parts(
    tail: OrcTail,
    index: StripeIndex,
    wanted: Mapping[int, Variant | None],
    streams: Sequence[Stream],
    encodings: Sequence[Encoding],
    groups: range,
) -> list[Part]:
    found = ((column, index.row_index(column, number_of(variant))) for column, variant in wanted.items())
    indexes = {column: entries for column, entries in found if entries is not None}
    compressed = tail.compression is not Compression.NONE
    return parts_needed(streams, tail.schema.columns, encodings, indexes, groups, compressed=compressed)


def _made(
    tail: OrcTail,
    index: StripeIndex,
    wanted: Mapping[int, Variant | None],
    parts: Sequence[Part],
    encodings: Sequence[Encoding],
    groups: range,
) -> ClearFile:
    stride = tail.row_index_stride or index.stripe.num_rows
    rows = min(groups.stop * stride, index.stripe.num_rows) - groups.start * stride
    inflated = _inflated(tail, index, parts)
    stored = sum((index.stripe.index_length, index.stripe.data_length, index.stripe.footer_length))
    budget = MAX_ORC_DECODED_BYTES // len(tail.stripes) + MAX_ORC_RATIO * stored
    check_streams(tail.schema.columns, wanted, encodings, inflated, rows, budget)
    listed = b"".join(encoded(1, stream_entry(*place, len(data))) for place, data in inflated.items())
    kinds = b"".join(encoded(2, encoded(1, one.kind) + encoded(2, one.dictionary_size)) for one in encodings)
    footer = listed + kinds + _zone(tail, index, wanted)
    data_length = sum(map(len, inflated.values()))
    lengths = (len(MAGIC), 0, data_length, len(footer), rows)
    stripe = b"".join(encoded(field, value) for field, value in enumerate(lengths, 1))
    end = _plain_tail(tail, len(MAGIC) + data_length + len(footer), encoded(3, stripe), rows)
    length = sum(one.stream.length for one in parts)
    return ClearFile(b"".join((MAGIC, *inflated.values(), footer, end)), length, groups.start)


def empty_file(tail: OrcTail) -> bytes:
    """A file of the same types, without rows.

    Raises:
        UnsupportedError: a version of the format that is not ours.
    """
    return MAGIC + _plain_tail(tail, len(MAGIC), b"", 0)


def _is_of(stream: Stream, wanted: Mapping[int, Variant | None]) -> bool:
    if stream.kind not in _DATA_KINDS or stream.column not in wanted:
        return False
    return stream.variant == number_of(wanted[stream.column])


def _inflated(tail: OrcTail, index: StripeIndex, parts: Sequence[Part]) -> dict[tuple[int, int], memoryview]:
    streams = [part.stream for part in parts]
    found: dict[tuple[int, int], memoryview] = {}
    left = MAX_ORC_STRIPE_BYTES
    if sum(one.length for one in streams) > left:
        raise FormatError(f"streams of more than {left} bytes")
    for part, stream, data in zip(parts, streams, index.read_all(streams), strict=True):
        try:
            opened = found[stream.kind, stream.column] = part.begun(tail.inflate(data, left))
        except BloomsealError as error:
            kind, column = StreamKind(stream.kind).name, tail.schema.columns[stream.column].name
            raise type(error)(f"the {kind} stream: {error.what}", column=column) from error
        left -= len(opened)
    return found


def _zone(tail: OrcTail, index: StripeIndex, wanted: Mapping[int, Variant | None]) -> bytes:
    """The field of the writer's time zone; a decoder looks for its file though there are no moments. Where older
    writers have left it out, a decoder takes the zone of the machine.
    """
    if not any(tail.schema.columns[column].kind is OrcKind.TIMESTAMP for column in wanted):
        return encoded(_WRITER_ZONE, _FOR_NO_MOMENTS)
    if _WRITER_ZONE not in index.footer:
        return b""
    check_zone(index.writer_timezone)
    return encoded(_WRITER_ZONE, index.writer_timezone.encode())


def _plain_tail(tail: OrcTail, body: int, stripes: bytes, rows: int) -> bytes:
    kept = without(tail.raw_footer, _FOOTER_LAYOUT)
    footer = encoded(1, len(MAGIC)) + encoded(2, body) + stripes + kept + encoded(6, rows)
    version = Message(tail.raw_postscript).numbers(4)
    if version not in _VERSIONS:
        raise UnsupportedError(f"an ORC file of version {'.'.join(map(str, version[:3]))}")
    postscript = encoded(1, len(footer)) + encoded(2, 0) + b"".join(encoded(4, one) for one in version)
    postscript += encoded(5, 0) + encoded(6, tail.writer_version) + encoded(8000, MAGIC)
    return footer + postscript + bytes([len(postscript)])


def tail_bytes(tail: OrcTail, metadata: int, statistics: int, footer: bytes) -> bytes:
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


def _encodings(tail: OrcTail, footer: Message, wanted: Mapping[int, Variant | None]) -> list[Encoding]:
    plain = footer.every(2)
    sealed: Sequence[Message] = [Message(one) for one in footer.every(4)]
    count = len(tail.schema.columns)
    if len(plain) != count:
        raise FormatError(f"encodings of {len(plain)} columns, of {count}: corrupt")
    made: list[Encoding] = []
    for column, encoding in enumerate(plain):
        variant = wanted.get(column)
        if variant is not None:
            own = sealed[variant.index].every(2) if variant.index < len(sealed) else []
            if len(own) != variant.root.last - variant.root.id + 1:
                raise FormatError("an encrypted column without its encodings: corrupt")
            encoding = own[column - variant.root.id]
        made.append(Encoding.parsed(encoding) if column in wanted else Encoding(0, 0))
    return made
