"""Pages as bytes without compression, and the values of those in PLAIN encoding straight from them.

Whoever only searches or hashes values needs no decoder: that takes several times a page's memory, and longer than the work
itself. What can't be had this way is left to the decoder: other encodings, codecs that Arrow has not, and pages that do not
add up, of which it says what is wrong.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..limits import MAX_INFLATED_PAGE_BYTES
from ..sbbf import PhysicalType, batch
from ..thrift.structs import ColumnMetaData
from .pages import Page
from .schema import Leaf
from .source import Buffer

__all__ = ["DICTIONARY_ENCODINGS", "PLAIN", "PLAIN_DICTIONARY", "Inflater", "plain_hashes"]

PLAIN: Final = 0
PLAIN_DICTIONARY: Final = 2
DICTIONARY_ENCODINGS: Final = (PLAIN_DICTIONARY, 8)
"""The older one and RLE_DICTIONARY (Parquet encodings specification)."""

_RLE: Final = 3
_UNCOMPRESSED: Final = 0
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""CompressionCodec as pyarrow calls them. LZO it has not, and LZ4 (5) has a framing that differs between writers."""

_WIDTHS: Final = {
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.INT96: 12,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
}


class Inflater:
    """Takes the compression off the pages of one column chunk, of whose metadata it is made."""

    def __init__(self, meta: ColumnMetaData) -> None:
        self._compression = meta.codec
        name = _CODECS.get(meta.codec or _UNCOMPRESSED)
        self._codec = pa.Codec(name) if name is not None and pa.Codec.is_available(name) else None
        self._unknown = self._codec is None and meta.codec != _UNCOMPRESSED

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
            values: bytes = self._codec.decompress(memoryview(body)[levels:], size - levels, asbytes=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError):
            return None
        return bytes(memoryview(body)[:levels]) + values if levels else values


def _as_bytes(body: Buffer) -> bytes | bytearray:
    return bytes(body) if isinstance(body, memoryview) else body


def plain_hashes(page: Page, leaf: Leaf, inflate: Inflater) -> npt.NDArray[np.uint64] | None:
    """XXH64 of the values of a data page in PLAIN encoding; None where it is no such page, or does not add up.

    Nulls have no place among the values, so nesting does not matter: what follows the levels is values to the end.

    Raises:
        IntegrityError: the page does not authenticate.
    """
    if page.ordinal < 0 or page.encoding != PLAIN or (data := inflate(page)) is None:
        return None
    if (begin := _first_value(page, data, leaf)) is None:
        return None
    values = np.frombuffer(data, dtype=np.uint8)[begin:] if data else np.empty(0, dtype=np.uint8)
    hashes: npt.NDArray[np.uint64] | None = None
    if leaf.type.physical is PhysicalType.BYTE_ARRAY:
        hashes = batch.hash_prefixed(values, page.num_values)
    elif width := _WIDTHS.get(leaf.type.physical, leaf.type.type_length or 0):
        count, rest = divmod(len(values), width)
        if not rest and count <= page.num_values:
            hashes = batch.hash_fixed(values, width, count)
    if hashes is None or (len(hashes) < page.num_values and not leaf.nullable):
        return None
    return hashes


def _first_value(page: Page, data: bytes | bytearray, leaf: Leaf) -> int | None:
    """Where the values of a data page begin, behind its levels (Parquet data pages); None where the levels leave the page."""
    begin = 0
    if (v2 := page.v2) is not None:
        begin = (v2.repetition_levels or 0) + (v2.definition_levels or 0)
    elif (v1 := page.view.data) is not None:
        for there, encoding in ((leaf.repeated, v1.repetition_encoding), (leaf.nullable, v1.definition_encoding)):
            if there:
                if encoding != _RLE or begin + 4 > len(data):
                    return None
                begin += 4 + int.from_bytes(data[begin : begin + 4], "little")
    return begin if 0 <= begin <= len(data) else None
