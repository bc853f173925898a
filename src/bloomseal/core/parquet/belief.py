"""Which filter of a file is believed."""

from __future__ import annotations

import warnings
from typing import Any

from ..errors import BloomsealWarning, Hint, PolicyError, UnsupportedError
from ..sbbf import SplitBlockBloomFilter
from .statistics import all_null
from .walk import Chunk, Walk

_CALLER = 4
"""Warnings name whoever asked the file, not the doors between."""


def believed_filter(walk: Walk, chunk: Chunk) -> SplitBlockBloomFilter | None:
    """A column chunk's filter; None where there is none that proves anything.

    Raises:
        As `SealedFile.filter`.
    """
    if not walk.footer.verified and not chunk.leaf.type.encodes_itself:
        # The type that nobody has authenticated says how a value is encoded, and so what its filter is asked.
        return None
    try:
        found = walk.filter(chunk)
    except UnsupportedError as error:
        # A filter of a kind that we don't know proves nothing, and is no reason to refuse the rows.
        warnings.warn(str(error), BloomsealWarning, stacklevel=_CALLER)
        return None
    if found is None:
        return None
    place: dict[str, Any] = {"file": walk.source.name, **chunk.place}
    if chunk.encrypted and not found.sealed:
        if walk.keys.expectation.must_be_encrypted(chunk.leaf.name):
            raise PolicyError("the filter of an encrypted column stands in clear", hint=Hint.ATTACH, **place)
        warnings.warn(
            f"{walk.source.name}: the filter of encrypted column {chunk.leaf.name} stands in clear; it was ignored",
            BloomsealWarning,
            stacklevel=_CALLER,
        )
        return None
    bloom_filter = SplitBlockBloomFilter.from_bitset(found.bitset)
    if bloom_filter.is_empty and not all_null(walk.meta(chunk), chunk.leaf):
        # No value ever leaves a filter empty: whoever wrote this one did not insert (booleans of parquet-java), or
        # somebody has zeroed it.
        return None
    return bloom_filter
