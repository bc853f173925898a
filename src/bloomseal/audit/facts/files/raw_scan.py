"""A first look at modules: what stands at some places of a file, sealed or in clear? Told by a few bytes, without a
key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ....core.errors import BloomsealError
from ....core.limits import MAX_BITSET_BYTES
from ....core.storage.source import Source
from ....core.thrift import Cursor
from ....core.thrift.structs import BloomFilterHeader, decode_at

FILTER_HEADER: Final = re.compile(
    rb"\x15[\x80-\xff]{0,4}[\x00-\x7f]\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00"
)
"""A filter's header in clear: numBytes, then the three unions BLOCK, XXHASH, UNCOMPRESSED (compact protocol)."""

_LONGEST: Final = 19
_SHORTEST: Final = 12 + 1
"""Of a sealed module, without its length: a nonce and a byte of ciphertext."""
_WINDOW: Final = 8 * 1024 * 1024
_GAP: Final = 64 * 1024


def read_all(source: Source, wanted: list[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes of these ranges; what stands close together is read at once. Empty where a range leaves the file."""
    wanted = list(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    found: list[bytes] = [b""] * len(wanted)
    run: list[int] = []

    def flush() -> None:
        if not run:
            return
        start = wanted[run[0]][0]
        end = max(wanted[i][0] + wanted[i][1] for i in run)
        data = bytes(source.read(start, end - start))
        for i in run:
            offset, length = wanted[i]
            found[i] = data[offset - start : offset - start + length]
        run.clear()

    for i in order:
        offset, length = wanted[i]
        if offset < 0 or length < 0 or offset >= source.size:
            continue
        wanted_end = min(offset + length, source.size)
        if run and offset - wanted[run[-1]][0] > _GAP:
            flush()
        wanted[i] = (offset, wanted_end - offset)
        run.append(i)
    flush()
    return iter(found)


def is_sealed(data: bytes, length: int) -> bool:
    """Whether a framed module of `length` bytes starts here."""
    return len(data) >= 4 and int.from_bytes(data[:4], "little") == length - 4


def is_filter_header(data: bytes) -> bool:
    """Whether a filter's header starts here, in clear."""
    try:
        header = decode_at(BloomFilterHeader, Cursor(data))
    except BloomsealError:
        return False
    return bool(header.num_bytes and header.algorithm and header.hash)


def clear_filters(source: Source) -> Iterator[tuple[int, int]]:
    """Offset and bitset size of every filter in clear, wherever it stands: as a thief finds them who has the file's
    bytes only.

    Thirteen bytes of a header are always the same; ciphertext does not show them by chance.
    """
    for start in range(0, source.size, _WINDOW):
        data = bytes(source.read(start, min(_WINDOW + _LONGEST - 1, source.size - start)))
        for match in FILTER_HEADER.finditer(data):
            if match.start() >= _WINDOW:
                break
            try:
                num_bytes = decode_at(BloomFilterHeader, Cursor(match[0])).num_bytes or 0
            except BloomsealError:
                continue
            room = source.size - start - match.end()
            if 0 < num_bytes <= min(MAX_BITSET_BYTES, room) and num_bytes % 32 == 0:
                yield start + match.start(), num_bytes


def only_sealed(source: Source, clear: Sequence[tuple[int, int]]) -> bool:
    """But for these filters in clear, is everything in front of the footer a chain of sealed modules? Then no column of
    the file is a plaintext one.

    Args:
        clear: offset and bitset size of filters, as `clear_filters` gives them.
    """
    filters = {offset: offset + _header_length(source, offset) + size for offset, size in clear}
    tail = bytes(source.read(source.size - 8, 4))
    position, end = 4, source.size - 8 - int.from_bytes(tail, "little")
    data, start = b"", 0
    while position < end:
        if position in filters:
            position = filters[position]
            continue
        if not start <= position <= start + len(data) - 4:
            data, start = bytes(source.read(position, min(_WINDOW, source.size - position))), position
        length = int.from_bytes(data[position - start : position - start + 4], "little")
        if length == 0:
            position += 1  # an older filter's place, overwritten with zeros
        elif length < _SHORTEST:
            return False
        else:
            position += 4 + length
    return position == end


def _header_length(source: Source, offset: int) -> int:
    match = FILTER_HEADER.match(bytes(source.read(offset, min(_LONGEST, source.size - offset))))
    return len(match[0]) if match else 0
