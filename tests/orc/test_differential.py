"""A bounded run of `differential`: rows as pyarrow has them, and no value that is there is absent."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from support.jvm import JavaUnavailableError, start_jvm

from .differential import WRITERS, compare


@pytest.mark.parametrize("writer", WRITERS)
def test_answers_are_those_of_pyarrow(writer: str, tmp_path: Path) -> None:
    if writer == "Java":
        try:
            start_jvm()
        except JavaUnavailableError as error:
            pytest.skip(str(error))
    if writer == "pyorc":
        pytest.importorskip("pyorc")
    told: Counter[str] = Counter()
    for number in range(6):
        chance = random.Random(f"bounded {writer} {number}")
        WRITERS[writer](tmp_path / "a.orc", chance)
        told += compare(tmp_path / "a.orc", chance)
    assert told["conditions"] > 100
    assert told["values asked"] > 100
    assert told["without index"] or writer == "C++"
