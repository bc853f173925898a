"""A file (`make_second.py`) of moments around 1970, some of which readers give a second later than they were put."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal import Verdict

PLACE = Path(__file__).with_name("second.orc")


@pytest.mark.parametrize("column", ["t", "i"])
def test_what_is_read_is_never_absent(column: str) -> None:
    data = PLACE.read_bytes()
    assert hashlib.sha256(data).hexdigest() == "166f91a2e56473f2cc516060d9a424e4fa7774a6503665de362ceaab0ca7367d"
    moments = bs.read_table(data)[column]
    assert sum(moment.as_py().year == 1970 for moment in moments) == 7, "of which one was put so"
    (answers,) = bs.probe(data, column, moments)
    assert set(answers) == {Verdict.MAYBE_PRESENT}
    for moment in moments:
        assert bs.read_table(data, where=[(column, "==", moment.as_py())])[column].to_pylist() == [moment.as_py()]
    with bs.open_file(data) as file:
        assert file.verify(filters=True).ok
