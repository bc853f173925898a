"""Row groups as an audit decodes them: the slim views of the reader, and the fields that tell of an encrypted column's
values.

Only whether such a field is there matters, so that its contents are skipped in C: an inventory of thousands of files
decodes each row group once.
"""

from __future__ import annotations

from typing import Any, Final

from thrift.Thrift import TType

from ....core.thrift.structs import ColumnChunk, ColumnMetaData, RowGroup

__all__ = ["EXPOSED", "AuditGroup", "AuditMeta", "exposed"]


class _Present:
    """A struct that only has to be there."""

    __slots__ = ()
    thrift_spec = ()


class _PageCount:
    """PageEncodingStats without the encoding."""

    __slots__ = ("count", "page_type")
    count: int | None
    page_type: int | None
    thrift_spec = (None, (1, TType.I32, "page_type", None, None), None, (3, TType.I32, "count", None, None))


def _with(base: tuple[Any, ...], *fields: tuple[int, int, str, Any]) -> tuple[Any, ...]:
    spec = list(base) + [None] * (max(field[0] for field in fields) + 1 - len(base))
    for number, kind, name, inner in fields:
        spec[number] = (number, kind, name, inner, None)
    return tuple(spec)


_PRESENT: Final = [_Present, _Present.thrift_spec]


class AuditMeta(ColumnMetaData):
    """ColumnMetaData with its page counts, and whether it has key-value pairs, size and geospatial statistics."""

    __slots__ = ("encoding_stats", "geospatial", "key_value", "size_statistics")
    encoding_stats: list[_PageCount] | None
    geospatial: _Present | None
    key_value: list[_Present] | None
    size_statistics: _Present | None
    thrift_spec = _with(
        ColumnMetaData.thrift_spec,
        (8, TType.LIST, "key_value", (TType.STRUCT, _PRESENT, False)),
        (13, TType.LIST, "encoding_stats", (TType.STRUCT, [_PageCount, _PageCount.thrift_spec], False)),
        (16, TType.STRUCT, "size_statistics", _PRESENT),
        (17, TType.STRUCT, "geospatial", _PRESENT),
    )

    @property
    def pages(self) -> int | None:
        """The chunk's pages, dictionary page included; None where the metadata does not count them."""
        if not self.encoding_stats:
            return None
        return sum(max(stats.count or 0, 0) for stats in self.encoding_stats)


class AuditChunk(ColumnChunk):
    """ColumnChunk around `AuditMeta`."""

    __slots__ = ()
    meta_data: AuditMeta | None
    thrift_spec = _with(ColumnChunk.thrift_spec, (3, TType.STRUCT, "meta_data", [AuditMeta, AuditMeta.thrift_spec]))


class AuditGroup(RowGroup):
    """RowGroup of `AuditChunk`."""

    __slots__ = ()
    columns: list[AuditChunk] | None  # type: ignore[assignment]
    thrift_spec = _with(
        RowGroup.thrift_spec, (1, TType.LIST, "columns", (TType.STRUCT, [AuditChunk, AuditChunk.thrift_spec], False))
    )


EXPOSED: Final = (
    "min/max statistics",
    "null counts",
    "Bloom filter offset",
    "Bloom filter length",
    "size statistics",
    "geospatial statistics",
    "key-value metadata",
    "page encoding counts",
)
"""Fields that the clear copy of an encrypted column's metadata can hold; bit i of `exposed` stands for entry i."""


def exposed(meta: AuditMeta) -> int:
    """The fields in clear that tell of values, as a bit set over `EXPOSED`."""
    bits = 0
    if (statistics := meta.statistics) is not None:
        ends = (statistics.min, statistics.max, statistics.min_value, statistics.max_value)
        bits |= 1 if any(end is not None for end in ends) else 2
    if meta.bloom_filter_offset is not None:
        bits |= 4
    if meta.bloom_filter_length is not None:
        bits |= 8
    if meta.size_statistics is not None:
        bits |= 16
    if meta.geospatial is not None:
        bits |= 32
    if meta.key_value:
        bits |= 64
    if meta.encoding_stats:
        bits |= 128
    return bits
