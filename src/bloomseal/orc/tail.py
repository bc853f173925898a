"""The end of an ORC file: postscript, footer, and stripe statistics (ORC specification, "File Tail")."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final

from ..core.cached import cached_property
from ..core.errors import FormatError, UnsupportedError
from ..core.limits import MAX_ORC_BLOCK_BYTES, MAX_ORC_FOOTER_BYTES, MAX_ORC_ROW_GROUPS
from ..core.storage.source import Source
from ..core.writers import Claim, KnownWrong, known_wrong
from .chunks import Compression, inflate
from .encryption import Encryption, check_length, read_encryption
from .protobuf import Message
from .schema import OrcColumn, OrcSchema

MAGIC: Final = b"ORC"
_FIRST_READ: Final = 16 * 1024
_REMEMBERED: Final = 16
"""Files of one table have one schema: so many are remembered, to be taken apart once."""
_HYBRID_UNLESS: Final = 2  # CalendarKind.PROLEPTIC_GREGORIAN


class Writer(IntEnum):
    """Who wrote the file, by the footer's field ``writer``."""

    JAVA = 0
    CPP = 1


_WRITERS: Final = {int(writer): writer for writer in Writer}
_COMPRESSIONS: Final = {int(compression): compression for compression in Compression}


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a stripe lies: index streams, data streams, stripe footer, in this order.

    Attributes:
        offset: of its first byte.
        index_length, data_length, footer_length: in bytes.
        num_rows: its rows.
        num_row_groups: row groups of the file's stride, the last one shorter; without row indexes the stripe is one.
        encrypt_id: the number in the IVs of its encrypted streams; in a merged file that of the first file.
        encrypted_keys: its local keys, encrypted, one per variant of the file.
    """

    index: int
    offset: int
    index_length: int
    data_length: int
    footer_length: int
    num_rows: int
    num_row_groups: int
    encrypt_id: int = 0
    encrypted_keys: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def place(self) -> str:
        return f"stripe {self.index}"


class OrcTail:
    """What the end of the file says of the rest; nobody authenticates it."""

    def __init__(
        self, source: Source, end: memoryview, raw: memoryview, metadata: tuple[int, int], statistics: int
    ) -> None:
        self._source = source
        self.metadata = metadata
        """Offset and length of the metadata section, compressed."""
        self.raw_postscript, self.raw_footer = end, raw
        """The messages' bytes, inflated."""
        footer, postscript = Message(raw), Message(end)
        self.compression = _compression(postscript)
        self.block_size = _block_size(postscript)
        self.writer_version = postscript.number(6)
        self.writer = _WRITERS.get(footer.number(9))
        """None for a writer that nobody has measured."""
        self.software = footer.text(12)
        """The version of the writer; empty where it names none."""
        self.num_rows = footer.number(6)
        self.row_index_stride = footer.number(8)
        self.hybrid_calendar = footer.number(11) != _HYBRID_UNLESS
        self.schema = _schema(tuple(map(bytes, footer.every(4))))
        self.encryption: Encryption | None = None
        if 10 in footer:
            place = (metadata[0] - statistics, metadata[0])
            self.encryption = read_encryption(Message(footer.bytes(10)), self.schema, place)
        self.encrypted = self.encryption.columns if self.encryption else frozenset[int]()
        """Ids of the columns that are encrypted or masked for some reader."""
        self.sealed = frozenset(
            leaf.id
            for leaf in self.schema.leaves
            if self.encryption is not None and self.encryption.variants_of(leaf.id)
        )
        """Those of leaves of which the file has an encrypted form. A section about encryption may name none of them."""
        self.stripes = _stripes(footer, self.row_index_stride, metadata[0] - statistics, self.encryption)

    def known_wrong(self, claim: Claim) -> KnownWrong | None:
        """Why what the file's writer says does not count; None where it does."""
        if self.writer is Writer.CPP:
            return known_wrong(claim, "ORC C++", self.software)
        return known_wrong(claim, "ORC writer version", str(self.writer_version))

    def variant_at(self, column: OrcColumn, variant: int | None) -> int | None:
        """The variant of a column around a leaf that is read from this variant: that one, or None for a column in clear
        around all of the variant's.
        """
        if variant is None or self.encryption is None or column.id < self.encryption.variants[variant].root.id:
            return None
        return variant

    def inflate(self, data: memoryview, limit: int) -> memoryview:
        return inflate(data, self.compression, self.block_size, limit)

    @cached_property
    def stripe_statistics(self) -> list[Message]:
        """One message of column statistics per stripe; empty where the file has none."""
        offset, length = self.metadata
        data = memoryview(self._source.read(offset, length))
        found = [Message(one) for one in Message(self.inflate(data, MAX_ORC_FOOTER_BYTES)).every(1)]
        if found and len(found) != len(self.stripes):
            raise FormatError(f"statistics of {len(found)} stripes, where the file has {len(self.stripes)}")
        return found


