"""Candidates for a leak demonstration: from a list, or from a pattern expanded up to a bound."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Final

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
        return sum(_count(shape) for shape in self._shapes)

    def sample(self, most: int) -> Iterator[list[str]]:
        """At most `most` of the texts, evenly spread over all of them in their order; all where there are no more. In
        portions.
        """
        total = self.total
        wanted = min(most, total)
        # Indexes i·total/wanted, shape by shape.
        done, before = 0, 0
        for shape in self._shapes:
            size = _count(shape)
            upto = -(-(before + size) * wanted // total)
            upto = min(upto, wanted)
            while done < upto:
                portion = range(done, min(upto, done + 65536))
                indexes = [number * total // wanted - before for number in portion]
                inside = [index for index in indexes if 0 <= index < size]
                yield _texts(shape, inside)
                done = portion.stop
            before += size


def _count(shape: list[str]) -> int:
    total = 1
    for alphabet in shape:
        total *= len(alphabet)
    return total


def _texts(shape: list[str], indexes: list[int]) -> list[str]:
    if not indexes:
        return []
    if not shape:
        return [""] * len(indexes)
    if _count(shape) < 1 << 62:
        rest: npt.NDArray[np.int64] = np.array(indexes, dtype=np.int64)
        columns = []
        for alphabet in reversed(shape):
            letters = np.array(list(alphabet), dtype="U1")
            columns.append(letters[rest % len(alphabet)])
            rest = rest // len(alphabet)
        joined = np.stack(columns[::-1], axis=1)
        return [str(text) for text in joined.view(f"U{len(shape)}").ravel()]
    out = []
    for index in indexes:
        letters_of = []
        for alphabet in reversed(shape):
            index, place = divmod(index, len(alphabet))
            letters_of.append(alphabet[place])
        out.append("".join(reversed(letters_of)))
    return out


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
