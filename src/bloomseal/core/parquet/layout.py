"""The ends of a Parquet file, and the field ids of parquet.thrift that surgery touches."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from ..errors import FormatError
from ..limits import MAX_FOOTER_BYTES
from ..storage.source import Source

MAGIC: Final = b"PAR1"
MAGIC_ENCRYPTED: Final = b"PARE"
_ORC: Final = b"ORC"
TAIL_BYTES: Final = 64 * 1024
"""Bytes that the first read takes from the end; most footers fit, so that opening costs one request."""
_LOCAL_TAIL_BYTES: Final = 8 * 1024
"""Of a local file, where a second read costs less than bytes that are not needed."""


class FileMeta:
    """Field ids of FileMetaData."""

    VERSION: Final = 1
    SCHEMA: Final = 2
    NUM_ROWS: Final = 3
    ROW_GROUPS: Final = 4
    KEY_VALUE: Final = 5
    CREATED_BY: Final = 6
    COLUMN_ORDERS: Final = 7
    ALGORITHM: Final = 8
    SIGNING_KEY: Final = 9


class Group:
    """Field ids of RowGroup."""

    COLUMNS: Final = 1
    TOTAL_BYTE_SIZE: Final = 2
    NUM_ROWS: Final = 3
    FILE_OFFSET: Final = 5
    TOTAL_COMPRESSED: Final = 6
    ORDINAL: Final = 7


class Column:
    """Field ids of ColumnChunk."""

    FILE_OFFSET: Final = 2
    META: Final = 3
    OFFSET_INDEX: Final = 4
    OFFSET_INDEX_LENGTH: Final = 5
    COLUMN_INDEX: Final = 6
    COLUMN_INDEX_LENGTH: Final = 7
    CRYPTO: Final = 8
    SEALED_META: Final = 9


class Meta:
    """Field ids of ColumnMetaData."""

    TYPE: Final = 1
    ENCODINGS: Final = 2
    PATH: Final = 3
    CODEC: Final = 4
    NUM_VALUES: Final = 5
    UNCOMPRESSED: Final = 6
    COMPRESSED: Final = 7
    KEY_VALUE: Final = 8
    DATA_PAGE: Final = 9
    INDEX_PAGE: Final = 10
    DICTIONARY_PAGE: Final = 11
    STATISTICS: Final = 12
    ENCODING_STATS: Final = 13
    BLOOM_OFFSET: Final = 14
    BLOOM_LENGTH: Final = 15
    SIZE_STATISTICS: Final = 16
    GEOSPATIAL: Final = 17

    REVEALING: Final = (KEY_VALUE, STATISTICS, ENCODING_STATS, BLOOM_OFFSET, BLOOM_LENGTH, SIZE_STATISTICS, GEOSPATIAL)
    """Fields that the clear copy of an encrypted column's metadata must not hold, since they tell of values."""


class Tail(NamedTuple):
    """The last part of a file.

    Attributes:
        encrypted: the magic is PARE.
        offset: where the footer begins (with PARE: the FileCryptoMetaData before it).
        data: the bytes from `offset` up to the length field.
    """

    encrypted: bool
    offset: int
    data: bytes

    @property
    def digest(self) -> str:
        """SHA-256 from `offset` to the file's end, in hexadecimal."""
        magic = MAGIC_ENCRYPTED if self.encrypted else MAGIC
        return hashlib.sha256(self.data + len(self.data).to_bytes(4, "little") + magic).hexdigest()


def read_tail(source: Source) -> Tail:
    """Read the footer's bytes: one request, a second one where the footer is larger than 64 KiB, or 8 of a local file.

    Raises:
        FormatError: not a Parquet file, or a footer length that does not fit the file.
    """
    if source.size < 12:
        raise FormatError(f"{source.size} bytes are too few for a Parquet file", file=source.name)
    take = min(TAIL_BYTES if source.fd is None else _LOCAL_TAIL_BYTES, source.size)
    end = bytes(source.read(source.size - take, take))
    magic, length = end[-4:], int.from_bytes(end[-8:-4], "little")
    if magic not in (MAGIC, MAGIC_ENCRYPTED):
        if bytes(source.read(0, len(_ORC))) == _ORC and _ORC in end[-256:]:
            raise FormatError(
                "an ORC file, not a Parquet file", file=source.name, hint="bloomseal.open_file takes both"
            )
        raise FormatError(
            "no Parquet magic at the end: not a Parquet file, or truncated",
            file=source.name,
            hint="a whole copy; of CSV, JSON and Arrow bloomseal write makes Parquet",
        )
    offset = source.size - 8 - length
    if offset < 4 or length > MAX_FOOTER_BYTES:
        raise FormatError(f"a footer of {length} bytes does not fit the file", file=source.name)
    data = end[-8 - length : -8] if length + 8 <= take else bytes(source.read(offset, length))
    return Tail(magic == MAGIC_ENCRYPTED, offset, data)
