"""Structural and byte-level mutants: the right answer, or an error of ours. Far more of them: ``make mutate``."""

from __future__ import annotations

import pytest

from tamper.families import FAMILIES

_SHORT = {
    "key material": 50, "sidecar": 50, "keyring": 150, "policy": 60, "journal": 40,
    "index": 40, "manifest": 60, "orc tail": 300,
}  # fmt: skip
_OF_FILES, _LONG = 150, 20_000


@pytest.mark.parametrize("family", FAMILIES)
def test_mutants(family: str) -> None:
    for seed in range(_SHORT.get(family, _OF_FILES)):
        FAMILIES[family](seed)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_mutants(family: str) -> None:
    many = _LONG if family not in _SHORT else 20 * _SHORT[family]
    for seed in range(_SHORT.get(family, _OF_FILES), many):
        FAMILIES[family](seed)
