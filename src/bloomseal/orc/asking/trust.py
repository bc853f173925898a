"""Filters that a writer is known to get wrong: they never say *absent*."""

from __future__ import annotations

from typing import Final

from ...writers import Claim, KnownWrong, known_wrong
from ..filters import FilterKind
from ..schema import MOMENTS, Column, Kind
from ..tail import Tail, Writer

__all__ = ["known_wrong_filters", "timestamps_untrusted", "why_untrusted"]

_ORC_135: Final = 6
"""The writer version of the Java writer that first hashed timestamps independently of the zone."""
_OLD_TEXTS: Final = (Kind.STRING, Kind.CHAR, Kind.VARCHAR, Kind.DECIMAL)
_CLAIMS: Final = {
    Kind.FLOAT: Claim.ORC_FLOAT_FILTERS,
    Kind.BYTE: Claim.ORC_TINYINT_FILTERS,
    Kind.CHAR: Claim.ORC_CHAR_FILTERS,
}
"""What more is asked about filters over columns of a kind."""
_UTC: Final = ("GMT", "UTC")


def why_untrusted(column: Column, kind: int, tail: Tail, zone: str) -> str | None:
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
    if column.kind is Kind.BOOLEAN:
        return "untrusted: boolean filters are all zero"
    if kind == FilterKind.BLOOM_FILTER:
        if column.kind in _OLD_TEXTS:
            return "untrusted: texts were hashed in the writer's own character set"
        if column.kind in MOMENTS:
            return "untrusted: timestamps were hashed by the writer's time zone"
    if (known := known_wrong_filters(column, tail)) is not None:
        return f"untrusted: {known}"
    return timestamps_untrusted(column, tail, zone) if column.kind in MOMENTS else None


def known_wrong_filters(column: Column, tail: Tail) -> KnownWrong | None:
    """The entry about filters of this writer over this column, among writers known to be wrong."""
    claims = [Claim.ORC_FILTERS, *([_CLAIMS[column.kind]] if column.kind in _CLAIMS else [])]
    found = (known_wrong(claim, tail.application, tail.software) for claim in claims)
    return next((one for one in found if one is not None), None)


def timestamps_untrusted(column: Column, tail: Tail, zone: str) -> str | None:
    """Why the moments in a column's filters and statistics prove nothing; None where they do.

    Args:
        zone: the stripe's writer time zone.
    """
    if tail.writer is None:
        return "untrusted: hash inputs of this writer are not known"
    if column.kind is Kind.TIMESTAMP and not zone:
        return "untrusted: the file does not name the time zone that its timestamps are of"
    if tail.writer is Writer.JAVA:
        old = tail.writer_version < _ORC_135
        return "untrusted: timestamps were hashed by the writer's time zone" if old else None
    if column.kind is Kind.TIMESTAMP and zone not in _UTC:
        return "untrusted: this writer's timestamps in a time zone other than UTC"
    return None
