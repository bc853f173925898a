"""Hash the values of a column chunk straight from its pages, without a decoder.

This room reads PLAIN pages and dictionaries. It leaves other encodings, and pages that do not add up, to the decoder.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ...core.parquet.levels import parts_of, tallied
from ...core.parquet.page import Page
from ...core.parquet.schema import Leaf
from ...core.sbbf import PhysicalType
from ...core.thrift.structs import ColumnMetaData
from ...sbbf import batch
from ..pages.inflate import DICTIONARY_ENCODINGS, PLAIN, Inflater

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

_WIDTHS: Final = {
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.INT96: 12,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
}


class PageHashes:
    """XXH64 of the values of one column chunk, whose pages are shown to it in their order.

    A page stores no nulls among its values. The bytes behind the levels are therefore values, however the column is
    nested, and only their number matters. An entry of a dictionary is hashed once, and only if a page points to it.

    Args:
        meta: the chunk's metadata.
        leaf: its column.

    Attributes:
        rows: that begin on the data pages taken.
    """

    def __init__(self, meta: ColumnMetaData, leaf: Leaf) -> None:
        self.rows = 0
        self._inflate = Inflater(meta.codec)
        self._leaf = leaf
        self._hashes: list[tuple[int, U64]] = []
        self._entries: U64 = np.empty(0, dtype=np.uint64)
        self._uses = np.empty(0, dtype=np.int64)

    def take(self, page: Page) -> bool:
        """False where the page is left to the decoder, with the dictionary page before it.

        Raises:
            IntegrityError: the page does not authenticate.
        """
        if page.ordinal >= 0 and not page.num_values:
            return True
        if page.encoding not in (PLAIN, *DICTIONARY_ENCODINGS) or (body := self._inflate(page)) is None:
            return False
        data = np.frombuffer(body, dtype=np.uint8) if body else np.empty(0, dtype=np.uint8)
        if page.ordinal < 0:
            if (entries := self._plain(data, page.num_entries)) is not None:
                self._entries, self._uses = entries, np.zeros(len(entries), dtype=np.int64)
            return entries is not None
        if (parts := parts_of(page, data, self._leaf)) is None:
            return False
        repetition, definition, values = parts
        rows = tallied(repetition, self._leaf.repetition, page.num_values)
        there = tallied(definition, self._leaf.definition, page.num_values)
        if rows is None or there is None or not self._take(page, values, int(there[-1])):
            return False
        self.rows += int(rows[0])
        return True

    def _take(self, page: Page, values: U8, count: int) -> bool:
        if page.encoding != PLAIN:
            # Bit width, then the hybrid (Parquet encodings, RLE_DICTIONARY).
            return not count or (len(values) > 0 and batch.tally(values[1:], int(values[0]), count, self._uses))
        if (hashes := self._plain(values, count)) is None:
            return False
        self._hashes.append((page.ordinal, hashes))
        return True

    def taken(self) -> list[tuple[int, U64]]:
        """Those of all pages taken, with the ordinal of the page; of dictionaries −1: they are of several pages."""
        return [*self._hashes, (-1, self._entries[self._uses > 0])]

    def _plain(self, values: U8, count: int) -> U64 | None:
        """None where they are not exactly so many."""
        kind = self._leaf.type
        if kind.physical is PhysicalType.BYTE_ARRAY:
            hashes = batch.hash_prefixed(values, count)
            return hashes if hashes is not None and len(hashes) == count else None
        if not count:
            return None if len(values) else np.empty(0, dtype=np.uint64)
        width = _WIDTHS.get(kind.physical, kind.type_length or 0)
        return batch.hash_fixed(values, width, count) if width and len(values) == width * count else None
