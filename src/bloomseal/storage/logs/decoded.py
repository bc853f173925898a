"""How much memory a log's files take once a library has decoded them, told before it is asked to.

Nobody authenticates a log, and a few stored bytes can stand for any number of decoded ones: compressed blocks,
dictionary entries that are referred to again and again, runs of nulls, lists of items that take no byte. The libraries
decode what they are given. So what their files would come to is counted first, without decoding them, and has a limit
that grows with what is stored: whoever wants memory to be taken pays for it in the table's folder.

Parquet file format, "Page", "Encodings"; Avro 1.12, "Object Container Files", "Required Codecs".
"""

from __future__ import annotations

import bz2
import contextlib
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.errors import FormatError
from ...core.limits import CHECKPOINT_RATIO, MANIFEST_RATIO, MAX_LOG_BYTES, SMALL_LOG_BYTES
from ...core.parquet.layout import MAGIC_ENCRYPTED
from ...core.thrift import Cursor
from ...core.thrift.structs import PageHeader, decode_at
from .avro import Walk, varint, walker, zigzag

_PIECE: Final = 1 << 20
_RAW: Final = -15
"""Of zlib: without a header."""
_VALUE: Final = 8
"""Bytes that a value takes in a decoder's arrays, whatever its type, and were it null."""
_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_DICTIONARY_PAGE, _PAGE_V2 = 2, 3
_NAMES: Final = {"LZ4": "lz4_raw"}
"""Codecs that pyarrow names otherwise when it tells them."""
_DICTIONARY, _DELTA_BYTE_ARRAY = (2, 8), 7
"""Encodings."""


def need_readable(size: int, path: str, stored: int | None = None, ratio: int = MANIFEST_RATIO) -> None:
    """Before a file of a log is read, or decoded, at once.

    Args:
        size: bytes that are read, or that the file decodes to.
        stored: bytes that it has, where `size` is that of what it decodes to; ratio: what these may come to.

    Raises:
        FormatError: it is too long. A file with holes is as long as somebody likes.
    """
    most = MAX_LOG_BYTES if stored is None else most_decoded(stored, ratio)
    if size > most:
        what = f"a log of {size} bytes" if stored is None else f"a log of {stored} bytes that decodes to {size} or more"
        raise FormatError(f"{what}; the limit is {most}", file=path)


def most_decoded(stored: int, ratio: int = MANIFEST_RATIO) -> int:
    """How much a file of a log may decode to, that has so many bytes."""
    return min(MAX_LOG_BYTES, SMALL_LOG_BYTES + ratio * stored)


def inflated(codec: str, data: bytes, most: int) -> int:
    """The length of what these bytes decompress to; as soon as it is greater than `most`, any such length.

    Args:
        codec: as Avro names it, or ``gzip``.
    """
    if codec == "null":
        return len(data)
    if codec == "snappy":  # the length comes first, and the decoder allocates it
        return varint(data, 0)[0]
    length = 0
    with contextlib.suppress(zlib.error, OSError, ValueError):  # the library will say so
        for piece in _PIECES[codec](data):
            length += piece
            if length > most:
                break
    return length


def _deflated(data: bytes) -> Iterator[int]:
    unpacking = zlib.decompressobj(_RAW)
    for start in range(0, len(data), _PIECE):  # what is left over is copied each time
        piece = data[start : start + _PIECE]
        while piece and not unpacking.eof:
            yield len(unpacking.decompress(piece, _PIECE))
            piece = unpacking.unconsumed_tail


def _bzipped(data: bytes) -> Iterator[int]:
    unpacking = bz2.BZ2Decompressor()
    yield len(unpacking.decompress(data, _PIECE))
    while not unpacking.eof and not unpacking.needs_input:
        yield len(unpacking.decompress(b"", _PIECE))
    if unpacking.unused_data:  # the decoder takes any number of streams, and copies what is left for each
        yield MAX_LOG_BYTES + 1


def _streamed(codec: str) -> Callable[[bytes], Iterator[int]]:
    def pieces(data: bytes) -> Iterator[int]:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := len(stream.read(_PIECE)):
                yield piece

    return pieces


