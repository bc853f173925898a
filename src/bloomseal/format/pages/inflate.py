"""Pages without their compression, for whoever searches or hashes values and needs no decoder.

A decoder takes several times a page's memory, and longer than the work itself. Codecs that Arrow has not, and pages
that do not add up, are left to it: it says what is wrong.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Final

import pyarrow as pa

from ...core.errors import FormatError
from ...core.limits import MAX_INFLATED_PAGE_BYTES
from ...core.parquet.page import Page
from ...core.storage.source import Buffer
from ...core.thrift import Cursor

PLAIN: Final = 0
PLAIN_DICTIONARY: Final = 2
DICTIONARY_ENCODINGS: Final = (PLAIN_DICTIONARY, 8)
"""The older one and RLE_DICTIONARY (Parquet encodings specification)."""

_GZIP_OR_ZLIB: Final = 47
_UNCOMPRESSED: Final = 0
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""CompressionCodec as pyarrow calls them. LZO it has not, and LZ4 (5) has a framing that differs between writers."""


def codec_to_write(codec: int | None) -> str:
    """What pyarrow's writer calls a CompressionCodec; its default in the place of those that it does not write."""
    return "none" if codec == _UNCOMPRESSED else _CODECS.get(codec or -1, "snappy").removesuffix("_raw")


class Inflater:
    """Takes the compression off the pages of one column chunk.

    Args:
        codec: the chunk's (CompressionCodec; None: none).
    """

    def __init__(self, codec: int | None) -> None:
        self._compression = codec
        name = _CODECS.get(codec or _UNCOMPRESSED)
        self._codec = pa.Codec(name) if name is not None and pa.Codec.is_available(name) else None
        self._unknown = self._codec is None and codec != _UNCOMPRESSED

    def __call__(self, page: Page) -> bytes | bytearray | None:
        """The page's body without compression; None where that can't be had: whoever decodes the page will say why.

        Raises:
            IntegrityError: the page does not authenticate.
        """
        size = page.view.uncompressed_size
        if self._unknown or size is None or not 0 <= size <= MAX_INFLATED_PAGE_BYTES:
            return None
        if not page.could_inflate(self._compression):
            return None
        body, levels = page.body(), 0
        if (v2 := page.v2) is not None:
            levels = (v2.definition_levels or 0) + (v2.repetition_levels or 0)
        if self._codec is None or (v2 is not None and v2.is_compressed is False):
            return _as_bytes(body) if len(body) == size else None
        if not 0 <= levels <= min(len(body), size):
            return None
        try:
            values = _decompressed(self._codec, memoryview(body)[levels:], size - levels)
        except (pa.ArrowException, OSError, ValueError, MemoryError, zlib.error, FormatError):
            return None
        return bytes(memoryview(body)[:levels]) + values if levels and values is not None else values


def _decompressed(codec: pa.Codec, data: memoryview, size: int) -> bytes | None:
    """Exactly `size` bytes, or None. Where a codec makes fewer, pyarrow fills up with whatever was in memory before."""
    if not len(data):
        return None if size else b""
    if codec.name == "gzip":
        stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        made = stream.decompress(data, size + 1)
        return made if len(made) == size and stream.eof and not stream.unused_data else None
    if codec.name == "snappy":
        # Its own length comes first, and the codec holds it to that.
        if Cursor(bytes(data[:10])).varint() != size:
            return None
    elif codec.name != "zstd":  # which sees to it itself
        if not size:
            return None
        with contextlib.suppress(OSError, pa.ArrowException):
            codec.decompress(data, size - 1, asbytes=True)
            return None
    whole: bytes = codec.decompress(data, size, asbytes=True)
    return whole


def _as_bytes(body: Buffer) -> bytes | bytearray:
    return bytes(body) if isinstance(body, memoryview) else body
