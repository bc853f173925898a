"""The families of mutants. Each makes one from a number, the same each time, and asks it through the public interface:
the right answer, or an error of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

from support.small_files import KINDS
from tamper import mutated_files
from tamper.mutated_beside import BESIDE

__all__ = ["FAMILIES"]

FAMILIES: Final[Mapping[str, Callable[[int], None]]] = {
    f"file {kind}": functools.partial(mutated_files.check, kind) for kind in KINDS
} | BESIDE
"""Name → a mutant of this number is made and asked. It raises AssertionError, or whatever came out of the package that
is not ours.
"""
