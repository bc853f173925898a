"""Structural and byte-level mutants: the right answer, or an error of ours. Far more of them: ``make mutate``."""

from __future__ import annotations

import pytest

from support.small_files import KINDS
from tamper import mutated_files

_SHORT, _LONG = 150, 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_mutants(kind: str) -> None:
    for seed in range(_SHORT):
        mutated_files.check(kind, seed)


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutants(kind: str) -> None:
    for seed in range(_SHORT, _LONG):
        mutated_files.check(kind, seed)
