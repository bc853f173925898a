"""Bytes of a file that no module covers: a filter or page that was left there, or a whole file that somebody hid.

Readers go where the footer sends them, and never see such bytes; whoever has the file does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ....core.encryption import FRAME_BYTES
from ....core.errors import BloomsealError
from ....core.storage.source import Source
from ....core.thrift import Cursor
from ....core.thrift.structs import BloomFilterHeader, PageHeader, decode_at
from .raw_scan import FILTER_HEADER

_WINDOW: Final = 1 << 20
_HEAD: Final = 256
_MAGIC: Final = (b"PAR1", b"PARE", b"ORC")
_SMALLEST: Final = 4 + FRAME_BYTES
_BLOCK: Final = 32


class Gap(NamedTuple):
    """Bytes that nothing explains; `clear`: a page, a filter or a file without encryption begins there."""

    offset: int
    size: int
    what: str
    clear: bool

    def __str__(self) -> str:
        return f"{self.what} ({self.size} bytes at {self.offset})"


def gaps(source: Source, covered: Iterable[tuple[int, int]], end: int, *, whole_files: bool) -> tuple[Gap, ...]:
    """What is left between modules, up to `end`. Zeros are nothing, and nor is the sealed rest of a filter that was
    replaced, as attaching one leaves it.

    Args:
        covered: offset and length of every module.
        whole_files: only they count, by their magic: of plaintext Parquet files some writers leave copies of the
            metadata between column chunks.
    """
    found, position = [], 0
    for offset, length in [*sorted(covered), (end, 0)]:
        rest = _unexplained(source, position, min(offset, end)) if offset > position else None
        if rest is not None and whole_files:
            rest = _magic(source, rest, min(offset, end))
        if rest is not None:
            found.append(_told(source, rest, min(offset, end)))
        position = max(position, offset + length)
    return tuple(found)


def filter_length(source: Source, offset: int) -> int | None:
    """How long a filter is whose metadata do not say so, as older writers leave it; None where it can't be told."""
    head = bytes(source.read(offset, max(0, min(_HEAD, source.size - offset))))
    if (sealed := _sealed_filter(head)) is not None:
        return sealed
    if (match := FILTER_HEADER.match(head)) is None:
        return None
    return len(match[0]) + (decode_at(BloomFilterHeader, Cursor(match[0])).num_bytes or 0)


def _unexplained(source: Source, position: int, end: int) -> int | None:
    """Where the first byte stands that is neither zero nor of a replaced filter."""
    while position < end:
        data = bytes(source.read(position, min(_WINDOW, end - position)))
        zeros = len(data) - len(data.lstrip(b"\0"))
        if zeros == len(data):
            position += zeros
            continue
        position += zeros
        length = _sealed_filter(bytes(source.read(position, min(_HEAD, end - position))))
        # Its own length may end in zeros.
        if length is None or position + length > end:
            return position
        position += length
    return None


def _magic(source: Source, position: int, end: int) -> int | None:
    """Where a file's magic stands."""
    for start in range(position, end, _WINDOW):
        data = bytes(source.read(start, min(_WINDOW + 3, end - start)))
        places = [place for one in _MAGIC[:2] if (place := data.find(one)) >= 0]
        if places or (start == position and data.startswith(_MAGIC)):
            return start + min(places, default=0)
    return None


def _sealed_filter(head: bytes) -> int | None:
    """The length of a sealed header and its sealed bitset, if `head` begins with such."""
    first = int.from_bytes(head[:4], "little")
    if not _SMALLEST <= first + 4 <= _HEAD - 4 or len(head) < first + 8:
        return None
    second = int.from_bytes(head[first + 4 : first + 8], "little")
    bitset = second + 4 - FRAME_BYTES
    return first + second + 8 if bitset > 0 and bitset % _BLOCK == 0 else None


def _told(source: Source, offset: int, end: int) -> Gap:
    head, size = bytes(source.read(offset, min(_HEAD, end - offset))), end - offset
    if (magic := next((one for one in _MAGIC if head.startswith(one)), None)) is not None:
        return Gap(offset, size, f"what begins as a file of {magic.decode()}", magic != b"PARE")
    if FILTER_HEADER.match(head):
        return Gap(offset, size, "a filter in clear", True)
    if _is_page(head):
        return Gap(offset, size, "a page in clear", True)
    return Gap(offset, size, "bytes of no known kind", False)


def _is_page(head: bytes) -> bool:
    try:
        header = decode_at(PageHeader, Cursor(head))
    except BloomsealError:
        return False
    kinds = {0: header.data, 2: header.dictionary, 3: header.data_v2}
    return bool(header.size) and kinds.get(-1 if header.type is None else header.type) is not None