_PIECES: Final[dict[str, Callable[[bytes], Iterator[int]]]] = {
    "gzip": _streamed("gzip"),
    "deflate": _deflated,
    "bzip2": _bzipped,
    "zstandard": _streamed("zstd"),
    "zstd": _streamed("zstd"),
    "brotli": _streamed("brotli"),
}


# Avro ----------------------------------------------------------------------------------------------------------------


def avro_header(data: bytes, path: str) -> dict[str, str]:
    """What the header of an Avro file holds beside the schema, and that.

    Raises:
        FormatError: it can't be understood.
    """
    try:
        return {name: value.decode() for name, value in _metadata(data, len(_MAGIC))[0].items()}
    except (ValueError, IndexError) as error:
        raise FormatError(f"a manifest that can't be understood ({type(error).__name__})", file=path) from None


def need_avro(data: bytes, path: str) -> None:
    """Before a library decodes an Avro file.

    Raises:
        FormatError: it would become too much, is none, or is of a codec that nobody knows.
    """
    try:
        size = _avro(data)
    except Exception as error:  # whatever the codecs raise
        raise FormatError(f"a manifest that can't be understood ({type(error).__name__})", file=path) from None
    need_readable(size, path, len(data))


def _avro(data: bytes) -> int:
    if data[:4] != _MAGIC:
        raise ValueError
    told, position = _metadata(data, 4)
    schema = json.loads(told["avro.schema"])
    if _takes_nothing(schema, {}, items=True):
        return MAX_LOG_BYTES + 1  # as many as somebody says
    codec, position = told.get("avro.codec", b"null").decode(), position + _SYNC
    most, size, walk = most_decoded(len(data)), 0, walker(schema)
    while position < len(data):
        count, position = zigzag(data, position)
        length, position = zigzag(data, position)
        if count < 0 or not 0 <= length <= len(data) - position - _SYNC:
            raise ValueError
        block = data[position : position + length]
        size += max(count, inflated(codec, block, most))
        if size > most:
            return size
        _need_within(walk, count, _unpacked(codec, block))
        position += length + _SYNC
    if position != len(data):
        raise ValueError
    return size


def _need_within(walk: Walk, count: int, block: bytes) -> None:
    """Raises ValueError, IndexError: the values of a block do not end with it."""
    at = 0
    for _ in range(count):
        at = walk(block, at)
    if at != len(block):
        raise ValueError


def _unpacked(codec: str, block: bytes) -> bytes:
    """As the library unpacks it."""
    from pyiceberg.avro.codecs import KNOWN_CODECS

    library = KNOWN_CODECS[codec]  # type: ignore[index]
    return block if library is None else library.decompress(block)


def _metadata(data: bytes, position: int) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    while True:
        count, position = zigzag(data, position)
        if count < 0:
            count, (_, position) = -count, zigzag(data, position)
        if not count:
            return found, position
        for _ in range(min(count, len(data))):
            pair = []
            for _ in range(2):
                length, position = zigzag(data, position)
                if not 0 <= length <= len(data) - position:
                    raise ValueError
                pair.append(data[position : position + length])
                position += length
            found[pair[0].decode()] = pair[1]


def _takes_nothing(schema: Any, named: dict[str, Any], *, items: bool = False) -> bool:
    """Whether a value of this type can take no byte; with `items`, those of a list in it."""
    if isinstance(schema, list):  # a union, whose branch has a number
        return items and any(_takes_nothing(one, named, items=True) for one in schema)
    if isinstance(schema, str):
        return not items and (schema == "null" or (schema in named and _takes_nothing(named[schema], {})))
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _takes_nothing(kind, named, items=items)
    if "name" in schema:
        named[schema["name"]] = schema
    if kind == "record":
        inside = (_takes_nothing(field["type"], named, items=items) for field in schema["fields"])
        return any(inside) if items else all(inside)
    if kind in ("array", "map"):
        inner = schema["items" if kind == "array" else "values"]
        return items and (
            (kind == "array" and _takes_nothing(inner, named)) or _takes_nothing(inner, named, items=True)
        )
    return not items and (kind == "null" or (kind == "fixed" and not schema["size"]))