def read_tail(source: Source) -> OrcTail:
    """Read postscript and footer: one request, a second one where they are larger than 16 KiB.

    Raises:
        FormatError: not an ORC file, truncated, or a limit of `bloomseal.core.limits` exceeded.
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
        footer, metadata, rest = postscript.number(1), postscript.number(5), postscript.number(7)
    except FormatError as error:
        raise FormatError("no ORC postscript at the end: not an ORC file, or truncated") from error
    # The first writers have it at the beginning of the file only.
    if magic != MAGIC and (magic or bytes(source.read(0, len(MAGIC))) != MAGIC):
        raise FormatError("no ORC magic at the end: not an ORC file, or truncated")
    if max(footer, metadata) > MAX_ORC_FOOTER_BYTES:
        raise FormatError(f"a footer or metadata of more than {MAX_ORC_FOOTER_BYTES} bytes")
    start = source.size - length - footer
    if start - metadata - rest < len(MAGIC):
        raise FormatError(f"a footer of {footer} and metadata of {metadata} bytes do not fit the file")
    whole = length + footer
    data = end[-whole:-length] if whole <= take else memoryview(source.read(start, footer))
    inflated = inflate(data, _compression(postscript), _block_size(postscript), MAX_ORC_FOOTER_BYTES)
    return OrcTail(source, end[-length:-1], inflated, (start - metadata, metadata), rest)


@lru_cache(maxsize=_REMEMBERED)
def _schema(types: tuple[bytes, ...]) -> OrcSchema:
    return OrcSchema([memoryview(one) for one in types])


def _compression(postscript: Message) -> Compression:
    number = postscript.number(2)
    if number not in _COMPRESSIONS:
        raise UnsupportedError(f"ORC compression {number} is not known")
    return _COMPRESSIONS[number]


def _block_size(postscript: Message) -> int:
    size = postscript.number(3, 256 * 1024)
    if size > MAX_ORC_BLOCK_BYTES:
        raise FormatError(f"compression blocks of {size} bytes, where a chunk's header can say {MAX_ORC_BLOCK_BYTES}")
    return size


def _stripes(footer: Message, stride: int, end: int, encryption: Encryption | None) -> list[Stripe]:
    stripes: list[Stripe] = []
    groups = rows = encrypt_id = 0
    free = len(MAGIC)
    keys: tuple[bytes, ...] = ()
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
        if encryption is not None:
            # A stripe that says nothing follows the one before it, and is under the same keys.
            encrypt_id = message.number(6, encrypt_id + 1)
            keys = _local_keys(message, encryption) or keys
        lengths = (index_length, data_length, footer_length)
        stripes.append(Stripe(index, offset, *lengths, num_rows, count, encrypt_id, keys))
    if rows != footer.number(6):
        raise FormatError(f"the stripes have {rows} rows, the footer says {footer.number(6)}: corrupt")
    return stripes


def _local_keys(message: Message, encryption: Encryption) -> tuple[bytes, ...]:
    keys = tuple(map(bytes, message.every(7)))
    if keys and len(keys) != len(encryption.variants):
        raise FormatError(f"{len(keys)} local keys for {len(encryption.variants)} encrypted columns: corrupt")
    for key, variant in zip(keys, encryption.variants, strict=False):
        check_length(key, variant.key)
    return keys
