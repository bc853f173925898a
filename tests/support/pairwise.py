"""Matrices of test cases: every pair of choices in the ordinary run, every combination in the torture run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

__all__ = ["matrix", "pairwise"]

Case = dict[str, Any]


def pairwise(dimensions: dict[str, Sequence[Hashable]]) -> list[Case]:
    """Few combinations that hold each pair of choices from two dimensions at least once.

    Greedy, hence near the smallest number but not it; the same answer each time.
    """
    cases = [dict(zip(dimensions, choices, strict=True)) for choices in product(*dimensions.values())]
    open_pairs = [set(combinations(case.items(), 2)) for case in cases]
    missing = set().union(*open_pairs)
    chosen = []
    while missing:
        best = max(range(len(cases)), key=lambda i: len(open_pairs[i] & missing))
        missing -= open_pairs[best]
        chosen.append(cases[best])
    return chosen


def matrix(**dimensions: Sequence[Hashable]) -> pytest.MarkDecorator:
    """Parametrizes `case` with every combination, as a dict; those beyond the pairwise selection are marked
    `torture`.
    """
    selected = pairwise(dimensions)
    parameters = []
    for choices in product(*dimensions.values()):
        case = dict(zip(dimensions, choices, strict=True))
        marks = () if case in selected else (pytest.mark.torture,)
        parameters.append(pytest.param(case, id="-".join(str(choice) for choice in choices), marks=marks))
    return pytest.mark.parametrize("case", parameters)
