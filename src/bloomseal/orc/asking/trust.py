"""Filters that a writer is known to get wrong: they never say *absent*."""

from __future__ import annotations

from typing import Final

from ...core.writers import Claim, KnownWrong
from ..schema import MOMENTS, OrcColumn, OrcKind
from ..streams import StreamKind
from ..tail import OrcTail, Writer

_OLD_TEXTS: Final = (OrcKind.STRING, OrcKind.CHAR, OrcKind.VARCHAR, OrcKind.DECIMAL)
_CLAIMS: Final = {
    OrcKind.FLOAT: Claim.ORC_FLOAT_FILTERS,
    OrcKind.BYTE: Claim.ORC_TINYINT_FILTERS,
    OrcKind.CHAR: Claim.ORC_CHAR_FILTERS,
    **dict.fromkeys(MOMENTS, Claim.ORC_MOMENTS),
}
"""What more is asked about filters over columns of a kind."""
_UTC: Final = ("GMT", "UTC")


def why_untrusted(column: OrcColumn, kind: int, tail: OrcTail, zone: str) -> str | None:
    """Why a Bloom filter stream proves nothing; None where it does.

    Args:
        column: a leaf.
        kind: of the stream.
        zone: the stripe's writer time zone.
    """
    if tail.writer is None:
        return "untrusted: hash inputs of this writer are not known"
    if column.kind is None or not column.is_leaf:
        return "untrusted: nobody knows the hash input of this type"
    if column.kind is OrcKind.BOOLEAN:
        return "untrusted: boolean filters are all zero"
    if kind == StreamKind.BLOOM_FILTER:
        if column.kind in _OLD_TEXTS:
            return "untrusted: texts were hashed in the writer's own character set"
        if column.kind in MOMENTS:
            return "untrusted: timestamps were hashed by the writer's time zone"
    if (known := known_wrong_filters(column, tail)) is not None:
        return f"untrusted: {known}"
    return timestamps_untrusted(column, tail, zone) if column.kind in MOMENTS else None


def known_wrong_filters(column: OrcColumn, tail: OrcTail) -> KnownWrong | None:
    """The entry about filters of this writer over this column, among writers known to be wrong."""
    own = _CLAIMS.get(column.kind, Claim.ORC_FILTERS) if column.kind is not None else Claim.ORC_FILTERS
    return tail.known_wrong(Claim.ORC_FILTERS) or tail.known_wrong(own)


def timestamps_untrusted(column: OrcColumn, tail: OrcTail, zone: str) -> str | None:
    """Why the moments in a column's filters and statistics prove nothing; None where they do.

    Args:
        zone: the stripe's writer time zone.
    """
    if tail.writer is None:
        return "untrusted: hash inputs of this writer are not known"
    if column.kind is OrcKind.TIMESTAMP and not zone:
        return "untrusted: the file does not name the time zone that its timestamps are of"
    if (known := tail.known_wrong(Claim.ORC_MOMENTS)) is not None:
        return f"untrusted: {known}"
    if tail.writer is Writer.CPP and column.kind is OrcKind.TIMESTAMP and zone not in _UTC:
        return "untrusted: this writer's timestamps in a time zone other than UTC"
    return None
