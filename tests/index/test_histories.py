"""Whatever happened to a table and to its indexes: equal to a scan."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.index.facts import hashed
from index.histories import History


@pytest.fixture(autouse=True)
def every_row_group_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that indexes tell their pages."""
    monkeypatch.setattr(hashed, "_LARGE", 1)


def _play(tmp_path: Path, seed: int, steps: int = 7, times: int = 2) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bs.BloomsealWarning)
        home = tmp_path / str(seed)
        home.mkdir()
        history = History(home, seed)
        assert history.play(steps, times)
        return history.unopened


@pytest.mark.parametrize("ten", range(10))
def test_a_hundred_histories(tmp_path: Path, ten: int) -> None:
    # A test in which no index rules anything out would prove nothing.
    assert sum(_play(tmp_path, seed) for seed in range(10 * ten, 10 * ten + 10)) > 20


@pytest.mark.torture
@pytest.mark.timeout(360_000)
def test_five_thousand_histories(tmp_path: Path) -> None:
    """Resumed where it was stopped, if BLOOMSEAL_HISTORIES names a file to remember that in: the next seed."""
    state = os.environ.get("BLOOMSEAL_HISTORIES")
    begin = int(Path(state).read_text()) if state and Path(state).exists() else 100
    for seed in range(begin, 5_100):
        _play(tmp_path, seed)
        shutil.rmtree(tmp_path / str(seed))
        if state:
            Path(state).write_text(str(seed + 1))
