"""Patterns of paths: ``day=2024-*/*.parquet``, and ``**`` for any folders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Self

_SPECIAL: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern below a folder; each part matches the name of one file or folder. All that lies in a matched folder
    matches.
    """

    parts: tuple[str, ...]

    @classmethod
    def split(cls, path: str) -> tuple[str, Self | None]:
        """The folder in front of the first part that is a pattern, and the pattern; the path itself where none is."""
        parts = path.split("/")
        first = next((place for place, part in enumerate(parts) if _SPECIAL.search(part)), None)
        if first is None:
            return path, None
        base = "/".join(parts[:first]) or ("/" if path.startswith("/") else ".")
        return base, cls(tuple(part for part in parts[first:] if part))

    def matches(self, relative: str) -> bool:
        """Whether a file's path below the folder matches."""
        return _matches(self.parts, tuple(relative.split("/")), whole=True)

    def may_lead(self, relative: str) -> bool:
        """Whether something in this folder can match."""
        return _matches(self.parts, tuple(relative.split("/")), whole=False)


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...], *, whole: bool) -> bool:
    if not pattern:
        return True
    if not parts:
        return not whole
    if pattern[0] == "**":
        return _matches(pattern[1:], parts, whole=whole) or _matches(pattern, parts[1:], whole=whole)
    return fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:], whole=whole)