# Parquet -------------------------------------------------------------------------------------------------------------


def need_parquet(data: bytes, path: str) -> None:
    """Before a library decodes a Parquet file of a log. One that is sealed it decodes to nothing.

    Raises:
        FormatError: it would become too much, or is none.
    """
    if data.endswith(MAGIC_ENCRYPTED):
        return
    try:
        size = _parquet(data)
    except (pa.ArrowException, ValueError, IndexError, OSError) as error:
        raise FormatError(f"a checkpoint that can't be understood ({type(error).__name__})", file=path) from None
    need_readable(size, path, len(data), CHECKPOINT_RATIO)


def _parquet(data: bytes) -> int:
    meta = pq.read_metadata(pa.BufferReader(data))
    most, size = most_decoded(len(data), CHECKPOINT_RATIO), 0
    for group in range(meta.num_row_groups):
        row_group = meta.row_group(group)
        for place in range(row_group.num_columns):
            if size > most:
                return size
            each = max(_VALUE, meta.schema.column(place).length)
            size += each * max(row_group.num_rows, 0) + _chunk(data, row_group.column(place), each, most - size)
    return size


def _chunk(data: bytes, chunk: Any, each: int, most: int) -> int:
    """What a column chunk decodes to, by its pages' own headers: the footer's sums may be anything.

    Args:
        each: bytes that a value takes, and were it null.
    """
    position, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset or 0
    if 0 < position < dictionary or chunk.total_compressed_size < 0:  # decoders begin at either
        raise ValueError
    position = dictionary or position
    end = position + chunk.total_compressed_size
    longest, size = 0, each * max(int(chunk.num_values), 0)
    # Not as many values as the footer says: decoders go on to the last page.
    while position < end and size <= most:
        cursor = Cursor(data, position)
        header = decode_at(PageHeader, cursor)
        stored, unpacked = header.size or 0, header.uncompressed_size or 0
        if stored < 0 or unpacked < 0 or cursor.position + stored > len(data):
            raise ValueError
        body = data[cursor.position : cursor.position + stored]
        position, size = cursor.position + stored, size + unpacked
        if size > most:
            break
        _need_fitting(body, header, chunk.compression)
        if header.type == _DICTIONARY_PAGE:
            if chunk.physical_type == "BYTE_ARRAY":
                longest = max(longest, _longest(body, unpacked, chunk.compression))
            continue
        for page in filter(None, (header.data, header.data_v2)):
            # What begins as the text before does may be that as a whole; an entry may be referred to by all values.
            text = unpacked if page.encoding == _DELTA_BYTE_ARRAY else longest if page.encoding in _DICTIONARY else 0
            size += max(page.num_values or 0, 1) * (each + text)
    return size


def _need_fitting(stored: bytes, header: PageHeader, codec: str) -> None:
    """Some decoders of some codecs unpack a page as a whole before they compare it with what its header says.

    Raises:
        ValueError: it becomes longer.
        OSError: it can't be unpacked.
    """
    v2, length = header.data_v2 if header.type == _PAGE_V2 else None, 0
    pieces = None if v2 is not None and v2.is_compressed is False else _PIECES.get(codec.lower())
    levels = 0 if v2 is None else (v2.definition_levels or 0) + (v2.repetition_levels or 0)
    if pieces is None or not (body := stored[max(levels, 0) :]):
        return
    for piece in pieces(body):
        length += piece
        if length > (header.uncompressed_size or 0):
            raise ValueError


def _longest(stored: bytes, unpacked: int, codec: str) -> int:
    try:
        opened = (
            stored
            if codec == "UNCOMPRESSED"
            else pa.Codec(_NAMES.get(codec, codec.lower())).decompress(stored, unpacked)
        )
    except OSError:  # such as LZ4 in Hadoop's form, which has the same name
        return unpacked
    page = bytes(opened)
    longest = position = 0
    while position < len(page):
        length = int.from_bytes(page[position : position + 4], "little")
        longest, position = max(longest, length), position + 4 + length
    return longest
