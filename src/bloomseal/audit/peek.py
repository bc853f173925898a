"""A first look at modules: what stands at some places of a file, sealed or in clear? Told by a few bytes, without a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..errors import BloomsealError
from ..parquet.source import Source
from ..thrift import Cursor
from ..thrift.structs import BloomFilterHeader, decode_at

__all__ = ["is_filter_header", "is_sealed", "read_all"]

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
    """Does a framed module of `length` bytes start here?"""
    return len(data) >= 4 and int.from_bytes(data[:4], "little") == length - 4


def is_filter_header(data: bytes) -> bool:
    """Does a filter's header start here, in clear?"""
    try:
        header = decode_at(BloomFilterHeader, Cursor(data))
    except BloomsealError:
        return False
    return bool(header.num_bytes and header.algorithm and header.hash)
