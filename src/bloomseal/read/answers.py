"""What filters say of values, in a form to look at: lists and dictionaries of verdicts, which show themselves by row
group. The values are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..core.verdict import Verdict

_MOST_GROUPS: Final = 20
_MOST_VALUES: Final = 10
_BY_WEIGHT: Final = (Verdict.MAYBE_PRESENT, Verdict.NO_FILTER, Verdict.ABSENT)


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several places taken together; of none, absent."""
    return min(verdicts, key=_BY_WEIGHT.index, default=Verdict.ABSENT)


class FileAnswer(list[list[Verdict]]):
    """Of a file: one list per row group, one `Verdict` per value."""

    @property
    def overall(self) -> list[Verdict]:
        """One verdict per value, of all row groups taken together."""
        return [overall(of) for of in zip(*self, strict=True)]

    def __repr__(self) -> str:
        return "\n".join(_lines(self)) or "no row groups"


class TableAnswer(dict[str, FileAnswer]):
    """Of a table: file → its answer."""

    @property
    def overall(self) -> list[Verdict]:
        """One verdict per value, of all files taken together."""
        return [overall(of) for of in zip(*(one.overall for one in self.values() if one), strict=True)]

    def __repr__(self) -> str:
        lines = [line for path, one in self.items() for line in (path, *(f"  {line}" for line in _lines(one)))]
        more = [f"and {len(lines) - 2 * _MOST_GROUPS} more lines"] if len(lines) > 2 * _MOST_GROUPS else []
        return "\n".join(lines[: 2 * _MOST_GROUPS] + more) or "no files"


def _lines(groups: Sequence[Sequence[Verdict]]) -> list[str]:
    shown = []
    for number, group in enumerate(groups[:_MOST_GROUPS]):
        more = [f"and {len(group) - _MOST_VALUES} more"] if len(group) > _MOST_VALUES else []
        shown.append(f"row group {number}: {', '.join([*map(str, group[:_MOST_VALUES]), *more])}")
    return shown + ([f"and {len(groups) - _MOST_GROUPS} more row groups"] if len(groups) > _MOST_GROUPS else [])
