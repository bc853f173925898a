"""The hashes of a column chunk's values, as its file stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.errors import BloomsealError, FormatError, UnsupportedError, UsageError
from ...core.parquet.levels import check_clear_levels, parts_of, tallied
from ...core.parquet.page import Page
from ...core.parquet.schema import Leaf
from ...core.parquet.walk import Walk
from ...core.sbbf import ColumnType, PhysicalType, hash_array
from ...core.storage.source import Buffer
from ...core.thrift.structs import ColumnMetaData
from ...sbbf import batch
from ..decode import decode_batches, leaf_values
from ..minifile import PageSelection, mini_file
from ..pages.inflate import DICTIONARY_ENCODINGS, PLAIN, Inflater

_BATCH_ROWS: Final = 1 << 15
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

_WIDTHS: Final = {
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.INT96: 12,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
}


def carries_filter(leaf: Leaf) -> None:
    """Refuse a column that no filter can serve.

    Raises:
        UsageError: a BOOLEAN column, whose values have no hash in any implementation.
    """
    if leaf.type.physical is PhysicalType.BOOLEAN:
        raise UsageError("a BOOLEAN column can't carry a Bloom filter", column=leaf.name, hint="leave it out")


def chunk_hashes(
    walk: Walk, row_group: int, leaf: Leaf, array: pa.ChunkedArray | None = None
) -> npt.NDArray[np.uint64]:
    """XXH64 of the non-null values of one column chunk; values of dictionaries may be named once each.

    Args:
        array: the values that were encoded, where they are at hand. They are hashed directly if their layout is the
            plain encoding that the file's type names; any other layout is read back from the pages, so that a filter
            always holds what its file holds.
    """
    if array is not None and _is_plain_encoding(array.type, leaf):
        return hash_array(array, leaf.type)
    hashes = pieces(walk, row_group, leaf)
    return np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)


def pieces(walk: Walk, row_group: int, leaf: Leaf) -> list[npt.NDArray[np.uint64]]:
    """As `chunk_hashes`, from the pages alone, in as many arrays as come up.

    Raises:
        FormatError, IntegrityError, KeyAccessError, UnsupportedError.
    """
    return [hashes for _, hashes in page_by_page(walk, row_group, leaf)]


def page_by_page(walk: Walk, row_group: int, leaf: Leaf) -> list[tuple[int, npt.NDArray[np.uint64]]]:
    """As `pieces`, each with the ordinal of the data page that it is of; −1: it may be of any page.

    Raises:
        As `pieces`.
    """
    try:
        return _hashes(walk, row_group, leaf)
    except BloomsealError as error:
        raise error.at(file=walk.source.name, row_group=row_group, column=leaf.name) from error.__cause__


def _hashes(walk: Walk, row_group: int, leaf: Leaf) -> list[tuple[int, npt.NDArray[np.uint64]]]:
    """Piece by piece: straight from the pages where that can be done, from the others as they are decoded."""
    chunk = walk.chunk(row_group, leaf.index)
    direct, rest = PageHashes(walk.meta(chunk), leaf), []
    for page in walk.pages(chunk):
        if not check_clear_levels(page, leaf):
            raise UnsupportedError(
                "the page's levels stand in clear, and its header does not count nulls: a filter could lack values",
                module=f"{page.kind.label} {page.ordinal}",
                hint="unseal and seal the file, if nobody else can write to it",
            )
        if not direct.take(page) or page.ordinal < 0:
            rest.append(page)
    hashes, data_pages = direct.taken(), [page for page in rest if page.ordinal >= 0]
    expected = walk.footer.row_group(row_group).num_rows or 0
    if not data_pages:
        if direct.rows != expected:
            raise FormatError(f"the pages hold {direct.rows} rows of {expected}")
        return hashes
    rows = sum(page.num_values for page in data_pages)
    selection: PageSelection | None = PageSelection({leaf.index: rest}, rows)
    if leaf.repeated:
        # Its pages may share rows: all of them are decoded, or none.
        hashes.clear()
        selection = None
    data = mini_file(walk, row_group, [leaf.index], physical=True, selection=selection, at_once=_BATCH_ROWS).view
    del selection, rest, data_pages, page  # and the memory that they were read into
    stored = ColumnType(leaf.type.physical, leaf.type.type_length)
    hashes += ((-1, hash_array(values, stored)) for values in _decoded(data))
    return hashes


def _decoded(data: Buffer) -> Iterator[pa.ChunkedArray]:
    """The values of a mini-file's leaf as the file stores them: physical types, no nesting, nulls left out or null;
    INT96 as 12 bytes.
    """
    # Never by `read_dictionary`: of equal entries in a dictionary Arrow keeps one, and its indices then point to other
    # values. Decoding a whole column takes several times its memory, and Arrow's pool keeps what was given back to it.
    for column in decode_batches(data, _BATCH_ROWS):
        yield leaf_values(column)
        pa.default_memory_pool().release_unused()


def _is_plain_encoding(kind: pa.DataType, leaf: Leaf) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if leaf.repeated or len(leaf.path) > 1:
        return False
    match leaf.type.physical:
        case PhysicalType.BYTE_ARRAY:
            binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
            return bool(binary or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
        case PhysicalType.INT32:
            return bool(types.is_int32(kind) or types.is_date32(kind))
        case PhysicalType.INT64:
            return bool(types.is_int64(kind))
        case PhysicalType.FLOAT:
            return bool(types.is_float32(kind))
        case PhysicalType.DOUBLE:
            return bool(types.is_float64(kind))
        case _:
            return False


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
