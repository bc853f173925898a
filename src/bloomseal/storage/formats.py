"""The formats of data files: what a name says, and what a file's end says."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ..core.storage.source import Source

METADATA_ENDINGS: Final = (".metadata.json", ".metadata.json.gz")
"""Of the files of an Iceberg table that tell its snapshots; the second is what older writers compress."""


class Format(StrEnum):
    """A format that tables have files of."""

    PARQUET = "Parquet"
    ORC = "ORC"


_ENDINGS: Final = {".parquet": Format.PARQUET, ".parq": Format.PARQUET, ".pq": Format.PARQUET, ".orc": Format.ORC}
_INSIDE: Final = {".parquet.": Format.PARQUET, ".orc.": Format.ORC}
_PARQUET: Final = (b"PAR1", b"PARE")
_ORC: Final = b"ORC"
_ARCHIVES: Final = {
    "gzip": b"\x1f\x8b",
    "zip": b"PK\x03\x04",
    "zstd": b"\x28\xb5\x2f\xfd",
    "xz": b"\xfd7zXZ\0",
    "bzip2": b"BZh",
    "LZ4": b"\x04\x22\x4d\x18",
    "7z": b"7z\xbc\xaf\x27\x1c",
}
_TAR: Final = b"ustar"
_TAR_AT: Final = 257


def named_format(name: str) -> Format | None:
    """The format that a file's name says, if it says one: ``b.parquet``, ``b.ORC``, ``b.parquet.v2``."""
    lower = name.lower()
    if (by_end := _ENDINGS.get(lower[lower.rfind(".") :])) is not None:
        return by_end
    return next((found for part, found in _INSIDE.items() if part in lower), None)


def says_data(name: str) -> bool:
    """Whether a file with this name, and something behind it, is to become data."""
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


def format_at(source: Source) -> Format:
    """The format to open a file as: where its end says neither, it is refused as that which its name says."""
    if source.ref.filesystem is not None and named_format(source.name) is Format.PARQUET:
        return Format.PARQUET  # on a file system that is not local the question costs a request
    return format_of(source) or named_format(source.name) or Format.PARQUET


def begins_as_data(source: Source) -> bool:
    """Whether the file begins as Parquet or ORC does. Cut off, it has lost its end, and not its pages."""
    begin = bytes(source.read(0, min(source.size, 4)))
    return begin in _PARQUET or begin[:3] == _ORC


def may_hold_data(source: Source) -> str | None:
    """Why a file that does not end as data may hold some all the same, by its first bytes: it begins as data does, so
    that whoever cuts off what stands behind has them back; or it is an archive or a compressed file, which is not
    looked into. None: nothing says so.
    """
    begin = bytes(source.read(0, min(source.size, _TAR_AT + len(_TAR))))
    if begins_as_data(source):
        return "it begins as Parquet or ORC does, and does not end so: it is unfinished, or something stands behind it"
    for name, magic in _ARCHIVES.items():
        if begin.startswith(magic):
            return f"a file of {name}, which was not looked into: files of data may lie in it"
    if begin[_TAR_AT:] == _TAR:
        return "an archive of tar, which was not looked into: files of data may lie in it"
    return None
