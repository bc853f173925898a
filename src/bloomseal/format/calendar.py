"""Dates and timestamps by the calendar before 1582 that older writers of Spark's took: as they are stored, they name
other days to every reader that doesn't shift them.

Spark marks such files in the footer's key-value metadata; those of Spark 2 it knows by its version. No date of
1582-10-15 or later differs, and no instant of 1900 or later, whatever the zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ..core.errors import UnsupportedError
from ..core.parquet.layout import FileMeta
from ..core.parquet.schema import Leaf
from ..core.parquet.statistics import all_null
from ..core.parquet.walk import Walk
from ..core.sbbf import PhysicalType
from ..core.thrift import Struct
from ..core.thrift.structs import KeyValue, decode

OLD_CALENDAR: Final = (
    "dates before 1582 or instants before 1900 by an older calendar, which would be read as other ones"
)
_HINT: Final = 'have Spark write it anew, with spark.sql.parquet.datetimeRebaseModeInWrite="CORRECTED"'
_VERSION: Final = b"org.apache.spark.version"
_MARK: Final = b"org.apache.spark.legacyDateTime"
_INT96_MARK: Final = b"org.apache.spark.legacyINT96"
_SINCE: Final = {_MARK: (3, 0), _INT96_MARK: (3, 1)}
"""From this version on a file without the mark has the one calendar."""
_FIRST_DAY: Final = -141_427
"""1582-10-15, in days since 1970."""
_FIRST_SECOND: Final = -2_208_988_800
"""1900-01-01, in seconds since 1970."""
_PER_SECOND: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def need_one_calendar(walk: Walk, row_group: int, leaves: Iterable[Leaf]) -> None:
    """Refuse columns of a row group that may hold dates by the older calendar. Of INT96 the decoder asks.

    Raises:
        UnsupportedError: the file is marked, and statistics don't prove that all dates are late enough.
    """
    for leaf in leaves:
        if (first := _first(leaf)) is None or not _is_marked(walk, _MARK):
            continue
        meta = walk.meta(walk.chunk(row_group, leaf.index))
        found = meta.statistics
        # The deprecated minimum too: that of signed integers is what it says, and nothing is ruled out by it.
        least = (found.min_value or found.min or b"") if found is not None else b""
        if not all_null(meta, leaf) and (not least or int.from_bytes(least, "little", signed=True) < first):
            raise UnsupportedError(
                OLD_CALENDAR, file=walk.source.name, row_group=row_group, column=leaf.name, hint=_HINT
            )


def has_old_moments(walk: Walk) -> bool:
    """Whether INT96 moments before 1900 may be by the older calendar."""
    return _is_marked(walk, _INT96_MARK)


def _first(leaf: Leaf) -> int | None:
    """The first value that is the same in both calendars; None of a type that has none."""
    logical = leaf.type.logical
    if logical is None or leaf.type.physical not in (PhysicalType.INT32, PhysicalType.INT64):
        return None
    if logical.kind == "timestamp" and logical.utc:
        return _FIRST_SECOND * _PER_SECOND[logical.unit]
    return _FIRST_DAY if logical.kind == "date" else None


def _is_marked(walk: Walk, mark: bytes) -> bool:
    return mark in _marks(walk.footer.struct.fields.get(FileMeta.KEY_VALUE))


def _marks(field: tuple[int, bytes] | None) -> frozenset[bytes]:
    """Of the key-value metadata: the marks that it has, or that a writer of its version would have set."""
    struct = Struct()
    if field is not None:
        struct.fields[FileMeta.KEY_VALUE] = field
    pairs = [decode(KeyValue, raw) for raw in struct.elements(FileMeta.KEY_VALUE)]
    told = {pair.key: pair.value or b"" for pair in pairs}
    version = re.match(rb"(\d+)\.(\d+)", told.get(_VERSION, b""))
    old = version is not None and (int(version[1]), int(version[2]))
    return frozenset(mark for mark, since in _SINCE.items() if mark in told or (old and old < since))
