"""The end of an ORC file: postscript, footer, and stripe statistics (ORC specification, "File Tail")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

from ..errors import FormatError, UnsupportedError
from ..limits import MAX_ORC_BLOCK_BYTES, MAX_ORC_FOOTER_BYTES, MAX_ORC_ROW_GROUPS
from ..storage.source import Source
from .chunks import Compression, inflate
from .protobuf import Message
from .schema import Schema

__all__ = ["MAGIC", "Stripe", "Tail", "Writer", "read_tail"]

MAGIC: Final = b"ORC"
_FIRST_READ: Final = 16 * 1024
_HYBRID_UNLESS: Final = 2  # CalendarKind.PROLEPTIC_GREGORIAN


class Writer(IntEnum):
    """Who wrote the file, by the footer's field ``writer``."""

    JAVA = 0
    CPP = 1


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a stripe lies: index streams, data streams, stripe footer, in this order.

    Attributes:
        offset: of its first byte.
        index_length, data_length, footer_length: in bytes.
        num_rows: its rows.
        num_row_groups: row groups of the file's stride, the last one shorter; without row indexes the stripe is one.
    """

    index: int
    offset: int
    index_length: int
    data_length: int
    footer_length: int
    num_rows: int
    num_row_groups: int

    @property
    def place(self) -> str:
        return f"stripe {self.index}"


class Tail:
    """What the end of the file says of the rest; nobody authenticates it."""

    def __init__(self, source: Source, postscript: Message, footer: Message, metadata: tuple[int, int]) -> None:
        self._source = source
        self._metadata = metadata
        self.compression = _compression(postscript)
        self.block_size = _block_size(postscript)
        self.writer_version = postscript.number(6)
        number = footer.number(9)
        self.writer = Writer(number) if number in Writer.__members__.values() else None
        """None for a writer of which nothing was measured."""
        self.software = footer.text(12)
        self.num_rows = footer.number(6)
        self.row_index_stride = footer.number(8)
        self.hybrid_calendar = footer.number(11) != _HYBRID_UNLESS
        self.schema = Schema(footer.every(4))
        self.encrypted = _encrypted(footer, self.schema)
        """Ids of the columns that are encrypted or masked for some reader."""
        self.stripes = _stripes(footer, self.row_index_stride, metadata[0])

    def inflate(self, data: memoryview, limit: int) -> memoryview:
        return inflate(data, self.compression, self.block_size, limit)

    @cached_property
    def stripe_statistics(self) -> list[Message]:
        """One message of column statistics per stripe; empty where the file has none."""
        offset, length = self._metadata
        data = memoryview(self._source.read(offset, length))
        found = [Message(one) for one in Message(self.inflate(data, MAX_ORC_FOOTER_BYTES)).every(1)]
        if found and len(found) != len(self.stripes):
            raise FormatError(f"statistics of {len(found)} stripes, where the file has {len(self.stripes)}")
        return found


def read_tail(source: Source) -> Tail:
    """Read postscript and footer: one request, a second one where they are larger than 16 KiB.

    Raises:
        FormatError: not an ORC file, truncated, or a limit of `bloomseal.limits` exceeded.
        UnsupportedError: a compression that is not ours.
    """
    if source.size < len(MAGIC) + 2:
        raise FormatError(f"{source.size} bytes are too few for an ORC file")
    take = min(_FIRST_READ, source.size)
    end = memoryview(source.read(source.size - take, take))
    length = end[-1] + 1
    if length > take:
        raise FormatError("a postscript longer than the file: not an ORC file, or truncated")
    try:
        postscript = Message(end[-length:-1])
        magic = bytes(postscript.bytes(8000))
    except FormatError as error:
        raise FormatError("no ORC postscript at the end: not an ORC file, or truncated") from error
    if magic != MAGIC:
        raise FormatError("no ORC magic at the end: not an ORC file, or truncated")
    footer, metadata, rest = postscript.number(1), postscript.number(5), postscript.number(7)
    if max(footer, metadata) > MAX_ORC_FOOTER_BYTES:
        raise FormatError(f"a footer or metadata of more than {MAX_ORC_FOOTER_BYTES} bytes")
    start = source.size - length - footer
    if start - metadata - rest < len(MAGIC):
        raise FormatError(f"a footer of {footer} and metadata of {metadata} bytes do not fit the file")
    whole = length + footer
    data = end[-whole:-length] if whole <= take else memoryview(source.read(start, footer))
    inflated = inflate(data, _compression(postscript), _block_size(postscript), MAX_ORC_FOOTER_BYTES)
    return Tail(source, postscript, Message(inflated), (start - metadata, metadata))


def _compression(postscript: Message) -> Compression:
    number = postscript.number(2)
    if number not in Compression.__members__.values():
        raise UnsupportedError(f"ORC compression {number} is not known")
    return Compression(number)


def _block_size(postscript: Message) -> int:
    size = postscript.number(3, 256 * 1024)
    if size > MAX_ORC_BLOCK_BYTES:
        raise FormatError(f"compression blocks of {size} bytes, where a chunk's header can say {MAX_ORC_BLOCK_BYTES}")
    return size


def _stripes(footer: Message, stride: int, end: int) -> list[Stripe]:
    stripes: list[Stripe] = []
    groups = rows = 0
    free = len(MAGIC)
    for index, message in enumerate(map(Message, footer.every(3))):
        offset, index_length, data_length, footer_length, num_rows = (message.number(field) for field in range(1, 6))
        if offset < free:
            # A small file could otherwise have us inflate the same bytes for each of a million stripes.
            raise FormatError(f"stripe {index} overlaps what is before it: corrupt")
        free = offset + index_length + data_length + footer_length
        if free > end:
            raise FormatError(f"stripe {index} does not fit the file: truncated or corrupt")
        count = -(-num_rows // stride) if stride else min(num_rows, 1)
        groups, rows = groups + count, rows + num_rows
        if groups > MAX_ORC_ROW_GROUPS:
            raise FormatError(f"more than {MAX_ORC_ROW_GROUPS} row groups")
        stripes.append(Stripe(index, offset, index_length, data_length, footer_length, num_rows, count))
    if rows != footer.number(6):
        raise FormatError(f"the stripes have {rows} rows, the footer says {footer.number(6)}: corrupt")
    return stripes


def _encrypted(footer: Message, schema: Schema) -> frozenset[int]:
    if 10 not in footer:
        return frozenset()
    encryption = Message(footer.bytes(10))
    roots = [Message(variant).number(1) for variant in encryption.every(3)]
    for mask in encryption.every(1):
        roots += Message(mask).numbers(3)
    found: set[int] = set()
    for root in roots:
        if root >= len(schema.columns):
            raise FormatError(f"column {root} is encrypted, of {len(schema.columns)}: corrupt")
        found.update(range(root, schema.columns[root].last + 1))
    return frozenset(found)
