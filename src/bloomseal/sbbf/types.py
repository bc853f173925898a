"""The type of a column, as the footer has it: the physical type, its length, and the logical type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["ColumnType", "LogicalType", "PhysicalType"]


class PhysicalType(IntEnum):
    """Parquet's physical types; the values are those of the Thrift enum ``Type``."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


@dataclass(frozen=True, slots=True)
class LogicalType:
    """A logical type, or the converted type of an older file put into the same words.

    Args:
        kind: ``string``, ``enum``, ``json``, ``bson``, ``uuid``, ``decimal``, ``date``, ``time``, ``timestamp``,
            ``int``, ``float16``, ``interval``, ``unknown``, or the name of a newer one.
        bit_width, signed: of ``int``: 8, 16, 32 or 64 bits.
        precision, scale: of ``decimal``, in digits.
        unit: of ``time`` and ``timestamp``: ``ms``, ``us`` or ``ns``.
        utc: of ``time`` and ``timestamp``: isAdjustedToUTC.
    """

    kind: str
    bit_width: int = 0
    signed: bool = True
    precision: int = 0
    scale: int = 0
    unit: str = ""
    utc: bool = False

    def __str__(self) -> str:
        match self.kind:
            case "int":
                return f"{'' if self.signed else 'u'}int{self.bit_width}"
            case "decimal":
                return f"decimal({self.precision}, {self.scale})"
            case "time" | "timestamp":
                return f"{self.kind}[{self.unit}{', UTC' if self.utc else ''}]"
            case _:
                return self.kind


@dataclass(frozen=True, slots=True)
class ColumnType:
    """All that a probe must know about a leaf column to encode a value as the writer did.

    Args:
        physical: the physical type.
        type_length: bytes per value of a FIXED_LEN_BYTE_ARRAY, else None.
        logical: the logical type, None where the footer names none.
    """

    physical: PhysicalType
    type_length: int | None = None
    logical: LogicalType | None = None

    @property
    def kind(self) -> str:
        """The logical type's kind, empty where there is none."""
        return self.logical.kind if self.logical else ""

    @property
    def encodes_itself(self) -> bool:
        """Does the physical type, which is authenticated with the column's metadata, tell alone how a value asked for is encoded?

        A number in INT32, INT64 or a fixed length is another one as decimal, date or timestamp; texts and floats are what they are.
        """
        if self.physical is PhysicalType.BYTE_ARRAY:
            return self.kind in ("", "string", "enum", "json", "bson")
        return self.physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE) and not self.kind

    def __str__(self) -> str:
        length = f"({self.type_length})" if self.type_length is not None else ""
        return f"{self.physical.name}{length}{f' {self.logical}' if self.logical else ''}"
