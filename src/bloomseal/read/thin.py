"""A text column without the rows that nobody asked for: many values are looked for by their hashes, in undecoded pages.

To decode a page costs several times as much as to hash its values where they stand (`page_hashes`). So a page is made
of those values whose hash is one that is asked for, and only that page is decoded. Hashes decide nothing else: the rows
are compared with the values all the same. Dictionaries, nulls and other encodings are left to the decoder.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..encryption import ModuleType
from ..errors import BloomsealError
from ..format.hashes.page_hashes import parts_of
from ..format.minifile import PageSelection
from ..format.pages.inflate import PLAIN, Inflater
from ..format.pages.levels import tallied
from ..format.pages.page import Page
from ..format.schema import Leaf
from ..format.walk import Walk
from ..sbbf import KeySet, batch
from ..storage.source import Scratch
from ..thrift import Cursor, Struct, encode_varint
from ..thrift.structs import PageHeader, decode_at

__all__ = ["Thin", "thinned"]

Rows = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_RLE: Final = 3
_WORTHWHILE: Final = 0.25
"""Above this share of the rows, decoding all of them is not much dearer."""


class Thin(NamedTuple):
    """Some rows of a row group.

    Attributes:
        rows: ascending.
        owners: the value of the set that each may hold.
        selection: their values.
    """

    rows: Rows
    owners: Rows
    selection: PageSelection


def thinned(walk: Walk, row_group: int, leaf: Leaf, keys: KeySet, scratch: Scratch | None) -> Thin | None:
    """The rows that may hold one of `keys`; None where decoding all of them is the way.

    Args:
        leaf: a flat column of text.
        scratch: memory for the stored pages.

    Raises:
        FormatError, IntegrityError, KeyAccessError.
    """
    chunk = walk.chunk(row_group, leaf.index)
    inflate = Inflater(walk.meta(chunk))
    none = np.empty(0, dtype=np.int64)
    rows, owners, kept, end = [none], [none], [np.empty(0, dtype=np.uint8)], 0
    for page in walk.pages(chunk, scratch):
        if page.ordinal < 0 or page.encoding != PLAIN:
            return None
        try:
            body = inflate(page)
        except BloomsealError as error:
            place = f"{page.kind.label} {page.ordinal}"
            raise error.at(file=walk.source.name, module=place, **chunk.place) from error.__cause__
        if body is None or (values := _all_there(page, body, leaf)) is None:
            return None
        hashes = batch.hash_prefixed(values, page.num_values)
        if hashes is None or len(hashes) != page.num_values or (found := keys.with_hash(hashes)) is None:
            return None
        chosen, of = found
        if len(chosen) > _WORTHWHILE * len(hashes):
            return None
        if (cut := batch.cut_prefixed(values, chosen, len(hashes))) is None:
            return None
        rows.append(chosen + end)
        owners.append(of)
        kept.append(cut)
        end += page.num_values
    if end != (walk.footer.row_group(row_group).num_rows or 0):
        return None
    every = np.concatenate(rows)
    page = _page(np.concatenate(kept), len(every), leaf)
    return Thin(every, np.concatenate(owners), PageSelection({leaf.index: [page]}, len(every)))


def _all_there(page: Page, body: bytes | bytearray, leaf: Leaf) -> U8 | None:
    """The values of a page without nulls; None of any other."""
    data = np.frombuffer(body, dtype=np.uint8) if body else np.empty(0, dtype=np.uint8)
    if (parts := parts_of(page, data, leaf)) is None:
        return None
    _, definition, values = parts
    there = tallied(definition, leaf.definition, page.num_values)
    return values if there is not None and int(there[-1]) == page.num_values else None


def _page(values: U8, count: int, leaf: Leaf) -> Page:
    """A plaintext page V1 of `count` values, none of them null (Parquet data pages)."""
    levels = b""
    if leaf.definition:
        run = encode_varint(count << 1) + leaf.definition.to_bytes(1, "little")
        levels = len(run).to_bytes(4, "little") + run
    body = levels + values.tobytes()
    data, header = Struct(), Struct()
    for number, value in enumerate((count, PLAIN, _RLE, _RLE), 1):
        data.set_i32(number, value)
    for number, value in enumerate((0, len(body), len(body)), 1):
        header.set_i32(number, value)
    header.set_struct(5, data)
    raw = header.to_bytes()
    page = Page(ModuleType.DATA_PAGE, 0, raw, decode_at(PageHeader, Cursor(raw)), body, (0, 0), None, b"")
    page.inflated = body
    return page
