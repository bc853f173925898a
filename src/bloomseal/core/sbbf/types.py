"""The type of a column, as the footer has it: the physical type, its length, and the logical type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


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
            ``int``, ``float16``, ``interval``, ``unknown``, or the name of a newer one; ``unrecognised`` stands for one
            that is younger than this code or does not fit its physical type: values are then what the file stores.
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
    def floating(self) -> bool:
        """Whether the values are IEEE 754 floats."""
        return self.physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE) or self.kind == "float16"

    @property
    def encodes_itself(self) -> bool:
        """Does the physical type, which is authenticated with the column's metadata, tell alone how a value asked for
        is encoded?

        A number in INT32, INT64 or a fixed length is another one as decimal, date or timestamp; texts and floats are
        what they are.
        """
        if self.physical is PhysicalType.BYTE_ARRAY:
            return self.kind in ("", "string", "enum", "json", "bson")
        return self.physical in (PhysicalType.FLOAT, PhysicalType.DOUBLE) and not self.kind

    def __str__(self) -> str:
        length = f"({self.type_length})" if self.type_length is not None else ""
        return f"{self.physical.name}{length}{f' {self.logical}' if self.logical else ''}"


_TEXT: Final = ("string", "enum", "json", "bson", "geometry", "geography")
_LENGTHS: Final = {"uuid": 16, "float16": 2, "interval": 12}
_DIGITS: Final = {PhysicalType.INT32: 9, PhysicalType.INT64: 18, PhysicalType.BYTE_ARRAY: 1_000}
"""The greatest precision of a decimal; that of a BYTE_ARRAY has no limit but ours, since numbers are built from it."""
_WIDE: Final = 512
"""Bytes of a FIXED_LEN_BYTE_ARRAY beyond which its digits are not counted."""


def annotates(logical: LogicalType, physical: PhysicalType, type_length: int | None, *, old: bool = False) -> bool:
    """Whether this logical type may stand on this physical type (Parquet LogicalTypes specification).

    Decoders pass over one that may not, and so must whoever compares values with theirs.

    Args:
        old: it is a converted type, of which decoders do not check a decimal's precision.
    """
    kind = logical.kind
    match physical:
        case PhysicalType.BYTE_ARRAY:
            fits = kind in _TEXT
        case PhysicalType.FIXED_LEN_BYTE_ARRAY:
            fits = _LENGTHS.get(kind) == type_length
        case PhysicalType.INT32:
            fits = kind == "date" or (kind == "time" and logical.unit == "ms")
            fits |= kind == "int" and logical.bit_width in (8, 16, 32)
        case PhysicalType.INT64:
            fits = kind == "timestamp" or (kind == "time" and logical.unit in ("us", "ns"))
            fits |= kind == "int" and logical.bit_width == 64
        case _:
            fits = False
    if kind == "decimal":
        digits = _digits(physical, type_length)
        fits = 0 <= logical.scale <= logical.precision and 0 < logical.precision <= (
            1_000 if old and digits else digits
        )
    return fits or kind in ("unknown", "unrecognised")


def _digits(physical: PhysicalType, type_length: int | None) -> int:
    """The most decimal digits that every number of this type's width can have."""
    if physical is PhysicalType.FIXED_LEN_BYTE_ARRAY:
        return len(str((1 << 8 * min(type_length or 0, _WIDE) >> 1) - 1)) - 1 if type_length else 0
    return _DIGITS.get(physical, 0)
