"""The formats of data files: what a name says, and what a file's end says."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .source import Source

__all__ = ["Format", "format_of", "named_format", "says_data"]


class Format(StrEnum):
    """A format that tables have files of."""

    PARQUET = "Parquet"
    ORC = "ORC"


_ENDINGS: Final = {".parquet": Format.PARQUET, ".parq": Format.PARQUET, ".pq": Format.PARQUET, ".orc": Format.ORC}
_INSIDE: Final = {".parquet.": Format.PARQUET, ".orc.": Format.ORC}
_PARQUET: Final = (b"PAR1", b"PARE")
_ORC: Final = b"ORC"


def named_format(name: str) -> Format | None:
    """The format that a file's name says, if it says one: ``b.parquet``, ``b.ORC``, ``b.parquet.v2``."""
    lower = name.lower()
    by_end = next((found for ending, found in _ENDINGS.items() if lower.endswith(ending)), None)
    return by_end or next((found for part, found in _INSIDE.items() if part in lower), None)


def says_data(name: str) -> bool:
    """Is data to become of a file that has this name with something behind it?"""
    lower = f"{name.lower()}."
    return any(f"{ending}." in lower for ending in _ENDINGS)


def format_of(source: Source) -> Format | None:
    """The format that a file's last bytes say; None: neither.

    A Parquet file ends with its magic. An ORC file ends with its postscript, the last field of which is the magic, and
    one byte with the postscript's length.
    """
    if source.size < 4:
        return None
    end = bytes(source.read(source.size - 4, 4))
    if end in _PARQUET:
        return Format.PARQUET
    return Format.ORC if end[:3] == _ORC else None
