"""A column chunk: where it stands, and which key seals it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..thrift.structs import ColumnChunk, ColumnMetaData
from .schema import Leaf


class Protection(StrEnum):
    """The kind of key that a column chunk is under (ColumnCryptoMetaData)."""

    PLAINTEXT = "plaintext"
    FOOTER_KEY = "footer key"
    COLUMN_KEY = "column key"


@dataclass(slots=True)
class Chunk:
    """A column chunk.

    Attributes:
        row_group: index and ordinal of its row group.
        leaf: its column.
        view: the decoded ColumnChunk.
        protection: which key seals it.
        key_metadata: what leads to a column key.
        meta: the opened metadata, filled by `Walk.meta`.
        meta_raw: its raw bytes, filled by `Walk.meta_raw`.
        meta_ordinal: the row group ordinal that its sealed metadata is bound to, known once it was opened.
    """

    row_group: int
    leaf: Leaf
    view: ColumnChunk
    protection: Protection
    key_metadata: bytes
    meta: ColumnMetaData | None = field(default=None, repr=False)
    meta_raw: bytes | None = field(default=None, repr=False)
    meta_ordinal: int | None = None

    @property
    def encrypted(self) -> bool:
        return self.protection is not Protection.PLAINTEXT

    @property
    def place(self) -> dict[str, object]:
        """The place, for errors."""
        return {"row_group": self.row_group, "column": self.leaf.name}
