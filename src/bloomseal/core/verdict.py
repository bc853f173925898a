"""What a filter answers, whatever the file's format."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Verdict"]


class Verdict(StrEnum):
    """What one row group's filter says about one value."""

    ABSENT = "absent"
    MAYBE_PRESENT = "maybe present"
    NO_FILTER = "no filter"
