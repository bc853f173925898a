"""Writers known to be wrong: one table, with its source beside each row.

A filter or a statistic rules rows out. What a row of `KNOWN_WRONG` names does not: it is *maybe*, whatever it says. To
add a row, find what it is about among `Claim`, or add it there, and ask `known_wrong` where the claim is used.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

Version = tuple[int, int, int]

_VERSION: Final = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)", re.ASCII | re.DOTALL)
_UNRELEASED: Final = ("-", ".dev", "a", "b", "rc")
_LONGEST: Final = 256
_SEEN: Final = "seen in its files"
"""The source of a row of which no bug is public."""
_COMPRESSED: Final = "it compresses data pages V2 and says that it does not"
_NO_HEADER: Final = "it leaves out the header of the dictionary page"
_NO_NULL_SEEN: Final = "it counts no null in columns that were dictionaries"


class Claim(Enum):
    """What a file says of its values, by which readers would rule rows out, or of where they are."""

    ORC_FILTERS = "ORC: Bloom filters"
    ORC_FLOAT_FILTERS = "ORC: Bloom filters over FLOAT"
    ORC_TINYINT_FILTERS = "ORC: Bloom filters over TINYINT"
    ORC_CHAR_FILTERS = "ORC: Bloom filters over CHAR"
    ORC_MOMENTS = "ORC: Bloom filters and bounds of moments"
    ORC_TEXT_BOUNDS = "ORC: bounds of texts"
    ORC_NUL_BOUNDS = "ORC: bounds of texts that hold U+0000"
    PARQUET_NULL_COUNTS = "Parquet: numbers of nulls"
    PARQUET_V2_IN_CLEAR = "Parquet: data pages V2 without compression"
    PARQUET_CHUNK_SIZES = "Parquet: sizes of column chunks"


class KnownWrong(NamedTuple):
    """A row of the table.

    Attributes:
        claim: what is not believed.
        application: who wrote it, as the file spells it; case does not count.
        why: in words, for reports.
        source: the public bug.
        since, before: the first version that is wrong, and the first one that no longer is; None: no such end.
        unnamed: is a file wrong, too, that names the application and no version?
    """

    claim: Claim
    application: str
    why: str
    source: str
    since: Version | None = None
    before: Version | None = None
    unnamed: bool = True

    def __str__(self) -> str:
        return f"{self.application}: {self.why} ({self.source})"


KNOWN_WRONG: Final = (
    # ORC files name a version since 1.6.11, and have filters since 1.6.0: one without a version has wrong ones.
    KnownWrong(Claim.ORC_FILTERS, "ORC C++", "it hashed otherwise", "ORC-1024", before=(1, 6, 12)),
    KnownWrong(Claim.ORC_FILTERS, "ORC C++", "it hashed otherwise", "ORC-1024", (1, 7, 0), (1, 7, 1), unnamed=False),
    KnownWrong(Claim.ORC_FLOAT_FILTERS, "ORC C++", "it hashes doubles and stores them as floats", _SEEN),
    KnownWrong(Claim.ORC_TINYINT_FILTERS, "ORC C++", "its filters over tinyint miss values", _SEEN),
    KnownWrong(Claim.ORC_CHAR_FILTERS, "ORC C++", "its filters over char miss values", _SEEN),
    # A bound without U+0000 is right: what it is compared with differs from it before one.
    KnownWrong(Claim.ORC_NUL_BOUNDS, "ORC C++", "it compares texts up to U+0000", _SEEN),
    # Writers but the C++ one are told by the number that the format calls the writer's version.
    KnownWrong(Claim.ORC_MOMENTS, "ORC writer version", "timestamps are by its time zone", "ORC-135", before=(6, 0, 0)),
    KnownWrong(Claim.ORC_TEXT_BOUNDS, "ORC writer version", "it merges bounds wrongly", "HIVE-8732", before=(1, 0, 0)),
    KnownWrong(Claim.PARQUET_NULL_COUNTS, "parquet-cpp-arrow", _NO_NULL_SEEN, "ARROW-12513", before=(5, 0, 0)),
    # Arrow's C++ writer, as its first versions called themselves.
    KnownWrong(Claim.PARQUET_NULL_COUNTS, "parquet-cpp", _NO_NULL_SEEN, "ARROW-12513"),
    KnownWrong(Claim.PARQUET_NULL_COUNTS, "Arrow2 - Native Rust implementation of Arrow", _NO_NULL_SEEN, _SEEN),
    # Polars names its version since it counts rightly.
    KnownWrong(Claim.PARQUET_NULL_COUNTS, "Polars", "it counts nulls once for each page", "pola-rs/polars#29321"),
    KnownWrong(Claim.PARQUET_V2_IN_CLEAR, "parquet-cpp", _COMPRESSED, "ARROW-10353"),
    KnownWrong(Claim.PARQUET_CHUNK_SIZES, "parquet-mr", _NO_HEADER, "PARQUET-816", before=(1, 2, 9)),
)


_BY_APPLICATION: Final = {
    name: tuple(row for row in KNOWN_WRONG if row.application.lower() == name)
    for name in {row.application.lower() for row in KNOWN_WRONG}
}


def known_wrong(claim: Claim, application: str, version: str | None) -> KnownWrong | None:
    """Why what a writer says does not count; None where it does.

    Args:
        application, version: as the file names them, such as `application_and_version` gives them. A version that is
            none, such as an empty text, is taken for one that is not named.
    """
    rows = [row for row in _BY_APPLICATION.get(application.lower(), ()) if row.claim is claim]
    named = _parsed(version or "") if rows else None
    return next((row for row in rows if (row.unnamed if named is None else _within(named, row))), None)


def application_and_version(created_by: str) -> tuple[str, str | None]:
    """Parquet's ``created_by``, ``parquet-mr version 1.8.1 (build …)``, taken apart."""
    application, _, version = created_by.partition(" version ")
    return application.strip(), version.partition(" (")[0].strip() or None


def _within(named: tuple[Version, bool], row: KnownWrong) -> bool:
    version, released = named
    # What precedes the first good release may lack the repair.
    early = row.before is not None and (version < row.before or (version == row.before and not released))
    return (row.since is None or version >= row.since) and (row.before is None or early)


def _parsed(version: str) -> tuple[Version, bool] | None:
    """The first three numbers, and whether it is a release rather than what comes before one."""
    if (found := _VERSION.match(version[:_LONGEST].strip())) is None:
        return None
    major, minor, patch = (int(part or 0) for part in found.groups()[:3])
    return (major, minor, patch), not found[4].lower().startswith(_UNRELEASED)
