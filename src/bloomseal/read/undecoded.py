"""Which rows of a text column hold one of many values, found in pages that nobody decodes.

To decode a page costs several times as much as to look its values up where they stand. A row that is found equals the
value asked for, byte for byte, so that the column needs no decoding afterwards either. Dictionaries, nulls and other
encodings are left to the decoder.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.errors import BloomsealError
from ..core.parquet.levels import parts_of, tallied
from ..core.parquet.page import Page
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Walk
from ..format.pages.inflate import PLAIN, Inflater
from ..sbbf import KeySet

Rows = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


class FoundRows(NamedTuple):
    """Some rows of a row group.

    Attributes:
        rows: ascending.
        owners: the number of the value of the set that each holds.
    """

    rows: Rows
    owners: Rows


def find_rows(walk: Walk, row_group: int, leaf: Leaf, keys: KeySet) -> FoundRows | None:
    """The rows that hold one of `keys`; None where decoding all of them is the way.

    Args:
        leaf: a flat column of text.

    Raises:
        FormatError, IntegrityError, KeyAccessError.
    """
    chunk = walk.chunk(row_group, leaf.index)
    if walk.meta(chunk).dictionary_page_offset is not None:
        return None
    inflate = Inflater(walk.meta(chunk).codec)
    none = np.empty(0, dtype=np.int64)
    rows, owners, end = [none], [none], 0
    for page in walk.pages(chunk):
        if page.ordinal < 0 or page.encoding != PLAIN:
            return None
        try:
            body = inflate(page)
        except BloomsealError as error:
            place = f"{page.kind.label} {page.ordinal}"
            raise error.at(file=walk.source.name, module=place, **chunk.place) from error.__cause__
        if body is None or (values := _all_there(page, body, leaf)) is None:
            return None
        if (found := keys.find_prefixed(values, page.num_values)) is None:
            return None
        rows.append(found[0] + end)
        owners.append(found[1])
        end += page.num_values
    if end != (walk.footer.row_group(row_group).num_rows or 0):
        return None
    return FoundRows(np.concatenate(rows), np.concatenate(owners))


def _all_there(page: Page, body: bytes | bytearray, leaf: Leaf) -> U8 | None:
    """The values of a page without nulls; None of any other."""
    data = np.frombuffer(body, dtype=np.uint8) if body else np.empty(0, dtype=np.uint8)
    if (parts := parts_of(page, data, leaf)) is None:
        return None
    _, definition, values = parts
    there = tallied(definition, leaf.definition, page.num_values)
    return values if there is not None and int(there[-1]) == page.num_values else None
