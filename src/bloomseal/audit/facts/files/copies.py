"""A sealed column that stands in clear under another name: told by equal filters, or by equal dictionaries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from ....core.errors import BloomsealError
from ....core.parquet.walk import Chunk, Walk
from ....core.sbbf import SplitBlockBloomFilter
from ....format.pages.inflate import Inflater

_MOST_ENTRIES_BY_CHANCE: Final = 16
"""Few values stand in many columns in one order: flags, classes, countries."""
_MOST_VALUES_BY_CHANCE: Final = 20_000
"""A filter knows no order: two columns have equal ones that hold all days of fifty years, or all numbers of four
digits. A copy with so few values shows by its dictionary.
"""
_LEAST_UNSET: Final = 64
"""Full filters are all equal."""


def copies(walk: Walk, row_group: int) -> Iterator[tuple[str, str]]:
    """Sealed column, column in clear: those of a row group that hold the same values. What can't be opened is passed
    over: whoever opens every module says so.
    """
    sealed: dict[tuple[object, ...], str] = {}
    clear: list[tuple[tuple[object, ...], str]] = []
    chunks = list(walk.chunks(row_group))
    if all(chunk.encrypted for chunk in chunks) or not any(chunk.encrypted for chunk in chunks):
        return
    for chunk in chunks:
        for mark in _marks(walk, chunk):
            if chunk.encrypted:
                sealed.setdefault(mark, chunk.leaf.name)
            else:
                clear.append((mark, chunk.leaf.name))
    yield from dict.fromkeys((sealed[mark], name) for mark, name in clear if mark in sealed)


def _marks(walk: Walk, chunk: Chunk) -> Iterator[tuple[object, ...]]:
    kind = chunk.leaf.type.physical, chunk.leaf.type.type_length
    try:
        found = walk.stored_filter(chunk)
        if found is not None and found.unknown is None:
            unset = 8 * len(found.bitset) - int.from_bytes(found.bitset, "little").bit_count()
            values = SplitBlockBloomFilter.from_bitset(found.bitset).estimated_ndv()
            if values > _MOST_VALUES_BY_CHANCE and unset >= _LEAST_UNSET:
                yield "filter", *kind, hashlib.sha256(found.bitset).digest()
        page = next(iter(walk.pages(chunk)), None)
        if page is not None and page.ordinal < 0 and page.num_entries > _MOST_ENTRIES_BY_CHANCE:
            entries = Inflater(walk.meta(chunk).codec)(page)
            if entries is not None:
                yield "dictionary", *kind, hashlib.sha256(entries).digest()
    except BloomsealError:
        return
