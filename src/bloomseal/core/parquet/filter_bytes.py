"""A Bloom filter as it stands in a file: header and bitset in clear, or modules 8 and 9 (Parquet encryption, section
4.4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..encryption import FRAME_BYTES, ModuleCipher, ModuleType, framed_length
from ..errors import BloomsealError, FormatError, IntegrityError, UnsupportedError
from ..limits import MAX_BITSET_BYTES, MAX_BLOOM_HEADER_BYTES, MIN_BITSET_BYTES
from ..storage.source import Buffer, Scratch, Source
from ..thrift import Cursor
from ..thrift.structs import BloomFilterHeader, decode_at


class FilterBytes(NamedTuple):
    """A filter as read from the file.

    Attributes:
        offset, length: its range, both modules with their framing.
        sealed: it was sealed and has authenticated.
        bitset: the bitset in clear.
        header: the header in clear, as it was written.
        unknown: why it can't be asked, where the header names an algorithm, hash or compression that the specification
            does not know; the bitset is then whatever stands there.
    """

    offset: int
    length: int
    sealed: bool
    bitset: Buffer
    header: bytes
    unknown: UnsupportedError | None = None


def read_filter(
    source: Source,
    offset: int,
    length: int | None,
    cipher: ModuleCipher | None,
    aad: Callable[[ModuleType], bytes],
    stored: Scratch,
    opened: Scratch,
) -> FilterBytes:
    """The filter at `offset`, opened where it is sealed: one range where its length is known.

    Args:
        length: ``bloom_filter_length``; None where the writer left it out.
        cipher: of the column's key; None for plaintext.
        aad: makes the AAD of modules 8 and 9.
        stored, opened: memory for the filter as it is stored and as it is opened.

    Raises:
        FormatError, IntegrityError.
    """
    most = MAX_BITSET_BYTES + MAX_BLOOM_HEADER_BYTES + 2 * FRAME_BYTES
    if length is not None and not 0 < length <= most:
        raise FormatError(f"a Bloom filter of {length} bytes; the limit is {most}", module="Bloom filter header")
    data: Buffer = source.read_into(stored, offset, length) if length is not None else b""
    if cipher is None:
        return _clear_filter(source, offset, data, length)
    try:
        return _sealed_filter(source, cipher, aad, offset, data, opened)
    except (FormatError, IntegrityError):
        try:
            clear = _clear_filter(source, offset, data, length)
        except BloomsealError:
            clear = None
        # Of an unknown kind would be nearly any bytes that somebody puts in a sealed filter's place.
        if clear is None or clear.unknown is not None:
            raise
        return clear


def _sealed_filter(
    source: Source,
    cipher: ModuleCipher,
    aad: Callable[[ModuleType], bytes],
    offset: int,
    data: Buffer,
    opened: Scratch,
) -> FilterBytes:
    view = memoryview(data)
    kind = ModuleType.BLOOM_FILTER_HEADER
    first = _frame(source, offset, view, kind, MAX_BLOOM_HEADER_BYTES)
    # Some writers pad it. In clear, the bitset would then stand where nobody looks for it.
    cursor = Cursor(cipher.open(first, kind, aad(kind)))
    size, unknown = _told(decode_at(BloomFilterHeader, cursor))
    header = cursor.data[: cursor.position]
    kind = ModuleType.BLOOM_FILTER_BITSET
    second = _frame(
        source, offset + len(first), view[len(first) :], kind, size if unknown is None else MAX_BITSET_BYTES
    )
    if unknown is not None:
        size = len(second) - FRAME_BYTES
    if len(second) != size + FRAME_BYTES:
        raise FormatError(f"the header says {size} bytes of bitset", module=kind.label)
    total = len(first) + len(second)
    if len(data) and total != len(data):
        raise FormatError(f"bloom_filter_length says {len(data)} bytes, its modules have {total}", module=kind.label)
    bitset = opened.take(size)
    cipher.open_into(second, kind, aad(kind), bitset)
    return FilterBytes(offset, total, True, bitset, header, unknown)


def _frame(source: Source, offset: int, known: memoryview, kind: ModuleType, limit: int) -> Buffer:
    """One framed module, from the bytes already read or from the file; its length meets the limit first."""
    prefix = known[:4] if len(known) else source.read(offset, 4)
    size = framed_length(prefix, kind)
    if size > limit + FRAME_BYTES:
        raise FormatError(f"a module of {size} bytes where at most {limit + FRAME_BYTES} can stand", module=kind.label)
    if not len(known):
        return source.read(offset, size)
    if size > len(known):
        raise FormatError("a module reaches past bloom_filter_length", module=kind.label)
    return known[:size]


def _clear_filter(source: Source, offset: int, data: Buffer, length: int | None) -> FilterBytes:
    if length is None:
        data = source.read(offset, min(MAX_BLOOM_HEADER_BYTES, max(source.size - offset, 0)))
    cursor = Cursor(bytes(data[:MAX_BLOOM_HEADER_BYTES]))
    size, unknown = _told(decode_at(BloomFilterHeader, cursor))
    begin = cursor.position
    header = bytes(data[:begin])
    if length is None:
        bitset = source.read(offset + begin, size)
        return FilterBytes(offset, begin + size, False, bitset, header, unknown)
    if unknown is not None:
        size = length - begin
    if begin + size != length:
        # parquet-java fills a filter that its length cuts short with zeros: false negatives.
        raise FormatError(f"bloom_filter_length says {length} bytes, the filter has {begin + size}")
    return FilterBytes(offset, length, False, memoryview(data)[begin:], header, unknown)


def _told(header: BloomFilterHeader) -> tuple[int, UnsupportedError | None]:
    """The size of the bitset that the header gives, and why it can't be asked, if so."""
    try:
        return _bitset_size(header), None
    except UnsupportedError as error:
        size = header.num_bytes or 0
        if not 0 <= size <= MAX_BITSET_BYTES:
            raise FormatError(f"a bitset of {size} bytes", module=ModuleType.BLOOM_FILTER_HEADER.label) from None
        return size, error


def _bitset_size(header: BloomFilterHeader) -> int:
    label = ModuleType.BLOOM_FILTER_HEADER.label
    size = header.num_bytes
    if size is None or header.algorithm is None or header.hash is None or header.compression is None:
        raise FormatError("a Bloom filter header without its required fields", module=label)
    for name in ("algorithm", "hash", "compression"):
        if not getattr(header, name).known:
            raise UnsupportedError(f"the Bloom filter's {name} is not one that the specification knows", module=label)
    if not MIN_BITSET_BYTES <= size <= MAX_BITSET_BYTES:
        raise FormatError(
            f"a bitset of {size} bytes; from {MIN_BITSET_BYTES} to {MAX_BITSET_BYTES} are lawful", module=label
        )
    return size
