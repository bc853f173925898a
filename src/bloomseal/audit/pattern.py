"""Candidates for a leak demonstration: from a list, or from a pattern expanded up to a bound."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..core.errors import UsageError

_CLASSES: Final = {r"\d": string.digits, r"\w": string.ascii_letters + string.digits + "_", r"\s": " "}
_ONE: Final = r"(?:\\[dws\W])"
_PIECE: Final = re.compile(
    rf"(?:\[(?!\^)(?P<several>(?:{_ONE}|[^\]\\])+)\]|(?P<one>{_ONE}|[^\\\[.^$*+?(){{|]))"
    r"(?:\{(?P<low>\d{1,3})(?:,(?P<high>\d{1,3}))?\})?",
    re.ASCII,
)
_RANGE: Final = re.compile(rf"({_ONE}|.)(?:-({_ONE}|.))?", re.ASCII | re.DOTALL)
_LONGEST: Final = 256
_PORTION: Final = 65_536


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
    """The letters that may stand at each place, and how often at the least and at the most."""
    position = 0
    while position < len(text):
        found = _PIECE.match(text, position)
        if found is None:
            raise UsageError("a pattern that can't be listed", hint=r"literals, \d, \w, \s, [A-F], {3} and {1,3}")
        low = int(found["low"] or 1)
        high = int(found["high"] or low)
        if not low <= high <= _LONGEST:
            raise UsageError(f"a count in the pattern is above {_LONGEST}, or falls")
        letters: dict[str, None] = {}
        for first, last in _RANGE.findall(found["several"] or found["one"]):
            letters.update(dict.fromkeys(_letters(first, last)))
        yield "".join(letters), low, high
        position = found.end()


def _letters(first: str, last: str) -> Iterable[str]:
    if not last:
        return _CLASSES.get(first, first[-1])
    if first in _CLASSES or last in _CLASSES:
        raise UsageError("a range in the pattern begins or ends with a class")
    first, last = first[-1], last[-1]
    if not first <= last or ord(last) - ord(first) > 1 << 12:
        raise UsageError("a range in the pattern falls, or is too wide")
    return map(chr, range(ord(first), ord(last) + 1))
