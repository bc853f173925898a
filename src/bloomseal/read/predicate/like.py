"""Patterns of SQL's LIKE: as a regular expression of RE2's, and as bounds of the texts that they can match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...core.errors import UsageError

_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


def prefix_of(pattern: str, escape: str) -> tuple[str, bool]:
    """The text before the first wildcard, and whether there is none at all.

    Raises:
        UsageError: the pattern ends in its escape character.
    """
    known = ""
    for one, wild in _tokens(pattern, escape):
        if wild:
            return known, False
        known += one
    return known, True


def regex_of(pattern: str, escape: str) -> str:
    """The regular expression that matches the same whole texts.

    Raises:
        UsageError: the pattern ends in its escape character.
    """
    wildcards = {"%": ".*", "_": "."}
    tokens = _tokens(pattern, escape)
    return r"(?s)\A" + "".join(wildcards[one] if wild else _quoted(one) for one, wild in tokens) + r"\z"


def successor(prefix: str) -> str | None:
    """The least text that is greater than all that begin so; by code points, which is the order of their UTF-8 too."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        point = _SURROGATES.stop if point in _SURROGATES else point
        if point <= _LAST_CHARACTER:
            return prefix[: end - 1] + chr(point)
    return None


def _tokens(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Characters, and whether each is a wildcard."""
    characters = iter(pattern)
    for one in characters:
        if escape and one == escape:
            if (one := next(characters, "")) == "":
                raise UsageError("the pattern ends in its escape character")
            yield one, False
        else:
            yield one, one in "%_"


def _quoted(one: str) -> str:
    return one if one.isalnum() else f"\\x{{{ord(one):x}}}"
