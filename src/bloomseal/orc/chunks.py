"""Compressed streams: chunks with a header of three bytes (ORC specification, "Compression")."""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

import pyarrow as pa

from ..core.errors import FormatError, UnsupportedError
from ..core.text import articled
from .runs.choose import lz4_length

_HEADER_BYTES: Final = 3
_RAW_DEFLATE: Final = -15


class Compression(IntEnum):
    """The values are those of the enum ``CompressionKind``."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZO = 3
    LZ4 = 4
    ZSTD = 5
    BROTLI = 6


def inflate(data: memoryview, compression: Compression, block_size: int, limit: int) -> memoryview:
    """A stream without its compression.

    Args:
        block_size: bytes to which one chunk may inflate, from the postscript.
        limit: bytes to which the stream may inflate; nothing is allocated beyond.

    Raises:
        FormatError: a chunk is truncated, corrupt, or greater than it may be.
        UnsupportedError: LZO or Brotli.
    """
    if compression is Compression.NONE:
        if len(data) > limit:
            raise FormatError(f"{len(data)} bytes, where {limit} is the limit")
        return data
    whole: bytes | bytearray | memoryview = b""
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER_BYTES:
            raise FormatError("the header of a compression chunk is cut off")
        header = int.from_bytes(data[at : at + _HEADER_BYTES], "little")
        at, length = at + _HEADER_BYTES, header >> 1
        if length > len(data) - at:
            raise FormatError(f"a compression chunk of {length} bytes reaches outside its stream: truncated or corrupt")
        chunk, at = data[at : at + length], at + length
        part: bytes | memoryview = chunk if header & 1 else _inflate_chunk(chunk, compression, block_size)
        if len(part) > block_size or len(whole) + len(part) > limit:
            raise FormatError(f"a stream inflates beyond its limit: {block_size} bytes a chunk, {limit} in all")
        if not len(whole):
            whole = part
            continue
        # No list of parts: a chunk can be four bytes in the file, and a part some hundreds in memory.
        if not isinstance(whole, bytearray):
            whole = bytearray(whole)
        whole += part
    return memoryview(whole).toreadonly()


def _inflate_chunk(chunk: memoryview, compression: Compression, block_size: int) -> bytes:
    try:
        match compression:
            case Compression.ZLIB:
                return _deflated(chunk, block_size)
            case Compression.SNAPPY:
                return _block(chunk, "snappy", _snappy_length(chunk), block_size)
            case Compression.LZ4:
                return _block(chunk, "lz4_raw", _lz4_length(chunk), block_size)
            case Compression.ZSTD:
                with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(chunk)), "zstd") as stream:
                    return bytes(stream.read(block_size + 1))
            case _:
                raise UnsupportedError(f"ORC compression {compression.name} is not supported")
    except (zlib.error, OSError, pa.ArrowException, IndexError) as error:
        raise FormatError(f"{articled(compression.name)} chunk does not inflate: truncated or corrupt") from error


def _deflated(chunk: memoryview, block_size: int) -> bytes:
    inflater = zlib.decompressobj(_RAW_DEFLATE)
    data = inflater.decompress(chunk, block_size + 1)
    if not inflater.eof and len(data) <= block_size:
        raise FormatError("a ZLIB chunk ends before its data: truncated or corrupt")
    return data


def _block(chunk: memoryview, codec: str, length: int, block_size: int) -> bytes:
    # Arrow allocates the length it is told, and hands out old memory where the chunk holds less.
    if length > block_size:
        raise FormatError(f"a compression chunk claims {length} bytes, where {block_size} is the limit")
    return bytes(pa.Codec(codec).decompress(pa.py_buffer(chunk), length, asbytes=True)) if length else b""


def _snappy_length(chunk: memoryview) -> int:
    """The length that a Snappy block begins with (Snappy format description, section 1)."""
    length = 0
    for place in range(5):
        length |= (chunk[place] & 0x7F) << 7 * place
        if chunk[place] < 0x80:
            return length
    raise FormatError("a SNAPPY chunk without a length: corrupt")


def _lz4_length(chunk: memoryview) -> int:
    if (length := lz4_length(chunk)) < 0:
        raise FormatError("an LZ4 chunk ends within a sequence: truncated or corrupt")
    return length


def deflate(data: bytes | memoryview, compression: Compression, block_size: int) -> bytes:
    """A stream with its compression: chunks of `block_size` bytes, those that would not shrink as they are.

    Raises:
        UnsupportedError: LZO or Brotli.
    """
    if compression is Compression.NONE:
        return bytes(data)
    parts: list[bytes] = []
    for at in range(0, len(data), block_size):
        chunk = bytes(data[at : at + block_size])
        small = _deflate_chunk(chunk, compression)
        original = len(small) >= len(chunk)
        kept = chunk if original else small
        parts += [(len(kept) << 1 | original).to_bytes(_HEADER_BYTES, "little"), kept]
    return b"".join(parts)


def _deflate_chunk(chunk: bytes, compression: Compression) -> bytes:
    if compression is Compression.ZLIB:
        deflater = zlib.compressobj(wbits=_RAW_DEFLATE)
        return deflater.compress(chunk) + deflater.flush()
    codecs = {Compression.SNAPPY: "snappy", Compression.LZ4: "lz4_raw", Compression.ZSTD: "zstd"}
    if compression not in codecs:
        raise UnsupportedError(f"ORC compression {compression.name} is not supported")
    return bytes(pa.Codec(codecs[compression]).compress(chunk, asbytes=True))
