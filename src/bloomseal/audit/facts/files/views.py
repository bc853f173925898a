"""Row groups as an audit decodes them: the slim views of the reader, and the fields that tell of an encrypted column's
values.

Only whether such a field is there matters, so that its contents are skipped in C: an inventory of thousands of files
decodes each row group once.
"""

from __future__ import annotations

from typing import Final

from thrift.Thrift import TType

from ....core.thrift.structs import ColumnChunk, ColumnMetaData, Empty, RowGroup, View, field


class _PageCount(View):
    """PageEncodingStats without the encoding."""

    page_type: int | None = field(TType.I32, 1)
    count: int | None = field(TType.I32, 3)


class AuditMeta(ColumnMetaData):
    """ColumnMetaData with its page counts, and whether it has key-value pairs, size and geospatial statistics."""

    key_value: list[Empty] | None = field([Empty], 8)
    encoding_stats: list[_PageCount] | None = field([_PageCount], 13)
    size_statistics: Empty | None = field(Empty, 16)
    geospatial: Empty | None = field(Empty, 17)

    @property
    def pages(self) -> int | None:
        """The chunk's pages, dictionary page included; None where the metadata does not count them."""
        if not self.encoding_stats:
            return None
        return sum(max(stats.count or 0, 0) for stats in self.encoding_stats)


class AuditChunk(ColumnChunk):
    """ColumnChunk around `AuditMeta`."""

    meta_data: AuditMeta | None = field(AuditMeta, 3)


class AuditGroup(RowGroup):
    """RowGroup of `AuditChunk`."""

    columns: list[AuditChunk] | None = field([AuditChunk], 1)  # type: ignore[assignment]


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
