"""Candidates for a leak demonstration: from a list, or from a pattern expanded up to a bound."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..core.errors import UsageError

__all__ = ["Pattern"]

_CLASSES: Final = {
    "d": string.digits,
    "l": string.ascii_lowercase,
    "w": string.ascii_letters + string.digits + "_",
    "s": " ",
}
_LONGEST: Final = 256
_PORTION: Final = 65_536
_SPECIAL: Final = ".^$*+?()|"


class Pattern:
    r"""A simple regular expression: literals, classes such as ``\d`` and ``[A-Fx]``, and counts ``{3}`` and ``{1,3}``.

    Args:
        text: the pattern.

    Raises:
        UsageError: anything else that a regular expression can have, or more than 256 characters.
    """

    def __init__(self, text: str) -> None:
        shapes: list[list[str]] = [[]]
        for alphabet, low, high in _parse(text):
            shapes = [shape + [alphabet] * count for shape in shapes for count in range(low, high + 1)]
            if len(shapes) > _LONGEST or max(map(len, shapes)) > _LONGEST:
                raise UsageError("the pattern is too long")
        self._shapes = shapes

    def __len__(self) -> int:
        return min(self.total, (1 << 62))

    @property
    def total(self) -> int:
        """The number of texts that the pattern stands for."""
        return sum(math.prod(map(len, shape)) for shape in self._shapes)

    def sample(self, most: int) -> Iterator[list[str]]:
        """At most `most` of the texts, evenly spread over all of them in their order; all where there are no more. In
        portions.
        """
        total = self.total
        wanted = min(most, total)
        # Indexes i·total/wanted, shape by shape.
        done = before = 0
        for shape in self._shapes:
            end = before + math.prod(map(len, shape))
            upto = -(-end * wanted // total)
            for start in range(done, upto, _PORTION):
                numbers = range(start, min(start + _PORTION, upto))
                yield _texts(shape, [number * total // wanted - before for number in numbers])
            done, before = max(done, upto), end


def _texts(shape: list[str], indexes: list[int]) -> list[str]:
    """The texts of these numbers, which count with a digit for each place. There may be more than 64 bits hold."""
    if not (shape and indexes):
        return [""] * len(indexes)
    rest: npt.NDArray[Any] = np.array(indexes, dtype=np.int64 if math.prod(map(len, shape)) < 1 << 62 else object)
    columns = []
    for alphabet in reversed(shape):
        letters = np.array(list(alphabet), dtype="U1")
        columns.append(letters[(rest % len(alphabet)).astype(np.int64)])
        rest = rest // len(alphabet)
    texts: list[str] = np.stack(columns[::-1], axis=1).view(f"U{len(shape)}").ravel().tolist()
    return texts


def _parse(text: str) -> Iterator[tuple[str, int, int]]:
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            letter = text[position]
            position += 1
            if letter.isalnum() and letter not in "dws":
                raise UsageError(f"the pattern's \\{letter} is not known", hint=r"\d, \w, \s, or an escaped character")
            alphabet = _CLASSES.get(letter, letter)
        elif letter == "[":
            end = text.find("]", position + 1)
            if end < 0:
                raise UsageError("the pattern has a [ without ]")
            alphabet = _alphabet(text[position:end])
            position = end + 1
        elif letter in _SPECIAL:
            raise UsageError(f"a pattern with {letter!r} can't be listed", hint=r"literals, \d, [A-F], {3} and {1,3}")
        else:
            alphabet = letter
        low = high = 1
        if text[position : position + 1] == "{":
            end = text.find("}", position)
            parts = text[position + 1 : end].split(",") if end > 0 else []
            if not (
                len(parts) in (1, 2) and all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts)
            ):
                raise UsageError("a count in the pattern is not {n} or {m,n}")
            low, high = int(parts[0]), int(parts[-1])
            if not low <= high <= _LONGEST:
                raise UsageError(f"a count in the pattern is above {_LONGEST}, or falls")
            position = end + 1
        yield alphabet, low, high


def _alphabet(inside: str) -> str:
    if inside.startswith("^"):
        raise UsageError("a pattern with [^…] can't be listed")
    letters: dict[str, None] = {}
    position = 0
    while position < len(inside):
        first = inside[position]
        if first == "\\" and position + 1 < len(inside):
            known = inside[position + 1]
            letters.update(dict.fromkeys(_CLASSES.get(known, known)))
            position += 2
        elif inside[position + 1 : position + 2] == "-" and position + 2 < len(inside):
            last = inside[position + 2]
            if not first <= last or ord(last) - ord(first) > 1 << 12:
                raise UsageError("a range in the pattern falls, or is too wide")
            letters.update(dict.fromkeys(map(chr, range(ord(first), ord(last) + 1))))
            position += 3
        else:
            letters[first] = None
            position += 1
    if not letters:
        raise UsageError("an empty [] in the pattern")
    return "".join(letters)
